//! Fault latencies as a log-linear histogram of fixed size. It has 32 buckets an octave, so a quantile is at most 3 %
//! too high.

use std::sync::atomic::{AtomicU64, Ordering};

/// log2 of the number of buckets in an octave, which are equally wide.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Latencies of 2^41 ns (36 minutes) and more share the last bucket.
const EXPONENT_MAX: u32 = 40;
const BUCKETS: usize = (EXPONENT_MAX - SUB_BITS + 2) as usize * SUB;

/// The bucket for a latency in nanoseconds.
fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    ((shift as usize + 1) * SUB + (ns >> shift) as usize - SUB).min(BUCKETS - 1)
}

/// The highest latency that falls into a bucket.
fn bucket_end(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = (index / SUB - 1) as u32;
    (((index % SUB + SUB + 1) as u64) << shift) - 1
}

fn quantile_of(counts: impl Iterator<Item = u64> + Clone, max: u64, q: f64) -> u64 {
    let total: u64 = counts.clone().sum();
    let rank = ((total as f64 * q).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    for (index, count) in counts.enumerate() {
        seen += count;
        if seen >= rank {
            return bucket_end(index).min(max);
        }
    }
    max
}

/// Fault latencies of one process: from the fault until its thread may continue.
#[repr(C)]
pub struct LatencyHistogram {
    max: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl LatencyHistogram {
    /// Counts one latency in nanoseconds.
    pub fn record(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(ns, Ordering::Relaxed);
    }

    /// The latency in nanoseconds that a share `q` (0 to 1) of all latencies does not exceed; 0 without any.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        quantile_of(
            self.counts.iter().map(|c| c.load(Ordering::Relaxed)),
            self.max(),
            q,
        )
    }

    /// The highest latency in nanoseconds.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// An immutable copy. Allocates.
    #[must_use]
    pub fn snapshot(&self) -> Histogram {
        Histogram {
            max: self.max(),
            counts: self
                .counts
                .iter()
                .map(|c| c.load(Ordering::Relaxed))
                .collect(),
        }
    }

    pub(super) fn clear(&self) {
        self.max.store(0, Ordering::Relaxed);
        for count in self
            .counts
            .iter()
            .filter(|c| c.load(Ordering::Relaxed) != 0)
        {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// An immutable histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    max: u64,
    counts: Vec<u64>,
}

impl Histogram {
    /// The latency in nanoseconds that a share `q` (0 to 1) of all latencies does not exceed; 0 without any.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        quantile_of(self.counts.iter().copied(), self.max, q)
    }

    /// The highest latency in nanoseconds.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The latencies recorded since `before`, an earlier copy. Their maximum is that of their last bucket, or the
    /// overall maximum if that is lower.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts: Vec<u64> = self
            .counts
            .iter()
            .zip(earlier)
            .map(|(now, before)| now.saturating_sub(before))
            .collect();
        let last = counts.iter().rposition(|&count| count > 0);
        let max = last.map_or(0, |index| bucket_end(index).min(self.max));
        Self { max, counts }
    }

    /// The number of latencies, and their sum in nanoseconds, at most 3 % too high.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        let ends = (0..).map(bucket_end).zip(&self.counts);
        ends.fold((0, 0), |(number, sum), (end, &count)| {
            let sum = count.saturating_mul(end.min(self.max)).saturating_add(sum);
            (number + count, sum)
        })
    }

    /// The latencies by octave: n, and how many lie in `[2^n, 2^(n+1))` ns, for each n from the first octave that has
    /// any to the last. Octave 0 includes 0 ns.
    #[must_use]
    pub fn octaves(&self) -> Vec<(u32, u64)> {
        let octave = |index: usize| bucket_end(index).max(1).ilog2();
        let mut octaves: Vec<(u32, u64)> = Vec::new();
        let used = |index: &usize| self.counts[*index] > 0;
        let first = (0..self.counts.len()).find(used);
        let last = (0..self.counts.len()).rfind(used);
        let (Some(first), Some(last)) = (first, last) else {
            return octaves;
        };
        for index in first..=last {
            match octaves.last_mut() {
                Some((n, count)) if *n == octave(index) => *count += self.counts[index],
                _ => octaves.push((octave(index), self.counts[index])),
            }
        }
        octaves
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.max = self.max.max(other.max);
        self.counts
            .resize(self.counts.len().max(other.counts.len()), 0);
        for (to, from) in self.counts.iter_mut().zip(&other.counts) {
            *to += from;
        }
    }
}

impl FromIterator<u64> for Histogram {
    /// Counts these latencies, in nanoseconds.
    fn from_iter<I: IntoIterator<Item = u64>>(latencies: I) -> Self {
        let (mut max, mut counts) = (0, vec![0; BUCKETS]);
        for ns in latencies {
            counts[bucket(ns)] += 1;
            max = max.max(ns);
        }
        Self { max, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram() -> Box<LatencyHistogram> {
        Box::new(LatencyHistogram {
            max: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        })
    }

    #[test]
    fn buckets_are_contiguous() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(bucket_end(index)), index);
            assert_eq!(bucket(bucket_end(index) + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn empty_is_zero() {
        assert_eq!(histogram().quantile(0.5), 0);
        assert_eq!(Histogram::default().quantile(0.99), 0);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_three_percent(
            mut values in prop::collection::vec(0_u64..1 << 38, 1..300),
            q in 0.0_f64..=1.0,
        ) {
            let histogram = histogram();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let told = histogram.quantile(q);
            prop_assert!(told >= exact && told as f64 <= exact as f64 * 1.032 + 1.0);
            prop_assert_eq!(histogram.snapshot().quantile(q), told);
            prop_assert_eq!(values.iter().copied().collect::<Histogram>(), histogram.snapshot());
            let mut twice = histogram.snapshot();
            twice.add(&histogram.snapshot());
            prop_assert_eq!(twice.quantile(q), told);
        }
    }

    #[test]
    fn what_came_since() {
        let before: Histogram = [5, 1000].into_iter().collect();
        let now: Histogram = [5, 1000, 1000, 70_000].into_iter().collect();
        let since = now.since(&before);
        assert_eq!(since, now.since(&before).since(&Histogram::default()));
        assert_eq!(since.total().0, 2);
        assert!(
            (71_000..=71_000 * 104 / 100).contains(&since.total().1),
            "{since:?}"
        );
        assert_eq!(since.max(), 70_000);
        assert_eq!(now.since(&now).total(), (0, 0));
        assert_eq!(now.since(&now).quantile(0.5), 0);
        let octaves = since.octaves();
        assert_eq!(octaves.first(), Some(&(9, 1)));
        assert_eq!(octaves.last(), Some(&(16, 1)));
        assert_eq!(
            octaves.len(),
            8,
            "empty ones between are there: {octaves:?}"
        );
        assert_eq!(Histogram::default().octaves(), []);
        let all: Histogram = (0..40).map(|power| 1 << power).collect();
        assert_eq!(
            all.octaves(),
            Vec::from_iter((0..40).map(|octave| (octave, 1)))
        );
    }
}
