//! A set of pages that knows how many runs of neighbours it has: each takes mappings of the kernel's.

use super::bits::Bits;
use super::runs;
use flashvm_core::space::PinnedRanges;
use flashvm_core::{PageId, Run};
use rustix::io::Errno;

/// The pages.
#[derive(Debug)]
pub(super) struct RunSet {
    pages: Bits,
    runs: u32,
    /// Pages that it may have: 0 to `all - 1`.
    all: u32,
}

impl RunSet {
    /// No page of `all` is in it.
    pub(super) fn new(all: u32) -> Result<Self, Errno> {
        Ok(Self {
            pages: Bits::new(all)?,
            runs: 0,
            all,
        })
    }

    pub(super) fn has(&self, page: PageId) -> bool {
        self.pages.get(page.0)
    }

    /// Runs of neighbours.
    pub(super) fn runs(&self) -> u32 {
        self.runs
    }

    /// Its pages within a run, in order.
    pub(super) fn pages(&self, run: Run) -> impl Iterator<Item = PageId> {
        self.pages.pages(run)
    }

    /// The first pages of a run that are in it and adjoin.
    pub(super) fn first(&self, run: Run) -> Option<Run> {
        runs(self.pages(run)).next()
    }

    fn first_outside(&self, run: Run) -> Option<Run> {
        runs(run.pages().filter(|page| !self.has(*page))).next()
    }

    /// Whether it has a page beside others; none lies before the first and behind the last.
    pub(super) fn has_beside(&self, page: Option<u32>) -> bool {
        page.is_some_and(|page| page < self.all && self.pages.get(page))
    }

    /// Neighbours of a run that are in it: 0 to 2.
    fn neighbours(&self, run: Run) -> u32 {
        let before = self.has_beside(run.first.0.checked_sub(1));
        u32::from(before) + u32::from(self.has_beside(Some(run.end().0)))
    }

    /// A run whose first and last pages are in it, extended to the ends of their runs.
    fn extended(&self, run: Run) -> Run {
        let (mut first, mut end) = (run.first.0, run.end().0);
        while self.has_beside(first.checked_sub(1)) {
            first -= 1;
        }
        while self.has_beside(Some(end)) {
            end += 1;
        }
        Run::new(PageId(first), end - first)
    }

    /// The same. `None`: a pinned page is among those added.
    pub(super) fn whole(&self, run: Run, pins: &PinnedRanges) -> Option<Run> {
        let whole = self.extended(run);
        let (before, behind) = (run.first.0 - whole.first.0, whole.end().0 - run.end().0);
        let is_free = pins.free_before(whole.first, before) == before
            && pins.free_before(run.end(), behind) == behind;
        is_free.then_some(whole)
    }

    pub(super) fn insert(&mut self, run: Run) {
        let mut rest = run;
        while let Some(part) = self.first_outside(rest) {
            self.runs = self.runs + 1 - self.neighbours(part);
            self.pages.put(part, true);
            rest = Run::new(part.end(), run.end().0 - part.end().0);
        }
    }

    pub(super) fn remove(&mut self, run: Run) {
        let mut rest = run;
        while let Some(part) = self.first(rest) {
            self.runs = self.runs + self.neighbours(part) - 1;
            self.pages.put(part, false);
            rest = Run::new(part.end(), run.end().0 - part.end().0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u32 = 200;

    proptest! {
        #[test]
        fn like_an_array(steps in prop::collection::vec((0..PAGES, 0..70_u32, any::<bool>()), 1..60)) {
            let mut set = RunSet::new(PAGES).unwrap();
            let mut naive = [false; PAGES as usize];
            for (first, count, add) in steps {
                let run = Run::new(PageId(first), count.min(PAGES - first));
                match add {
                    true => set.insert(run),
                    false => set.remove(run),
                }
                naive[first as usize..run.end().0 as usize].fill(add);
                let begins = |&page: &u32| naive[page as usize] && (page == 0 || !naive[page as usize - 1]);
                prop_assert_eq!(set.runs(), (0..PAGES).filter(begins).count() as u32);
                let inside: Vec<PageId> =
                    run.pages().filter(|page| naive[page.0 as usize]).collect();
                prop_assert_eq!(set.pages(run).collect::<Vec<_>>(), inside);
                if add && run.count > 0 {
                    let whole = set.extended(run);
                    let begin = (0..first).rev().take_while(|&page| naive[page as usize]).count() as u32;
                    let behind = (run.end().0..PAGES).take_while(|&page| naive[page as usize]).count() as u32;
                    prop_assert_eq!(whole, Run::new(PageId(first - begin), begin + run.count + behind));
                }
            }
        }
    }
}
