//! ARC: adaptive replacement (Megiddo and Modha, FAST 2003, Figure 4).
//!
//! LRU lists T1 (referenced once) and T2 (referenced more often), with histories B1 and B2. A hit
//! in B1 increases T1's target `p`, a hit in B2 decreases it, both before the victim is chosen:
//! [`Policy::wanted`] reports it. The page leaves its history at once, and is marked until it comes
//! in.
//!
//! The history is trimmed when a page comes in, not just before the victim is chosen as in the
//! paper: the result is the same, as the victim enters at the other end.
//!
//! Like LRU it needs to observe every reference; `lru` says what it observes live.

use super::adaptive::{Adaptive, B1, B2, T1, T2};
use super::lists::{Bit, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::{Nanos, PageId};

/// Found in the history by the current fault.
const FOUND: Bit = Bit::Mark;

/// The lists.
pub(super) struct Arc {
    adaptive: Adaptive,
    /// The wanted page was found in B2.
    found_in_b2: bool,
}

impl Arc {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            adaptive: Adaptive::new(pages),
            found_in_b2: false,
        }
    }
}

impl Policy for Arc {
    fn resized(&mut self, frames: u32) {
        self.adaptive.resize(frames);
    }

    fn wanted(&mut self, page: PageId, _access: Access, _cost: Nanos) {
        let place = self.adaptive.lists.place(page);
        self.adaptive.learn(place);
        self.found_in_b2 = place == B2;
        if matches!(place, B1 | B2) {
            self.adaptive.lists.remove(page);
            self.adaptive.lists.set(page, FOUND);
        }
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.found_in_b2 = false;
        let found = self.adaptive.lists.take(page, FOUND);
        let to = if found && by.is_some() { T2 } else { T1 };
        if to == T1 && self.adaptive.lists.place(page) == NOWHERE {
            self.adaptive.forget_oldest();
        }
        self.adaptive.lists.enter(page, to);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.adaptive.lists.head(T2) != Some(page) {
            self.adaptive.lists.enter(page, T2);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.adaptive.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if matches!(self.adaptive.lists.place(page), T1 | T2) {
            self.adaptive.lists.enter_tail(page, T1);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        let once = f64::from(self.adaptive.lists.len(T1));
        let over =
            once > self.adaptive.target || (self.found_in_b2 && once == self.adaptive.target);
        let (list, history) = match (over && once > 0.0) || self.adaptive.lists.len(T2) == 0 {
            true => (T1, B1),
            false => (T2, B2),
        };
        let page = self.adaptive.lists.tail(list)?;
        self.adaptive.lists.enter(page, history);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.adaptive.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(arc: &mut Arc, page: u32, full: bool) -> Option<u32> {
        let page = PageId(page);
        arc.wanted(page, Access::Read, Nanos(0));
        let victim = full.then(|| arc.propose()).flatten();
        arc.inserted(page, Some(Access::Read));
        victim.map(|proposal| match proposal {
            Proposal::Evict(page) => page.0,
            Proposal::Unreference(_) => unreachable!("ARC clears no bits"),
        })
    }

    #[test]
    fn a_scan_leaves_pages_used_twice() {
        let mut arc = Arc::new(64);
        arc.resized(4);
        for page in 0..4 {
            fault(&mut arc, page, false);
        }
        arc.touched(PageId(0), Access::Read);
        arc.touched(PageId(1), Access::Read);
        let victims: Vec<_> = (10..16).filter_map(|p| fault(&mut arc, p, true)).collect();
        assert_eq!(victims, [2, 3, 10, 11, 12, 13]);
    }

    #[test]
    fn a_hit_in_b1_increases_the_target_of_t1() {
        let mut arc = Arc::new(64);
        arc.resized(4);
        for page in 0..4 {
            fault(&mut arc, page, false);
        }
        arc.touched(PageId(0), Access::Read);
        assert_eq!(fault(&mut arc, 5, true), Some(1));
        assert_eq!(arc.adaptive.target, 0.0);
        fault(&mut arc, 1, true);
        assert_eq!(arc.adaptive.target, 1.0);
        assert_eq!(arc.adaptive.lists.place(PageId(1)), T2);
    }
}
