//! The pool's share of the frames.
//!
//! Three sums of time are kept: `plain`, what a step more of plain frames would have saved; `pool`, what a step
//! more of pool would have saved; `tail`, what a step less of pool would have cost.
//!
//! | fault on | plain | pool | tail |
//! | --- | --- | --- | --- |
//! | a compressed page in RAM | a pool fault, if it left at most a step of evictions ago | | read - pool fault, if in the oldest step |
//! | one on flash | a read, if flushed at most a step of pages ago | a read, if at most what a step of pool holds | |
//! | a page that went to flash as it was | a read, if it left at most a step of evictions ago | a read * share of pages that shrink * pages that a step holds / pages on flash | |
//!
//! After `EPOCH` steps of evictions: if `pool > plain`, the share grows by a step; else, if `plain > tail +` the cost of
//! writing a step to flash, it shrinks by one.

use super::Trial;
use crate::fault_cost;
use crate::ids::Nanos;

/// Time to write a frame of the pool to flash: assumed.
const FLUSH: Nanos = Nanos(5_000);
/// The share starts with `limit / START`, and stays between `limit / STEPS_MAX` and `limit - limit / PLAIN_LEAST`. A step is
/// `pool / POOL_STEPS`, clamped to `limit / STEPS_MAX..=limit / STEPS`.
const START: u32 = 3;
const STEPS: u32 = 16;
const STEPS_MAX: u32 = 128;
const POOL_STEPS: u32 = 8;
const PLAIN_LEAST: u32 = 8;
/// Steps of evictions between two decisions.
const EPOCH: u64 = 2;
/// A decision takes `1 / FADE` off each sum, and keeps the rest: a single epoch has too few faults.
const FADE: u64 = 4;
/// The share grows to at most so many steps more than the pool uses.
const UNUSED_STEPS: u32 = 2;
/// The clock's tick is `limit / TICKS` evictions.
const TICKS: u32 = 1024;

/// The division of the frames.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    limit: u32,
    frames: u32,
    step: u32,
    most: u32,
    /// The three sums, in nanoseconds.
    plain: u64,
    pool: u64,
    tail: u64,
    evictions: u64,
    decided: u64,
    /// Evictions in a tick of the clock.
    tick: u32,
    /// Compressed pages in a frame, times 16.
    ratio16: u64,
}

impl Share {
    pub(crate) fn new(limit: u32) -> Self {
        let mut share = Self {
            limit,
            frames: 0,
            step: 0,
            most: 0,
            plain: 0,
            pool: 0,
            tail: 0,
            evictions: 0,
            decided: 0,
            tick: (limit / TICKS).max(1),
            ratio16: 32,
        };
        share.resized(limit);
        share
    }

    /// The limit has changed: the share keeps its part of it. A process begins with a small limit, which grows as the run
    /// grants it more.
    pub(crate) fn resized(&mut self, limit: u32) {
        let part = u64::from(self.frames) * u64::from(limit) / u64::from(self.limit.max(1));
        self.frames = if self.decided == 0 {
            limit / START
        } else {
            part as u32
        };
        self.limit = limit;
        self.step = (limit / STEPS).max(1);
        self.most = limit - limit / PLAIN_LEAST;
        let least = (limit / STEPS_MAX).max(1);
        self.frames = self.frames.clamp(least, self.most.max(least));
    }

    /// Frames that the pool may take.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Frames by which the share moves.
    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    /// The time, in ticks of evictions.
    pub(crate) fn clock(&self) -> u16 {
        (self.evictions / u64::from(self.tick)) as u16
    }

    /// Evictions in ticks of the clock.
    pub(crate) fn ticks(&self, evictions: u32) -> u16 {
        (evictions / self.tick).min(u16::MAX.into()) as u16
    }

    /// Whether a page that left then left at most a step of evictions ago. The clock returns to its start after
    /// `64 * limit` evictions: a page that left that long ago may look young.
    fn is_young(&self, left: u16) -> bool {
        u32::from(self.clock().wrapping_sub(left)) * self.tick <= self.step
    }

    /// A fault on a compressed page in RAM. `tail`: it is in the pool's oldest step; `read`: the time of a read.
    pub(crate) fn hit(&mut self, left: u16, tail: bool, read: Nanos) {
        if self.is_young(left) {
            self.plain += fault_cost::POOL.0;
        }
        if tail {
            self.tail += read.0.saturating_sub(fault_cost::POOL.0);
        }
    }

    /// A fault on a compressed page on flash. `flushed_since`: pages flushed after its block; `read`: the time of a
    /// read.
    pub(crate) fn miss(&mut self, flushed_since: u64, read: Nanos) {
        if flushed_since <= u64::from(self.step) {
            self.plain += read.0;
        }
        if flushed_since <= self.pages_of_step() {
            self.pool += read.0;
        }
    }

    /// A fault on a page that was written uncompressed. `pages` are on flash, of which the fraction
    /// `shrinks / `[`Trial::SHRINK_ALL`] would shrink.
    pub(crate) fn miss_plain(&mut self, left: u16, pages: u32, shrinks: u32, read: Nanos) {
        if self.is_young(left) {
            self.plain += read.0;
        }
        let pages = u64::from(pages.max(1));
        let saved = read.0 * self.pages_of_step().min(pages) / pages;
        self.pool += saved * u64::from(shrinks) / u64::from(Trial::SHRINK_ALL);
    }

