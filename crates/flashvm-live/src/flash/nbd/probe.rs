//! Looks at an export before a run begins.

use super::super::checked::READ_TRIES as TRIES;
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
    /// The server refuses [`TRIES`] times, or the connection is lost.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), ProbeError> {
        let part = Part {
            address: to.as_mut_ptr() as usize,
            len: to.len(),
        };
        let until = until(&self.server);
        // SAFETY: `part` is `to`, borrowed exclusively over the call.
        tried(|| unsafe { self.connection.read(at, part, until) })
    }

    /// Writes bytes to `at`.
    ///
    /// # Errors
    /// The server refuses [`TRIES`] times, or the connection is lost.
    pub fn write(&mut self, at: u64, from: &[u8]) -> Result<(), ProbeError> {
        let part = Part {
            address: from.as_ptr() as usize,
            len: from.len(),
        };
        let until = until(&self.server);
        // SAFETY: `part` is `from`, borrowed over the call.
        tried(|| unsafe { self.connection.write(at, &[part], until) })
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

/// Makes a request until the server serves it, as often as a store reads a page: [`TRIES`] times.
fn tried(mut request: impl FnMut() -> Result<Answer, Trouble>) -> Result<(), ProbeError> {
    let mut tries = 1;
    loop {
        match done(request()) {
            Err(ProbeError::Server(_)) if tries < TRIES => tries += 1,
            result => return result,
        }
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

    /// What a good server says: structured replies, an export of 1 MiB, and a page.
    fn good() -> Vec<u8> {
        [greeting(), page(1)].concat()
    }

    fn greeting() -> Vec<u8> {
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
        bytes
    }

    /// The contents of a page in [`page`].
    fn contents() -> Vec<u8> {
        [[7; PAGE / 2], [0; PAGE / 2]].concat()
    }

    /// The answer to a read of a page, in two chunks, the last a hole.
    fn page(cookie: u64) -> Vec<u8> {
        let data = chunk(cookie, 0, 1, &[&[0; 8][..], &[7; PAGE / 2]].concat());
        let hole = b"\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00";
        [data, chunk(cookie, 1, 2, hole)].concat()
    }

    fn chunk(cookie: u64, is_last: u8, kind: u16, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x66, 0x8e, 0x33, 0xef, 0, is_last];
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((contents.len() as u32).to_be_bytes());
        bytes.extend(contents);
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
        assert!(heard(&good()) == Some(contents()));
    }

    #[test]
    fn a_read_that_fails_is_tried_again() {
        // EIO, and no text.
        let error = chunk(1, 1, 0x8001, b"\x00\x00\x00\x05\x00\x00");
        let says = [greeting(), error, page(2)].concat();
        assert!(heard(&says) == Some(contents()));
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
