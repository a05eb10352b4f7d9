//! The lists that ARC and CAR share: T1 for pages referenced once, T2 for pages referenced more
//! often, their histories B1 and B2, and T1's target `p`, moved by hits in the histories
//! (Megiddo and Modha, FAST 2003, Figure 4; Bansal and Modha, FAST 2004, Figure 2).

use super::lists::{ListId, Lists};

pub(super) const T1: ListId = 1;
pub(super) const T2: ListId = 2;
pub(super) const B1: ListId = 3;
pub(super) const B2: ListId = 4;

/// The four lists.
pub(super) struct Adaptive {
    pub(super) lists: Lists<4>,
    /// Frames: c.
    frames: u32,
    /// Target size of T1: p.
    pub(super) target: f64,
}

impl Adaptive {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
            frames: 1,
            target: 0.0,
        }
    }

    /// Adopts a new number of frames, and trims the histories to it.
    pub(super) fn resize(&mut self, frames: u32) {
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

    /// A wanted page was found at `place`: a hit in B1 increases T1's target, a hit in B2 decreases
    /// it, by max(1, length of the other history / length of this one).
    pub(super) fn learn(&mut self, place: ListId) {
        let len = |place| f64::from(self.lists.len(place));
        match place {
            B1 => {
                let step = (len(B2) / len(B1)).max(1.0);
                self.target = (self.target + step).min(f64::from(self.frames));
            }
            B2 => {
                let step = (len(B1) / len(B2)).max(1.0);
                self.target = (self.target - step).max(0.0);
            }
            _ => {}
        }
    }

    /// Makes room in the histories for a page that is in neither.
    pub(super) fn forget_oldest(&mut self) {
        let len = |place| self.lists.len(place);
        if len(T1) + len(B1) >= self.frames {
            self.lists.pop(B1);
        } else if len(T1) + len(T2) + len(B1) + len(B2) >= self.frames.saturating_mul(2) {
            self.lists.pop(B2);
        }
    }
}
