//! One side of a mirror, a stripe or a tier: a file or device, or an export of a server.

use super::file::FileStore;
use super::nbd::{Answer, NbdStore, NbdTrouble, PendingRead, PendingWrite, SideError};
use super::store::{Failed, Geometry, Part, Span, Store};
use crate::control::Process;
use flashvm_core::Nanos;
use std::os::fd::RawFd;

/// The end of a request to one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// The side answered with an error.
    Failed,
    /// The side does not answer, and may have lost what it had.
    Lost(NbdTrouble),
}

impl Outcome {
    pub(in crate::flash) fn of(answer: Result<Answer, NbdTrouble>) -> Self {
        match answer {
            Ok(Answer::Done) => Self::Done,
            Ok(Answer::Failed(_)) => Self::Failed,
            Err(trouble) => Self::Lost(trouble),
        }
    }

    fn whole(failed: Failed) -> Self {
        match failed.is_none() {
            true => Self::Done,
            false => Self::Failed,
        }
    }
}

/// A request to one side that has begun.
pub(crate) enum Begun<P> {
    /// It has ended.
    Ended(Outcome),
    /// The server has been asked.
    Pending(P),
    /// All connections are in use: ask the other side.
    Busy,
}

/// What a store of several sides asks of one. Those of a mirror do not wait for a server that is gone; `until` and
/// `patiently` do, and the latter end the process if it stays away.
pub(crate) trait Half: Sync + 'static {
    fn geometry(&self) -> Geometry;

    /// The side has returned so often.
    fn set_epoch(&self, _epoch: u32) {}

    /// When a request that begins now has waited for too long.
    fn deadline(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    /// Reads, or asks for a read. Waits for a free connection only if `may_wait`.
    ///
    /// # Safety
    /// As [`Store::read`], until the read has ended. A read that is pending does not use `to` by itself.
    unsafe fn begin_read(
        &self,
        at: u64,
        to: Part,
        until: Nanos,
        may_wait: bool,
    ) -> Begun<PendingRead<'_>>;

    /// [`Store::read`] for the last side, in time from `since` on.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn read_patiently(&self, at: u64, to: Part, since: Nanos) -> Failed;

    /// Writes, or sends a write as long as `serves` holds.
    ///
    /// # Safety
    /// As [`Store::write`], until the write has ended.
    unsafe fn begin_write(
        &self,
        at: u64,
        parts: &[Part],
        until: Nanos,
        serves: &dyn Fn() -> bool,
    ) -> Begun<PendingWrite<'_>>;

    /// [`Store::write`] for the last side, in time from `since` on.
    ///
    /// # Safety
    /// As [`Store::write`].
    unsafe fn write_patiently(&self, at: u64, parts: &[Part], since: Nanos) -> Failed;

    /// [`Store::read`], in time from `since` to `until`.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn read_until(
        &self,
        at: u64,
        to: Part,
        since: Nanos,
        _until: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        // SAFETY: the caller guarantees for `to` what this call asks for.
        Ok(unsafe { self.read_patiently(at, to, since) })
    }

    /// [`Store::write`], in time from `since` to `until`.
    ///
    /// # Safety
    /// As [`Store::write`].
    unsafe fn write_until(
        &self,
        at: u64,
        parts: &[Part],
        since: Nanos,
        _until: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        // SAFETY: the caller guarantees for the parts what this call asks for.
        Ok(unsafe { self.write_patiently(at, parts, since) })
    }

    /// [`Store::discard`], once.
    fn discard(&self, spans: &[Span]) -> Result<(), SideError>;

    /// [`Store::sync`], once.
    fn sync(&self) -> Result<(), SideError>;
}

/// The sides of a run.
#[derive(Debug)]
pub(crate) enum SideStore {
    File(FileStore),
    Nbd(NbdStore),
}

impl SideStore {
    /// In a forked child.
    pub(in crate::flash) fn become_child(&mut self, process: Process) {
        match self {
            Self::File(_) => {}
            Self::Nbd(server) => server.become_child(process),
        }
    }

