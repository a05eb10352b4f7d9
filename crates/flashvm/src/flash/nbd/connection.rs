//! One connection to an export, with one request at a time.
//!
//! Any [`Trouble`] leaves the connection in the middle of something: its owner closes it and repeats the request on a
//! new one. An error that the server answers leaves the connection as it was.

use super::super::store::Part;
use super::handshake::{Agreed, agree, check};
use super::socket::{PARTS_MAX, Socket, Wait};
use super::trouble::Trouble;
use super::wire::{
    Arrived, CHUNK_LENGTH_BYTES, Command, Contents, ERROR_BYTES, Export, HOLE_BYTES, OFFSET_BYTES,
    REPLY_BYTES, Reply, contents, hole, reply, request,
};
use crate::control::NbdServer;
use crate::sys::map;
use crate::sys::thread::on_pager_stack;
use flashvm_core::{Nanos, PAGE_SIZE};
use rustix::io::Errno;

/// Longest read that a faulting thread waits for. It polls; the pager's threads sleep, as their reads are not urgent.
const POLLED_BYTES: usize = 8 * PAGE_SIZE;

/// The end of a request that the server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// It failed with this error.
    Failed(Errno),
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    agreed: Agreed,
    cookie: u64,
}

impl Connection {
    /// Connects, and checks that the export can be a store of `bytes` bytes.
    pub(super) fn open(server: &NbdServer, bytes: u64, until: Nanos) -> Result<Self, Trouble> {
        let socket = Socket::connect(&server.address, until)?;
        let agreed = agree(&socket, &server.export, Wait::asleep(until))?;
        check(&agreed.export, bytes)?;
        Ok(Self {
            socket,
            agreed,
            cookie: 0,
        })
    }

    pub(super) fn export(&self) -> &Export {
        &self.agreed.export
    }

    /// Bytes of data in one request.
    fn payload_max(&self) -> usize {
        self.export().payload_max as usize / PAGE_SIZE * PAGE_SIZE
    }

    /// Reads `to.len` bytes at `at`.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until the call returns.
    pub(super) unsafe fn read(
        &mut self,
        at: u64,
        to: Part,
        until: Nanos,
    ) -> Result<Answer, Trouble> {
        let wait = Wait {
            until,
            polls: to.len <= POLLED_BYTES && !on_pager_stack(),
        };
        for from in (0..to.len).step_by(self.payload_max()) {
            let part = Part {
                address: to.address + from,
                len: (to.len - from).min(self.payload_max()),
            };
            // SAFETY: `part` is a part of `to`, for which the caller guarantees what this call asks for.
            let answer = unsafe { self.read_once(at + from as u64, part, wait) }?;
            if answer != Answer::Done {
                return Ok(answer);
            }
        }
        Ok(Answer::Done)
    }

    /// One request of [`Self::read`].
    ///
    /// # Safety
    /// As of [`Self::read`].
    unsafe fn read_once(&mut self, at: u64, to: Part, wait: Wait) -> Result<Answer, Trouble> {
        self.cookie += 1;
        let header = request(Command::Read, self.cookie, at, to.len as u32);
        self.socket.send_bytes(&header, wait)?;
        let mut arrived = Arrived::nothing(at, to.len);
        let mut answer = Answer::Done;
        loop {
            let (kind, is_last) = match self.reply(wait)? {
                Reply::Simple(_) if self.agreed.structured => {
                    return Err(Trouble::Protocol("a read has a simple reply"));
                }
                Reply::Simple(0) => {
                    // SAFETY: the caller guarantees for `to` what this call asks for.
                    return unsafe { self.socket.receive(to, wait) }.map(|()| Answer::Done);
                }
                Reply::Simple(error) => return failed(error),
                Reply::Chunk { kind, is_last } => (kind, is_last),
            };
            match self.chunk(kind, wait)? {
                Contents::None => {}
                Contents::Data(len) => {
                    let offset = self.socket.receive_array::<OFFSET_BYTES>(wait)?;
                    let place = arrived.place(u64::from_be_bytes(offset), len)?;
                    let part = Part {
                        address: to.address + place.start,
                        len: place.len(),
                    };
                    // SAFETY: `place` has checked that the part lies in `to`, for which the caller guarantees what this
                    // call asks for.
                    unsafe { self.socket.receive(part, wait)? };
                }
                Contents::Hole => {
                    let (offset, len) = hole(&self.socket.receive_array::<HOLE_BYTES>(wait)?);
                    let place = arrived.place(offset, len)?;
                    // SAFETY: `place` has checked that the bytes lie in `to`; the caller guarantees that `to` is
                    // writable and that nobody else uses it.
                    unsafe { map::bytes_mut(to.address + place.start, place.len()) }.fill(0);
                }
                Contents::Error(rest) => answer = self.error(rest, wait)?,
            }
            if is_last {
                if answer == Answer::Done {
                    arrived.finish()?;
                }
                return Ok(answer);
            }
        }
    }

