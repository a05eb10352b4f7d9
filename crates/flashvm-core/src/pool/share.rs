//! The pool's share of the frames.
//!
//! Three sums are kept, weighed by price: `plain`, the faults on young compressed pages, which a step more of plain
//! frames would save; `pool`, the reads of pages flushed lately, which a step more of pool would save; `tail`, the reads
//! of the pool's oldest pages, which a step less of pool would cost. If `pool > plain`, the share grows by a step; else,
//! if `plain > tail`, it shrinks by one.
//!
//! A page that went to flash uncompressed has no age. Its read counts in `pool` with the weight
//! `pages of a step / pages on flash`.

use super::choice::POOL_FAULT;
use crate::ids::Nanos;

/// The share starts with `limit / START`, and stays between one step and `limit - limit / PLAIN_LEAST`. A step is
/// `pool / POOL_STEPS`, clamped to `limit / STEPS_MAX..=limit / STEPS`.
const START: u32 = 3;
const STEPS: u32 = 16;
const STEPS_MAX: u32 = 128;
const POOL_STEPS: u32 = 8;
const PLAIN_LEAST: u32 = 8;
/// Steps of insertions between two decisions.
const EPOCH: u64 = 2;

/// The division of the frames.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    limit: u32,
    frames: u32,
    step: u32,
    most: u32,
    /// What a step more of plain frames would have saved since the last decision, in nanoseconds; what a step more of
    /// pool; what a step less of pool would have cost.
    plain: u64,
    pool: u64,
    tail: u64,
    insertions: u64,
    /// Compressed pages in a frame, times 16.
    ratio16: u64,
}

impl Share {
    pub(crate) fn new(limit: u32) -> Self {
        let mut share = Self {
            limit,
            frames: limit / START,
            step: 0,
            most: 0,
            plain: 0,
            pool: 0,
            tail: 0,
            insertions: 0,
            ratio16: 32,
        };
        share.resized(limit);
        share
    }

    /// The limit has changed.
    pub(crate) fn resized(&mut self, limit: u32) {
        self.limit = limit;
        self.step = (limit / STEPS).max(1);
        self.most = limit - limit / PLAIN_LEAST;
        self.frames = self.frames.clamp(self.step, self.most);
    }

    /// Frames that the pool may take.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Frames by which the share moves.
    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    /// A fault on a compressed page in RAM, which came so many insertions ago; whether it is in the pool's oldest step,
    /// and the time of a read.
    pub(crate) fn hit(&mut self, age: u32, tail: bool, read: Nanos) {
        if age <= self.step {
            self.plain += POOL_FAULT.0;
        }
        if tail {
            self.tail += read.0.saturating_sub(POOL_FAULT.0);
        }
    }

    /// A fault on a page on flash, flushed so many pages ago; `read` is the time of a read.
    pub(crate) fn miss(&mut self, flushed_since: u64, read: Nanos) {
        if flushed_since <= self.pages_of_step() {
            self.pool += read.0;
        }
    }

    /// A fault on a page that went to flash uncompressed; `pages` are there.
    pub(crate) fn miss_among(&mut self, pages: u32, read: Nanos) {
        let pages = u64::from(pages.max(1));
        self.pool += read.0 * self.pages_of_step().min(pages) / pages;
    }

    /// Compressed pages that a step holds.
    fn pages_of_step(&self) -> u64 {
        u64::from(self.step) * self.ratio16 / 16
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
        } else if self.plain > self.tail {
            // A share that the pool does not use is none.
            self.frames = self.frames.min(frames + self.step);
            self.frames = self.frames.saturating_sub(self.step).max(self.step);
        }
        (self.plain, self.pool, self.tail) = (0, 0, 0);
        let (least, most) = (self.limit / STEPS_MAX, self.limit / STEPS);
        self.step = (frames / POOL_STEPS).clamp(least, most).max(1);
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
            share.hit(10, false, READ);
            share.inserted(100, 50);
        }
        // The smallest step.
        assert_eq!(share.frames(), 1600 / STEPS_MAX);
    }

    #[test]
    fn pages_that_went_to_flash_as_they_were_count_by_their_number() {
        let grown = |pages| {
            let mut share = Share::new(1600);
            let start = share.frames();
            for _ in 0..1000 {
                share.miss_among(pages, READ);
                share.hit(10, false, READ);
                share.inserted(200, 100);
            }
            share.frames() > start
        };
        // A step holds 25 pages; a read costs 8 times what a fault in the pool costs.
        assert!(grown(100));
        assert!(grown(150));
        assert!(!grown(400));
    }

    #[test]
    fn old_pages_say_nothing() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for _ in 0..1000 {
            share.miss(100_000, READ);
            share.hit(100_000, true, READ);
            share.inserted(100, 50);
        }
        assert_eq!(share.frames(), start);
    }

    /// Young pages are used most, and all others as well: they stay in RAM.
    #[test]
    fn what_is_used_stays_in_the_pool() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for n in 0..10_000 {
            share.hit(10, n % 4 == 0, READ);
            share.inserted(1000, start);
        }
        assert_eq!(share.frames(), start);
    }
}
