//! Looks at an export before a run begins.

use super::super::store::Part;
use super::answer::Answer;
use super::connection::Connection;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NbdAddress;
    use proptest::prelude::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    const PAGE: usize = 4096;
    const BESIDE: u8 = 0xa5;

    /// What a good server says: structured replies, an export of 1 MiB, and a page in two chunks, the last a hole.
    fn good() -> Vec<u8> {
        let mut bytes = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
        let mut reply = |option: u32, kind: u32, contents: &[u8]| {
            bytes.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
            bytes.extend(option.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend((contents.len() as u32).to_be_bytes());
            bytes.extend(contents);
        };
        reply(8, 1, b"");
        reply(7, 3, b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x01\x01");
        reply(7, 1, b"");
        let mut chunk = |is_last: u8, kind: u8, contents: &[u8]| {
            bytes.extend([0x66, 0x8e, 0x33, 0xef, 0, is_last, 0, kind]);
            bytes.extend(1_u64.to_be_bytes());
            bytes.extend((contents.len() as u32).to_be_bytes());
            bytes.extend(contents);
        };
        chunk(0, 1, &[&[0; 8][..], &[7; PAGE / 2]].concat());
        chunk(1, 2, b"\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00");
        bytes
    }

    /// Reads a page from a server that says this and closes. The page, if the client takes it.
    fn heard(says: &[u8]) -> Option<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = NbdServer {
            address: NbdAddress::Unix(path),
            export: String::new(),
            timeout_ms: 20_000,
            tls: None,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // The client may have left by now.
                let _ = stream.write_all(says);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                // Listens to the end, as an early close would fail the client's requests.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
            let mut probe = NbdProbe::connect(&server).ok()?;
            let mut room = vec![BESIDE; 3 * PAGE];
            let read = probe.read(0, &mut room[PAGE..2 * PAGE]);
            let mut beside = room[..PAGE].iter().chain(&room[2 * PAGE..]);
            assert!(beside.all(|byte| *byte == BESIDE), "a byte beside the page");
            read.ok().map(|()| room[PAGE..2 * PAGE].to_vec())
        })
    }

    #[test]
    fn a_good_server_is_understood() {
        let page = [[7; PAGE / 2], [0; PAGE / 2]].concat();
        assert!(heard(&good()) == Some(page));
    }

    proptest! {
        /// `fuzz/fuzz_targets/nbd_replies.rs` does the same without bounds.
        #[test]
        fn a_server_that_says_anything_ends_a_request_and_hurts_nothing(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut says = good();
            // Most edits at the headers: the data of the first chunk is in the middle.
            for (at, value) in edits {
                let (data, after) = (says.len() - PAGE / 2 - 32, says.len() - PAGE / 2);
                let at = at.index(after);
                let at = if at < data { at } else { at + PAGE / 2 };
                says[at] ^= value;
            }
            if let Some(cut) = cut {
                says.truncate(cut.index(says.len()));
            }
            let _ = heard(&says);
        }
    }
}
