//! `--compress auto`: whether the program loses less time with the pool or without.
//!
//! An epoch is `limit / EPOCH_SHARE` evictions. In each, `lost` is the time lost to paging: demand reads by their length,
//! soft faults and faults in the pool by their price. The loss is `lost / max(time - lost, time / WORK_SHARE)`: several
//! threads may lose more than the time that passes.
//!
//! While `lost < time / LOST_SHARE`, nothing changes. Otherwise the other choice is tried. First RAM settles, for `limit`
//! evictions. The try succeeds with the first epoch that loses less by `1 / MARGIN`. It fails after `TRIES` epochs, or
//! with the first epoch that does not lose less than the one before by `1 / BETTER`. The pause after a try doubles each
//! time, from `PAUSE_MIN` to `PAUSE_MAX` epochs.

use crate::ids::Nanos;

/// The price of a soft fault, by the bench of the fault path (`docs/performance.md`).
const SOFT_FAULT: Nanos = Nanos(8_000);
/// The price of a fault on a compressed page in RAM, with its compression: assumed, not measured.
pub(super) const POOL_FAULT: Nanos = Nanos(10_000);
/// An epoch is `limit / EPOCH_SHARE` evictions.
const EPOCH_SHARE: u32 = 2;
/// Nothing is tried while less than `time / LOST_SHARE` is lost.
const LOST_SHARE: u64 = 4;
/// The program's own work counts as `time / WORK_SHARE` at least.
const WORK_SHARE: u64 = 8;
/// The other choice has to lose less by `1 / MARGIN`.
const MARGIN: u64 = 10;
/// Epochs of a try, as long as each loses less than the one before by `1 / BETTER`.
const TRIES: u32 = 8;
const BETTER: u64 = 64;
/// Epochs between two tries.
const PAUSE_MIN: u32 = 2;
const PAUSE_MAX: u32 = 64;
/// Losses are counted in millionths of the work.
const MILLION: u128 = 1_000_000;

/// What goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is tried for so many epochs.
    Steady(u32),
    /// The choice has just changed: RAM settles. Then it is measured against this loss, if it is a try.
    Settling(Option<u64>),
    /// The other choice is measured.
    Trying(Try),
}

/// The measurement of the other choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    /// The loss to compare with.
    other: u64,
    /// That of the last epoch.
    last: u64,
    /// Epochs left.
    left: u32,
}

/// Whether pages are compressed, for as long as the program runs.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    on: bool,
    phase: Phase,
    pause: u32,
    limit: u32,
    /// When the epoch began, evictions since then, and time lost.
    begun: Option<Nanos>,
    evictions: u32,
    lost: u64,
}

impl Choice {
    /// Begins without the pool: nothing has been measured yet.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            on: false,
            phase: Phase::Steady(1),
            pause: PAUSE_MIN,
            limit,
            begun: None,
            evictions: 0,
            lost: 0,
        }
    }

    /// The limit has changed.
    pub(crate) fn resized(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Whether pages are compressed now.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// A soft fault.
    pub(crate) fn soft_fault(&mut self) {
        self.lost += SOFT_FAULT.0;
    }

    /// A fault on a compressed page in RAM.
    pub(crate) fn pool_fault(&mut self) {
        self.lost += POOL_FAULT.0;
    }

    /// A thread waited so long for a read.
    pub(crate) fn waited(&mut self, time: Nanos) {
        self.lost += time.0;
    }

    /// A page was evicted.
    pub(crate) fn evicted(&mut self) {
        self.evictions += 1;
    }

    /// Decides at the end of an epoch. Returns whether the choice has changed.
    pub(crate) fn decide(&mut self, now: Nanos) -> bool {
        let begun = *self.begun.get_or_insert(now);
        let epoch = match self.phase {
            Phase::Settling(_) => self.limit,
            Phase::Steady(_) | Phase::Trying(_) => self.limit / EPOCH_SHARE,
        };
        let time = now.since(begun).0;
        if self.evictions < epoch.max(1) || time == 0 {
            return false;
        }
        let little = self.lost < time / LOST_SHARE;
        let work = time.saturating_sub(self.lost).max(time / WORK_SHARE).max(1);
        let lost = (u128::from(self.lost) * MILLION / u128::from(work)) as u64;
        (self.begun, self.evictions, self.lost) = (Some(now), 0, 0);
        let before = self.on;
        self.phase = match self.phase {
            Phase::Steady(_) if little => Phase::Steady(0),
            Phase::Steady(left @ 1..) => Phase::Steady(left - 1),
            Phase::Steady(0) => {
                self.on = !self.on;
                Phase::Settling(Some(lost))
            }
            Phase::Settling(Some(other)) => Phase::Trying(Try {
                other,
                last: u64::MAX,
                left: TRIES,
            }),
            Phase::Settling(None) => self.steady(),
            Phase::Trying(Try { other, .. }) if lost < other - other / MARGIN => self.steady(),
            Phase::Trying(Try { other, last, left }) if left > 1 && lost < last - last / BETTER => {
                Phase::Trying(Try {
                    other,
                    last: lost,
                    left: left - 1,
                })
            }
            Phase::Trying(_) => {
                self.on = !self.on;
                Phase::Settling(None)
            }
        };
        before != self.on
    }

    fn steady(&mut self) -> Phase {
        let pause = self.pause;
        self.pause = (2 * pause).min(PAUSE_MAX);
        Phase::Steady(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 1000;

    /// Runs a program that evicts a page each 100 us, of which it loses so many with and without the pool. Returns the
    /// share of evictions with the pool, in percent, and how often the choice changed.
    fn share(choice: &mut Choice, now: &mut u64, evictions: u32, off: u64, on: u64) -> (u32, u32) {
        let (mut with, mut changes) = (0, 0);
        for _ in 0..evictions {
            *now += 100_000;
            with += u32::from(choice.is_on());
            choice.waited(Nanos(if choice.is_on() { on } else { off }));
            choice.evicted();
            changes += u32::from(choice.decide(Nanos(*now)));
        }
        (with * 100 / evictions, changes)
    }

    #[test]
    fn what_loses_less_is_kept() {
        let mut choice = Choice::new(LIMIT);
        let (with, _) = share(&mut choice, &mut 0, 1_000_000, 80_000, 40_000);
        assert!(with > 90, "{with} %");
        let mut choice = Choice::new(LIMIT);
        let (with, _) = share(&mut choice, &mut 0, 1_000_000, 40_000, 80_000);
        assert!(with < 10, "{with} %");
    }

    #[test]
    fn a_little_less_is_no_reason_to_change() {
        let mut choice = Choice::new(LIMIT);
        let (with, _) = share(&mut choice, &mut 0, 1_000_000, 80_000, 79_000);
        assert!(with < 10, "{with} %");
    }

    #[test]
    fn a_program_that_loses_little_is_left_alone() {
        let mut choice = Choice::new(LIMIT);
        let run = share(&mut choice, &mut 0, 1_000_000, 20_000, 1_000);
        assert_eq!(run, (0, 0));
    }

    #[test]
    fn a_program_that_changes_is_noticed() {
        let (mut choice, mut now) = (Choice::new(LIMIT), 0);
        share(&mut choice, &mut now, 1_000_000, 80_000, 40_000);
        assert!(choice.is_on());
        share(&mut choice, &mut now, 100_000, 40_000, 80_000);
        let (with, _) = share(&mut choice, &mut now, 1_000_000, 40_000, 80_000);
        assert!(with < 10, "{with} %");
    }
}
