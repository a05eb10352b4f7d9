//! Locality of references, as CRAW measures it (section III): references by rank of recency
//! (Figures 2 to 4), and writes by rank of past writes (Figure 5).
//!
//! - `stack`: ranks of recency, the LRU stack distances of Mattson et al. (1970), in O(log n);
//! - `frequency`: ranks of past writes, in O(1);
//! - `miss_curve`: the misses of LRU for every size of memory.

mod frequency;
mod miss_curve;
mod stack;

pub use frequency::FrequencyRanking;
pub use miss_curve::MissCurve;
pub use stack::LruStack;

use crate::trace::{Granularity, Kind, Reference};
use rustc_hash::FxHashMap;

/// Numbers of references by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// References to pages without a rank yet.
    pub first: u64,
    /// References at rank 1, 2, ...: rank 1 is the page referenced last, or most often.
    pub counts: Vec<u64>,
}

/// Ranks from one power of two up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octave {
    /// First rank.
    pub from: usize,
    /// Last rank.
    pub to: usize,
    /// References at all of them.
    pub count: u64,
}

impl Octave {
    /// References a rank.
    #[must_use]
    pub fn mean(self) -> f64 {
        self.count as f64 / (self.to + 1 - self.from) as f64
    }
}

impl Ranks {
    fn add(&mut self, rank: Option<u32>) {
        let Some(rank) = rank else {
            self.first += 1;
            return;
        };
        let at = rank as usize - 1;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }

    /// References at any rank.
    #[must_use]
    pub fn ranked(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Ranks 1, 2 and 3, 4 to 7, 8 to 15, ...
    #[must_use]
    pub fn octaves(&self) -> Vec<Octave> {
        let mut octaves = Vec::new();
        let mut from = 1;
        while from <= self.counts.len() {
            let to = (2 * from - 1).min(self.counts.len());
            let count = self.counts[from - 1..to].iter().sum();
            octaves.push(Octave { from, to, count });
            from = to + 1;
        }
        octaves
    }

    /// CRAW's ranking inversion: the percentage of ranked references in octaves whose mean exceeds
    /// that of an octave of better rank. 0: the better its rank, the likelier a page is referenced
    /// next.
    #[must_use]
    pub fn inverted_percent(&self) -> f64 {
        let (mut least, mut inverted) = (f64::INFINITY, 0);
        for octave in self.octaves() {
            if octave.mean() > least {
                inverted += octave.count;
            }
            least = least.min(octave.mean());
        }
        inverted as f64 * 100.0 / self.ranked().max(1) as f64
    }
}

/// References by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads of data.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Fetches of instructions.
    pub instructions: u64,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub fn all(self) -> u64 {
        self.reads + self.writes + self.instructions
    }
}

/// All figures for one trace. A reference counts once for each page that it touches; fetches of
/// instructions count as reads where reads and writes are distinguished.
#[derive(Debug, Default)]
pub struct Locality {
    numbers: FxHashMap<u64, u32>,
    all: LruStack,
    reads: LruStack,
    writes: LruStack,
    frequency: FrequencyRanking,
    run_frequency: FrequencyRanking,
    /// The page of the last write.
    written: Option<u32>,
    counts: Counts,
    /// Figure 2: all references by recency.
    pub total: Ranks,
    /// Figure 3: reads by recency of reads.
    pub read: Ranks,
    /// Figure 4: writes by recency of writes.
    pub write: Ranks,
    /// Figure 5: writes by number of past writes.
    pub write_frequency: Ranks,
    /// Figure 4 without writes to the page written last: a run of writes to one page counts once.
    pub run: Ranks,
    /// The same writes by number of past runs.
    pub run_by_frequency: Ranks,
}

impl Locality {
    /// Adds a reference.
    pub fn add(&mut self, granularity: Granularity, reference: Reference) {
        for page in granularity.pages(reference) {
            let next = self.numbers.len() as u32;
            let page = *self.numbers.entry(page).or_insert(next);
            self.total.add(self.all.reference(page));
            match reference.kind {
                Kind::Read => self.counts.reads += 1,
                Kind::Write => self.counts.writes += 1,
                Kind::Instruction => self.counts.instructions += 1,
            }
            if reference.kind == Kind::Write {
                let rank = self.writes.reference(page);
                self.write.add(rank);
                self.write_frequency.add(self.frequency.reference(page));
                if self.written.replace(page) != Some(page) {
                    self.run.add(rank);
                    self.run_by_frequency
                        .add(self.run_frequency.reference(page));
                }
            } else {
                self.read.add(self.reads.reference(page));
            }
        }
    }

    /// References by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Pages referenced: the footprint.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Pages read, or fetched from.
    #[must_use]
    pub fn pages_read(&self) -> u64 {
        self.read.first
    }

    /// Pages written.
    #[must_use]
    pub fn pages_written(&self) -> u64 {
        self.write.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(counts: &[u64]) -> Ranks {
        Ranks {
            first: 0,
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn octaves_and_inversion() {
        let octaves = ranks(&[10, 4, 2, 1, 1, 1]).octaves();
        let shown: Vec<_> = octaves.iter().map(|o| (o.from, o.to, o.count)).collect();
        assert_eq!(shown, [(1, 1, 10), (2, 3, 6), (4, 6, 3)]);
        assert_eq!(ranks(&[10, 4, 2, 1]).inverted_percent(), 0.0);
        // Ranks 2 and 3 have a higher mean than rank 1; ranks 4 and 5 a lower one than both.
        assert_eq!(ranks(&[2, 3, 3, 1, 1]).inverted_percent(), 60.0);
        assert_eq!(ranks(&[]).inverted_percent(), 0.0);
    }

    #[test]
    fn a_run_of_writes_counts_once() {
        let mut locality = Locality::default();
        for page in [7, 7, 7, 8, 7, 7, 8] {
            let reference = Reference {
                address: page,
                bytes: 0,
                kind: Kind::Write,
            };
            locality.add(Granularity::Pages, reference);
        }
        let counts = |first, counts: &[u64]| Ranks {
            first,
            counts: counts.to_vec(),
        };
        assert_eq!(locality.write, counts(2, &[3, 2]));
        assert_eq!(locality.run, counts(2, &[0, 2]));
        // 7 has one run and 8 another when 7 comes back; then 7 leads.
        assert_eq!(locality.run_by_frequency, counts(2, &[1, 1]));
    }

    #[test]
    fn reads_and_writes_have_separate_ranks() {
        let mut locality = Locality::default();
        let kinds = [Kind::Write, Kind::Read, Kind::Instruction, Kind::Write];
        for (page, kind) in [5, 6, 5, 5].into_iter().zip(kinds) {
            let reference = Reference {
                address: page * 4096 + 4090,
                bytes: 4,
                kind,
            };
            locality.add(Granularity::Bytes, reference);
        }
        let counts = Counts {
            reads: 1,
            writes: 2,
            instructions: 1,
        };
        assert_eq!((locality.counts(), locality.pages()), (counts, 2));
        assert_eq!((locality.pages_read(), locality.pages_written()), (2, 1));
        assert_eq!(
            locality.total,
            Ranks {
                first: 2,
                counts: vec![1, 1]
            }
        );
        assert_eq!(
            locality.read,
            Ranks {
                first: 2,
                counts: vec![]
            }
        );
        assert_eq!(
            locality.write,
            Ranks {
                first: 1,
                counts: vec![1]
            }
        );
        assert_eq!(locality.write_frequency, locality.write);
    }
}
