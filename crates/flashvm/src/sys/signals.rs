//! Keeping signal handlers out of the pager.
//!
//! A handler of the program's may touch managed memory. If it ran on a thread that holds a lock
//! of the pager's, its fault could not be resolved: resolving it needs that lock. So the
//! program's threads have every signal blocked while they are inside, but for those by which the
//! kernel reports faults and system calls.

use super::raw::{SignalMask, set_signal_mask};

/// Signals that the kernel raises for what a thread does. Blocked ones would end the process.
pub(crate) const SYNCHRONOUS: SignalMask =
    bit(libc::SIGBUS) | bit(libc::SIGSEGV) | bit(libc::SIGSYS);

/// The bit of a signal in a mask.
pub(crate) const fn bit(signal: i32) -> SignalMask {
    1 << (signal - 1)
}

/// Ends the process with SIGABRT. A handler of the program's does not run: without the pager its
/// memory is not there.
pub fn abort() -> ! {
    // SAFETY: takes no memory; from here on nothing of the program's runs.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    std::process::abort()
}

/// All signals but the synchronous ones are blocked in this thread while this lives.
#[derive(Debug)]
pub struct Uninterrupted {
    before: SignalMask,
}

impl Uninterrupted {
    /// Blocks signals.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            before: set_signal_mask(!SYNCHRONOUS),
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        set_signal_mask(self.before);
    }
}
