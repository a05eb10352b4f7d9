//! Locked pages (`mlock`): in RAM once they have come in, until they are unlocked or zapped.
//!
//! A locked page stays in the policy's order. When the policy proposes it, it is set aside like a page whose move was
//! refused, and returns with those. So no policy has to know of locks, and none is asked to clear the reference bit of
//! a locked page. The executor touches the pages, so that they come in. Without a shadow a touch does not stop a page that
//! is leaving: there its lock holds from its next page-in on.
//!
//! Locks are a program's demand on the budget: at most [`lock_share`] pages, which the executor keeps to.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::ids::{PageId, Run};
use crate::page::Flag;

/// Frames that no lock takes.
const OTHERS_MIN: u32 = 64;

/// Pages that may be locked of `frames` frames: (frames - 64) / 2.
#[must_use]
pub fn lock_share(frames: u32) -> u32 {
    frames.saturating_sub(OTHERS_MIN) / 2
}

/// The locked pages: how many, and a range that has them all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Locks {
    pages: u32,
    first: u32,
    end: u32,
}

impl Locks {
    fn add(&mut self, page: PageId) {
        if self.pages == 0 {
            (self.first, self.end) = (page.0, page.0);
        }
        self.pages += 1;
        self.first = self.first.min(page.0);
        self.end = self.end.max(page.0 + 1);
    }

    /// The part of `first..end` that may have locked pages.
    fn within(&self, first: u32, end: u32) -> std::ops::Range<u32> {
        if self.pages == 0 {
            return 0..0;
        }
        first.max(self.first)..end.min(self.end)
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Locked pages.
    #[must_use]
    pub fn locked_pages(&self) -> u32 {
        self.locks.pages
    }

    /// A range that has all locked pages; `None` without any.
    #[must_use]
    pub fn locked_range(&self) -> Option<Run> {
        let Locks { pages, first, end } = self.locks;
        (pages > 0).then(|| Run::new(PageId(first), end - first))
    }

    /// Locked pages of a range.
    pub(super) fn locked_in(&self, first: PageId, end: u32) -> u32 {
        let is_locked = |&page: &u32| self.table.has(PageId(page), Flag::Locked);
        let locked = self.locks.within(first.0, end).filter(is_locked);
        u32::try_from(locked.count()).expect("a count of pages")
    }

    /// Locked pages, once this range is locked too.
    #[must_use]
    pub fn locked_pages_with(&self, first: PageId, count: u32) -> u32 {
        let already = self.locked_in(first, self.range_end(first, count));
        self.locks.pages + count - already
    }

    pub(super) fn lock_range(&mut self, first: PageId, end: u32) {
        for page in (first.0..end).map(PageId) {
            if !self.table.has(page, Flag::Locked) {
                self.table.set(page, Flag::Locked);
                self.locks.add(page);
            }
        }
    }

    pub(super) fn unlock_range(&mut self, first: PageId, end: u32) {
        for page in self.locks.within(first.0, end) {
            let was = self.table.take(PageId(page), Flag::Locked);
            self.locks.pages -= u32::from(was);
        }
    }

    /// The locks of a range that has moved: those of present pages moved with their flags.
    pub(super) fn relocate_locks(&mut self, from: PageId, to: PageId, end: u32) {
        let before = self.locks.pages;
        if before == 0 {
            return;
        }
        for page in (from.0..end).map(PageId) {
            let moved = PageId(to.0 + (page.0 - from.0));
            if self.table.take(page, Flag::Locked) {
                self.table.set(moved, Flag::Locked);
            }
            if self.table.has(moved, Flag::Locked) {
                self.locks.add(moved);
            }
        }
        self.locks.pages = before;
    }
}
