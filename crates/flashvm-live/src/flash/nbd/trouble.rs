//! Why a server cannot be used, in words. The words need no C library: a faulting thread says them.

use rustix::io::Errno;
use std::fmt;

/// Why a connection could not be made, was lost, or serves no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The kernel made no connection.
    Connect(Errno),
    /// A transfer failed.
    Transfer(Errno),
    /// The server closed the connection.
    Closed,
    /// Nothing came in time.
    NoAnswer,
    /// The greeting is not NBD's.
    NotNbd,
    /// The server knows no options.
    Oldstyle,
    /// The server broke the protocol.
    Protocol(&'static str),
    /// The server refused the export, with an error of the protocol.
    Refused(u32),
    /// The export refuses writes.
    ReadOnly,
    /// Connections may see different bytes.
    NotShared,
    /// The smallest unit of requests is larger than a page.
    Unit(u32),
    /// A request cannot have a page of data.
    Payload(u32),
    /// The export is smaller than the store.
    Small(u64),
    /// The server is shutting down.
    Shutdown,
    /// The server does not speak TLS.
    NoTls,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {}", Words(*error)),
            Self::Transfer(error) => write!(f, "the connection broke: {}", Words(*error)),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::NoAnswer => f.write_str("no answer"),
            Self::NotNbd => f.write_str("not an NBD server"),
            Self::Oldstyle => {
                f.write_str("an NBD server without the fixed newstyle handshake: too old")
            }
            Self::Protocol(what) => write!(f, "the server breaks the protocol: {what}"),
            Self::Refused(error) => f.write_str(refusal(*error)),
            Self::ReadOnly => f.write_str("the export is read-only: serve it for writing"),
            Self::NotShared => f.write_str(
                "the server does not promise that all connections see the same bytes, and each process has its own: \
                 allow several (qemu-nbd --shared=0), or take another server",
            ),
            Self::Unit(bytes) => write!(
                f,
                "the server takes requests in multiples of {bytes} bytes, and pages have 4096: export with blocks of \
                 at most 4096"
            ),
            Self::Payload(bytes) => write!(
                f,
                "the server takes at most {bytes} bytes in a request, and pages have 4096: allow 4096 at least"
            ),
            Self::Small(bytes) => write!(f, "the export has only {bytes} bytes by now"),
            Self::Shutdown => f.write_str("the server is shutting down"),
            Self::NoTls => f.write_str("the server does not speak TLS"),
        }
    }
}

/// What an error of the handshake means.
fn refusal(error: u32) -> &'static str {
    match error {
        1 => "the server does not know NBD_OPT_GO: too old",
        2 => "the server's policy refuses this client",
        5 => "the server demands TLS: write nbds:// or nbds+unix://",
        6 => "the server has no such export",
        7 => "the server is shutting down",
        8 => "the server demands other block sizes",
        _ => "the server refuses the export",
    }
}

/// An error of the kernel in words, without the C library.
struct Words(Errno);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Errno::CONNREFUSED => "connection refused",
            Errno::CONNRESET => "connection reset",
            Errno::PIPE => "closed by the server",
            Errno::TIMEDOUT => "timed out",
            Errno::HOSTUNREACH => "no route to the host",
            Errno::NETUNREACH => "no route to the network",
            Errno::NOENT => "no such socket",
            Errno::ACCESS | Errno::PERM => "permission denied",
            Errno::MFILE | Errno::NFILE => "no free descriptor",
            Errno::AGAIN => "the server takes no more connections now",
            error => return write!(f, "error {} of the kernel", error.raw_os_error()),
        })
    }
}
