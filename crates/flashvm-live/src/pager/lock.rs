//! `mlock` and `munlock` of managed memory: see [`flashvm_core::lock_share`] for how much.

use super::workers::By;
use super::{Locked, Pager};
use crate::sys::signals::Uninterrupted;
use flashvm_core::{Advice, Event, Run, lock_share};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Pager {
    /// Locks a range: its pages stay in RAM once they have been touched. Reads them ahead.
    ///
    /// # Errors
    /// `ENOMEM` if it is not all mapped and managed, or if more would be locked than the budget allows; nothing has changed
    /// then.
    pub fn lock_memory(&self, address: usize, len: usize) -> Result<(), Errno> {
        let _uninterrupted = Uninterrupted::begin();
        let run = self.managed_run(address, len)?;
        let mut locked = self.lock();
        let pages = locked.engine.locked_pages_with(run.first, run.count);
        if pages > lock_share(self.process.limit()) {
            return Err(Errno::NOMEM);
        }
        for advice in [Advice::Lock, Advice::WillNeed] {
            self.advise_run(&mut locked, run, advice);
        }
        self.hand_over(&mut locked, By::Program);
        Ok(())
    }

    /// Whether the program reaches all pages of a range without a fault, or more touches would not help.
    #[must_use]
    pub fn is_in_reach(&self, address: usize, len: usize) -> bool {
        let _uninterrupted = Uninterrupted::begin();
        let Ok((first, count)) = self.range(address, len) else {
            return false;
        };
        let locked = self.lock();
        let is_mapped = |i| locked.engine.page_state(first.plus(i)).is_mapped();
        !self.space.has_shadow() || (0..count).all(is_mapped)
    }

    /// Unlocks a range.
    ///
    /// # Errors
    /// `ENOMEM` if it is not all mapped and managed.
    pub fn unlock_memory(&self, address: usize, len: usize) -> Result<(), Errno> {
        self.managed_run(address, len)?;
        self.advise(address, len, Advice::Unlock)
    }

    /// The pages of a range.
    ///
    /// # Errors
    /// `ENOMEM` if they are not all mapped and managed.
    fn managed_run(&self, address: usize, len: usize) -> Result<Run, Errno> {
        let (first, count) = self.range(address, len).map_err(|_| Errno::NOMEM)?;
        let is_whole = self.mappings.is_managed_whole(first, count);
        is_whole
            .then_some(Run::new(first, count))
            .ok_or(Errno::NOMEM)
    }

    /// Unlocks everything.
    pub fn unlock_all_memory(&self) {
        let _uninterrupted = Uninterrupted::begin();
        let mut locked = self.lock();
        self.unlock_all(&mut locked);
        self.hand_over(&mut locked, By::Program);
    }

    /// Unlocks everything. Also for a child, which does not inherit locks.
    pub(super) fn unlock_all(&self, locked: &mut Locked) {
        if let Some(run) = locked.engine.locked_range() {
            self.advise_run(locked, run, Advice::Unlock);
        }
    }

    /// Unlocks everything if this process's share of the budget has become too small for what is locked.
    pub(super) fn keep_locks_within_share(&self, locked: &mut Locked) {
        let pages = locked.engine.locked_pages();
        if pages == 0 || pages <= lock_share(self.process.limit()) {
            return;
        }
        tracing::warn!(pages, "unlocked: the share of the budget is too small");
        self.stats()
            .locks_lost
            .fetch_add(pages.into(), Ordering::Relaxed);
        self.unlock_all(locked);
    }

    fn advise_run(&self, locked: &mut Locked, Run { first, count }: Run, advice: Advice) {
        self.apply(
            locked,
            Event::Advise {
                first,
                count,
                advice,
            },
        );
    }
}
