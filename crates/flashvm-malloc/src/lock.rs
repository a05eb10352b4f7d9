//! A lock that can be held over a fork, so that the child's copy of its value is consistent.
//!
//! It spins and yields: critical sections take microseconds, and the C library's locks would touch
//! memory of the waiting thread, which may be managed.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread uses at a time.
#[derive(Debug, Default)]
pub struct ForkLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one thread at a time, and `T: Send` lets it change threads.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks until [`ForkLock::release`]: for a fork, over which no closure can hold the lock.
    pub fn acquire(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                rustix::thread::sched_yield();
            }
        }
    }

    /// Unlocks.
    ///
    /// # Safety
    /// The calling thread holds the lock by [`ForkLock::acquire`], or in a forked child is the copy
    /// of the thread that does: otherwise two threads could use the value at once.
    pub unsafe fn release(&self) {
        self.locked.store(false, Ordering::Release);
    }

    /// Passes the value to `work`. It must not take this lock again: that would deadlock.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        /// Unlocks even if the work panics.
        struct Held<'a, T>(&'a ForkLock<T>);
        impl<T> Drop for Held<'_, T> {
            fn drop(&mut self) {
                // SAFETY: this thread has acquired the lock below, before it made `Held`.
                unsafe { self.0.release() };
            }
        }
        self.acquire();
        let held = Held(self);
        // SAFETY: this thread holds the lock until `held` is dropped, after the work: no other
        // reference exists until then.
        work(unsafe { &mut *held.0.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        const ROUNDS: usize = 20_000;
        let count = ForkLock::new(0_usize);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| count.with(|count| *count += 1)));
            }
        });
        assert_eq!(count.with(|count| *count), 4 * ROUNDS);
    }

    #[test]
    fn a_thread_waits_for_a_lock_that_a_fork_holds() {
        let value = ForkLock::new(1);
        value.acquire();
        let [asks, released] = [const { AtomicBool::new(false) }; 2];
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                asks.store(true, Ordering::Relaxed);
                value.with(|value| (*value, released.load(Ordering::Relaxed)))
            });
            while !asks.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // A thread that does not wait ends within these turns, and reads `false`.
            for _ in 0..1000 {
                std::thread::yield_now();
                assert!(!other.is_finished());
            }
            released.store(true, Ordering::Relaxed);
            // SAFETY: acquired above.
            unsafe { value.release() };
            assert_eq!(other.join().unwrap(), (1, true));
        });
    }

    #[test]
    fn a_panic_unlocks() {
        let value = ForkLock::new(1);
        let work = std::panic::AssertUnwindSafe(|| value.with(|_| panic!("on purpose")));
        std::panic::catch_unwind(work).unwrap_err();
        assert_eq!(value.with(|value| *value), 1);
    }
}
