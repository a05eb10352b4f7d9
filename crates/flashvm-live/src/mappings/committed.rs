//! The parts of the managed range for which the run has promised memory, in units of 16 pages.

use super::UNIT_PAGES;
use flashvm_core::PageId;
use std::ops::Range;

/// A bit for each unit, set if the unit is promised.
#[derive(Debug)]
pub(super) struct Committed {
    units: Vec<u64>,
}

impl Committed {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            units: vec![0; (pages / UNIT_PAGES / u64::BITS) as usize + 1],
        }
    }

    /// Promises the units that a range touches. `promise(n)` says whether the run has room for n > 0 more pages; it is
    /// not called for n = 0. Returns whether the whole range is promised now.
    pub(super) fn commit(
        &mut self,
        first: PageId,
        count: u32,
        promise: impl FnOnce(u64) -> bool,
    ) -> bool {
        let units = first.0 / UNIT_PAGES..(first.0 + count).div_ceil(UNIT_PAGES);
        let pages = self.pages_to_change(units.clone(), true);
        let promised = pages == 0 || promise(pages);
        if promised {
            self.set(units, true);
        }
        promised
    }

    /// Takes back the promise for units that lie entirely in a range. Returns how many promised pages they had.
    pub(super) fn uncommit(&mut self, first: PageId, count: u32) -> u64 {
        let units = first.0.div_ceil(UNIT_PAGES)..(first.0 + count) / UNIT_PAGES;
        let pages = self.pages_to_change(units.clone(), false);
        self.set(units, false);
        pages
    }

    /// Pages of the units whose bit differs from `on`.
    fn pages_to_change(&self, units: Range<u32>, on: bool) -> u64 {
        let other = |unit: &u32| {
            (self.units[(unit / u64::BITS) as usize] >> (unit % u64::BITS)) & 1 != u64::from(on)
        };
        units.filter(other).count() as u64 * u64::from(UNIT_PAGES)
    }

    fn set(&mut self, units: Range<u32>, on: bool) {
        for unit in units {
            let word = &mut self.units[(unit / u64::BITS) as usize];
            let bit = 1 << (unit % u64::BITS);
            if on { *word |= bit } else { *word &= !bit }
        }
    }
}
