//! CFLRU: clean pages first, within a window at the LRU end (Park, Jung, Kang, Kim and Lee,
//! CASES 2006; CRAW paper, II.B).
//!
//! The last `window` pages of an LRU list are the clean-first region. The victim is its least
//! recently used clean page; without one, the least recently used page. The region is refilled from
//! the working region only when a victim is sought: until then nothing depends on its border. A
//! second list holds the region's clean pages in the same order: its tail is the victim.

use super::lists::{Bit, Lists, NOWHERE};
use super::{Policy, Proposal, window};
use crate::event::Access;
use crate::ids::PageId;

const WORKING: u8 = 1;
const REGION: u8 = 2;
const CLEAN: u8 = 1;

/// The two regions.
pub(super) struct Cflru {
    stack: Lists<2>,
    clean: Lists<1>,
    share: u32,
    window: u32,
}

impl Cflru {
    /// A window of `share` parts in a million of the frames.
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            stack: Lists::new(pages),
            clean: Lists::new(pages),
            share,
            window: 1,
        }
    }

    fn use_now(&mut self, page: PageId) {
        self.clean.remove(page);
        self.stack.enter(page, WORKING);
    }

    /// Moves the border to its position.
    fn settle(&mut self) {
        while self.stack.len(REGION) > self.window
            && let Some(page) = self.stack.head(REGION)
        {
            self.clean.remove(page);
            self.stack.enter_tail(page, WORKING);
        }
        while self.stack.len(REGION) < self.window
            && let Some(page) = self.stack.tail(WORKING)
        {
            self.stack.enter(page, REGION);
            if !self.stack.has(page, Bit::Dirty) {
                self.clean.enter(page, CLEAN);
            }
        }
    }
}

impl Policy for Cflru {
    fn resized(&mut self, frames: u32) {
        self.window = window::pages(frames, self.share);
    }

    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.use_now(page);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.stack.head(WORKING) != Some(page) {
            self.use_now(page);
        }
    }

    fn dirtied(&mut self, page: PageId) {
        self.stack.set(page, Bit::Dirty);
        self.clean.remove(page);
    }

    fn cleaned(&mut self, page: PageId) {
        self.stack.clear(page, Bit::Dirty);
        if self.stack.place(page) == REGION {
            self.clean.enter(page, CLEAN);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.clean.forget(page);
        self.stack.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.stack.place(page) != NOWHERE {
            self.stack.enter_tail(page, REGION);
            if !self.stack.has(page, Bit::Dirty) {
                self.clean.enter_tail(page, CLEAN);
            }
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.settle();
        let page = self.clean.tail(CLEAN).or(self.stack.tail(REGION))?;
        self.clean.remove(page);
        self.stack.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.clean.relocate(from, to);
        self.stack.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Naive, agree, trace};
    use super::*;
    use proptest::prelude::*;

    /// One vector, least recently used first.
    struct Plain {
        frames: usize,
        window: usize,
        stack: Vec<(u32, bool)>,
    }

    impl Naive for Plain {
        fn reference(&mut self, page: u32, write: bool) -> Option<u32> {
            let at = self.stack.iter().position(|&(other, _)| other == page);
            let dirty = at.is_some_and(|at| self.stack.remove(at).1);
            let mut victim = None;
            if at.is_none() && self.stack.len() == self.frames {
                let mut region = self.stack.iter().take(self.window);
                let clean = region.position(|&(_, dirty)| !dirty);
                victim = Some(self.stack.remove(clean.unwrap_or(0)).0);
            }
            self.stack.push((page, dirty || write));
            victim
        }
    }

    proptest! {
        #[test]
        fn matches_a_plain_list(trace in trace(), frames in 1..16_u32) {
            let mut plain = Plain {
                frames: frames as usize,
                window: (frames as usize / 3).max(1),
                stack: Vec::new(),
            };
            agree("cflru", &mut plain, frames, &trace);
        }
    }

    /// Figure 1 of the CRAW paper: P1 to P8, a window of four, P6 and P8 dirty.
    #[test]
    fn the_paper_s_example() {
        let mut cflru = Cflru::new(16, 500_000);
        cflru.resized(8);
        for page in (1..=8).rev().map(PageId) {
            cflru.inserted(page, Some(Access::Read));
        }
        cflru.dirtied(PageId(6));
        cflru.dirtied(PageId(8));
        let mut order = Vec::new();
        for _ in 0..4 {
            // No new page comes in: a window of constant size would slide on, so it shrinks.
            if let Some(Proposal::Evict(page)) = cflru.propose() {
                order.push(page.0);
            }
            cflru.window -= 1;
        }
        assert_eq!(order, [7, 5, 8, 6]);
    }
}
