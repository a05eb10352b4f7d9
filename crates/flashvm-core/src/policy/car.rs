//! CAR: CLOCK with adaptive replacement (Bansal and Modha, FAST 2004, Figure 2).
//!
//! Two clocks: T1 for pages seen once, T2 for pages seen more often; B1 and B2 remember the pages
//! that left them. A hit in B1 means that T1 was too small: its target `p` grows, and shrinks with a
//! hit in B2. Hands are at the tails of the lists.
//!
//! A page that comes back after it was proposed, before its frame was used, is a page of T1 or T2
//! whose bit was found set: it goes to T2. One that was prefetched is seen for the first time,
//! whatever is remembered, and nothing is learnt from it.

use super::lists::{Bit, Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const T1: u8 = 1;
const T2: u8 = 2;
const B1: u8 = 3;
const B2: u8 = 4;

/// The clocks and what they remember.
pub(super) struct Car {
    lists: Lists<4>,
    /// Frames: c.
    frames: u32,
    /// Target size of T1: p.
    target: f64,
}

impl Car {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
            frames: 1,
            target: 0.0,
        }
    }

    /// How much one hit changes the target: the other history's size in terms of this one's.
    fn step(&self, hit: u8, other: u8) -> f64 {
        (f64::from(self.lists.len(other)) / f64::from(self.lists.len(hit))).max(1.0)
    }

    /// Makes room in the history for a page that is in neither part of it.
    fn forget_oldest(&mut self) {
        let len = |place| self.lists.len(place);
        if len(T1) + len(B1) >= self.frames {
            self.lists.pop(B1);
        } else if len(T1) + len(T2) + len(B1) + len(B2) >= self.frames.saturating_mul(2) {
            self.lists.pop(B2);
        }
    }
}

impl Policy for Car {
    fn resized(&mut self, frames: u32) {
        self.frames = frames;
        self.target = self.target.min(f64::from(frames));
        while self.lists.len(B1) + self.lists.len(B2) > frames {
            let longer = if self.lists.len(B1) > self.lists.len(B2) {
                B1
            } else {
                B2
            };
            self.lists.pop(longer);
        }
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let to = match self.lists.place(page) {
            B1 if by.is_some() => {
                let most = f64::from(self.frames);
                self.target = (self.target + self.step(B1, B2)).min(most);
                T2
            }
            B2 if by.is_some() => {
                self.target = (self.target - self.step(B2, B1)).max(0.0);
                T2
            }
            NOWHERE => {
                self.forget_oldest();
                T1
            }
            _ => T1,
        };
        self.lists.enter(page, to);
        self.lists.clear(page, Bit::Referenced);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if matches!(self.lists.place(page), T1 | T2) {
            self.lists.set(page, Bit::Referenced);
        } else {
            self.lists.enter(page, T2);
            self.lists.clear(page, Bit::Referenced);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if matches!(self.lists.place(page), T1 | T2) {
            self.lists.enter_tail(page, T1);
            self.lists.clear(page, Bit::Referenced);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let of_t1 = f64::from(self.lists.len(T1)) >= self.target.max(1.0);
        let (clock, history) = match of_t1 || self.lists.len(T2) == 0 {
            true => (T1, B1),
            false => (T2, B2),
        };
        let page = self.lists.tail(clock)?;
        if self.lists.take(page, Bit::Referenced) {
            self.lists.enter(page, T2);
            return Some(Proposal::Unreference(page));
        }
        self.lists.enter(page, history);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests;
