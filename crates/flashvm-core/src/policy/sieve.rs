//! SIEVE: a queue in which pages keep their places, and a hand that searches for an unvisited one
//! (Zhang, Yang, Yue, Vigfusson and Rashmi, NSDI 2024).
//!
//! New pages enter at the head. The hand moves from the tail to the head, clears the bits of
//! visited pages, evicts the first unvisited one, and stays there. A passed page keeps its place,
//! unlike in CLOCK, so new pages are soon examined.

use super::lists::{Bit, Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const QUEUE: u8 = 1;
const VISITED: Bit = Bit::Referenced;

/// The queue and the hand.
pub(super) struct Sieve {
    lists: Lists<1>,
    /// The page to examine next; none: the tail.
    hand: Option<PageId>,
}

impl Sieve {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
            hand: None,
        }
    }

    /// Moves the hand off a page that leaves its place.
    fn leave(&mut self, page: PageId) {
        if self.hand == Some(page) {
            self.hand = self.lists.towards_head(page);
        }
    }
}

impl Policy for Sieve {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.leave(page);
        self.lists.enter(page, QUEUE);
        self.lists.clear(page, VISITED);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.lists.place(page) == NOWHERE {
            self.lists.enter(page, QUEUE);
        }
        self.lists.set(page, VISITED);
    }

    fn removed(&mut self, page: PageId) {
        self.leave(page);
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) == QUEUE {
            self.leave(page);
            self.lists.enter_tail(page, QUEUE);
            self.lists.clear(page, VISITED);
            self.hand = None;
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        let page = self.hand.or(self.lists.tail(QUEUE))?;
        self.hand = self.lists.towards_head(page);
        if self.lists.take(page, VISITED) {
            return Some(Proposal::Unreference(page));
        }
        self.lists.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.removed(to);
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    /// The paper's first figure, scaled down: visited pages keep their places.
    #[test]
    fn the_hand_stays_where_it_found_a_victim() {
        let mut sieve = Sieve::new(16);
        for page in 0..5 {
            sieve.inserted(PageId(page), Some(Access::Read));
        }
        sieve.touched(PageId(0), Access::Read);
        sieve.touched(PageId(2), Access::Read);
        assert_eq!(sieve.propose(), Some(Unreference(PageId(0))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(1))));
        sieve.inserted(PageId(6), Some(Access::Read));
        assert_eq!(sieve.propose(), Some(Unreference(PageId(2))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(3))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(4))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(6))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(0))));
        assert_eq!(sieve.propose(), Some(Evict(PageId(2))));
        assert_eq!(sieve.propose(), None);
    }
}
