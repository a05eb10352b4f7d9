//! t_s, the interval between two scans for a free cluster, and the cost of a command (4.3.3).

use crate::ids::Nanos;

/// Weight of the newest interval in the moving average: 1 / WEIGHT.
const WEIGHT: u64 = 8;
/// Assumed cost of a command before one has been timed: c_o of the paper's drive.
const COST_EXPECTED: Nanos = Nanos(55_000_000);

/// A moving average of t_s, and the cost of the last command.
pub(super) struct ScanInterval {
    last: Option<Nanos>,
    /// Zero until two scans have happened.
    average: Nanos,
    cost: Nanos,
}

impl ScanInterval {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            average: Nanos(0),
            cost: COST_EXPECTED,
        }
    }

    pub(super) fn scanned(&mut self, now: Nanos) {
        if let Some(last) = self.last {
            let interval = now.since(last).0;
            self.average = match self.average {
                Nanos(0) => Nanos(interval.max(1)),
                Nanos(average) => Nanos((average * (WEIGHT - 1) + interval).div_ceil(WEIGHT)),
            };
        }
        self.last = Some(now);
    }

    pub(super) fn ended(&mut self, took: Nanos) {
        self.cost = took;
    }

    /// Whether clusters are reused sooner than a command would pay for itself: max(t_s, time since
    /// the last scan) < cost of a command.
    pub(super) fn is_short(&self, now: Nanos) -> bool {
        let idle = self.last.map_or(Nanos(u64::MAX), |last| now.since(last));
        self.average.max(idle) < self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn short_while_clusters_are_taken_fast_and_long_once_they_are_not() {
        let mut interval = ScanInterval::new();
        assert!(!interval.is_short(Nanos(0)), "nothing is known");
        for i in 0..10 {
            interval.scanned(Nanos(i * 5 * MS));
        }
        assert!(interval.is_short(Nanos(46 * MS)));
        assert!(!interval.is_short(Nanos(200 * MS)), "no scan for 155 ms");
        interval.ended(Nanos(MS));
        assert!(
            !interval.is_short(Nanos(46 * MS)),
            "a command costs less than t_s"
        );
    }
}
