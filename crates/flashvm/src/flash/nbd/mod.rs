//! The store on another machine: an NBD client.
//!
//! - `wire`: the bytes of the protocol, without I/O; `trouble`: why a server cannot be used, in words;
//! - `socket`: whole transfers with a deadline; `handshake`: agreeing on an export;
//! - `connection`: one request and its reply; `store`: a process' connections, lost ones made again;
//! - `probe`: what the supervisor looks at before the run begins.
//!
//! No crate for NBD fits: a faulting thread makes the requests, and it may not allocate, use thread-local storage, or
//! call the C library.

mod connection;
mod handshake;
mod probe;
mod socket;
mod store;
#[cfg(test)]
pub(super) mod testing;
mod trouble;
mod wire;

pub use probe::{NbdProbe, ProbeError};
pub(crate) use store::NbdStore;
pub use trouble::Trouble as NbdTrouble;
pub use wire::Export as NbdExport;
