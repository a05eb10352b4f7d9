//! The share of the pages that are under observation, from what observation costs and what it saves: FlashVM's own.
//!
//! A touch of a page under observation costs a soft fault. A page that is evicted although it is in use costs a miss. With
//! twice as many pages under observation, a page that left at most as many evictions ago as there are such pages now
//! would still be in RAM. So the cost of misses on such pages is what more observation would save, and the share follows:
//!
//! | costs of late | share |
//! | --- | --- |
//! | those misses > 1.1 * soft faults | grows by a quarter |
//! | soft faults > 1.1 * those misses | shrinks by a fifth |
//!
//! Where more than 15 in 16 pages that leave come back before all frames have been evicted once, all pages are in use
//! alike (a circle, or a table larger than RAM), and there is no better victim to be found: the misses count for nothing.

use super::window::{self, MILLION};
use crate::fault_cost;
use crate::ids::Nanos;
use std::num::NonZeroU16;

/// The share at the start, and its bounds, in millionths.
const START: u32 = 60_000;
const LEAST: u32 = 30_000;
const MOST: u32 = 300_000;
/// Ticks of the clock while all frames are evicted once.
const TICKS: u32 = 128;
/// Decisions while as many pages are looked at as there are frames.
const DECISIONS: u32 = 8;

/// When a page left RAM, in ticks. Never zero: two bytes have room for "has not left".
pub(super) type Departure = NonZeroU16;

/// The share, and what it is decided by.
#[derive(Debug)]
pub(super) struct Observed {
    share: u32,
    clock: Departure,
    /// Evictions since the last tick.
    evictions: u32,
    /// Pages looked at since the last decision.
    looks: u32,
    /// Costs, in nanoseconds, and pages that departed and returned. A decision takes a quarter off each, and keeps the rest.
    misses: u64,
    soft_faults: u64,
    departed: u64,
    returned: u64,
}

impl Observed {
    pub(super) const fn new() -> Self {
        Self {
            share: START,
            clock: Departure::MIN,
            evictions: 0,
            looks: 0,
            misses: 0,
            soft_faults: 0,
            departed: 0,
            returned: 0,
        }
    }

    /// The share of the pages that is to be observed, in millionths.
    pub(super) fn share(&self) -> u32 {
        self.share
    }

    /// A page under observation was touched. `frames`: pages in RAM, here and below.
    pub(super) fn touched(&mut self, frames: u32) {
        self.soft_faults += fault_cost::SOFT.0;
        self.looked(frames);
    }

    /// A page was evicted.
    pub(super) fn evicted(&mut self, frames: u32) -> Departure {
        self.evictions += 1;
        if self.evictions >= (frames / TICKS).max(1) {
            self.evictions = 0;
            self.clock = self.clock.checked_add(1).unwrap_or(Departure::MIN);
        }
        self.departed += 1;
        self.looked(frames);
        self.clock
    }

    /// A page that left then has returned. `cost`: of the miss; none if the page had not been dropped yet.
    ///
    /// The clock returns to its start after 512 times as many evictions as there are frames: a page that left that long
    /// ago may look young.
    pub(super) fn returned(&mut self, departure: Departure, cost: Option<Nanos>) {
        let ago = u32::from(self.clock.get().wrapping_sub(departure.get()));
        if ago > TICKS {
            return;
        }
        self.returned += 1;
        if let Some(cost) = cost
            && ago <= window::pages(TICKS, self.share)
        {
            self.misses += cost.0;
        }
    }

    fn looked(&mut self, frames: u32) {
        self.looks += 1;
        if self.looks >= frames.div_ceil(DECISIONS) {
            self.looks = 0;
            self.decide();
        }
    }

    fn decide(&mut self) {
        let all_return = 16 * self.returned > 15 * self.departed;
        let misses = if all_return { 0 } else { self.misses };
        if 10 * misses > 11 * self.soft_faults {
            self.share = (self.share + self.share / 4).min(MOST);
        } else if 10 * self.soft_faults > 11 * misses {
            self.share = (self.share - self.share / 5).max(LEAST);
        }
        for sum in [
            &mut self.misses,
            &mut self.soft_faults,
            &mut self.departed,
            &mut self.returned,
        ] {
            *sum -= *sum / 4;
        }
    }
}

const _: () = assert!(
    LEAST * TICKS >= 3 * MILLION,
    "the least share is some ticks long"
);

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: u32 = 1024;
    const MISS: Nanos = Nanos(80_000);

    /// In each of `turns` turns `evicted` pages are evicted, one in `missed` of them is missed at once, and `touched`
    /// pages are touched. Returns the share at the end.
    fn share_after(turns: u32, evicted: u32, missed: u32, touched: u32) -> u32 {
        let mut observed = Observed::new();
        for turn in 0..turns {
            for n in 0..evicted {
                let departure = observed.evicted(16 * FRAMES);
                if (turn * evicted + n).is_multiple_of(missed) {
                    observed.returned(departure, Some(MISS));
                }
            }
            for _ in 0..touched {
                observed.touched(16 * FRAMES);
            }
        }
        observed.share()
    }

    #[test]
    fn the_share_follows_the_dearer_side() {
        // A miss costs ten soft faults.
        assert_eq!(share_after(10_000, 10, 2, 10), MOST);
        assert_eq!(share_after(10_000, 10, 2, 100), LEAST);
        assert_eq!(share_after(10_000, 10, 100, 5), LEAST);
    }

    #[test]
    fn where_all_pages_come_back_fewest_are_observed() {
        assert_eq!(share_after(10_000, 10, 1, 1), LEAST);
    }

    #[test]
    fn equal_costs_move_nothing() {
        assert_eq!(share_after(10_000, 10, 5, 20), START);
    }

    #[test]
    fn pages_that_left_long_ago_or_were_not_missed_say_nothing() {
        for (evicted, cost) in [(FRAMES, Some(MISS)), (0, None)] {
            let mut observed = Observed::new();
            for _ in 0..10_000 {
                let departure = observed.evicted(FRAMES);
                for _ in 0..evicted {
                    observed.evicted(FRAMES);
                }
                observed.returned(departure, cost);
                observed.touched(FRAMES);
            }
            assert_eq!(observed.share(), LEAST, "{evicted} evictions later");
        }
    }
}
