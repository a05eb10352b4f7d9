//! NRU: classes by reference and modified bit, the lowest class first (Carr and Hennessy 1981; as
//! the CRAW paper, II.A, describes it).
//!
//! Pages leave in the order (reference bit, modified bit) = (0, 0), (0, 1), (1, 0), (1, 1), within
//! a class in the order in which they came into it. Reference bits are "periodically cleared by the
//! clock-hand"; the paper leaves the period open. Here the hand goes on by one referenced page with
//! every victim, the older of those with each modified bit in turn: as fast as the hand of a CLOCK
//! that finds its victims at once, in constant time, and without a clock that a policy must not look
//! at. The victim is chosen before the hand goes on: a page gets the time until the next fault to be
//! referenced again.

use super::lists::{Bit, Lists, NOWHERE, Place};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// The class of (reference bit, modified bit) = (0, 0); the others follow.
const CLASS: Place = 1;
const REFERENCED: Place = 2;
const MODIFIED: Place = 1;

/// The classes.
pub(super) struct Nru {
    classes: Lists<4>,
    /// Chosen, while the hand goes on.
    victim: Option<PageId>,
    /// Of which of the two referenced classes the hand takes a page next.
    hand_on_modified: bool,
}

impl Nru {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            classes: Lists::new(pages),
            victim: None,
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

    /// Clears the reference bit of the next page under the hand, but for `victim`.
    fn go_on(&mut self, victim: PageId) -> Option<PageId> {
        for _ in 0..2 {
            let modified = self.hand_on_modified;
            self.hand_on_modified = !modified;
            let class = CLASS + REFERENCED + u8::from(modified) * MODIFIED;
            let page = match self.classes.tail(class) {
                Some(page) if page == victim => self.classes.towards_head(page),
                page => page,
            };
            if let Some(page) = page {
                self.classify(page, false);
                return Some(page);
            }
        }
        None
    }
}

impl Policy for Nru {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.classify(page, by.is_some());
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.victim = self.victim.filter(|&victim| victim != page);
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
        self.victim = self.victim.filter(|&victim| victim != page);
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
        if let Some(page) = self.victim.take() {
            self.classes.remove(page);
            return Some(Proposal::Evict(page));
        }
        let page = (CLASS..CLASS + 4).find_map(|class| self.classes.tail(class))?;
        if let Some(unreferenced) = self.go_on(page) {
            self.victim = Some(page);
            return Some(Proposal::Unreference(unreferenced));
        }
        self.classes.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.victim = self.victim.filter(|&victim| victim != from);
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
    fn classes_go_in_the_paper_s_order() {
        let mut nru = Nru::new(8);
        for page in 0..4 {
            nru.inserted(PageId(page), (page >= 2).then_some(Access::Read));
        }
        nru.dirtied(PageId(0));
        nru.dirtied(PageId(3));
        // 0 is (0, 1), 1 is (0, 0), 2 is (1, 0), 3 is (1, 1).
        assert_eq!(victim(&mut nru), Some(1));
        nru.touched(PageId(2), Access::Read);
        assert_eq!(victim(&mut nru), Some(0));
        nru.touched(PageId(3), Access::Read);
        assert_eq!(victim(&mut nru), Some(2));
        assert_eq!(victim(&mut nru), Some(3));
        assert_eq!(victim(&mut nru), None);
    }

    #[test]
    fn the_hand_clears_one_bit_for_each_victim() {
        let mut nru = Nru::new(8);
        for page in 0..4 {
            nru.inserted(PageId(page), Some(Access::Read));
        }
        assert_eq!(nru.propose(), Some(Proposal::Unreference(PageId(1))));
        assert_eq!(nru.propose(), Some(Proposal::Evict(PageId(0))));
        assert_eq!(nru.propose(), Some(Proposal::Unreference(PageId(2))));
        assert_eq!(nru.propose(), Some(Proposal::Evict(PageId(1))));
    }
}
