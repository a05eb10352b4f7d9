//! The NBD server that holds a run's store, as every process of the run reads it.

use flashvm_core::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdServer {
    /// Where the server listens.
    pub address: NbdAddress,
    /// The name of the export: at most 4096 bytes.
    pub export: String,
    /// A process ends if a request has no answer for this long, in milliseconds.
    pub timeout_ms: u64,
    /// Over TLS: the abstract socket at which the supervisor speaks TLS for the processes.
    pub tls: Option<String>,
}

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NbdAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

impl NbdServer {
    /// [`Self::timeout_ms`] in nanoseconds.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        Nanos(self.timeout_ms.saturating_mul(1_000_000))
    }
}

impl NbdAddress {
    /// Whether requests stay on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// As a URI, for messages: without escapes.
impl fmt::Display for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = &self.export;
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.address {
            NbdAddress::Tcp(address) => write!(f, "{scheme}://{address}/{export}"),
            NbdAddress::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}?socket={}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_in_each_of_its_forms() {
        for (address, local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[fe80::1]:1", false),
        ] {
            let address = NbdAddress::Tcp(address.parse().unwrap());
            assert_eq!(address.is_local(), local, "{address:?}");
        }
    }
}
