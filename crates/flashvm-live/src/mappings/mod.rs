//! What the program has mapped in the managed range, and how much memory it was promised.
//!
//! All managed memory of a process lies in one reservation, so that page number and address,
//! region and shadow differ by constants. Each page of it is
//!
//! - *free*: nothing is mapped there, and the reservation keeps others out;
//! - *managed*: the pager pages it;
//! - *foreign*: the program has mapped something else there, such as a file, which the kernel pages.
//!
//! Independently, a page is *committed* if the run has promised memory for it. Protections are not kept here: the
//! kernel knows them.

mod committed;
mod regions;
#[cfg(test)]
mod tests;

use committed::Committed;
use flashvm_core::{HUGE_PAGES, PAGE_SIZE, PageId};
use regions::Regions;
use rustix_futex_sync::Mutex;

/// Pages of the unit in which memory is promised. [`Mappings::take`] places every mapping at a multiple of it.
const UNIT_PAGES: u32 = 16;

/// How much of a range is foreign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// None of it.
    No,
    /// Some of it.
    Part,
    /// All of it.
    Whole,
}

/// The mappings of a process.
#[derive(Debug)]
pub(crate) struct Mappings {
    /// Whether the program wants huge pages in a new mapping.
    huge: bool,
    places: Mutex<Places>,
    /// Locked while the run is asked for room, which may take a second. So `places`, which every fault locks, is apart.
    committed: Mutex<Committed>,
}

/// Which pages are mapped.
#[derive(Debug)]
struct Places {
    /// Managed and foreign pages.
    mapped: Regions,
    foreign: Regions,
    /// Managed pages for which the program wants huge pages.
    huge: Regions,
}

impl Mappings {
    /// The mappings of a range of `pages` pages, all free. `huge`: the program wants huge pages in each mapping.
    pub(crate) fn new(pages: u32, huge: bool) -> Self {
        Self {
            huge,
            places: Mutex::new(Places {
                mapped: Regions::new(pages),
                foreign: Regions::new(pages),
                huge: Regions::new(pages),
            }),
            committed: Mutex::new(Committed::new(pages)),
        }
    }

    /// The mappings of a forked child. Another thread of the parent may have held a lock at the fork: it is not in the
    /// child to unlock it. Mappings do not change during a fork, so it only read them.
    pub(crate) fn for_child(self) -> Self {
        Self {
            huge: self.huge,
            places: Mutex::new(self.places.into_inner()),
            committed: Mutex::new(self.committed.into_inner()),
        }
    }

    /// Makes `count` free pages a managed mapping, aligned for huge pages if it has room for one. Those shorter than a unit adjoin, so
    /// that the kernel merges them. `None` if no run of free pages is long enough.
    pub(crate) fn take(&self, count: u32) -> Option<PageId> {
        let align = match count {
            HUGE_PAGES.. => HUGE_PAGES,
            UNIT_PAGES..HUGE_PAGES => UNIT_PAGES,
            _ => 1,
        };
        let mut places = self.places.lock();
        let first = places.mapped.take(count, align)?;
        self.claim_huge(&mut places, first, count);
        Some(first)
    }

    /// Extends the mapping that ends at `end` by `count` managed pages. Returns false if they are not free or no
    /// mapping ends there.
    pub(crate) fn extend(&self, end: PageId, count: u32) -> bool {
        let mut places = self.places.lock();
        let extended = places.mapped.extend(end, count);
        if extended {
            self.claim_huge(&mut places, end, count);
        }
        extended
    }

    /// Makes these pages one managed mapping, whatever they were.
    pub(crate) fn claim(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.claim(first, count);
        places.foreign.give(first, count);
        places.huge.give(first, count);
        self.claim_huge(&mut places, first, count);
    }

    fn claim_huge(&self, places: &mut Places, first: PageId, count: u32) {
        if self.huge {
            places.huge.claim(first, count);
        }
    }

    /// Makes these pages one foreign mapping, whatever they were.
    pub(crate) fn claim_foreign(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.claim(first, count);
        places.foreign.claim(first, count);
        places.huge.give(first, count);
    }

    /// Frees these pages, whatever they were.
    pub(crate) fn give(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.give(first, count);
        places.foreign.give(first, count);
        places.huge.give(first, count);
    }

    /// Pages of the mapping that starts with this page. `None` if none does.
    pub(crate) fn starting_at(&self, page: PageId) -> Option<u32> {
        let (first, count) = self.places.lock().mapped.find(page)?;
        (first == page).then_some(count)
    }

    /// Whether a page is foreign.
    pub(crate) fn is_foreign(&self, page: PageId) -> bool {
        self.places.lock().foreign.find(page).is_some()
    }

    /// How much of a range is foreign.
    pub(crate) fn foreign(&self, first: PageId, count: u32) -> Foreign {
        match self.places.lock().foreign.overlap(first, count) {
            0 => Foreign::No,
            pages if pages == count => Foreign::Whole,
            _ => Foreign::Part,
        }
    }

    /// Notes whether the program wants huge pages in a range.
    pub(crate) fn want_huge(&self, first: PageId, count: u32, wanted: bool) {
        let mut places = self.places.lock();
        if wanted {
            places.huge.claim(first, count);
        } else {
            places.huge.give(first, count);
        }
    }

    /// Whether the program wants a huge page where this page is: in the aligned [`HUGE_PAGES`] pages around it.
    pub(crate) fn is_huge(&self, page: PageId) -> bool {
        let first = page.huge_start();
        self.places.lock().huge.overlap(first, HUGE_PAGES) == HUGE_PAGES
    }

    /// Whether all of a range is managed.
    pub(crate) fn is_managed_whole(&self, first: PageId, count: u32) -> bool {
        let places = self.places.lock();
        places.mapped.overlap(first, count) == count && places.foreign.overlap(first, count) == 0
    }

    /// Runs of managed pages, disjoint; touching mappings give several.
    pub(crate) fn managed(&self) -> Vec<(PageId, u32)> {
        let places = self.places.lock();
        let mut runs = Vec::new();
        for (first, count) in places.mapped.used() {
            let mut at = first;
            while at.0 < first.0 + count {
                let left = first.0 + count - at.0;
                let (run, is_foreign) = places.foreign.run(at, left);
                if !is_foreign {
                    runs.push((at, run));
                }
                at = at.plus(run);
            }
        }
        runs
    }

    /// Promises memory for a range. `promise(n)` says whether the run has room for n more pages. Returns whether the
    /// whole range is promised now.
    pub(crate) fn commit(
        &self,
        first: PageId,
        count: u32,
        promise: impl FnOnce(u64) -> bool,
    ) -> bool {
        self.committed.lock().commit(first, count, promise)
    }

    /// Takes back the promise for the units that lie entirely in a range. Calls `release` with their promised pages, if
    /// there are any.
    pub(crate) fn uncommit(&self, first: PageId, count: u32, release: impl FnOnce(u64)) {
        let mut committed = self.committed.lock();
        let pages = committed.uncommit(first, count);
        if pages > 0 {
            release(pages);
        }
    }
}

/// Pages that hold `bytes`, rounded up. `None` if a `u32` cannot count them.
pub(crate) fn pages_of(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.div_ceil(PAGE_SIZE)).ok()
}
