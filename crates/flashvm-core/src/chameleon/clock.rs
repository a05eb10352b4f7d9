//! Two-FIFO clocks, one for each shape (paper, 3.2, Figure 3).
//!
//! Each shape has an active and an inactive FIFO of the frames in which that range is in use. A range
//! at the tail of the active FIFO goes back to its head if it was referenced, else to the inactive
//! one; at the tail of that it goes back to the active one if it was referenced, else it is the
//! victim. A reference counts for the range itself, for those that hold it and for those that lie in
//! it. So a page is not replaced by a smaller one while any part of it is in use; a larger page may be
//! the victim of a smaller request, and several small cold neighbours that of a larger one.
//!
//! References come from faults alone: a range that turns inactive is to be unmapped, so that the next
//! touch of it tells.
//!
//! A range is in one FIFO of its shape at most. It leaves when it is free and comes by. A shape's
//! clock starts when it is first asked for a victim: programs use few sizes.

use super::frames::{FrameId, Frames};
use super::shape::Shape;
use std::collections::VecDeque;

/// The active FIFO is kept at most this many times as long as the inactive one.
const ACTIVE_SHARE: usize = 3;

/// What a clock wants done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The range has turned inactive: from here on touches of it have to be faults.
    Unmap(FrameId),
    /// The range was not referenced while it was inactive: what lies in it may go. If it cannot,
    /// [`Clocks::keep`] says so.
    Evict(FrameId),
}

/// The clocks of all shapes.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// By shape.
    active: [VecDeque<FrameId>; 16],
    inactive: [VecDeque<FrameId>; 16],
    /// By frame: the set of ranges that were referenced since their clocks last looked.
    referenced: Vec<u16>,
    /// By frame: the set of ranges that are in a FIFO.
    queued: Vec<u16>,
    /// The set of shapes whose clock runs.
    running: u16,
}

impl Clocks {
    /// Clocks for a pool of at most `most` frames.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self {
            active: Default::default(),
            inactive: Default::default(),
            referenced: vec![0; most as usize],
            queued: vec![0; most as usize],
            running: 0,
        }
    }

    /// A page has come to lie in a frame, or one that was a victim stays: its ranges are at the head of
    /// their active FIFOs, unreferenced. Those that were in a FIFO already count as referenced.
    pub fn keep(&mut self, frame: FrameId, page: Shape) {
        let at = frame.0 as usize;
        let overlapping = page.overlapping() & self.running;
        self.referenced[at] |= overlapping & self.queued[at];
        let new = overlapping & !self.queued[at];
        self.referenced[at] &= !new;
        self.queued[at] |= new;
        for shape in super::shape::shapes_of(new) {
            self.active[shape.number() as usize].push_front(frame);
        }
    }

    /// A page was touched.
    pub fn reference(&mut self, frame: FrameId, page: Shape) {
        self.referenced[frame.0 as usize] |= page.overlapping();
    }

    /// Whether a range counts as referenced.
    #[must_use]
    pub fn is_referenced(&self, frame: FrameId, range: Shape) -> bool {
        self.referenced[frame.0 as usize] & range.bit() != 0
    }

    /// Ranges in the active and the inactive FIFO of a shape.
    #[must_use]
    pub fn len(&self, shape: Shape) -> (usize, usize) {
        let at = shape.number() as usize;
        (self.active[at].len(), self.inactive[at].len())
    }

    /// The next step towards a free range of this shape; `None` if nothing lies in any.
    pub fn step(&mut self, shape: Shape, frames: &Frames) -> Option<Step> {
        self.start(shape, frames);
        let at = shape.number() as usize;
        // Each range is looked at twice at most, then the next one has to go.
        let mut patience = 2 * (self.active[at].len() + self.inactive[at].len());
        loop {
            let (active, inactive) = self.len(shape);
            if active > 0 && (inactive == 0 || active > ACTIVE_SHARE * inactive) {
                if let Some(frame) = self.turn_inactive(shape, frames) {
                    return Some(Step::Unmap(frame));
                }
                patience = patience.saturating_sub(1);
                if patience > 0 || self.inactive[at].is_empty() {
                    continue;
                }
            }
            let frame = self.inactive[at].pop_back()?;
            if frames.is_free(frame, shape) {
                self.queued[frame.0 as usize] &= !shape.bit();
            } else if patience > 0 && self.take_reference(frame, shape) {
                patience -= 1;
                self.active[at].push_front(frame);
            } else {
                self.queued[frame.0 as usize] &= !shape.bit();
                return Some(Step::Evict(frame));
            }
        }
    }

    /// A range of this shape that has turned inactive, without a victim being needed: for when
    /// only the number of mapped ranges is bounded. `None`: there is no active one.
    pub fn cool(&mut self, shape: Shape, frames: &Frames) -> Option<FrameId> {
        self.start(shape, frames);
        let at = shape.number() as usize;
        if self.active[at].is_empty() {
            for _ in 0..self.inactive[at].len() {
                let frame = self.inactive[at].pop_back()?;
                if frames.is_free(frame, shape) {
                    self.queued[frame.0 as usize] &= !shape.bit();
                } else if self.take_reference(frame, shape) {
                    self.active[at].push_front(frame);
                } else {
                    self.inactive[at].push_front(frame);
                }
            }
        }
        (0..2 * self.active[at].len()).find_map(|_| self.turn_inactive(shape, frames))
    }

    /// Looks at the tail of the active FIFO. The range, if it has turned inactive.
    fn turn_inactive(&mut self, shape: Shape, frames: &Frames) -> Option<FrameId> {
        let at = shape.number() as usize;
        let frame = self.active[at].pop_back()?;
        if frames.is_free(frame, shape) {
            self.queued[frame.0 as usize] &= !shape.bit();
        } else if self.take_reference(frame, shape) {
            self.active[at].push_front(frame);
        } else {
            self.inactive[at].push_front(frame);
            return Some(frame);
        }
        None
    }

    /// Clears a reference. Whether there was one.
    fn take_reference(&mut self, frame: FrameId, shape: Shape) -> bool {
        let referenced = &mut self.referenced[frame.0 as usize];
        let was = *referenced & shape.bit() != 0;
        *referenced &= !shape.bit();
        was
    }

    /// Starts a shape's clock with what lies in its ranges.
    fn start(&mut self, shape: Shape, frames: &Frames) {
        if self.running & shape.bit() != 0 {
            return;
        }
        self.running |= shape.bit();
        for frame in frames.occupied(shape) {
            self.active[shape.number() as usize].push_front(frame);
            self.queued[frame.0 as usize] |= shape.bit();
            self.referenced[frame.0 as usize] &= !shape.bit();
        }
    }
}

#[cfg(test)]
mod tests;
