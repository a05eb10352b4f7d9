//! TLS with an NBD server (`nbds://`), spoken by the supervisor for the processes of a run.
//!
//! A process requests pages in the middle of a fault, where it may not allocate. So it connects to an abstract socket of
//! the supervisor, and speaks NBD there as with any server; a thread of the supervisor passes the bytes on by TLS.
//!
//! - `certificates`: whom the client trusts, and who it is; `stream`: a connection to the server, up to TLS, and its
//!   failures in words; `relay`: the socket, and its threads.

mod certificates;
mod relay;
mod stream;

pub(super) use certificates::Certificates;
pub(super) use relay::{Relay, allow};
pub(super) use stream::{Target, TryError};
