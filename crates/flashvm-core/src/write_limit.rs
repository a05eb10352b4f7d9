//! A limit on bytes written a day: when a write may begin, and how close the limit is.
//!
//! The burst is a day's bytes / 24; the rest comes evenly over the day, so that no 24 hours exceed
//! the limit. The whole state is one time (the generic cell rate algorithm of ITU-T I.371):
//! processes that share a limit keep it in one atomic word.

use crate::ids::Nanos;

const DAY_NS: u128 = 86_400_000_000_000;
/// A day's bytes / the burst.
const BURSTS: u128 = 24;

/// A limit on the bytes written in any 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimit {
    bytes_per_day: u64,
}

impl WriteLimit {
    /// Least limit, in bytes a day: 12 KiB a second.
    pub const BYTES_PER_DAY_MIN: u64 = 1 << 30;

    /// A limit of this many bytes in any 24 hours; `None` if that is too few.
    #[must_use]
    pub fn new(bytes_per_day: u64) -> Option<Self> {
        (bytes_per_day >= Self::BYTES_PER_DAY_MIN).then_some(Self { bytes_per_day })
    }

    /// The time in which this many bytes accrue once the burst is used.
    fn time_of(self, bytes: u64) -> u64 {
        let evenly = u128::from(self.bytes_per_day) * (BURSTS - 1);
        (u128::from(bytes) * DAY_NS * BURSTS).div_ceil(evenly) as u64
    }

    /// The time in which a burst accrues.
    fn burst(self) -> u64 {
        (DAY_NS / (BURSTS - 1)) as u64
    }

    /// Accounts for a write of this many bytes at `now`. Returns the state afterwards, and the time at
    /// which the write may begin. An unused limit has state zero.
    #[must_use]
    pub fn take(self, state: Nanos, now: Nanos, bytes: u64) -> (Nanos, Nanos) {
        let state = state.max(now).plus(Nanos(self.time_of(bytes)));
        let begin = Nanos(state.0.saturating_sub(self.burst())).max(now);
        (state, begin)
    }

    /// Use of the burst, in percent: writes wait at 100.
    #[must_use]
    pub fn used(self, state: Nanos, now: Nanos) -> u8 {
        let used = u128::from(state.since(now).0) * 100 / u128::from(self.burst());
        used.min(100) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn less_than_a_gibibyte_a_day_is_no_limit() {
        assert_eq!(WriteLimit::new((1 << 30) - 1), None);
        assert!(WriteLimit::new(1 << 30).is_some());
    }

    #[test]
    fn a_burst_goes_at_once_and_later_writes_wait() {
        let limit = WriteLimit::new(24 << 30).unwrap();
        let start = Nanos(7_000_000_000);
        let (state, begin) = limit.take(Nanos(0), start, (1 << 30) - 4096);
        assert_eq!((begin, limit.used(state, start)), (start, 99));
        let (state, _) = limit.take(state, start, 4096);
        let (state, begin) = limit.take(state, start, 1 << 20);
        assert_eq!(limit.used(state, start), 100);
        // 23 GiB in 24 hours: a MiB in 3.67 s.
        let waited = begin.since(start).0 as f64 / 1e9;
        assert!((3.6..3.7).contains(&waited), "{waited}");
        let later = start.plus(Nanos(DAY_NS as u64));
        assert_eq!(limit.used(state, later), 0);
    }

    proptest! {
        #[test]
        fn no_day_exceeds_the_limit(
            gibibytes in 1_u64..100,
            writes in prop::collection::vec((0_u64..4_000_000_000_000, 1_u64..1 << 28), 1..200),
        ) {
            let limit = WriteLimit::new(gibibytes << 30).unwrap();
            let (mut state, mut now) = (Nanos(0), Nanos(0));
            let mut begun: Vec<(Nanos, u64)> = Vec::new();
            for (pause, bytes) in writes {
                now = now.plus(Nanos(pause));
                let (next, begin) = limit.take(state, now, bytes);
                prop_assert!(begin >= now);
                if begin > now {
                    prop_assert_eq!(limit.used(next, now), 100);
                }
                state = next;
                now = begin;
                begun.push((begin, bytes));
            }
            for (i, &(start, _)) in begun.iter().enumerate() {
                let until = start.plus(Nanos(DAY_NS as u64));
                let day = begun[i..].iter().take_while(|(at, _)| *at < until);
                let bytes: u64 = day.map(|(_, bytes)| bytes).sum();
                // One more request may begin at the very end of the day.
                prop_assert!(bytes <= (gibibytes << 30) + (1 << 28), "{bytes}");
            }
        }
    }
}
