//! LRU: evicts the least recently referenced page (Coffman and Denning, *Operating Systems Theory*,
//! 1973).
//!
//! It needs to observe every reference. A live pager reports only first stores and references that
//! take back a leaving page: pages are then ordered by their last observed reference.

use super::lists::{Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const STACK: u8 = 1;

/// The stack; its head was referenced last.
pub(super) struct Lru {
    lists: Lists<1>,
}

impl Lru {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
        }
    }
}

impl Policy for Lru {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.lists.enter(page, STACK);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.lists.head(STACK) != Some(page) {
            self.lists.enter(page, STACK);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) != NOWHERE {
            self.lists.enter_tail(page, STACK);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.lists.pop(STACK).map(Proposal::Evict)
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted_first() {
        let mut lru = Lru::new(8);
        for page in 0..4 {
            lru.inserted(PageId(page), Some(Access::Read));
        }
        lru.touched(PageId(0), Access::Read);
        lru.cooled(PageId(3));
        lru.touched(PageId(1), Access::Write);
        let order: Vec<_> = std::iter::from_fn(|| lru.propose()).collect();
        assert_eq!(order, [3, 2, 0, 1].map(|p| Proposal::Evict(PageId(p))));
    }
}
