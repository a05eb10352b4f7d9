//! The pager's threads: how they are called, and which threads do their work while they are not up.

use super::{Locked, Pager};
use crate::flash::ThreadQueue;
use crate::sys::descriptors::PagerFd;
use crate::sys::thread::{self, on_pager_stack};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which threads do the work of handler and cleaner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crew {
    /// Faulting threads: the handler has not started yet. No fork can begin.
    Starting,
    /// Faulting threads: the pager of a child forked in inline mode has no threads yet. The child can fork.
    Absent,
    /// The pager's threads. The handler has all the memory that it needs during a fork.
    Up,
}

/// The thread that hands work over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread of the program, or a thread of the pager that is neither handler nor cleaner.
    Program,
    Handler,
    Cleaner,
}

/// Which threads have something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) handler: bool,
    pub(super) cleaner: bool,
}

/// The bells of handler and cleaner.
pub(super) struct Workers {
    pub(super) handler: Bell,
    pub(super) cleaner: Bell,
}

/// Calls a thread, and wakes it if it sleeps in `poll`.
pub(super) struct Bell {
    event: PagerFd,
    /// Rung since the thread last began to look for work: another ring is not needed.
    rung: AtomicBool,
}

impl Bell {
    fn new() -> Result<Self, Errno> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self {
            event: PagerFd::open(event)?,
            rung: AtomicBool::new(false),
        })
    }

    /// Calls the thread.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// The thread begins to look for work: work that comes from now on rings again.
    pub(super) fn begin_look(&self) {
        self.rung.store(false, Ordering::Relaxed);
    }

    /// Clears the ring that has woken the thread.
    pub(super) fn silence(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.event, &mut count);
    }

    /// Readable once it has rung.
    pub(super) fn readiness(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Workers {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            handler: Bell::new()?,
            cleaner: Bell::new()?,
        })
    }

    /// Calls the threads that have something to do, except the caller: it looks again by itself. If it called itself,
    /// it would never sleep while its requests are in flight.
    pub(super) fn call(&self, by: By, due: Due) {
        if due.handler && by != By::Handler {
            self.handler.ring();
        }
        if due.cleaner && by != By::Cleaner {
            self.cleaner.ring();
        }
    }

    /// Calls both threads after a change for which either may be waiting.
    pub(super) fn call_both(&self) {
        self.handler.ring();
        self.cleaner.ring();
    }
}

impl Locked {
    /// Nothing is in flight, nothing waits to be started, and a fork can begin.
    pub(super) fn is_quiet(&self) -> bool {
        self.crew != Crew::Starting && self.open == 0 && !self.placement.is_parked()
    }

    /// Whether the calling thread has to do the work of the pager's threads: the handler is not up yet, or the caller
    /// is one of these threads, and the C library has touched managed memory while it started the thread.
    pub(super) fn is_synchronous(&self) -> bool {
        self.crew != Crew::Up || on_pager_stack()
    }

    /// The threads that have something to do.
    pub(super) fn due(&self) -> Due {
        Due {
            handler: !self.to_read.is_empty() || self.placement.is_parked(),
            cleaner: !self.to_clean.is_empty() || self.engine.wants_reclaim(),
        }
    }
}

impl Pager {
    /// Starts the pager's threads.
    ///
    /// # Errors
    /// The C library cannot create a thread.
    pub fn start_threads(&'static self) -> Result<(), Errno> {
        // The threads of queues start now, too: later the program's threads may hold the C library's locks.
        let io = || {
            let wanted = self.store.needs_threads();
            wanted.then(|| ThreadQueue::start(&self.store)).transpose()
        };
        let (reads, writes) = (io()?, io()?);
        thread::spawn("flashvm-fault", || self.handle_faults(reads))?;
        thread::spawn("flashvm-clean", || self.clean(writes))?;
        thread::spawn("flashvm-limit", || self.watch_pressure())?;
        if let Some(heap) = &self.chameleon {
            thread::spawn("flashvm-log", || heap.write_behind(self))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn has_rung(bell: &Bell) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(bell.readiness(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("a descriptor") == 1
    }

    const BOTH: Due = Due {
        handler: true,
        cleaner: true,
    };

    /// A cleaner that wants frames while its writes are in flight must sleep until a write has ended.
    #[test]
    fn no_worker_rings_itself() {
        for by in [By::Program, By::Handler, By::Cleaner] {
            let workers = Workers::new().expect("descriptors");
            workers.call(by, BOTH);
            assert_eq!(has_rung(&workers.handler), by != By::Handler, "{by:?}");
            assert_eq!(has_rung(&workers.cleaner), by != By::Cleaner, "{by:?}");
        }
    }

    #[test]
    fn a_bell_rings_again_only_after_a_look() {
        let workers = Workers::new().expect("descriptors");
        let bell = &workers.cleaner;
        workers.call(By::Program, Due::default());
        assert!(!has_rung(bell), "nothing is due");
        workers.call(By::Program, BOTH);
        bell.silence();
        workers.call(By::Program, BOTH);
        assert!(!has_rung(bell), "the thread is awake");
        bell.begin_look();
        workers.call(By::Program, BOTH);
        assert!(has_rung(bell));
    }
}