    /// Compressed pages that a step holds.
    fn pages_of_step(&self) -> u64 {
        u64::from(self.step) * self.ratio16 / 16
    }

    /// A page left RAM.
    pub(crate) fn count_eviction(&mut self) {
        self.evictions += 1;
    }

    /// Decides at the end of an epoch. The pool has `objects` pages in `frames` frames.
    pub(crate) fn decide(&mut self, objects: u32, frames: u32) {
        if self.evictions - self.decided < u64::from(self.step) * EPOCH {
            return;
        }
        self.decided = self.evictions;
        if frames > 0 {
            self.ratio16 = u64::from(objects) * 16 / u64::from(frames);
        }
        let step = self.step;
        if self.pool > self.plain {
            let used = (frames + UNUSED_STEPS * step).max(self.frames);
            self.frames = (self.frames + step).min(used).min(self.most);
        } else if self.plain > self.tail + u64::from(step) * FLUSH.0 {
            // Shrinks from what the pool uses: an unused share does not count.
            self.frames = self.frames.min(frames + step);
            self.frames = self.frames.saturating_sub(step).max(step);
        }
        for sum in [&mut self.plain, &mut self.pool, &mut self.tail] {
            *sum -= *sum / FADE;
        }
        let (least, most) = (self.limit / STEPS_MAX, self.limit / STEPS);
        self.step = (frames / POOL_STEPS).clamp(least, most).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Nanos = Nanos(80_000);
    const ALL: u32 = Trial::SHRINK_ALL;

    fn evict(share: &mut Share, objects: u32, frames: u32) {
        share.count_eviction();
        share.decide(objects, frames);
    }

    #[test]
    fn the_share_follows_the_dearer_side() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for _ in 0..1000 {
            share.miss(150, READ);
            let frames = share.frames();
            evict(&mut share, 1000, frames);
        }
        assert!(share.frames() > start);
        assert!(share.frames() <= 1400);
        for _ in 0..10_000 {
            share.hit(share.clock(), false, READ);
            evict(&mut share, 100, 50);
        }
        // The smallest step.
        assert_eq!(share.frames(), 1600 / STEPS_MAX);
    }

    #[test]
    fn pages_that_went_to_flash_as_they_were_count_by_their_number() {
        let grown = |pages, shrinks| {
            let mut share = Share::new(1600);
            let start = share.frames();
            for _ in 0..1000 {
                share.miss_plain(share.clock().wrapping_sub(1000), pages, shrinks, READ);
                share.hit(share.clock(), false, READ);
                let frames = share.frames();
                evict(&mut share, 2 * frames, frames);
            }
            share.frames() > start
        };
        // A step holds 132 pages or more; a read costs 8/3 of a fault in the pool.
        assert!(grown(100, ALL));
        assert!(grown(300, ALL));
        assert!(!grown(8000, ALL));
        assert!(!grown(100, ALL / 16));
        assert!(!grown(100, 0));
    }

    /// A process begins with few frames, and the run grants it more as it grows.
    #[test]
    fn the_share_keeps_its_part_of_the_limit() {
        let mut share = Share::new(32);
        share.resized(1600);
        assert_eq!(share.frames(), 1600 / START);
        for _ in 0..1000 {
            share.miss(150, READ);
            let frames = share.frames();
            evict(&mut share, 1000, frames);
        }
        let grown = share.frames();
        share.resized(800);
        assert_eq!(share.frames(), grown / 2);
        share.resized(1600);
        assert!(grown - share.frames() < 2);
    }

    /// In a pass over pages that all fit, the next page to be used is seldom among the oldest of the moment.
    #[test]
    fn a_few_young_faults_move_nothing() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for n in 0..10_000 {
            let young = n % 100 == 0;
            let left = share.clock().wrapping_sub(if young { 0 } else { 10_000 });
            share.hit(left, false, READ);
            evict(&mut share, 1000, start);
        }
        assert_eq!(share.frames(), start);
    }

    /// Pages that do not shrink are read again soon after they left: the pool makes room for them.
    #[test]
    fn pages_that_do_not_shrink_get_the_frames() {
        let mut share = Share::new(1600);
        for _ in 0..100_000 {
            share.miss_plain(share.clock(), 5000, 0, READ);
            let frames = share.frames();
            evict(&mut share, 2 * frames, frames);
        }
        assert_eq!(share.frames(), 1600 / STEPS_MAX);
    }

    #[test]
    fn old_pages_say_nothing() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for _ in 0..1000 {
            share.miss(100_000, READ);
            share.hit(share.clock().wrapping_sub(10_000), true, READ);
            evict(&mut share, 100, 50);
        }
        assert_eq!(share.frames(), start);
    }

    /// Young pages are used most, and most others as well: they stay in RAM.
    #[test]
    fn what_is_used_stays_in_the_pool() {
        let mut share = Share::new(1600);
        let start = share.frames();
        for n in 0..10_000 {
            share.hit(share.clock(), n % 4 != 0, READ);
            evict(&mut share, 1000, start);
        }
        assert_eq!(share.frames(), start);
    }
}
