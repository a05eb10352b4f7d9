//! CFCLOCK: the clean-first window on a CLOCK (CRAW paper, V.A: "a modified version of CFLRU to
//! work efficiently in virtual memory environments").
//!
//! The window is the next third of the frames under the hand. An unreferenced clean page in it is
//! evicted first, then an unreferenced dirty one; if all pages of the window are referenced, the
//! search continues behind it.
//!
//! What the paper leaves open:
//! - *When bits are cleared.* A fruitless scan of the window clears the bits of the pages it
//!   considered, as the hand of a CLOCK clears those it passes: the scan for a clean victim the
//!   bits of clean pages, the scan for a dirty victim the bits of dirty ones. So the clean pages of
//!   such a window have had their second chance, and are evicted next.
//! - *Where the hand stays.* A victim from the window leaves it in place, so that the skipped dirty
//!   pages stay in the window, as those of CFLRU do in the clean-first region. A search behind the
//!   window leaves the hand too, and passes referenced pages as any CLOCK does.
//! - *Scanning.* The window's pages are in lists by class, in the order in which they entered it: a
//!   scan only looks at the tails.

use super::lists::{Bit, ListId, Lists, NOWHERE};
use super::{Policy, Proposal, window};
use crate::event::Access;
use crate::ids::PageId;

/// The ring: the window, whose tail is under the hand, and the rest behind it.
const REST: ListId = 1;
const WINDOW: ListId = 2;
/// Classes of the window's pages; referenced ones are `REFERENCED` higher.
const CLEAN: ListId = 1;
const DIRTY: ListId = 2;
const REFERENCED: ListId = 2;

/// The progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Nothing was searched yet.
    Window,
    /// The window has no clean victim: bits are being cleared. Holds the dirty victim, if any.
    Clearing(Option<PageId>),
    /// The window has no victim: the search continues behind it.
    Behind,
}

/// The ring.
pub(super) struct CfClock {
    ring: Lists<2>,
    classes: Lists<4>,
    search: Search,
    share: u32,
    window: u32,
}

impl CfClock {
    /// A window of `share` parts in a million of the frames.
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            ring: Lists::new(pages),
            classes: Lists::new(pages),
            search: Search::Window,
            share,
            window: 1,
        }
    }

    /// Lists a page by its class, if it is in the window.
    fn file(&mut self, page: PageId) {
        if self.ring.place(page) != WINDOW {
            self.classes.remove(page);
            return;
        }
        let dirty = self.ring.has(page, Bit::Dirty);
        let referenced = self.ring.has(page, Bit::Referenced);
        let class = if dirty { DIRTY } else { CLEAN };
        let class = class + if referenced { REFERENCED } else { 0 };
        if self.classes.place(page) != class {
            self.classes.enter(page, class);
        }
    }

    /// Restarts the search if this page is the chosen dirty victim.
    fn unchoose(&mut self, page: PageId) {
        if self.search == Search::Clearing(Some(page)) {
            self.search = Search::Window;
        }
    }

    /// Moves the far border of the window to its position.
    fn settle(&mut self) {
        while self.ring.len(WINDOW) > self.window
            && let Some(page) = self.ring.head(WINDOW)
        {
            self.ring.enter_tail(page, REST);
            self.file(page);
        }
        while self.ring.len(WINDOW) < self.window
            && let Some(page) = self.ring.tail(REST)
        {
            self.ring.enter(page, WINDOW);
            self.file(page);
        }
    }

    fn unreference(&mut self, page: PageId) -> Option<Proposal> {
        self.ring.clear(page, Bit::Referenced);
        self.file(page);
        Some(Proposal::Unreference(page))
    }

    fn evict(&mut self, page: PageId) -> Option<Proposal> {
        self.search = Search::Window;
        self.classes.remove(page);
        self.ring.remove(page);
        Some(Proposal::Evict(page))
    }
}

impl Policy for CfClock {
    fn resized(&mut self, frames: u32) {
        self.window = window::pages(frames, self.share);
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.unchoose(page);
        self.ring.enter(page, REST);
        match by {
            Some(_) => self.ring.set(page, Bit::Referenced),
            None => self.ring.clear(page, Bit::Referenced),
        }
        self.file(page);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.ring.place(page) == NOWHERE {
            self.ring.enter(page, REST);
        }
        if !self.ring.has(page, Bit::Referenced) {
            self.unchoose(page);
            self.ring.set(page, Bit::Referenced);
            self.file(page);
        }
    }

    fn dirtied(&mut self, page: PageId) {
        self.ring.set(page, Bit::Dirty);
        self.file(page);
    }

    fn cleaned(&mut self, page: PageId) {
        self.ring.clear(page, Bit::Dirty);
        self.file(page);
    }

    fn removed(&mut self, page: PageId) {
        self.unchoose(page);
        self.classes.forget(page);
        self.ring.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.ring.place(page) != NOWHERE {
            self.ring.clear(page, Bit::Referenced);
            self.ring.enter_tail(page, WINDOW);
            self.file(page);
            let class = self.classes.place(page);
            self.classes.enter_tail(page, class);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.settle();
        if self.search == Search::Window {
            if let Some(page) = self.classes.tail(CLEAN) {
                return self.evict(page);
            }
            self.search = Search::Clearing(self.classes.tail(DIRTY));
        }
        if let Search::Clearing(victim) = self.search {
            if let Some(page) = self.classes.tail(CLEAN + REFERENCED) {
                return self.unreference(page);
            }
            if let Some(page) = victim {
                return self.evict(page);
            }
            if let Some(page) = self.classes.tail(DIRTY + REFERENCED) {
                return self.unreference(page);
            }
            self.search = Search::Behind;
        }
        let Some(page) = self.ring.tail(REST) else {
            // The window holds all pages, and some may have been referenced again.
            let page = self.classes.tail(CLEAN).or(self.classes.tail(DIRTY));
            if let Some(page) = page {
                return self.evict(page);
            }
            let page = self.ring.tail(WINDOW)?;
            return self.unreference(page);
        };
        if self.ring.has(page, Bit::Referenced) {
            self.ring.enter(page, REST);
            return self.unreference(page);
        }
        self.evict(page)
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.unchoose(from);
        self.unchoose(to);
        self.classes.relocate(from, to);
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
    fn fruitless_scans_clear_the_bits_they_considered() {
        let mut clock = of(9);
        clock.dirtied(PageId(1));
        for page in [0, 2] {
            clock.touched(PageId(page), Access::Read);
        }
        // No clean page is unreferenced: 0 and 2 lose their bits, the dirty 1 goes.
        assert_eq!(clock.propose(), Some(Unreference(PageId(0))));
        assert_eq!(clock.propose(), Some(Unreference(PageId(2))));
        assert_eq!(clock.propose(), Some(Evict(PageId(1))));
        assert_eq!(clock.propose(), Some(Evict(PageId(0))));
        assert_eq!(clock.propose(), Some(Evict(PageId(2))));
    }

    #[test]
    fn behind_a_referenced_window_the_search_goes_on() {
        let mut clock = of(5);
        for page in [0, 1, 2, 3] {
            clock.touched(PageId(page), Access::Read);
        }
        clock.dirtied(PageId(0));
        clock.dirtied(PageId(4));
        for page in [1, 2, 0, 3] {
            assert_eq!(clock.propose(), Some(Unreference(PageId(page))));
        }
        assert_eq!(clock.propose(), Some(Evict(PageId(4))));
        assert_eq!(clock.propose(), Some(Evict(PageId(1))));
    }
}
