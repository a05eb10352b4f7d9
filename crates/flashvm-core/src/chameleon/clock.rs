//! Two-FIFO clocks, one for each shape (paper, 3.2, Figure 3).
//!
//! Each shape has an active and an inactive FIFO of the frames in which its range is in use. At the
//! tail of the active FIFO a referenced range returns to the head; any other moves to the inactive
//! FIFO. At the tail of the inactive FIFO a referenced range returns to the active one; any other
//! is the victim. A reference to a range also counts for the ranges that contain it and for those
//! inside it. So a smaller page never replaces a page of which any part is in use; a larger page
//! may be the victim of a smaller request, and several small cold neighbours that of a larger one.
//!
//! References are observed by faults alone: a range that turns inactive is unmapped, so that its
//! next touch faults.
//!
//! A range is in at most one FIFO of its shape. A freed range leaves its FIFO when the clock
//! reaches it. A shape's clock starts with the first request for a victim: programs use few sizes.

use super::frames::{FrameId, Frames};
use super::shape::Shape;
use std::collections::VecDeque;

/// Bound on the active FIFO: this many times the length of the inactive one.
const ACTIVE_SHARE: usize = 3;

/// The next action of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The range has turned inactive: unmap it, so that its next touch faults.
    Unmap(FrameId),
    /// The range was not referenced while inactive: evict the pages in it. If one cannot go, call
    /// [`Clocks::keep`].
    Evict(FrameId),
}

/// A FIFO with little room to spare: a `VecDeque` doubles, and keeps what it had.
#[derive(Clone, Debug, Default)]
struct Fifo(VecDeque<FrameId>);

impl Fifo {
    /// Places to spare after a change of the room: `len / SPARE + FEW`. With more than twice as many the room shrinks.
    const SPARE: usize = 16;
    const FEW: usize = 32;

    fn spare(&self) -> usize {
        self.len() / Self::SPARE + Self::FEW
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, frame: FrameId) {
        if self.len() == self.0.capacity() {
            self.0.reserve_exact(self.spare());
        }
        self.0.push_front(frame);
    }

    fn pop(&mut self) -> Option<FrameId> {
        let frame = self.0.pop_back();
        let spare = self.spare();
        if self.0.capacity() > self.len() + 2 * spare {
            self.0.shrink_to(self.len() + spare);
        }
        frame
    }
}

/// The clocks of all shapes.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// By shape.
    active: [Fifo; 16],
    inactive: [Fifo; 16],
    /// By frame: the set of ranges referenced since their clocks last looked.
    referenced: Vec<u16>,
    /// By frame: the set of ranges in a FIFO.
    queued: Vec<u16>,
    /// The set of shapes whose clocks run.
    running: u16,
}

impl Clocks {
    /// Clocks for a heap of at most `most` frames.
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

    /// Bytes of what is kept of the first `frames` frames.
    #[must_use]
    pub fn bytes(&self, frames: u32) -> usize {
        let fifos = self.active.iter().chain(&self.inactive);
        let places: usize = fifos.map(|fifo| fifo.0.capacity()).sum();
        places * size_of::<FrameId>() + frames as usize * 2 * size_of::<u16>()
    }

    /// A page was placed in a frame, or a victim stays: its ranges enter the heads of their active
    /// FIFOs, unreferenced. A range that was already in a FIFO counts as referenced.
    pub fn keep(&mut self, frame: FrameId, page: Shape) {
        let at = frame.0 as usize;
        let overlapping = page.overlapping() & self.running;
        self.referenced[at] |= overlapping & self.queued[at];
        let new = overlapping & !self.queued[at];
        self.referenced[at] &= !new;
        self.queued[at] |= new;
        for shape in super::shape::shapes_of(new) {
            self.active[shape.number() as usize].push(frame);
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

    /// The next step towards a free range of this shape; `None` if no page lies in any such range.
    pub fn step(&mut self, shape: Shape, frames: &Frames) -> Option<Step> {
        self.start(shape, frames);
        let at = shape.number() as usize;
        // Each range is inspected at most twice; after that the next one is evicted.
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
            let frame = self.inactive[at].pop()?;
            if frames.is_free(frame, shape) {
                self.queued[frame.0 as usize] &= !shape.bit();
            } else if patience > 0 && self.take_reference(frame, shape) {
                patience -= 1;
                self.active[at].push(frame);
            } else {
                self.queued[frame.0 as usize] &= !shape.bit();
                return Some(Step::Evict(frame));
            }
        }
    }

    /// Turns a range of this shape inactive without evicting anything: for the bound on mappings, which
    /// needs no free frames. `None`: there is no active range.
    pub fn cool(&mut self, shape: Shape, frames: &Frames) -> Option<FrameId> {
        self.start(shape, frames);
        let at = shape.number() as usize;
        if self.active[at].is_empty() {
            for _ in 0..self.inactive[at].len() {
                let frame = self.inactive[at].pop()?;
                if frames.is_free(frame, shape) {
                    self.queued[frame.0 as usize] &= !shape.bit();
                } else if self.take_reference(frame, shape) {
                    self.active[at].push(frame);
                } else {
                    self.inactive[at].push(frame);
                }
            }
        }
        (0..2 * self.active[at].len()).find_map(|_| self.turn_inactive(shape, frames))
    }

    /// Inspects the tail of the active FIFO; returns the range if it turned inactive.
    fn turn_inactive(&mut self, shape: Shape, frames: &Frames) -> Option<FrameId> {
        let at = shape.number() as usize;
        let frame = self.active[at].pop()?;
        if frames.is_free(frame, shape) {
            self.queued[frame.0 as usize] &= !shape.bit();
        } else if self.take_reference(frame, shape) {
            self.active[at].push(frame);
        } else {
            self.inactive[at].push(frame);
            return Some(frame);
        }
        None
    }

    /// Clears a reference; returns whether it was set.
    fn take_reference(&mut self, frame: FrameId, shape: Shape) -> bool {
        let referenced = &mut self.referenced[frame.0 as usize];
        let was = *referenced & shape.bit() != 0;
        *referenced &= !shape.bit();
        was
    }

    /// Starts a shape's clock with the frames in which its range is in use.
    fn start(&mut self, shape: Shape, frames: &Frames) {
        if self.running & shape.bit() != 0 {
            return;
        }
        self.running |= shape.bit();
        for frame in frames.occupied(shape) {
            self.active[shape.number() as usize].push(frame);
            self.queued[frame.0 as usize] |= shape.bit();
            self.referenced[frame.0 as usize] &= !shape.bit();
        }
    }
}

#[cfg(test)]
mod tests;
