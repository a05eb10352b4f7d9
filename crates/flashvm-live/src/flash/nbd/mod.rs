//! The store on another machine: an NBD client.
//!
//! - `wire`: the bytes of the protocol, without I/O; `trouble`: why a server cannot be used, in words;
//! - `socket`: whole transfers with a deadline; `handshake`: agreeing on an export;
//! - `connection`: one request and its reply, which ends with an `answer`; `pool`: a process' connections; `store`:
//!   requests, repeated when a connection is lost;
//! - `pending`: requests of a mirror's side, which are not waited for at any price;
//! - `start_tls`: the handshake before TLS, which the supervisor speaks for the processes;
//! - `probe`: what the supervisor looks at before the run begins.
//!
//! No crate for NBD fits: a faulting thread makes the requests, and it may not allocate, use thread-local storage, or
//! call the C library.

mod answer;
mod connection;
mod handshake;
mod pending;
mod pool;
mod probe;
mod socket;
mod start_tls;
mod store;
#[cfg(test)]
pub(super) mod testing;
mod trouble;
mod wire;

pub(super) use answer::Answer;
pub(super) use pending::{PendingRead, PendingWrite, SideError};
pub(super) use pool::{CONNECTIONS_MAX, connections};
pub use probe::{NbdProbe, ProbeError};
pub use start_tls::{GREETING as NBD_GREETING, abort as abort_handshake, start_tls};
pub(crate) use store::NbdStore;
pub use trouble::Trouble as NbdTrouble;
pub use wire::Export as NbdExport;
