//! One connection to an export, with one request at a time.
//!
//! Any [`Trouble`] leaves the connection in the middle of something: its owner closes it and repeats the request on a
//! new one. An error that the server answers leaves the connection as it was.

use super::super::store::Part;
use super::answer::{Answer, failed};
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
use std::ops::Range;

/// Longest read that a faulting thread waits for. It polls; the pager's threads sleep, as their reads are not urgent.
const POLLED_BYTES: usize = 8 * PAGE_SIZE;

/// Where the data of a reply go.
#[derive(Clone, Copy)]
enum Target {
    Memory(Part),
    /// So many bytes are thrown away.
    Nowhere(usize),
}

impl Target {
    fn len(self) -> usize {
        match self {
            Self::Memory(to) => to.len,
            Self::Nowhere(len) => len,
        }
    }
}

/// Whether the calling thread polls for a read of so many bytes.
pub(super) fn polls(len: usize) -> bool {
    len <= POLLED_BYTES && !on_pager_stack()
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    agreed: Agreed,
    cookie: u64,
    generation: u32,
    /// A read whose reply nobody waits for any more.
    owed: Option<Owed>,
}

/// A reply that is still to come, and is thrown away.
#[derive(Clone, Copy, Debug)]
struct Owed {
    at: u64,
    len: usize,
    since: Nanos,
}

impl Connection {
    /// Connects, and checks that the export can be a store of `bytes` bytes.
    pub(super) fn open(server: &NbdServer, bytes: u64, until: Nanos) -> Result<Self, Trouble> {
        let socket = Socket::connect(server, until)?;
        let agreed = agree(&socket, &server.export, Wait::asleep(until))?;
        check(&agreed.export, bytes)?;
        Ok(Self {
            socket,
            agreed,
            cookie: 0,
            generation: 0,
            owed: None,
        })
    }

