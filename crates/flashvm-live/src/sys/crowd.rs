//! Whether others want the processors. A thread that polls for flash then sleeps instead.
//!
//! On an idle machine a yield returns at once. Beside threads that compute it can return milliseconds later, long after
//! the read has ended: a thread that sleeps for its read runs sooner then (`docs/performance.md`).

use super::now;
use flashvm_core::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// A yield that takes longer gave the processor to a computing thread; a polling thread would have yielded sooner.
const AWAY: Nanos = Nanos(1_000_000);
/// For this long after such a yield, threads sleep instead of polling. The next poll then tests again.
const SLEEPY: Nanos = Nanos(50_000_000);

/// The one instance of this process.
pub(crate) static CROWD: Crowd = Crowd::new();

/// Remembers that a yield took long.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// In nanoseconds on the clock of [`now`]: until then threads sleep.
    until: AtomicU64,
}

impl Crowd {
    const fn new() -> Self {
        Self {
            until: AtomicU64::new(0),
        }
    }

    /// Whether to sleep rather than to poll.
    pub(crate) fn wants_the_processor(&self, now: Nanos) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
    }

    /// Offers the processor to others. Returns whether to sleep from now on.
    pub(crate) fn yield_to(&self) -> bool {
        let before = now();
        rustix::thread::sched_yield();
        self.yielded(before, now())
    }

    fn yielded(&self, before: Nanos, after: Nanos) -> bool {
        let long = after.since(before) > AWAY;
        if long {
            self.until.store(after.0 + SLEEPY.0, Ordering::Relaxed);
        }
        long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_yield_makes_threads_sleep_for_a_while() {
        let crowd = Crowd::new();
        let begun = Nanos(1_000_000);
        assert!(!crowd.wants_the_processor(begun));
        assert!(!crowd.yielded(begun, Nanos(begun.0 + AWAY.0)));
        assert!(!crowd.wants_the_processor(begun));
        let after = Nanos(begun.0 + AWAY.0 + 1);
        assert!(crowd.yielded(begun, after));
        assert!(crowd.wants_the_processor(Nanos(after.0 + SLEEPY.0 - 1)));
        assert!(!crowd.wants_the_processor(Nanos(after.0 + SLEEPY.0)));
    }
}
