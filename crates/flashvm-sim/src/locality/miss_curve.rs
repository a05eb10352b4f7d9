//! The miss curve of LRU, from all references or from those to a sample of the pages.
//!
//! Mattson et al., "Evaluation techniques for storage hierarchies" (1970): a reference hits if its rank of recency is at
//! most the number of frames, so one pass gives the misses of every size. SHARDS (Waldspurger et al., FAST 2015): a
//! rank among the pages of a hashed sample, times the inverse of the sample's share, estimates the rank among all.

use super::{LruStack, Ranks};
use rustc_hash::FxHashMap;

/// Misses of LRU for every number of frames.
///
/// ```
/// use flashvm_sim::locality::MissCurve;
/// let mut curve = MissCurve::new(0);
/// for page in [1, 2, 3, 1, 2, 3] {
///     curve.add(page);
/// }
/// assert_eq!((curve.footprint(), curve.references()), (3, 6));
/// assert_eq!((curve.misses(2), curve.misses(3)), (3, 0));
/// ```
#[derive(Debug, Default)]
pub struct MissCurve {
    shard_bits: u32,
    numbers: FxHashMap<u64, u32>,
    stack: LruStack,
    ranks: Ranks,
}

impl MissCurve {
    /// No references yet. Those that follow are to 2^-`shard_bits` of the pages; 0: to all.
    #[must_use]
    pub fn new(shard_bits: u32) -> Self {
        Self {
            shard_bits,
            ..Self::default()
        }
    }

    /// Adds a reference.
    pub fn add(&mut self, page: u64) {
        let next = u32::try_from(self.numbers.len()).expect("at most 2^32 pages");
        let number = *self.numbers.entry(page).or_insert(next);
        self.ranks.add(self.stack.reference(number));
    }

    /// The logarithm of the inverse of the sample's share.
    #[must_use]
    pub fn shard_bits(&self) -> u32 {
        self.shard_bits
    }

    /// Pages of the sample.
    #[must_use]
    pub fn sampled_pages(&self) -> u64 {
        self.ranks.first
    }

    /// Pages, estimated from the sample.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.ranks.first << self.shard_bits
    }

    /// References, estimated from the sample.
    #[must_use]
    pub fn references(&self) -> u64 {
        (self.ranks.first + self.ranks.ranked()) << self.shard_bits
    }

    /// References that miss with so many frames, without the first ones to each page: those find zeros.
    #[must_use]
    pub fn misses(&self, frames: u64) -> u64 {
        // With k sampled pages in between there were about k * 2^bits pages: rank k + 1 hits if they and the page fit.
        let hits = frames
            .checked_sub(1)
            .map_or(0, |others| (others >> self.shard_bits) + 1);
        let from = usize::try_from(hits).map_or(self.ranks.counts.len(), |hits| {
            hits.min(self.ranks.counts.len())
        });
        let misses: u64 = self.ranks.counts[from..].iter().sum();
        misses << self.shard_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use flashvm_core::{PageId, shards::is_sampled};
    use proptest::prelude::*;

    /// LRU as a list: the references beside the first that miss.
    fn naive(references: &[u32], frames: usize) -> u64 {
        let (mut list, mut seen, mut misses) = (Vec::new(), std::collections::HashSet::new(), 0);
        for &page in references {
            match list.iter().position(|&other| other == page) {
                Some(place) => drop(list.remove(place)),
                None => misses += u64::from(!seen.insert(page)),
            }
            list.insert(0, page);
            list.truncate(frames);
        }
        misses
    }

    proptest! {
        #[test]
        fn without_sampling_it_is_exact(
            references in prop::collection::vec(0..50_u32, 1..600),
            frames in 0..60_usize,
        ) {
            let mut curve = MissCurve::new(0);
            references.iter().for_each(|&page| curve.add(page.into()));
            prop_assert_eq!(curve.misses(frames as u64), naive(&references, frames));
        }
    }

    /// Pages of a program with a skewed, a uniform and a cyclic part.
    fn page(rng: &mut Rng, at: u32) -> u32 {
        match rng.below(3) {
            0 => (rng.below(20_000) * rng.below(20_000) / 20_000) as u32,
            1 => 20_000 + rng.below(20_000) as u32,
            _ => 40_000 + at % 24_000,
        }
    }

    const REFERENCES: u32 = 400_000;

    /// A 64th of the pages, 1,000, gives the whole curve within 0.03 of the miss ratio or a twelfth of the memory, which
    /// is where cycles have their step. (Waldspurger et al.: 0.02 with 8,000 pages.)
    #[test]
    fn a_sample_gives_the_whole_curve() {
        for seed in 1..=8 {
            let mut rng = Rng::new(seed);
            let (mut exact, mut sampled) = (MissCurve::new(0), MissCurve::new(6));
            for at in 0..REFERENCES {
                let page = page(&mut rng, at);
                exact.add(page.into());
                if is_sampled(PageId(page), 6) {
                    sampled.add(page.into());
                }
            }
            // Of all references: whether the hottest pages are in the sample changes hits alone.
            let ratio =
                |curve: &MissCurve, frames| curve.misses(frames) as f64 / f64::from(REFERENCES);
            for frames in (1..=64).map(|step| step * 1000) {
                let is = ratio(&sampled, frames);
                let (more, less) = (frames + frames / 12, frames - frames / 12);
                let bounds = ratio(&exact, more) - 0.03..ratio(&exact, less) + 0.03;
                assert!(
                    bounds.contains(&is),
                    "seed {seed}, {frames} frames: {is:.3}, not in {bounds:.3?}"
                );
            }
            let pages = sampled.footprint() as f64 / exact.footprint() as f64;
            assert!((0.9..1.1).contains(&pages), "seed {seed}: {pages:.3}");
        }
    }
}
