//! Looks at an export before a run begins.

use super::super::store::Part;
use super::connection::{Answer, Connection};
use super::trouble::Trouble;
use super::wire::{Command, Export};
use crate::control::NbdServer;
use crate::sys::now;
use flashvm_core::Nanos;
use rustix::io::Errno;

/// A connection of the supervisor.
#[derive(Debug)]
pub struct NbdProbe {
    connection: Connection,
    server: NbdServer,
}

impl NbdProbe {
    /// Connects to the server, and checks that the export can be a store, of any size.
    ///
    /// # Errors
    /// The first obstacle.
    pub fn connect(server: &NbdServer) -> Result<Self, Trouble> {
        let connection = Connection::open(server, 0, until(server))?;
        Ok(Self {
            connection,
            server: server.clone(),
        })
    }

    /// What the server says of the export.
    #[must_use]
    pub fn export(&self) -> Export {
        *self.connection.export()
    }

    /// Reads bytes at `at`.
    ///
    /// # Errors
    /// The server refuses, or the connection is lost.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), ProbeError> {
        let part = Part {
            address: to.as_mut_ptr() as usize,
            len: to.len(),
        };
        let until = until(&self.server);
        // SAFETY: `part` is `to`, borrowed exclusively over the call.
        done(unsafe { self.connection.read(at, part, until) })
    }

    /// Writes bytes to `at`.
    ///
    /// # Errors
    /// The server refuses, or the connection is lost.
    pub fn write(&mut self, at: u64, from: &[u8]) -> Result<(), ProbeError> {
        let part = Part {
            address: from.as_ptr() as usize,
            len: from.len(),
        };
        let until = until(&self.server);
        // SAFETY: `part` is `from`, borrowed over the call.
        done(unsafe { self.connection.write(at, &[part], until) })
    }

    /// Discards bytes.
    ///
    /// # Errors
    /// The export has no discards, the server refuses, or the connection is lost.
    pub fn discard(&mut self, at: u64, len: u32) -> Result<(), ProbeError> {
        if !self.export().trims() {
            return Err(ProbeError::Server(Errno::OPNOTSUPP));
        }
        let until = until(&self.server);
        done(self.connection.command(Command::Trim, at, len, until))
    }
}

/// Why a request of a probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The server answered with an error.
    #[error("{0}")]
    Server(Errno),
    /// There was no answer.
    #[error("{0}")]
    Connection(Trouble),
}

fn done(answer: Result<Answer, Trouble>) -> Result<(), ProbeError> {
    match answer {
        Ok(Answer::Done) => Ok(()),
        Ok(Answer::Failed(error)) => Err(ProbeError::Server(error)),
        Err(trouble) => Err(ProbeError::Connection(trouble)),
    }
}

fn until(server: &NbdServer) -> Nanos {
    Nanos(now().0 + server.timeout().0)
}
