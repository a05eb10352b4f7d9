//! S3-FIFO: a small queue that filters, a main queue, and a history of pages evicted by the filter
//! (Yang, Zhang, Qiu, Yue and Rashmi, *FIFO Queues Are All You Need*, SOSP 2023).
//!
//! New pages enter the small queue S, a tenth of the frames. A page at the end of S goes to the
//! main queue M if it was referenced more than once; otherwise it is evicted and remembered in the
//! ghost queue G. A page remembered there enters M. A referenced page at the end of M enters M
//! anew, with one reference less. References are counted up to three.
//!
//! As in the paper, victims come from S while it holds its tenth or more, G remembers as many pages
//! as M may hold, and the count of a page that moves to M restarts at 0. A page that is touched
//! after it was proposed enters M.

use super::lists::{Bit, Lists};
use super::{Policy, Proposal, window};
use crate::event::Access;
use crate::ids::PageId;

const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;

/// References, up to three, in two bits.
const ONE: Bit = Bit::Referenced;
const TWO: Bit = Bit::Mark;

/// The queues.
pub(super) struct S3Fifo {
    lists: Lists<3>,
    share: u32,
    small: u32,
    ghosts: u32,
}

impl S3Fifo {
    /// A small queue of `share` / 10^6 of the frames.
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            lists: Lists::new(pages),
            share,
            small: 1,
            ghosts: 1,
        }
    }

    fn count(&self, page: PageId) -> u8 {
        u8::from(self.lists.has(page, ONE)) + 2 * u8::from(self.lists.has(page, TWO))
    }

    fn put_count(&mut self, page: PageId, count: u8) {
        for (bit, on) in [(ONE, count & 1 != 0), (TWO, count & 2 != 0)] {
            match on {
                true => self.lists.set(page, bit),
                false => self.lists.clear(page, bit),
            }
        }
    }
}

impl Policy for S3Fifo {
    fn resized(&mut self, frames: u32) {
        self.small = window::pages(frames, self.share);
        self.ghosts = frames.saturating_sub(self.small).max(1);
        while self.lists.len(GHOST) > self.ghosts {
            self.lists.pop(GHOST);
        }
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let remembered = self.lists.place(page) == GHOST && by.is_some();
        self.lists
            .enter(page, if remembered { MAIN } else { SMALL });
        self.put_count(page, 0);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if matches!(self.lists.place(page), SMALL | MAIN) {
            let count = self.count(page);
            if count < 3 {
                self.put_count(page, count + 1);
            }
        } else {
            self.lists.enter(page, MAIN);
            self.put_count(page, 0);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if matches!(self.lists.place(page), SMALL | MAIN) {
            self.lists.enter_tail(page, SMALL);
            self.put_count(page, 0);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        let of_small = self.lists.len(SMALL) >= self.small || self.lists.len(MAIN) == 0;
        let page = self.lists.tail(if of_small { SMALL } else { MAIN })?;
        let count = self.count(page);
        if of_small && count > 1 {
            self.lists.enter(page, MAIN);
            self.put_count(page, 0);
            return Some(Proposal::Unreference(page));
        }
        if of_small {
            if self.lists.len(GHOST) >= self.ghosts {
                self.lists.pop(GHOST);
            }
            self.lists.enter(page, GHOST);
            return Some(Proposal::Evict(page));
        }
        if count > 0 {
            self.lists.enter(page, MAIN);
            self.put_count(page, count - 1);
            return Some(Proposal::Unreference(page));
        }
        self.lists.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victim(policy: &mut S3Fifo) -> Option<u32> {
        loop {
            match policy.propose()? {
                Proposal::Unreference(_) => {}
                Proposal::Evict(page) => return Some(page.0),
            }
        }
    }

    #[test]
    fn the_small_queue_filters_and_the_ghosts_remember() {
        let mut policy = S3Fifo::new(32, 100_000);
        policy.resized(10);
        for page in 0..10 {
            policy.inserted(PageId(page), Some(Access::Read));
        }
        policy.touched(PageId(0), Access::Read);
        policy.touched(PageId(1), Access::Read);
        policy.touched(PageId(1), Access::Read);
        // Once is not enough.
        assert_eq!(victim(&mut policy), Some(0));
        assert_eq!(victim(&mut policy), Some(2));
        assert_eq!(policy.lists.place(PageId(1)), MAIN);
        policy.inserted(PageId(0), Some(Access::Read));
        assert_eq!(policy.lists.place(PageId(0)), MAIN);
        policy.inserted(PageId(2), None);
        assert_eq!(policy.lists.place(PageId(2)), SMALL);
    }
}
