//! SHARDS: observing a hashed share of the pages, to estimate the program's reuse distances
//! (Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015).
//!
//! A pager sees a touch of a page that is not mapped. So a page of the sample is taken back into the shadow some
//! touches of the sample later, and its next touch is a soft fault. All other pages are left alone. The number of
//! distinct pages of the sample between two touches of one page, times 2^bits, estimates the number of all pages.
//!
//! The sample only ever shrinks: a page that is in the sample of `bits + 1` is in that of `bits`. So the touches of
//! the last sample are known from the beginning.

use crate::ids::{Nanos, PageId};
use std::collections::VecDeque;

/// The first sample: an eighth of the pages.
const BITS_FIRST: u32 = 3;
/// Smaller samples are too inexact: half of the sample must have so many pages for it to be halved.
const PAGES_MIN: u32 = 256;
/// The sample is halved when touches come faster than this: 2,000 a second cost about 3 % of a processor, at 15 us
/// for a soft fault and a move.
const TOUCH_EVERY: Nanos = Nanos(500_000);
/// Touches between two looks at their rate.
const LOOK_EVERY: u32 = 512;
/// Share of the sample that stays mapped, the pages touched last: shorter distances are not seen.
const MAPPED_SHARE: u32 = 64;
/// Nor are distances below 4 MiB, the least budget: an interpreter's own pages would fault all the time.
const DISTANCE_MIN: u32 = 1024;
const MAPPED_MIN: u32 = 4;

/// Whether a page is in the sample of 2^-`bits` of all pages.
///
/// ```
/// use flashvm_core::{PageId, shards::is_sampled};
/// let sampled = (0..100_000).filter(|&page| is_sampled(PageId(page), 6)).count();
/// assert!((1400..1700).contains(&sampled));
/// ```
#[must_use]
pub fn is_sampled(page: PageId, bits: u32) -> bool {
    // The finalizer of SplitMix64: strides of pages must not be strides of hashes.
    let mut hash = u64::from(page.0).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    hash & ((1 << bits) - 1) == 0
}

/// What happened to a page of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was touched, or mapped ahead of its first touch.
    Touched(PageId),
    /// It has no contents any more: its next touch finds zeros, with no read.
    Gone(PageId),
}

/// The sample of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    bits: u32,
    /// Pages of the sample that are not absent.
    present: u32,
    /// Touched pages that have not been taken back, oldest first.
    mapped: VecDeque<PageId>,
    /// What the current event did to pages of the sample, until the executor takes it.
    seen: Vec<Seen>,
    /// Touches since `since`.
    counted: u32,
    since: Nanos,
}

impl Shards {
    pub(crate) fn new() -> Self {
        Self {
            bits: BITS_FIRST,
            present: 0,
            mapped: VecDeque::new(),
            seen: Vec::new(),
            counted: 0,
            since: Nanos(0),
        }
    }

    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    pub(crate) fn holds(&self, page: PageId) -> bool {
        is_sampled(page, self.bits)
    }

    /// A page of the sample is no longer absent.
    pub(crate) fn came(&mut self) {
        self.present += 1;
    }

    /// A page of the sample has no contents any more.
    pub(crate) fn gone(&mut self, page: PageId) {
        self.seen.push(Seen::Gone(page));
        // The count is halved with the sample, which is inexact.
        self.present = self.present.saturating_sub(1);
    }

    /// A page of the sample was touched and is mapped from now on.
    pub(crate) fn touch(&mut self, page: PageId) {
        self.seen.push(Seen::Touched(page));
        self.mapped.push_back(page);
        self.counted += 1;
    }

    /// What the last event did to pages of the sample, in order.
    pub(crate) fn take_seen(&mut self) -> impl Iterator<Item = Seen> {
        self.seen.drain(..)
    }

    /// How many pages are to be taken back: never those of the current event.
    pub(crate) fn excess(&self) -> usize {
        let share = self.present / MAPPED_SHARE;
        let kept = share.max(DISTANCE_MIN >> self.bits).max(MAPPED_MIN) as usize;
        self.mapped.len().saturating_sub(kept.max(self.seen.len()))
    }

    /// The page that was touched longest ago.
    pub(crate) fn pop_oldest(&mut self) -> Option<PageId> {
        self.mapped.pop_front()
    }

    /// A page cannot be taken back now: it is tried again after the others.
    pub(crate) fn keep(&mut self, page: PageId) {
        self.mapped.push_back(page);
    }

    /// Halves the sample if it costs too much.
    pub(crate) fn limit_rate(&mut self, now: Nanos) {
        if self.counted < LOOK_EVERY {
            return;
        }
        let allowed = TOUCH_EVERY.0 * u64::from(self.counted);
        if now.since(self.since).0 < allowed && self.present >= 2 * PAGES_MIN {
            self.bits += 1;
            self.present /= 2;
            let bits = self.bits;
            self.mapped.retain(|&page| is_sampled(page, bits));
        }
        self.counted = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_nested_and_of_the_named_size() {
        for bits in 0..12 {
            let pages = (0..1 << 20).map(PageId);
            let sample = pages.filter(|&page| is_sampled(page, bits));
            let mut size = 0;
            for page in sample {
                size += 1;
                assert!(bits == 0 || is_sampled(page, bits - 1), "{page:?}");
            }
            let expected = f64::from(1 << (20 - bits));
            let error = (f64::from(size) - expected).abs() / expected.sqrt();
            assert!(error < 4.0, "{size} of {expected} pages");
        }
    }

    /// Pages apart by any stride up to a huge page are sampled like adjacent ones.
    #[test]
    fn strides_are_sampled_fairly() {
        for stride in 1..=512 {
            let pages = (0..1 << 15).map(|i| PageId(i * stride));
            let size = pages.filter(|&page| is_sampled(page, 4)).count();
            assert!((1848..2248).contains(&size), "stride {stride}: {size}");
        }
    }

    #[test]
    fn a_fast_program_has_a_smaller_sample() {
        let mut shards = Shards::new();
        let mut now = 0;
        let mut run = |shards: &mut Shards, pages: u32, every: u64| {
            for page in (0..pages).map(PageId) {
                if shards.holds(page) {
                    shards.came();
                    shards.touch(page);
                    drop(shards.take_seen());
                    now += every;
                    shards.limit_rate(Nanos(now));
                }
            }
        };
        run(&mut shards, 100_000, 1_000_000);
        assert_eq!(shards.bits(), BITS_FIRST, "slow enough");
        run(&mut shards, 1_000_000, 10_000);
        assert!(shards.bits() > BITS_FIRST);
        assert!(shards.present >= PAGES_MIN, "{}", shards.present);
        assert!(shards.mapped.iter().all(|&page| shards.holds(page)));
    }
}
