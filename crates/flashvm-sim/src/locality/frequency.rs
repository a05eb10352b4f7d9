//! The rank of a page in the list of pages by number of past references, at each reference.
//!
//! Pages with the same count form a group. A referenced page swaps places with the first of its
//! group, and so becomes the last of the group before: O(1). Within a group, pages that arrived
//! earlier come first, except for these swaps.

use rustc_hash::FxHashMap;

/// No rank.
const NONE: u32 = u32::MAX;

/// The pages by number of references. Pages are numbered from 0 without gaps, as far as possible.
#[derive(Clone, Debug, Default)]
pub struct FrequencyRanking {
    /// Pages, best first.
    order: Vec<u32>,
    /// By page, its place.
    places: Vec<u32>,
    /// By page, its references.
    counts: Vec<u64>,
    /// By count, the first place of its group.
    firsts: FxHashMap<u64, u32>,
}

impl FrequencyRanking {
    /// References a page. Returns its previous rank: 1 for the most referenced page, `None` for a
    /// new one.
    pub fn reference(&mut self, page: u32) -> Option<u32> {
        let index = page as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NONE);
            self.counts.resize(index + 1, 0);
        }
        let place = self.places[index];
        if place == NONE {
            let place = self.order.len() as u32;
            self.order.push(page);
            self.places[index] = place;
            self.counts[index] = 1;
            self.firsts.entry(1).or_insert(place);
            return None;
        }
        let count = self.counts[index];
        let first = self.firsts[&count];
        self.exchange(place, first);
        let behind = self.order.get(first as usize + 1);
        if behind.is_some_and(|&other| self.counts[other as usize] == count) {
            self.firsts.insert(count, first + 1);
        } else {
            self.firsts.remove(&count);
        }
        self.counts[index] = count + 1;
        self.firsts.entry(count + 1).or_insert(first);
        Some(place + 1)
    }

    fn exchange(&mut self, one: u32, other: u32) {
        self.order.swap(one as usize, other as usize);
        for place in [one, other] {
            self.places[self.order[place as usize] as usize] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The rank agrees with plain counts: after all pages with more references, before all with
        /// fewer.
        #[test]
        fn ranks_are_by_count(references in prop::collection::vec(0..30_u32, 1..2000)) {
            let mut ranking = FrequencyRanking::default();
            let mut counts = [0_u32; 30];
            for page in references {
                let own = counts[page as usize];
                let more = counts.iter().filter(|&&count| count > own).count() as u32;
                let same = counts.iter().filter(|&&count| count == own).count() as u32;
                match ranking.reference(page) {
                    None => prop_assert_eq!(own, 0),
                    Some(rank) => {
                        prop_assert!(own > 0);
                        prop_assert!((more + 1..=more + same).contains(&rank), "{} of {}", rank, more);
                    }
                }
                counts[page as usize] += 1;
            }
        }
    }

    #[test]
    fn the_page_written_most_is_first() {
        let mut ranking = FrequencyRanking::default();
        let ranks = [5, 5, 5, 7, 7, 5, 7].map(|page| ranking.reference(page));
        assert_eq!(
            ranks,
            [None, Some(1), Some(1), None, Some(2), Some(1), Some(2)]
        );
    }
}