    /// Writes the parts, one after the other, to `at`.
    ///
    /// # Safety
    /// The parts are readable, and nobody changes them until the call returns.
    pub(super) unsafe fn write(
        &mut self,
        at: u64,
        parts: &[Part],
        until: Nanos,
    ) -> Result<Answer, Trouble> {
        let wait = Wait::asleep(until);
        let (mut at, mut rest) = (at, parts);
        let mut of_first = 0;
        while !rest.is_empty() {
            let mut vector = [Part { address: 0, len: 0 }; PARTS_MAX];
            let (mut count, mut len) = (1, 0);
            while let Some(part) = rest.first()
                && count < PARTS_MAX
                && len < self.payload_max()
            {
                let taken = (part.len - of_first).min(self.payload_max() - len);
                vector[count] = Part {
                    address: part.address + of_first,
                    len: taken,
                };
                (count, len, of_first) = (count + 1, len + taken, of_first + taken);
                if of_first == part.len {
                    (rest, of_first) = (&rest[1..], 0);
                }
            }
            self.cookie += 1;
            let header = request(Command::Write, self.cookie, at, len as u32);
            vector[0] = Part {
                address: header.as_ptr() as usize,
                len: header.len(),
            };
            // SAFETY: the first part is `header`, a local; the others are parts of the caller's, for which it guarantees
            // what this call asks for.
            unsafe { self.socket.send(&mut vector[..count], wait)? };
            let answer = self.answer(wait)?;
            if answer != Answer::Done {
                return Ok(answer);
            }
            at += len as u64;
        }
        Ok(Answer::Done)
    }

    /// Carries out a command without data.
    pub(super) fn command(
        &mut self,
        command: Command,
        at: u64,
        len: u32,
        until: Nanos,
    ) -> Result<Answer, Trouble> {
        let wait = Wait::asleep(until);
        self.cookie += 1;
        let header = request(command, self.cookie, at, len);
        self.socket.send_bytes(&header, wait)?;
        self.answer(wait)
    }

    /// The start of the next reply.
    fn reply(&self, wait: Wait) -> Result<Reply, Trouble> {
        let first = self.socket.receive_array::<REPLY_BYTES>(wait)?;
        match reply(&first, self.cookie)? {
            Reply::Chunk { .. } if !self.agreed.structured => Err(Trouble::Protocol(
                "a structured reply that was not agreed on",
            )),
            reply => Ok(reply),
        }
    }

    /// The contents of the chunk whose start has been received.
    fn chunk(&self, kind: u16, wait: Wait) -> Result<Contents, Trouble> {
        let len = self.socket.receive_array::<CHUNK_LENGTH_BYTES>(wait)?;
        contents(kind, u32::from_be_bytes(len))
    }

    /// The error of a chunk.
    fn error(&self, rest: u32, wait: Wait) -> Result<Answer, Trouble> {
        let error = self.socket.receive_array::<ERROR_BYTES>(wait)?;
        self.socket.skip(rest, wait)?;
        failed(u32::from_be_bytes(error))
    }

    /// The reply to a command that brings no data.
    fn answer(&self, wait: Wait) -> Result<Answer, Trouble> {
        let mut answer = Answer::Done;
        loop {
            let (kind, is_last) = match self.reply(wait)? {
                Reply::Simple(0) => return Ok(Answer::Done),
                Reply::Simple(error) => return failed(error),
                Reply::Chunk { kind, is_last } => (kind, is_last),
            };
            match self.chunk(kind, wait)? {
                Contents::None => {}
                Contents::Error(rest) => answer = self.error(rest, wait)?,
                Contents::Data(_) | Contents::Hole => {
                    return Err(Trouble::Protocol("data that nobody asked for"));
                }
            }
            if is_last {
                return Ok(answer);
            }
        }
    }
}

/// The answer with an error of the protocol, whose numbers are those of Linux, unless the server says that it is going
/// away. Unknown errors count as `EINVAL`, as the protocol demands.
fn failed(error: u32) -> Result<Answer, Trouble> {
    const KNOWN: [Errno; 6] = [
        Errno::PERM,
        Errno::IO,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::OVERFLOW,
        Errno::OPNOTSUPP,
    ];
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    if error == 0 {
        return Err(Trouble::Protocol("an error without a number"));
    }
    if error == number(Errno::SHUTDOWN) {
        return Err(Trouble::Shutdown);
    }
    let known = KNOWN.into_iter().find(|&known| number(known) == error);
    Ok(Answer::Failed(known.unwrap_or(Errno::INVAL)))
}
