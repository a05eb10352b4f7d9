//! Estimates how likely a store follows a random load from a page.
//!
//! A page read for a load is mapped write-protected, so its first store is a second fault. If nearly
//! every page is stored to, these faults cost more than the flash writes they save. Some pages
//! are always mapped write-protected and watched: they show when the odds change.

use crate::ids::PageId;

/// Observed loads before the first prediction.
const LOADS_MIN: u32 = 32;
/// At this number of loads the counts are halved.
const LOADS_MAX: u32 = 256;
/// Stores are expected while at most `1 / MISSES_SHARE` of the loads have no store after them.
const MISSES_SHARE: u32 = 8;
/// While stores are expected, one load is watched after this many that are not.
const WATCH_INTERVAL: u32 = 8;
/// Pages watched at a time: roughly the threads that load at once.
const WATCHED: usize = 8;

/// Counts of watched loads, and of stores that followed them.
#[derive(Debug, Default)]
pub(super) struct StoreOdds {
    loads: u32,
    stores: u32,
    expected_in_a_row: u32,
    watched: [Option<PageId>; WATCHED],
    next: usize,
}

impl StoreOdds {
    /// Handles a load. Returns whether a store to the page is expected.
    pub(super) fn loaded(&mut self, page: PageId) -> bool {
        let likely =
            self.loads >= LOADS_MIN && (self.loads - self.stores) * MISSES_SHARE <= self.loads;
        if likely && self.expected_in_a_row < WATCH_INTERVAL {
            self.expected_in_a_row += 1;
            return true;
        }
        self.expected_in_a_row = 0;
        if self.loads == LOADS_MAX {
            (self.loads, self.stores) = (self.loads / 2, self.stores / 2);
        }
        self.loads += 1;
        self.watched[self.next] = Some(page);
        self.next = (self.next + 1) % WATCHED;
        false
    }

    /// Handles a store to a write-protected page, watched or not.
    pub(super) fn stored(&mut self, page: PageId) {
        if let Some(watched) = self.watched.iter_mut().find(|w| **w == Some(page)) {
            *watched = None;
            // `loads` may have been halved since this page's load.
            self.stores = (self.stores + 1).min(self.loads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads `loads` pages, of which one in `one_in` is not stored to; returns how many stores were
    /// expected.
    fn run(odds: &mut StoreOdds, loads: u32, one_in: u32) -> u32 {
        (0..loads)
            .filter(|&i| {
                let expected = odds.loaded(PageId(i));
                // Hashed: a periodic pattern could keep step with the watching.
                if !expected && (i.wrapping_mul(2_654_435_761) >> 8) % one_in != 0 {
                    odds.stored(PageId(i));
                }
                expected
            })
            .count() as u32
    }

    #[test]
    fn expects_stores_where_nearly_all_loads_are_followed_by_one() {
        let expected = run(&mut StoreOdds::default(), 10_000, 16);
        assert!(expected > 8_000, "{expected}");
    }

    #[test]
    fn expects_none_where_many_are_not() {
        assert_eq!(run(&mut StoreOdds::default(), 10_000, 4), 0);
    }

    #[test]
    fn notices_a_change() {
        let mut odds = StoreOdds::default();
        run(&mut odds, 10_000, 16);
        let expected = run(&mut odds, 10_000, 1);
        assert!(expected < 500, "{expected}");
        let expected = run(&mut odds, 20_000, 16);
        assert!(expected > 10_000, "{expected} {odds:?}");
    }
}
