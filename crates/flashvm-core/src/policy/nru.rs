//! NRU: classes by reference and modified bit, the lowest class first (Carr and Hennessy 1981; as
//! described in the CRAW paper, II.A).
//!
//! Pages are evicted in the order (reference bit, modified bit) = (0, 0), (0, 1), (1, 0), (1, 1),
//! within a class in the order in which they entered it. Reference bits are "periodically cleared
//! by the clock-hand"; the paper leaves the period open, and a policy has no clock. Here the hand
//! advances whenever less than a third of the pages is unreferenced, as Linux does with its
//! inactive list, and takes the oldest page of each referenced class in turn. So a cleared page has
//! about as many faults to be referenced again as there are unreferenced pages. (Clearing one page
//! for each victim left it one fault, with a result worse than FIFO.)

use super::lists::{Bit, ListId, Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// The class of (reference bit, modified bit) = (0, 0); the others follow.
const CLASS: ListId = 1;
const REFERENCED: ListId = 2;
const MODIFIED: ListId = 1;
/// Unreferenced pages: 1 / UNREFERENCED_SHARE of all.
const UNREFERENCED_SHARE: u32 = 3;

/// The classes.
pub(super) struct Nru {
    classes: Lists<4>,
    /// Whether the hand takes the next page from the modified one of the two referenced classes.
    hand_on_modified: bool,
}

impl Nru {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            classes: Lists::new(pages),
            hand_on_modified: false,
        }
    }

    fn classify(&mut self, page: PageId, referenced: bool) {
        let modified = self.classes.has(page, Bit::Dirty);
        let class = CLASS + u8::from(referenced) * REFERENCED + u8::from(modified) * MODIFIED;
        if self.classes.place(page) != class {
            self.classes.enter(page, class);
        }
    }

    fn modify(&mut self, page: PageId) {
        let place = self.classes.place(page);
        if place != NOWHERE {
            self.classify(page, place >= CLASS + REFERENCED);
        }
    }

    fn unreferenced_are_short(&self) -> bool {
        let len = |class| self.classes.len(class);
        let unreferenced = len(CLASS) + len(CLASS + MODIFIED);
        let referenced = len(CLASS + REFERENCED) + len(CLASS + REFERENCED + MODIFIED);
        unreferenced < ((unreferenced + referenced) / UNREFERENCED_SHARE).max(1)
    }

    /// Clears the reference bit of the next page under the hand.
    fn go_on(&mut self) -> Option<PageId> {
        let modified = self.hand_on_modified;
        self.hand_on_modified = !modified;
        let class = |modified| CLASS + REFERENCED + u8::from(modified) * MODIFIED;
        let next = self.classes.tail(class(modified));
        let page = next.or(self.classes.tail(class(!modified)))?;
        self.classify(page, false);
        Some(page)
    }
}

impl Policy for Nru {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.classify(page, by.is_some());
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.classify(page, true);
    }

    fn dirtied(&mut self, page: PageId) {
        self.classes.set(page, Bit::Dirty);
        self.modify(page);
    }

    fn cleaned(&mut self, page: PageId) {
        self.classes.clear(page, Bit::Dirty);
        self.modify(page);
    }

    fn removed(&mut self, page: PageId) {
        self.classes.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.classes.place(page) != NOWHERE {
            self.classify(page, false);
            let class = self.classes.place(page);
            self.classes.enter_tail(page, class);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        if self.unreferenced_are_short()
            && let Some(page) = self.go_on()
        {
            return Some(Proposal::Unreference(page));
        }
        let page = (CLASS..CLASS + 4).find_map(|class| self.classes.tail(class))?;
        self.classes.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.classes.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victim(nru: &mut Nru) -> Option<u32> {
        loop {
            match nru.propose()? {
                Proposal::Unreference(_) => {}
                Proposal::Evict(page) => return Some(page.0),
            }
        }
    }

    #[test]
    fn classes_are_evicted_in_the_paper_s_order() {
        let mut nru = Nru::new(8);
        for page in 0..4 {
            nru.inserted(PageId(page), (page >= 2).then_some(Access::Read));
        }
        nru.dirtied(PageId(0));
        nru.dirtied(PageId(3));
        // 0 is (0, 1), 1 is (0, 0), 2 is (1, 0), 3 is (1, 1).
        assert_eq!(victim(&mut nru), Some(1));
        assert_eq!(victim(&mut nru), Some(0));
        assert_eq!(victim(&mut nru), Some(2));
        assert_eq!(victim(&mut nru), Some(3));
        assert_eq!(victim(&mut nru), None);
    }

    #[test]
    fn the_hand_keeps_a_third_unreferenced() {
        let mut nru = Nru::new(8);
        for page in 0..6 {
            nru.inserted(PageId(page), Some(Access::Read));
        }
        assert_eq!(nru.propose(), Some(Proposal::Unreference(PageId(0))));
        assert_eq!(nru.propose(), Some(Proposal::Unreference(PageId(1))));
        nru.touched(PageId(0), Access::Read);
        assert_eq!(nru.propose(), Some(Proposal::Unreference(PageId(2))));
        assert_eq!(nru.propose(), Some(Proposal::Evict(PageId(1))));
    }
}
