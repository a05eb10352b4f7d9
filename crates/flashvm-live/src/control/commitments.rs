//! Commitments: every page that a program may store to has room, in the budget or in the store, before the program
//! gets the page. Disk space for the store is allocated as commitments grow.

use super::process::{Process, State};
use crate::sys::disk_space;
use flashvm_core::PAGE_SIZE;
use rustix::process::{Pid, test_kill_process};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Tries of [`Process::commit_patiently`], and the pause between two.
const COMMIT_TRIES: u32 = 50;
const COMMIT_WAIT: Duration = Duration::from_millis(20);

/// Slots for which space is allocated beyond the need: 256 MiB.
const BACKED_AHEAD_SLOTS: u32 = 1 << 16;

impl Process {
    /// Commits `pages` more pages to the program. `false` if budget and store together, or the disk,
    /// have no room for them, even after a wait of up to a second for the commitments of processes
    /// that have just ended.
    #[must_use]
    pub fn commit_patiently(&self, pages: u64) -> bool {
        (0..COMMIT_TRIES).any(|attempt| {
            if attempt > 0 {
                if !self.somebody_has_died() {
                    return false;
                }
                crate::sys::sleep(COMMIT_WAIT);
            }
            self.commit(pages)
        })
    }

    /// Whether a process has ended whose slot is still live.
    fn somebody_has_died(&self) -> bool {
        self.control.slots_taken().any(|(_, slot)| {
            let pid = i32::try_from(slot.pid.load(Ordering::Relaxed)).unwrap_or(0);
            State::of(slot.state.load(Ordering::Acquire)) == State::Live
                && Pid::from_raw(pid)
                    .is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
        })
    }

    /// Like [`Self::commit_patiently`], without a wait.
    #[must_use]
    pub fn commit(&self, pages: u64) -> bool {
        let (sizes, header) = (self.region().sizes(), self.region().header());
        loop {
            let max = sizes.commit_pages_with(header.backed.load(Ordering::Acquire));
            let more = |now: u64| now.checked_add(pages).filter(|sum| *sum <= max);
            let Err(now) =
                header
                    .committed
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            else {
                self.slot().committed.fetch_add(pages, Ordering::Relaxed);
                return true;
            };
            let sum = now.saturating_add(pages);
            if sum > sizes.commit_pages_max() || !self.back(sizes.slots_for(sum)) {
                return false;
            }
        }
    }

    /// Slots of this process have gone bad: their room is lost and counts as committed, even beyond
    /// the bound.
    pub fn lose_room(&self, pages: u64) {
        let header = self.region().header();
        header.committed.fetch_add(pages, Ordering::Relaxed);
        self.slot().committed.fetch_add(pages, Ordering::Relaxed);
    }

    /// Allocates disk space for the first `slots` slots of the store. `false` if the disk has none.
    pub(super) fn back(&self, slots: u32) -> bool {
        let header = self.region().header();
        let backed = header.backed.load(Ordering::Acquire);
        if slots <= backed {
            return true;
        }
        let ahead = slots
            .saturating_add(BACKED_AHEAD_SLOTS)
            .min(self.region().sizes().slots());
        // Another process may allocate the same range at the same time: it takes space once.
        let taken = [ahead, slots].into_iter().find(|&end| {
            let (from, to) = (u64::from(backed), u64::from(end));
            disk_space::take(from * PAGE_SIZE as u64, (to - from) * PAGE_SIZE as u64).is_ok()
        });
        let backed = match taken {
            Some(end) => header.backed.fetch_max(end, Ordering::AcqRel).max(end),
            // Another process may have allocated this range and taken the disk's last space for it.
            None => header.backed.load(Ordering::Acquire),
        };
        if backed < slots {
            disk_space::note_full();
        }
        backed >= slots
    }

    /// Sets the store's files, for which this process allocates disk space on demand. None: servers have the store; only
    /// their refusals are counted.
    pub(crate) fn take_space_from(&self, space: disk_space::Space) {
        disk_space::take_from(space, &self.region().header().disk_refusals);
    }

    /// Undoes a [`Self::commit`].
    pub fn uncommit(&self, pages: u64) {
        let before = self.slot().committed.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "{pages} pages uncommitted of {before}");
        self.region()
            .header()
            .committed
            .fetch_sub(pages, Ordering::Relaxed);
    }

    /// Pages committed by this process.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.slot().committed.load(Ordering::Relaxed)
    }
}
