//! A request of a mirror's side: begun at the server, and ended later, or left to itself.
//!
//! These never wait for a server that is gone, and end no process: the mirror has another side.

use super::super::store::{Part, Span, bytes_of};
use super::answer::Answer;
use super::connection::{Connection, polls};
use super::pool::{Place, Taker};
use super::socket::{Wait, first_readable};
use super::store::{NbdStore, discards};
use super::trouble::Trouble;
use super::wire::Command;
use crate::sys::now;
use flashvm_core::Nanos;
use rustix::io::Errno;

/// A read that the server has been asked for. It has to be heard or left.
pub(crate) struct PendingRead<'a> {
    place: Place<'a>,
    at: u64,
    len: usize,
}

/// A write that has been sent.
pub(crate) struct PendingWrite<'a> {
    place: Place<'a>,
}

impl NbdStore {
    /// When a request that begins now has waited for too long.
    pub(crate) fn deadline(&self) -> Nanos {
        self.pool.deadline()
    }

    /// Asks for a read. `None`: all connections wait for replies to reads that were left; or, unless `may_wait`, all are
    /// in use.
    pub(crate) fn begin_read(
        &self,
        at: u64,
        len: usize,
        until: Nanos,
        may_wait: bool,
    ) -> Result<Option<PendingRead<'_>>, Trouble> {
        self.geometry.admit(at, len);
        let Some(mut place) = self.pool.take_as(Taker::Reads { may_wait }) else {
            return Ok(None);
        };
        if let Some(since) = place.as_ref().and_then(Connection::owes_since) {
            let late = now().since(since) >= self.pool.server.timeout();
            return if late {
                Err(Trouble::NoAnswer)
            } else {
                Ok(None)
            };
        }
        self.pool.attempt(&mut place, until, |connection, until| {
            connection.ask(at, len, until)
        })?;
        Ok(Some(PendingRead { place, at, len }))
    }

    /// Sends a write, as long as `serves` holds.
    ///
    /// # Safety
    /// The parts are readable, and nobody changes them until [`PendingWrite::finish`] returns.
    pub(crate) unsafe fn begin_write(
        &self,
        at: u64,
        parts: &[Part],
        until: Nanos,
        serves: &dyn Fn() -> bool,
    ) -> Result<Result<PendingWrite<'_>, Errno>, Trouble> {
        self.geometry.admit(at, bytes_of(parts));
        let mut place = self.pool.take();
        let answer = self.pool.attempt(&mut place, until, |connection, until| {
            // SAFETY: the caller guarantees for the parts what this call asks for.
            unsafe {
                let wait = Wait::asleep(until).while_serving(serves);
                connection.send(at, parts, wait)
            }
        })?;
        Ok(match answer {
            Answer::Done => Ok(PendingWrite { place }),
            Answer::Failed(error) => Err(error),
        })
    }

    /// [`super::super::store::Store::discard`], once.
    pub(crate) fn try_discard(&self, spans: &[Span]) -> Result<(), SideError> {
        if !self.discards {
            return Err(SideError::Answered(Errno::OPNOTSUPP));
        }
        discards(spans).try_for_each(|(at, len)| self.try_command(Command::Trim, at, len))
    }

    /// [`super::super::store::Store::sync`], once.
    pub(crate) fn try_sync(&self) -> Result<(), SideError> {
        match self.flushes {
            true => self.try_command(Command::Flush, 0, 0),
            false => Err(SideError::Answered(Errno::OPNOTSUPP)),
        }
    }

    fn try_command(&self, command: Command, at: u64, len: u32) -> Result<(), SideError> {
        let mut place = self.pool.take();
        let answer = self
            .pool
            .attempt(&mut place, self.deadline(), |connection, until| {
                connection.command(command, at, len, until)
            });
        match answer {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Failed(error)) => Err(SideError::Answered(error)),
            Err(trouble) => Err(SideError::Lost(trouble)),
        }
    }
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideError {
    /// The server answered with this error.
    Answered(Errno),
    /// The server does not answer.
    Lost(Trouble),
}

impl PendingRead<'_> {
    /// Waits for the data.
    ///
    /// # Safety
    /// `to` is writable, as long as what was asked for, and nobody else uses it until the call returns.
    pub(crate) unsafe fn finish(mut self, to: Part, until: Nanos) -> Result<Answer, Trouble> {
        assert_eq!(to.len, self.len, "the memory of another read");
        let connection = self.place.as_mut().expect("connected by `begin_read`");
        // SAFETY: the caller guarantees for `to` what this call asks for.
        let answer = unsafe { connection.hear(self.at, to, until) };
        if answer.is_err() {
            *self.place = None;
        }
        answer
    }

    /// Nobody waits for the data any more: they are thrown away when they come.
    pub(crate) fn leave(mut self) {
        let connection = self.place.as_mut().expect("connected by `begin_read`");
        connection.leave(self.at, self.len, now());
    }

    /// Waits for the first of two servers to answer, until `until`. Returns 0 or 1, the index of the one that has.
    pub(crate) fn first(reads: &[&Self], until: Nanos) -> Option<usize> {
        let socket = |at: usize| {
            let connection = reads[at].place.as_ref();
            connection.expect("connected by `begin_read`").socket()
        };
        let polls = reads.iter().all(|read| polls(read.len));
        let wait = Wait {
            polls,
            ..Wait::asleep(until)
        };
        match reads.len() {
            1 => first_readable(&[socket(0)], wait),
            2 => first_readable(&[socket(0), socket(1)], wait),
            other => panic!("a read of {other} sides"),
        }
    }
}

impl PendingWrite<'_> {
    /// Waits for the server to have written, as long as `serves` holds.
    pub(crate) fn finish(
        mut self,
        until: Nanos,
        serves: &dyn Fn() -> bool,
    ) -> Result<Answer, Trouble> {
        let connection = self.place.as_mut().expect("connected by `begin_write`");
        let answer = connection.written(Wait::asleep(until).while_serving(serves));
        if answer.is_err() {
            *self.place = None;
        }
        answer
    }
}