    /// The descriptor of a file or device.
    pub(in crate::flash) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::File(file) => Some(file.descriptor()),
            Self::Nbd(_) => None,
        }
    }
}

impl Half for SideStore {
    fn geometry(&self) -> Geometry {
        match self {
            Self::File(file) => file.geometry(),
            Self::Nbd(server) => server.geometry(),
        }
    }

    fn set_epoch(&self, epoch: u32) {
        if let Self::Nbd(server) = self {
            server.set_generation(epoch);
        }
    }

    fn deadline(&self) -> Nanos {
        match self {
            Self::File(_) => Nanos(u64::MAX),
            Self::Nbd(server) => server.deadline(),
        }
    }

    unsafe fn begin_read(
        &self,
        at: u64,
        to: Part,
        until: Nanos,
        may_wait: bool,
    ) -> Begun<PendingRead<'_>> {
        match self {
            // SAFETY: the caller guarantees for `to` what this call asks for.
            Self::File(file) => Begun::Ended(Outcome::whole(unsafe { file.read(at, to) })),
            Self::Nbd(server) => match server.begin_read(at, to.len, until, may_wait) {
                Ok(Some(pending)) => Begun::Pending(pending),
                Ok(None) => Begun::Busy,
                Err(trouble) => Begun::Ended(Outcome::Lost(trouble)),
            },
        }
    }

    unsafe fn read_patiently(&self, at: u64, to: Part, since: Nanos) -> Failed {
        // SAFETY: the caller guarantees for `to` what these calls ask for.
        unsafe {
            match self {
                Self::File(file) => file.read(at, to),
                Self::Nbd(server) => server.read_since(at, to, since),
            }
        }
    }

    unsafe fn begin_write(
        &self,
        at: u64,
        parts: &[Part],
        until: Nanos,
        serves: &dyn Fn() -> bool,
    ) -> Begun<PendingWrite<'_>> {
        match self {
            // SAFETY: the caller guarantees for the parts what this call asks for.
            Self::File(file) => Begun::Ended(Outcome::whole(unsafe { file.write(at, parts) })),
            // SAFETY: the caller guarantees for the parts what this call asks for.
            Self::Nbd(server) => match unsafe { server.begin_write(at, parts, until, serves) } {
                Ok(Ok(pending)) => Begun::Pending(pending),
                Ok(Err(_)) => Begun::Ended(Outcome::Failed),
                Err(trouble) => Begun::Ended(Outcome::Lost(trouble)),
            },
        }
    }

    unsafe fn write_patiently(&self, at: u64, parts: &[Part], since: Nanos) -> Failed {
        // SAFETY: the caller guarantees for the parts what these calls ask for.
        unsafe {
            match self {
                Self::File(file) => file.write(at, parts),
                Self::Nbd(server) => server.write_since(at, parts, since),
            }
        }
    }

    unsafe fn read_until(
        &self,
        at: u64,
        to: Part,
        since: Nanos,
        until: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        // SAFETY: the caller guarantees for `to` what these calls ask for.
        unsafe {
            match self {
                Self::File(file) => Ok(file.read(at, to)),
                Self::Nbd(server) => server.read_until(at, to, since, until),
            }
        }
    }

    unsafe fn write_until(
        &self,
        at: u64,
        parts: &[Part],
        since: Nanos,
        until: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        // SAFETY: the caller guarantees for the parts what these calls ask for.
        unsafe {
            match self {
                Self::File(file) => Ok(file.write(at, parts)),
                Self::Nbd(server) => server.write_until(at, parts, since, until),
            }
        }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), SideError> {
        match self {
            Self::File(file) => file.discard(spans).map_err(SideError::Answered),
            Self::Nbd(server) => server.try_discard(spans),
        }
    }

    fn sync(&self) -> Result<(), SideError> {
        match self {
            Self::File(file) => file.sync().map_err(SideError::Answered),
            Self::Nbd(server) => server.try_sync(),
        }
    }
}
