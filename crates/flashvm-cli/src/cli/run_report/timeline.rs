//! Counters over time, at a bounded number of points: when there are too many, every second one stays.

use flashvm_live::control::StatsSnapshot;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Points kept at most.
const POINTS_MAX: usize = 480;
/// The first interval between two points.
const INTERVAL: Duration = Duration::from_millis(50);

/// The counters of all processes at one time, since the start of the run; and what RAM holds at that time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) faults_flash: u64,
    pub(crate) faults_pool: u64,
    pub(crate) faults_soft: u64,
    pub(crate) faults_zero: u64,
    pub(crate) faults_waited: u64,
    pub(crate) first_stores: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Bytes of RAM in use, all kinds.
    pub(crate) ram_used: u64,
    /// Bytes of RAM with compressed pages.
    pub(crate) ram_compressed: u64,
    /// Bytes of RAM with pages read ahead and not used yet.
    pub(crate) ram_ahead: u64,
}

impl Point {
    /// Takes the counters of faults.
    pub(super) fn count(&mut self, stats: &StatsSnapshot) {
        self.faults_flash = stats.faults_major + stats.svmp_major;
        self.faults_pool = stats.faults_pool;
        self.faults_soft = stats.faults_soft + stats.svmp_soft;
        self.faults_zero = stats.faults_zero;
        self.faults_waited = stats.faults_waited;
        self.first_stores = stats.faults_write_protect;
    }

    /// Bytes of RAM with pages as they are, used or written by the program.
    pub(super) fn ram_plain(&self) -> u64 {
        self.ram_used
            .saturating_sub(self.ram_compressed + self.ram_ahead)
    }
}

/// Points at equal intervals.
#[derive(Debug)]
pub(super) struct Timeline {
    points: Vec<Point>,
    interval: Duration,
    next: Duration,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            points: vec![Point::default()],
            interval: INTERVAL,
            next: INTERVAL,
        }
    }
}

impl Timeline {
    /// Whether it is time for a point.
    pub(super) fn is_due(&self, elapsed: Duration) -> bool {
        elapsed >= self.next
    }

    pub(super) fn push(&mut self, elapsed: Duration, point: Point) {
        self.points.push(Point {
            seconds: elapsed.as_secs_f64(),
            ..point
        });
        if self.points.len() > POINTS_MAX {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval *= 2;
        }
        self.next = elapsed + self.interval;
    }

    pub(super) fn points(self) -> Vec<Point> {
        self.points
    }
}

/// A counter as a rate for each second between two points.
pub(super) fn rates(points: &[Point], of: impl Fn(&Point) -> u64) -> Vec<(f64, f64)> {
    let pairs = points.windows(2);
    let rate = |pair: &[Point]| {
        let seconds = (pair[1].seconds - pair[0].seconds).max(1e-6);
        let more = of(&pair[1]).saturating_sub(of(&pair[0]));
        (pair[1].seconds, more as f64 / seconds)
    };
    pairs.map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, faults: u64) -> Point {
        Point {
            seconds,
            faults_flash: faults,
            ..Point::default()
        }
    }

    /// However long the run, the points are bounded, in order, and nothing that was counted is lost.
    #[test]
    fn points_are_bounded_and_lose_no_count() {
        let mut timeline = Timeline::default();
        let mut looks = 0;
        for tick in 1..=144_000_u64 {
            let elapsed = Duration::from_millis(25 * tick);
            if timeline.is_due(elapsed) {
                looks += 1;
                timeline.push(elapsed, at(0.0, 3 * tick));
            }
        }
        let points = timeline.points();
        assert!(
            looks > points.len() && points.len() <= POINTS_MAX,
            "{looks}"
        );
        assert!(points.len() > POINTS_MAX / 3, "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a.seconds < b.seconds));
        let rates = rates(&points, |point| point.faults_flash);
        let lasts = points
            .windows(2)
            .map(|pair| pair[1].seconds - pair[0].seconds);
        let sum: f64 = rates.iter().zip(lasts).map(|((_, rate), s)| rate * s).sum();
        let last = points.last().expect("points").faults_flash;
        assert!(
            (sum - last as f64).abs() < 1e-3 * last as f64,
            "{sum} {last}"
        );
    }

    #[test]
    fn rates_are_by_second() {
        let points = [at(0.0, 0), at(0.5, 10), at(2.5, 10), at(3.5, 17)];
        let found = rates(&points, |point| point.faults_flash);
        assert_eq!(found, [(0.5, 20.0), (2.5, 0.0), (3.5, 7.0)]);
    }
}
