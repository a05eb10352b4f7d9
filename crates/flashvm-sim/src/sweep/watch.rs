//! What a sweep shares with its caller: its progress, and a request to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of a sweep, and a way to stop it.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicU64,
    stopped: AtomicBool,
}

impl Watch {
    /// References simulated so far by all jobs: jobs * [`References::len`] at the end.
    ///
    /// [`References::len`]: super::References::len
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Stops the sweep: each thread ends after its current chunk, and the sweep returns [`SweepError::Stopped`].
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
