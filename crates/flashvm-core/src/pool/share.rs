//! The pool's share of the frames.
//!
//! One step more of plain frames saves the faults on pages that were compressed a moment ago; one step more of pool
//! saves the reads of pages that were flushed a moment ago. Both are counted and weighed by what they cost; the share
//! moves one step towards the dearer side.

use crate::ids::Nanos;

/// The share starts with `limit / START`, moves by `limit / STEPS`, and stays between one step and
/// `limit - limit / PLAIN_LEAST`.
const START: u32 = 3;
const STEPS: u32 = 16;
const PLAIN_LEAST: u32 = 8;
/// What a fault on a compressed page costs, with its compression: an assumption, not measured.
const POOL_FAULT: Nanos = Nanos(8_000);
/// Steps of insertions between two decisions.
const EPOCH: u64 = 2;

/// The division of the frames.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    frames: u32,
    step: u32,
    most: u32,
    /// Saved time of a step more of either, in nanoseconds, since the last decision.
    plain: u64,
    pool: u64,
    insertions: u64,
    /// Compressed pages in a frame, times 16.
    ratio16: u64,
}

impl Share {
    pub(crate) fn new(limit: u32) -> Self {
        let mut share = Self {
            frames: limit / START,
            step: 0,
            most: 0,
            plain: 0,
            pool: 0,
            insertions: 0,
            ratio16: 32,
        };
        share.resized(limit);
        share
    }

    /// The limit has changed.
    pub(crate) fn resized(&mut self, limit: u32) {
        self.step = (limit / STEPS).max(1);
        self.most = limit - limit / PLAIN_LEAST;
        self.frames = self.frames.clamp(self.step, self.most);
    }

    /// Frames that the pool may take.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// A fault on a compressed page in RAM, which came so many insertions ago.
    pub(crate) fn hit(&mut self, age: u64) {
        if age <= self.step.into() {
            self.plain += POOL_FAULT.0;
        }
    }

    /// A fault on a page on flash, flushed so many pages ago; `read` is the time of a read.
    pub(crate) fn miss(&mut self, flushed_since: u64, read: Nanos) {
        if flushed_since <= u64::from(self.step) * self.ratio16 / 16 {
            self.pool += read.0;
        }
    }

    /// A page was compressed. The pool has so many pages in so many frames.
    pub(crate) fn inserted(&mut self, objects: u32, frames: u32) {
        self.insertions += 1;
        if self.insertions < u64::from(self.step) * EPOCH {
            return;
        }
        self.insertions = 0;
        if frames > 0 {
            self.ratio16 = u64::from(objects) * 16 / u64::from(frames);
        }
        if self.pool > self.plain {
            self.frames = (self.frames + self.step).min(self.most);
        } else if self.plain > self.pool {
            self.frames = self.frames.saturating_sub(self.step).max(self.step);
        }
        self.plain = 0;
        self.pool = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Nanos = Nanos(80_000);

    #[test]
    fn the_share_follows_the_dearer_side() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for _ in 0..1000 {
            share.miss(10, READ);
            share.inserted(100, 50);
        }
        assert!(share.frames() > start);
        assert!(share.frames() <= 1400);
        for _ in 0..10_000 {
            share.hit(10);
            share.inserted(100, 50);
        }
        assert_eq!(share.frames(), 100);
    }

    #[test]
    fn old_pages_say_nothing() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for _ in 0..1000 {
            share.miss(100_000, READ);
            share.hit(100_000);
            share.inserted(100, 50);
        }
        assert_eq!(share.frames(), start);
    }
}
