//! Which side of a mirror is read first, and how long before the other one is asked too.
//!
//! The side with the lower average latency is read. Sides that are about as fast take turns, by place, so that both keep
//! their load. The slower side is tried now and then, as it may have become faster.

use super::health::Side;
use flashvm_core::Nanos;

/// Sides whose averages differ by no more than 1 / `ALIKE` take turns.
const ALIKE: u64 = 4;
/// Weight of a new latency in the average: 1 / `WEIGHT`.
const WEIGHT: u64 = 8;
/// The other side is asked after this many usual latencies of the faster side.
const PATIENCE: u64 = 3;
/// Bounds of that time, for reads of up to [`SMALL_PAGES`].
const PATIENCE_MIN: Nanos = Nanos(200_000);
const PATIENCE_MAX: Nanos = Nanos(100_000_000);
/// That time while no latency is known.
const PATIENCE_FIRST: Nanos = Nanos(2_000_000);
/// Averages do not exceed this.
const AVERAGE_MAX: u64 = 10_000_000_000;
/// Of so many reads one may try the slower side, and no two within [`TRY_EVERY`].
pub(super) const TRY_ONE_OF: u64 = 256;
pub(super) const TRY_EVERY: Nanos = Nanos(100_000_000);
/// Longest read whose latency counts. Longer ones take longer, and get more patience.
pub(super) const SMALL_PAGES: u32 = 8;

/// How a page is read that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) first: Side,
    /// How long the first side has before the other one is asked too.
    pub(super) patience: Nanos,
}

/// The side to read `pages` pages from, the first of them `page`. `averages` are in nanoseconds, 0 if not known;
/// `tries_slower` says whether to try the slower side.
pub(super) fn choose(averages: [u64; 2], page: u32, pages: u32, tries_slower: bool) -> Choice {
    let by_place = Side::BOTH[(page / 64 % 2) as usize];
    let [a, b] = averages;
    let (fast, slow) = (a.min(b), a.max(b));
    let faster = if a <= b { Side::A } else { Side::B };
    let first = match fast {
        // Not known: find out.
        0 if slow > 0 => faster,
        _ if slow - fast <= fast / ALIKE => by_place,
        _ if tries_slower => faster.other(),
        _ => faster,
    };
    let usual = if fast == 0 { slow } else { fast };
    let patience = match usual {
        0 => PATIENCE_FIRST.0,
        usual => (usual * PATIENCE).clamp(PATIENCE_MIN.0, PATIENCE_MAX.0),
    };
    let patience = Nanos(patience * u64::from(pages.div_ceil(SMALL_PAGES)));
    Choice { first, patience }
}

/// The average after a small read took `took`.
pub(super) fn answered(average: u64, took: Nanos) -> u64 {
    let took = took.0.clamp(1, AVERAGE_MAX);
    match average {
        0 => took,
        average => (average - average / WEIGHT + took / WEIGHT).max(1),
    }
}

/// The average after the other side answered first, when a side had been silent for `waited`, or failed: it only rises.
pub(super) fn outrun(average: u64, waited: Nanos) -> u64 {
    waited.0.max(average * 2).min(AVERAGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MICRO: u64 = 1000;
    const MILLI: u64 = 1_000_000;

    #[test]
    fn the_faster_side_is_read_and_the_slower_one_tried() {
        let averages = [10 * MILLI, 100 * MICRO];
        for page in [0, 64, 128] {
            let usual = choose(averages, page, 1, false);
            assert_eq!((usual.first, usual.patience), (Side::B, Nanos(300 * MICRO)));
            let trial = choose(averages, page, 1, true);
            assert_eq!((trial.first, trial.patience), (Side::A, Nanos(300 * MICRO)));
        }
        assert_eq!(choose(averages, 0, 64, false).patience, Nanos(2400 * MICRO));
    }

    #[test]
    fn sides_that_are_alike_take_turns() {
        for tries in [false, true] {
            let first = |page| choose([100, 120], page, 1, tries).first;
            assert_eq!((first(0), first(64)), (Side::A, Side::B));
        }
        assert_eq!(choose([0, 0], 0, 1, false).patience, PATIENCE_FIRST);
    }

    #[test]
    fn a_side_that_is_not_known_is_read() {
        assert_eq!(choose([0, 5 * MICRO], 64, 1, false).first, Side::A);
        assert_eq!(choose([5 * MICRO, 0], 0, 1, false).first, Side::B);
    }

    #[test]
    fn a_side_that_slows_down_is_left_and_taken_again_when_it_recovers() {
        let mut averages = [80 * MICRO; 2];
        let mut read = |latencies: [u64; 2], tries| {
            let choice = choose(averages, 0, 1, tries);
            let side = choice.first.index();
            let took = latencies[side].min(choice.patience.0);
            averages[side] = if took == latencies[side] {
                answered(averages[side], Nanos(took))
            } else {
                outrun(averages[side], choice.patience)
            };
            choice.first
        };
        let slow = (0..100).filter(|_| read([10 * MILLI, 80 * MICRO], false) == Side::A);
        assert!(slow.count() <= 2);
        let trials = (0..1000).find(|_| {
            read([80 * MICRO; 2], true);
            read([80 * MICRO; 2], false) == Side::A
        });
        assert!(trials.is_some_and(|trials| trials < 100), "{trials:?}");
    }

    proptest! {
        #[test]
        fn patience_is_bounded_and_averages_lie_between(
            averages in prop::array::uniform2(0..AVERAGE_MAX),
            page in any::<u32>(), pages in 1_u32..=64, tries in any::<bool>(), took in 0..AVERAGE_MAX,
        ) {
            let choice = choose(averages, page, pages, tries);
            let per_small = choice.patience.0 / u64::from(pages.div_ceil(SMALL_PAGES));
            prop_assert!((PATIENCE_MIN.0..=PATIENCE_MAX.0).contains(&per_small));
            let [a, _] = averages;
            let next = answered(a, Nanos(took));
            if a > 0 {
                // Rounding of both parts.
                prop_assert!(next + 1 >= a.min(took) && next <= a.max(took.max(1)) + 1);
            }
            prop_assert!(outrun(a, Nanos(took)) >= a);
        }
    }
}
