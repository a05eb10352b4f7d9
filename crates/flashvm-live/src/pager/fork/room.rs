//! Room for a fork: free frames for the child, and for pages that are stored to around the fork.

use crate::chameleon::ForkedFrames;
use crate::pager::workers::By;
use crate::pager::{Locked, Pager};
use crate::space::Delivery;
use flashvm_core::Event;
use flashvm_core::grant::ForkStores;
use rustix::io::Errno;
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames for pages that threads store to during a fork in handler mode: `held / STORES_SHARE`, at most
/// `STORES_IN_FORK`.
const STORES_IN_FORK: u32 = 512;
const STORES_SHARE: u32 = 8;
/// Longest wait of a fork without progress towards the child's frames, the same as that of a new process for its first
/// frames; and the pause between two looks.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Longest wait of a fork after one that waited in vain: many processes hold all frames, and each further fork would wait
/// `ROOM_WAIT_MAX`.
const ROOM_WAIT_AGAIN: Duration = Duration::from_secs(1);
/// Whether the last wait was in vain.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// What a fork waits for. The least values so far tell whether there is progress: each of them can only fall, so the wait
/// ends.
struct Outstanding {
    /// Frames that the fork lacks. Others may take some while this process writes pages to flash.
    lacking: u32,
    /// Frames of small pages, half of which the child needs.
    small: u32,
    /// Frames of compressed pages, which go to flash.
    pool: u64,
}

impl Outstanding {
    /// Adopts values that are less than the least so far; returns whether there were any.
    fn fall_to(&mut self, now: &Self) -> bool {
        let fell = now.lacking < self.lacking || now.small < self.small || now.pool < self.pool;
        self.lacking = self.lacking.min(now.lacking);
        self.small = self.small.min(now.small);
        self.pool = self.pool.min(now.pool);
        fell
    }
}

impl Pager {
    /// Pages that are stored to during a fork, unnoticed or before the copy has a frame. In inline mode: pages of
    /// system calls in flight. In handler mode: an estimate of the pages that threads store to until the child resolves
    /// its own faults.
    pub(in crate::pager) fn fork_stores(&self, locked: &Locked) -> ForkStores {
        match self.delivery {
            Delivery::Inline => ForkStores {
                parent: locked.placement.pins.pages(),
                child: 0,
            },
            // The child gets a copy of every page.
            Delivery::Protect => ForkStores {
                parent: 0,
                child: locked.grant.copied_in_fork(&self.process, &locked.usage()),
            },
            Delivery::Handler => {
                let pages = STORES_IN_FORK.min(self.process.granted() / STORES_SHARE);
                // The child is charged for the same pages.
                ForkStores {
                    parent: pages,
                    child: pages,
                }
            }
        }
    }

    /// Before a fork: waits for room for the child, freezes the heap of small pages, if there is one, and copies its frames,
    /// then calls `quiet`, which waits until all requests of the page pager have ended. The heap freezes first, as its
    /// requests may need the page pager. Repeats all if the room is gone by then: another thread has forked in between, or
    /// the heap has taken frames, and a frozen heap gives none up.
    ///
    /// # Errors
    /// The kernel's error if it has no file for the copy of the heap's frames.
    pub(super) fn quiet_with_room<'a>(
        &'a self,
        quiet: impl Fn() -> MutexGuard<'a, Locked>,
    ) -> Result<(Option<ForkedFrames>, MutexGuard<'a, Locked>), Errno> {
        loop {
            let had_room = self.await_room();
            let heap = self.chameleon.as_ref();
            let frames = heap.map(|heap| heap.prepare_fork(self)).transpose()?;
            let locked = quiet();
            if !had_room || self.has_room(&locked) {
                return Ok((frames, locked));
            }
            self.thaw(locked);
            self.resume_heap(frames, false);
        }
    }

    /// Waits until this process holds enough free frames for the fork, so that the fork does not overrun the budget.
    /// Returns false after `ROOM_WAIT_MAX` without progress (`ROOM_WAIT_AGAIN` after a wait in vain), or if the process's
    /// share is too small: the fork goes on regardless, and the overrun is counted.
    ///
    /// Compressed pages go to flash first: after the fork the kernel would copy them, uncharged.
    fn await_room(&self) -> bool {
        // Small pages leave slowly beside a busy disk.
        let most = match IN_VAIN.load(Ordering::Relaxed) && self.chameleon.is_none() {
            true => ROOM_WAIT_AGAIN,
            false => ROOM_WAIT_MAX,
        };
        let mut end = Instant::now() + most;
        let mut least = Outstanding {
            lacking: u32::MAX,
            small: u32::MAX,
            pool: u64::MAX,
        };
        while Instant::now() < end {
            let mut locked = self.lock();
            let stores = self.fork_stores(&locked);
            locked.grant.plan_fork(stores);
            if self.pool.is_some() {
                self.apply(&mut locked, Event::Drain { on: true });
            }
            self.hand_over(&mut locked, By::Program);
            if locked.is_synchronous() {
                locked = self.work(locked);
            }
            if !locked.engine.is_draining() && self.has_room(&locked) {
                IN_VAIN.store(false, Ordering::Relaxed);
                return true;
            }
            let now = Outstanding {
                lacking: locked.grant.lacking(&self.process, &locked.usage()),
                small: locked.grant.small(),
                pool: locked.engine.gauges().pool_frames,
            };
            if least.fall_to(&now) {
                end = Instant::now() + most;
            }
            // A fork that copies pages waits even if the room can never suffice: what leaves now is not copied.
            let copies_less = !self.space.protects() && locked.grant.can_shrink(&locked.usage());
            let waits = locked.engine.is_draining() || copies_less;
            if !waits && !locked.grant.may_have_fork_room(&self.process) {
                return false;
            }
            drop(locked);
            if crate::sys::is_dead_within(&self.supervisor, ROOM_PAUSE) {
                self.die_without_supervisor();
            }
        }
        IN_VAIN.store(true, Ordering::Relaxed);
        false
    }

    /// The fork does not happen: pages are compressed again.
    pub(super) fn forget_drain(&self, locked: &mut Locked) {
        if self.pool.is_some() {
            self.apply(locked, Event::Drain { on: false });
        }
    }

    fn has_room(&self, locked: &Locked) -> bool {
        let usage = locked.usage();
        locked.grant.has_fork_room(&self.process, &usage)
    }
}
