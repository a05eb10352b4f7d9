//! What a sweep shares with whoever waits for it: how far it is, and the wish to end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A sweep that runs.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicU64,
    stopped: AtomicBool,
}

impl Watch {
    /// References simulated so far, of all jobs together: jobs * [`References::len`] at the end.
    ///
    /// [`References::len`]: super::References::len
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends the sweep within some thousands of references: it returns [`SweepError::Stopped`].
    ///
    /// [`SweepError::Stopped`]: super::SweepError::Stopped
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn advance(&self, references: u64) {
        self.done.fetch_add(references, Ordering::Relaxed);
    }
}
