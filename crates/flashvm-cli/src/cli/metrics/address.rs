//! The address of `--metrics`: a port, or a socket in the file system.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetricsAddress {
    Port(SocketAddr),
    Socket(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(format!(
                    "'{text}' names no file: write unix:/run/user/1000/flashvm.sock"
                )),
                path => Ok(Self::Socket(path.into())),
            };
        }
        let loopback = |port: &str| format!("127.0.0.1:{port}").parse().ok();
        let address = match text.strip_prefix("localhost:") {
            Some(port) => loopback(port),
            None => text.parse().ok().or_else(|| loopback(text)),
        };
        address.map(Self::Port).ok_or_else(|| {
            format!("'{text}' is no address: write 127.0.0.1:9464, 9464 or unix:PATH")
        })
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("9464", "127.0.0.1:9464"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:9464", "[::1]:9464"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            let address: MetricsAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
        }
        for text in ["", "unix:", "99999", "example.org:80", "127.0.0.1"] {
            let error = text.parse::<MetricsAddress>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}
