//! CFCLOCK: the clean-first window on a CLOCK (CRAW paper, V.A: "a modified version of CFLRU to
//! work efficiently in virtual memory environments").
//!
//! The window is the next third of the frames under the hand. An unreferenced clean page in it goes
//! first, then an unreferenced dirty one; if all of it is referenced, the search goes on behind it.
//!
//! What the paper leaves open:
//! - *Where the hand is left.* On a victim from the window it stays, so that the dirty pages which
//!   were passed over stay in the window, as those of CFLRU do in the clean-first region.
//! - *How the search goes on.* The hand leaves the first page of the window behind, clears its bit as
//!   any CLOCK does, and the window slides on by one page. The first unreferenced page behind the
//!   window is thus found as the paper says, and as many bits are cleared as pages are passed.
//! - *Scanning.* The window's unreferenced pages are in lists, clean and dirty ones, in the order of
//!   the ring: what a scan of the window would find first is found at once.

use super::lists::{Bit, Lists};
use super::{Policy, Proposal, window};
use crate::event::Access;
use crate::ids::PageId;

/// The ring: the window, whose tail is under the hand, and the rest behind it.
const REST: u8 = 1;
const WINDOW: u8 = 2;
/// Unreferenced pages of the window.
const CLEAN: u8 = 1;
const DIRTY: u8 = 2;

/// The ring.
pub(super) struct CfClock {
    ring: Lists<2>,
    unreferenced: Lists<2>,
    share: u32,
    window: u32,
}

impl CfClock {
    /// A window of `share` parts in a million of the frames.
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            ring: Lists::new(pages),
            unreferenced: Lists::new(pages),
            share,
            window: 1,
        }
    }

    /// Files a page of the window that is not referenced.
    fn file(&mut self, page: PageId) {
        let dirty = self.ring.has(page, Bit::Dirty);
        self.unreferenced
            .enter(page, if dirty { DIRTY } else { CLEAN });
    }

    fn file_if_unreferenced(&mut self, page: PageId) {
        if self.ring.place(page) == WINDOW && !self.ring.has(page, Bit::Referenced) {
            self.file(page);
        }
    }

    fn reference(&mut self, page: PageId) {
        self.ring.set(page, Bit::Referenced);
        self.unreferenced.remove(page);
    }

    /// Moves the far border of the window to where it belongs.
    fn settle(&mut self) {
        while self.ring.len(WINDOW) > self.window
            && let Some(page) = self.ring.head(WINDOW)
        {
            self.unreferenced.remove(page);
            self.ring.enter_tail(page, REST);
        }
        while self.ring.len(WINDOW) < self.window
            && let Some(page) = self.ring.tail(REST)
        {
            self.ring.enter(page, WINDOW);
            self.file_if_unreferenced(page);
        }
    }
}

impl Policy for CfClock {
    fn resized(&mut self, frames: u32) {
        self.window = window::pages(frames, self.share);
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.unreferenced.remove(page);
        self.ring.enter(page, REST);
        self.ring.clear(page, Bit::Referenced);
        if by.is_some() {
            self.reference(page);
        }
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.ring.place(page) == super::lists::NOWHERE {
            self.ring.enter(page, REST);
        }
        self.reference(page);
    }

    fn dirtied(&mut self, page: PageId) {
        self.ring.set(page, Bit::Dirty);
        self.file_if_unreferenced(page);
    }

    fn cleaned(&mut self, page: PageId) {
        self.ring.clear(page, Bit::Dirty);
        self.file_if_unreferenced(page);
    }

    fn removed(&mut self, page: PageId) {
        self.unreferenced.forget(page);
        self.ring.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.ring.place(page) != super::lists::NOWHERE {
            self.ring.clear(page, Bit::Referenced);
            self.ring.enter_tail(page, WINDOW);
            self.file(page);
            let class = self.unreferenced.place(page);
            self.unreferenced.enter_tail(page, class);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.settle();
        let unreferenced = &self.unreferenced;
        if let Some(page) = unreferenced.tail(CLEAN).or(unreferenced.tail(DIRTY)) {
            self.unreferenced.remove(page);
            self.ring.remove(page);
            return Some(Proposal::Evict(page));
        }
        let page = self.ring.tail(WINDOW)?;
        self.ring.clear(page, Bit::Referenced);
        self.ring.enter(page, REST);
        Some(Proposal::Unreference(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.unreferenced.relocate(from, to);
        self.ring.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    fn of(pages: u32) -> CfClock {
        let mut clock = CfClock::new(16, 333_334);
        clock.resized(9);
        for page in 0..pages {
            clock.inserted(PageId(page), None);
        }
        clock
    }

    #[test]
    fn clean_pages_of_the_window_go_before_dirty_ones() {
        let mut clock = of(9);
        clock.dirtied(PageId(0));
        clock.dirtied(PageId(2));
        assert_eq!(clock.propose(), Some(Evict(PageId(1))));
        // The window has slid on: 0, 2, 3.
        assert_eq!(clock.propose(), Some(Evict(PageId(3))));
        clock.dirtied(PageId(4));
        assert_eq!(clock.propose(), Some(Evict(PageId(0))));
    }

    #[test]
    fn a_referenced_window_is_left_behind() {
        let mut clock = of(5);
        for page in [0, 1, 2, 3] {
            clock.touched(PageId(page), Access::Read);
        }
        clock.dirtied(PageId(4));
        assert_eq!(clock.propose(), Some(Unreference(PageId(0))));
        assert_eq!(clock.propose(), Some(Unreference(PageId(1))));
        assert_eq!(clock.propose(), Some(Evict(PageId(4))));
        assert_eq!(clock.propose(), Some(Evict(PageId(0))));
    }
}
