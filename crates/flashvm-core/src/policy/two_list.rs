//! Two lists, active and inactive: the clock of Linux 2.6.28 for anonymous memory.
//!
//! New pages start active. When the inactive list is shorter than its share, the oldest active page
//! is deactivated (its reference bit is cleared); a touched inactive page becomes active again;
//! victims are the oldest inactive pages. Prefetched pages start inactive.
//!
//! With a small inactive share this is the segmented FIFO of Turner and Levy (1981). Every
//! deactivation costs a move into the shadow and perhaps a fault to return, and a live pager
//! observes references only that way: a small share keeps the cost low.

use super::lists::{Lists, NOWHERE};
use super::{Policy, Proposal, window};
use crate::event::Access;
use crate::ids::PageId;

pub(super) const ACTIVE: u8 = 1;
const INACTIVE: u8 = 2;

/// The lists; their tails are the oldest pages.
pub(super) struct TwoList {
    pub(super) lists: Lists<2>,
    /// Inactive pages, in millionths of all.
    pub(super) share: u32,
}

impl TwoList {
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            lists: Lists::new(pages),
            share,
        }
    }

    /// Pages in RAM.
    pub(super) fn pages(&self) -> u32 {
        self.lists.len(ACTIVE) + self.lists.len(INACTIVE)
    }

    pub(super) fn inactive_is_short(&self) -> bool {
        self.lists.len(INACTIVE) < window::pages(self.pages(), self.share)
    }
}

impl Policy for TwoList {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let place = if by.is_some() { ACTIVE } else { INACTIVE };
        self.lists.enter(page, place);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.lists.place(page) != ACTIVE {
            self.lists.enter(page, ACTIVE);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) != NOWHERE {
            self.lists.enter_tail(page, INACTIVE);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        if self.inactive_is_short()
            && let Some(page) = self.lists.tail(ACTIVE)
        {
            self.lists.enter(page, INACTIVE);
            return Some(Proposal::Unreference(page));
        }
        self.lists.pop(INACTIVE).map(Proposal::Evict)
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    #[test]
    fn touched_inactive_pages_become_active_again() {
        let mut lists = TwoList::new(16, 333_334);
        for page in 0..6 {
            lists.inserted(PageId(page), Some(Access::Read));
        }
        assert_eq!(lists.propose(), Some(Unreference(PageId(0))));
        assert_eq!(lists.propose(), Some(Unreference(PageId(1))));
        lists.touched(PageId(0), Access::Read);
        assert_eq!(lists.propose(), Some(Unreference(PageId(2))));
        assert_eq!(lists.propose(), Some(Evict(PageId(1))));
        assert_eq!(lists.propose(), Some(Evict(PageId(2))));
        let mut rest = Vec::new();
        while let Some(proposal) = lists.propose() {
            if let Evict(page) = proposal {
                rest.push(page.0);
            }
        }
        assert_eq!(rest, [3, 4, 5, 0]);
    }

    #[test]
    fn prefetched_pages_leave_before_demanded_ones() {
        let mut lists = TwoList::new(16, 333_334);
        lists.inserted(PageId(0), Some(Access::Read));
        lists.inserted(PageId(1), None);
        assert_eq!(lists.propose(), Some(Evict(PageId(1))));
    }
}
