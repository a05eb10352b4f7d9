//! Which pages of the region the program can touch, where access rights hide the others; and what that takes of the
//! mappings that the kernel allows (`vm.max_map_count`).
//!
//! Neighbours with the same rights share a mapping. So each run of shown pages takes two: its own, and that of the
//! hidden pages behind it. When the runs are too many, units of pages that stay in the region are *withdrawn*: hidden,
//! with their contents in place. A touch shows such a page again, for the price of a fault without I/O.
//!
//! Runs are many only if pages are touched in no order and most of their neighbours are on flash: then accesses that wait
//! for flash outnumber those to withdrawn pages.

use crate::space::run_set::RunSet;
use crate::space::runs;
use flashvm_core::space::PinnedRanges;
use flashvm_core::{PageId, Run};
use rustix::io::Errno;

/// Pages that are withdrawn together.
pub(super) const UNIT_PAGES: u32 = 64;
/// Runs that end together, so that the next pages find room.
const BATCH: u32 = 64;
/// Runs that a unit should end, as long as there is such a unit.
const MANY: i32 = 8;

/// The pages that the program can touch.
#[derive(Debug)]
pub(super) struct Shown {
    pages: RunSet,
    /// Most runs.
    most: u32,
    /// Pages of the region.
    all: u32,
    /// Units that had a shown page: the first, and the one behind the last.
    units: (u32, u32),
    /// The unit that is looked at next.
    hand: u32,
    /// Pages that system calls work on: they stay shown.
    pins: PinnedRanges,
}

impl Shown {
    /// No page of `all` is shown. `mappings`: how many the pages may take.
    pub(super) fn new(all: u32, mappings: u32) -> Result<Self, Errno> {
        Ok(Self {
            pages: RunSet::new(all)?,
            most: (mappings / 2).max(1),
            all,
            units: (u32::MAX, 0),
            hand: 0,
            pins: PinnedRanges::default(),
        })
    }

    pub(super) fn get(&self, page: PageId) -> bool {
        self.pages.has(page)
    }

    /// Runs of shown pages.
    pub(super) fn runs(&self) -> u32 {
        self.pages.runs()
    }

    /// The first shown pages of a run that adjoin.
    pub(super) fn first(&self, run: Run) -> Option<Run> {
        self.pages.first(run)
    }

    /// From the first to the last shown page of a run. `None`: it has none.
    pub(super) fn span(&self, run: Run) -> Option<Run> {
        let first = self.pages.pages(run).next()?;
        let last = (first.0..run.end().0)
            .rev()
            .find(|&page| self.get(PageId(page)))?;
        Some(Run::new(first, last - first.0 + 1))
    }

    /// A run of which the first and the last page are shown, extended to the ends of their runs. `None`: a pinned page
    /// is among those added.
    pub(super) fn whole(&self, span: Run) -> Option<Run> {
        self.pages.whole(span, &self.pins)
    }

    /// Notes that the pages of a run are shown.
    pub(super) fn show(&mut self, run: Run) {
        self.pages.insert(run);
        if run.count > 0 {
            let (first, end) = (run.first.0 / UNIT_PAGES, run.end().0.div_ceil(UNIT_PAGES));
            self.units = (self.units.0.min(first), self.units.1.max(end));
        }
    }

    /// Notes that the pages of a run are hidden.
    pub(super) fn hide(&mut self, run: Run) {
        self.pages.remove(run);
    }

    /// Whether there are as many runs as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.runs() >= self.most
    }

    /// Whether a batch of runs has room, so that nothing has to be withdrawn.
    pub(super) fn has_room(&self) -> bool {
        self.runs() + BATCH <= self.most.max(BATCH)
    }

    /// The kernel allows fewer mappings than assumed: the program has many of its own.
    pub(super) fn allow_fewer(&mut self) {
        self.most = self.runs().saturating_sub(2 * BATCH).max(1);
    }

    fn unit(&self, unit: u32) -> Run {
        let first = unit * UNIT_PAGES;
        Run::new(PageId(first), UNIT_PAGES.min(self.all - first))
    }

    /// By how much the number of runs falls if a unit is hidden.
    fn saved_by(&self, unit: Run) -> i32 {
        let parts = runs(self.pages.pages(unit)).count() as i32;
        if parts == 0 {
            return 0;
        }
        let goes_on = |inside, outside| self.get(PageId(inside)) && self.pages.has_beside(outside);
        let first = goes_on(unit.first.0, unit.first.0.checked_sub(1));
        let last = goes_on(unit.end().0 - 1, Some(unit.end().0));
        parts - i32::from(first) - i32::from(last)
    }

    /// The next unit to be hidden, in the order of addresses: without pinned pages, and so that the number of runs
    /// falls. `None`: there is no such unit.
    pub(super) fn next_unit(&mut self) -> Option<Run> {
        let (start, end) = self.units;
        for least in [MANY, 1] {
            for _ in start..end {
                self.hand = if (start..end).contains(&self.hand) {
                    self.hand
                } else {
                    start
                };
                let unit = self.unit(self.hand);
                self.hand += 1;
                let is_free =
                    |pins: &PinnedRanges| pins.free_before(unit.first, unit.count) == unit.count;
                if self.saved_by(unit) >= least && is_free(&self.pins) {
                    return Some(unit);
                }
            }
        }
        None
    }

    /// A system call works on these pages: they stay shown until [`Self::unpin`].
    pub(super) fn pin(&mut self, run: Run) {
        self.pins.pin((run.first, run.count));
    }

    pub(super) fn unpin(&mut self, run: Run) {
        self.pins.unpin((run.first, run.count));
    }

    /// In a forked child: no page is shown, and no thread is in a system call.
    pub(super) fn forked(&mut self) {
        for unit in self.units.0..self.units.1 {
            self.hide(self.unit(unit));
        }
        self.pins.clear();
    }
}

#[cfg(test)]
mod tests;
