//! A connection to a server, up to TLS, and its failures in words.

use super::certificates::Certificates;
use flashvm_live::control::NbdAddress;
use flashvm_live::{NbdTrouble, abort_handshake, start_tls};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, Stream};
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long the server may take for each step to TLS.
const PATIENCE: Duration = Duration::from_secs(5);
/// As for connections of the processes: an idle one is probed so often, and is lost without an answer for so long.
const PROBE: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(5);

/// A server, and how TLS is spoken with it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Target {
    pub(super) address: NbdAddress,
    host: ServerName<'static>,
    config: Arc<ClientConfig>,
    certificates: Certificates,
}

/// A connection behind TLS.
pub(super) struct TlsStream {
    pub(super) wire: Wire,
    pub(super) tls: ClientConnection,
}

/// The socket below TLS.
pub(super) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Target {
    /// The server at an address, whose certificate has to be for `host`.
    pub(in crate::cli) fn new(
        address: NbdAddress,
        host: &str,
        certificates: Certificates,
    ) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            format!("'{host}' is no name of a host: name it by tls-hostname=NAME, as the certificate has it")
        })?;
        Ok(Self {
            address,
            host: name,
            config: certificates.config()?,
            certificates,
        })
    }

    /// Connects once, to find out what is wrong. The error is a line.
    pub(in crate::cli) fn try_out(&self) -> Result<(), TryError> {
        let mut stream = self.connect()?;
        // A server says here that it does not take the client's certificate.
        let TlsStream { wire, tls } = &mut stream;
        abort_handshake(&mut Stream::new(tls, wire)).map_err(|e| self.in_words(&e))
    }

    /// Connects, up to TLS.
    pub(super) fn connect(&self) -> Result<TlsStream, TryError> {
        let connected = |error: &Error| {
            let errno = rustix::io::Errno::from_io_error(error);
            TryError::Nbd(errno.map_or(NbdTrouble::NoAnswer, NbdTrouble::Connect))
        };
        let mut wire = match &self.address {
            NbdAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE);
                let stream = stream.map_err(|e| connected(&e))?;
                tune(&stream).map_err(|e| connected(&e.into()))?;
                Wire::Tcp(stream)
            }
            NbdAddress::Unix(path) => {
                Wire::Unix(UnixStream::connect(path).map_err(|e| connected(&e))?)
            }
        };
        wire.set_timeout(Some(PATIENCE))
            .map_err(|e| connected(&e))?;
        start_tls(&mut wire).map_err(TryError::Nbd)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), self.host.clone())
            .map_err(|e| TryError::Tls(e.to_string()))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut wire).map_err(|e| self.in_words(&e))?;
        }
        Ok(TlsStream { wire, tls })
    }

    /// Why TLS failed.
    fn in_words(&self, error: &Error) -> TryError {
        let inner = error.get_ref();
        let of_tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let host = self.host.to_str();
        let authorities = self.certificates.authorities.display();
        let remedy = match self.certificates.own() {
            Some(_) => "use a client-cert.pem that an authority of the server has signed",
            None => {
                "put client-cert.pem and client-key.pem into the folder of tls-certificates=DIR"
            }
        };
        TryError::Tls(match of_tls {
            Some(rustls::Error::InvalidCertificate(why)) => match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                    "the server's certificate is of no authority in {authorities}: name a folder with the right \
                     ca-cert.pem by tls-certificates=DIR"
                ),
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    format!(
                        "the server's certificate is not for {host}: name the host that it is for, or give its name by \
                         tls-hostname=NAME"
                    )
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has expired: renew it".to_owned()
                }
                other => format!("the server's certificate is wrong ({other}): renew it"),
            },
            Some(rustls::Error::AlertReceived(alert)) => {
                format!("the server refuses TLS with this client ({alert:?}): {remedy}")
            }
            Some(other) => format!("TLS fails ({other}): see what the server says"),
            // Servers close without a word, too.
            None => format!("the server ended the TLS handshake ({error}): {remedy}"),
        })
    }
}

/// Why a connection was not made.
#[derive(Debug)]
pub(in crate::cli) enum TryError {
    /// Before TLS.
    Nbd(NbdTrouble),
    /// A line about TLS, with a remedy.
    Tls(String),
}

impl Wire {
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        match self {
            Self::Tcp(stream) => stream
                .set_read_timeout(timeout)
                .and_then(|()| stream.set_write_timeout(timeout)),
            Self::Unix(stream) => stream
                .set_read_timeout(timeout)
                .and_then(|()| stream.set_write_timeout(timeout)),
        }
    }

    pub(super) fn set_nonblocking(&self) -> Result<(), Error> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, to: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Tcp(stream) => stream.read(to),
            Self::Unix(stream) => stream.read(to),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// As `flash/nbd/socket.rs` does: requests go at once, a peer that is gone is noticed, and unsent bytes are thrown away
/// at the end.
fn tune(stream: &TcpStream) -> Result<(), rustix::io::Errno> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE)?;
    sockopt::set_tcp_user_timeout(stream, SILENCE.as_millis() as u32)?;
    sockopt::set_socket_linger(stream, Some(Duration::ZERO))
}