    /// This connection, with a number that its owner knows.
    pub(super) fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
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
        self.ask(at, to.len, until)?;
        // SAFETY: the caller guarantees for `to` what this call asks for.
        unsafe { self.hear(at, to, until) }
    }

    /// Asks for the start of a read, as much as fits one request. [`Self::hear`] or [`Self::leave`] follows.
    pub(super) fn ask(&mut self, at: u64, len: usize, until: Nanos) -> Result<(), Trouble> {
        assert!(self.owed.is_none(), "a request before the last reply");
        self.cookie += 1;
        let len = len.min(self.payload_max());
        let header = request(Command::Read, self.cookie, at, len as u32);
        self.socket.send_bytes(&header, Wait::asleep(until))
    }

    /// Waits for what [`Self::ask`] has asked for, and reads the rest.
    ///
    /// # Safety
    /// As of [`Self::read`].
    pub(super) unsafe fn hear(
        &mut self,
        at: u64,
        to: Part,
        until: Nanos,
    ) -> Result<Answer, Trouble> {
        let wait = Wait {
            polls: polls(to.len),
            ..Wait::asleep(until)
        };
        for from in (0..to.len).step_by(self.payload_max()) {
            let part = Part {
                address: to.address + from,
                len: (to.len - from).min(self.payload_max()),
            };
            let at = at + from as u64;
            if from > 0 {
                self.ask(at, part.len, until)?;
            }
            // SAFETY: `part` is a part of `to`, for which the caller guarantees what this call asks for.
            let answer = unsafe { self.data(at, Target::Memory(part), wait) }?;
            if answer != Answer::Done {
                return Ok(answer);
            }
        }
        Ok(Answer::Done)
    }

    /// Nobody waits any more for what [`Self::ask`] has asked for.
    pub(super) fn leave(&mut self, at: u64, len: usize, now: Nanos) {
        let len = len.min(self.payload_max());
        self.owed = Some(Owed {
            at,
            len,
            since: now,
        });
    }

    /// Since when a reply has been owed, if one is.
    pub(super) fn owes_since(&self) -> Option<Nanos> {
        self.owed.map(|owed| owed.since)
    }

    /// Whether no reply is owed, or it is here.
    pub(super) fn is_quiet(&self) -> bool {
        self.owed.is_none() || self.socket.is_readable()
    }

    /// Receives the reply that is owed, and throws it away.
    pub(super) fn settle(&mut self, until: Nanos) -> Result<(), Trouble> {
        let Some(owed) = self.owed.take() else {
            return Ok(());
        };
        let nowhere = Target::Nowhere(owed.len);
        // SAFETY: no memory is named.
        unsafe { self.data(owed.at, nowhere, Wait::asleep(until)) }.map(|_| ())
    }

    /// The reply to one request of a read.
    ///
    /// # Safety
    /// As of [`Self::read`], for the memory of `target`.
    unsafe fn data(&mut self, at: u64, target: Target, wait: Wait) -> Result<Answer, Trouble> {
        let mut arrived = Arrived::nothing(at, target.len());
        let mut answer = Answer::Done;
        loop {
            let (kind, is_last) = match self.reply(wait)? {
                Reply::Simple(_) if self.agreed.structured => {
                    return Err(Trouble::Protocol("a read has a simple reply"));
                }
                Reply::Simple(0) => {
                    let all = 0..target.len();
                    // SAFETY: the caller guarantees for the target what this call asks for.
                    return unsafe { self.bytes(target, all, wait) }.map(|()| Answer::Done);
                }
                Reply::Simple(error) => return failed(error),
                Reply::Chunk { kind, is_last } => (kind, is_last),
            };
            match self.chunk(kind, wait)? {
                Contents::None => {}
                Contents::Data(len) => {
                    let offset = self.socket.receive_array::<OFFSET_BYTES>(wait)?;
                    let place = arrived.place(u64::from_be_bytes(offset), len)?;
                    // SAFETY: `Arrived` has checked that the place lies in the target, for which the caller guarantees
                    // what this call asks for.
                    unsafe { self.bytes(target, place, wait)? };
                }
                Contents::Hole => {
                    let (offset, len) = hole(&self.socket.receive_array::<HOLE_BYTES>(wait)?);
                    let place = arrived.place(offset, len)?;
                    if let Target::Memory(to) = target {
                        // SAFETY: `Arrived` has checked that the bytes lie in `to`; the caller guarantees that `to` is
                        // writable and that nobody else uses it.
                        unsafe { map::bytes_mut(to.address + place.start, place.len()) }.fill(0);
                    }
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

    /// Receives the data of a place in the target.
    ///
    /// # Safety
    /// As of [`Self::read`], for the memory of `target`, which has the place.
    unsafe fn bytes(&self, target: Target, place: Range<usize>, wait: Wait) -> Result<(), Trouble> {
        match target {
            Target::Memory(to) => {
                let part = Part {
                    address: to.address + place.start,
                    len: place.len(),
                };
                // SAFETY: the part lies in `to`, for which the caller guarantees what this call asks for.
                unsafe { self.socket.receive(part, wait) }
            }
            Target::Nowhere(_) => self.socket.skip(place.len() as u32, wait),
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
        // SAFETY: the caller guarantees for the parts what this call asks for.
        match unsafe { self.send(at, parts, wait) }? {
            Answer::Done => self.written(wait),
            failed => Ok(failed),
        }
    }

    /// Sends a write. If [`Answer::Done`], [`Self::written`] has to follow; other answers end the write.
    ///
    /// # Safety
    /// As of [`Self::write`].
    pub(super) unsafe fn send(
        &mut self,
        at: u64,
        parts: &[Part],
        wait: Wait,
    ) -> Result<Answer, Trouble> {
        assert!(self.owed.is_none(), "a request before the last reply");
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
            if rest.is_empty() {
                break;
            }
            let answer = self.answer(wait)?;
            if answer != Answer::Done {
                return Ok(answer);
            }
            at += len as u64;
        }
        Ok(Answer::Done)
    }

    /// Waits for the end of a write that was sent.
    pub(super) fn written(&self, wait: Wait) -> Result<Answer, Trouble> {
        self.answer(wait)
    }

    /// Carries out a command without data.
    pub(super) fn command(
        &mut self,
        command: Command,
        at: u64,
        len: u32,
        until: Nanos,
    ) -> Result<Answer, Trouble> {
        assert!(self.owed.is_none(), "a request before the last reply");
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
