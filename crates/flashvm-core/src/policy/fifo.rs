//! First in, first out: pages are evicted in the order of their arrival.
//!
//! References are ignored, with one exception: a page touched after it was proposed becomes the
//! youngest.

use super::lists::{Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const QUEUE: u8 = 1;

/// The queue; its tail is the oldest page.
pub(super) struct Fifo {
    lists: Lists<1>,
}

impl Fifo {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
        }
    }

    fn link(&mut self, page: PageId) {
        if self.lists.place(page) == NOWHERE {
            self.lists.enter(page, QUEUE);
        }
    }
}

impl Policy for Fifo {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.link(page);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.link(page);
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) == QUEUE {
            self.lists.enter_tail(page, QUEUE);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.lists.pop(QUEUE).map(Proposal::Evict)
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_evicted_first_whatever_was_touched() {
        let mut fifo = Fifo::new(8);
        for page in 0..4 {
            fifo.inserted(PageId(page), Some(Access::Read));
        }
        fifo.touched(PageId(0), Access::Read);
        fifo.removed(PageId(1));
        fifo.relocated(PageId(2), PageId(7));
        let order: Vec<_> = std::iter::from_fn(|| fifo.propose()).collect();
        assert_eq!(order, [0, 7, 3].map(|p| Proposal::Evict(PageId(p))));
    }
}
