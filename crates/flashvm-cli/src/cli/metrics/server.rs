//! Serves the text over HTTP/1: `GET /metrics`, one answer a connection.

use super::address::MetricsAddress;
use crate::cli::refusal::Refusal;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A client has so long to ask and to listen.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const REQUEST_BYTES_MAX: u64 = 8192;
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
enum Listener {
    Port(TcpListener),
    Socket(UnixListener),
}

/// A bound address, and the thread that serves it.
#[derive(Debug)]
pub(super) struct Server {
    /// Taken by the thread.
    listener: Option<Listener>,
    shown: String,
    /// The socket's file, which goes with the run.
    file: Option<PathBuf>,
}

impl Server {
    pub(super) fn bind(address: &MetricsAddress, insecure: bool) -> Result<Self, Refusal> {
        let refuse = |why: &dyn fmt::Display| Refusal::new(format!("--metrics {address}: {why}"));
        match address {
            MetricsAddress::Port(port) => {
                if !port.ip().is_loopback() && !insecure {
                    return Err(refuse(
                        &"other machines can reach it, and nothing protects it: name a loopback address, or add --metrics-insecure",
                    ));
                }
                let listener = TcpListener::bind(port)
                    .map_err(|e| refuse(&format_args!("{e}: name another port")))?;
                let bound = listener.local_addr().map_err(|e| refuse(&e))?;
                Ok(Self {
                    listener: Some(Listener::Port(listener)),
                    shown: format!("http://{bound}/metrics"),
                    file: None,
                })
            }
            MetricsAddress::Socket(path) => {
                // A socket that nobody listens to was left behind by a run that was killed.
                let is_dead = UnixStream::connect(path)
                    .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
                if is_dead && is_socket(path) {
                    std::fs::remove_file(path).map_err(|e| refuse(&e))?;
                }
                let listener = UnixListener::bind(path)
                    .map_err(|e| refuse(&format_args!("{e}: name a file that does not exist")))?;
                Ok(Self {
                    listener: Some(Listener::Socket(listener)),
                    shown: address.to_string(),
                    file: Some(path.clone()),
                })
            }
        }
    }

    /// Starts the thread. It ends with the process.
    pub(super) fn begin(&mut self, text: Arc<Mutex<String>>) -> io::Result<()> {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let serve = move || match listener {
            Listener::Port(listener) => listener.incoming().flatten().for_each(|stream| {
                // A client that fails harms nobody.
                let _ = patient_port(&stream).and_then(|()| answer(stream, &text));
            }),
            Listener::Socket(listener) => listener.incoming().flatten().for_each(|stream| {
                let _ = patient_socket(&stream).and_then(|()| answer(stream, &text));
            }),
        };
        let thread = std::thread::Builder::new().name("flashvm-metrics".to_owned());
        thread.spawn(serve).map(drop)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket())
}

fn patient_port(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn patient_socket(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Reads a request and answers it.
fn answer(mut stream: impl Read + Write, text: &Mutex<String>) -> io::Result<()> {
    let mut lines = BufReader::new((&mut stream).take(REQUEST_BYTES_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The rest of the head: a client may not listen before it was read.
    while let Some(line) = lines.next().transpose()? {
        if line.is_empty() {
            break;
        }
    }
    let (status, kind, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", path, _] if path.split('?').next() == Some("/metrics") => {
            let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ("200 OK", TYPE, text)
        }
        ["GET", ..] => (
            "404 Not Found",
            "text/plain",
            "ask for /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "GET /metrics\n".to_owned(),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of what was asked, that keeps what is answered.
    struct Client(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Client {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Client {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answered(request: &str) -> String {
        let mut client = Client(io::Cursor::new(request.as_bytes().to_vec()), Vec::new());
        answer(
            &mut client,
            &Mutex::new("flashvm_faults_total 3\n".to_owned()),
        )
        .expect("an answer");
        String::from_utf8(client.1).expect("text")
    }

    #[test]
    fn requests_are_answered() {
        let page = answered("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"),
            "{page}"
        );
        assert!(
            page.contains("Content-Length: 23\r\n")
                && page.ends_with("\r\n\r\nflashvm_faults_total 3\n"),
            "{page}"
        );
        assert!(answered("GET /metrics?x=1 HTTP/1.0\n\n").contains("200 OK"));
        assert!(answered("GET / HTTP/1.1\r\n\r\n").contains("404 Not Found"));
        assert!(answered("POST /metrics HTTP/1.1\r\n\r\n").contains("405"));
        assert!(answered("").contains("405"));
        assert!(answered(&"x".repeat(100_000)).contains("405"));
    }

    #[test]
    fn other_machines_are_refused_unless_asked_for() {
        let all: MetricsAddress = "0.0.0.0:0".parse().expect("an address");
        let refused = Server::bind(&all, false)
            .expect_err("open to all")
            .to_string();
        assert!(
            refused.contains("--metrics 0.0.0.0:0") && refused.contains("--metrics-insecure"),
            "{refused}"
        );
        assert!(Server::bind(&all, true).is_ok());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let address = MetricsAddress::Socket(path.clone());
        drop(UnixListener::bind(&path).expect("a socket"));
        let server = Server::bind(&address, false).expect("nobody listens to it");
        let refused = Server::bind(&address, false)
            .expect_err("in use")
            .to_string();
        assert!(refused.contains("in use"), "{refused}");
        drop(server);
        assert!(!path.exists(), "it goes with the run");
        std::fs::write(&path, "kept").expect("a file");
        assert!(Server::bind(&address, false).is_err());
        assert_eq!(std::fs::read(&path).expect("the file"), b"kept");
    }
}
