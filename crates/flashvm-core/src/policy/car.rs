//! CAR: CLOCK with adaptive replacement (Bansal and Modha, FAST 2004, Figure 2).
//!
//! Two clocks: T1 for pages referenced once, T2 for pages referenced more often; B1 and B2 are
//! their histories. A hit in B1 means that T1 was too small: its target `p` increases; a hit in B2
//! decreases it. Hands are at the tails of the lists.
//!
//! A page that returns after it was proposed, before its frame was reused, is a page of T1 or T2
//! whose bit was set: it goes to T2. A prefetched page counts as referenced for the first time,
//! whatever the history says, and teaches nothing.

use super::adaptive::{Adaptive, B1, B2, T1, T2};
use super::lists::{Bit, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// The clocks and their histories.
pub(super) struct Car {
    adaptive: Adaptive,
}

impl Car {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            adaptive: Adaptive::new(pages),
        }
    }
}

impl Policy for Car {
    fn resized(&mut self, frames: u32) {
        self.adaptive.resize(frames);
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let to = match self.adaptive.lists.place(page) {
            place @ (B1 | B2) if by.is_some() => {
                self.adaptive.learn(place);
                T2
            }
            NOWHERE => {
                self.adaptive.forget_oldest();
                T1
            }
            _ => T1,
        };
        self.adaptive.lists.enter(page, to);
        self.adaptive.lists.clear(page, Bit::Referenced);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if matches!(self.adaptive.lists.place(page), T1 | T2) {
            self.adaptive.lists.set(page, Bit::Referenced);
        } else {
            self.adaptive.lists.enter(page, T2);
            self.adaptive.lists.clear(page, Bit::Referenced);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.adaptive.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if matches!(self.adaptive.lists.place(page), T1 | T2) {
            self.adaptive.lists.enter_tail(page, T1);
            self.adaptive.lists.clear(page, Bit::Referenced);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        let of_t1 = f64::from(self.adaptive.lists.len(T1)) >= self.adaptive.target.max(1.0);
        let (clock, history) = match of_t1 || self.adaptive.lists.len(T2) == 0 {
            true => (T1, B1),
            false => (T2, B2),
        };
        let page = self.adaptive.lists.tail(clock)?;
        if self.adaptive.lists.take(page, Bit::Referenced) {
            self.adaptive.lists.enter(page, T2);
            return Some(Proposal::Unreference(page));
        }
        self.adaptive.lists.enter(page, history);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.adaptive.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests;
