//! What the program has mapped in the managed range, and which memory there the run has promised to it.
//!
//! All managed memory of a process lies in one reservation, so that page number and address,
//! region and shadow differ by constants. Each page of it is
//!
//! - *free*: nothing is mapped there, and the reservation keeps others out;
//! - *managed*: its contents are the pager's;
//! - *foreign*: the program has put something else there (a file, say), which is the kernel's.
//!
//! Besides, a page is *committed* if the run has promised memory for it. Protections are not kept here: the kernel
//! knows them.

mod committed;
mod regions;
#[cfg(test)]
mod tests;

use committed::Committed;
use flashvm_core::{PAGE_SIZE, PageId};
use regions::Regions;
use rustix_futex_sync::Mutex;

/// Pages of the unit in which memory is committed. [`Mappings::take`] returns ranges that start at a multiple of it.
const UNIT_PAGES: u32 = 16;
/// Ranges of at least this many pages start at a multiple of it, if [`Mappings::take`] returns them.
const LARGE_PAGES: u32 = 512;

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
    places: Mutex<Places>,
    /// Has a lock of its own: it is held while the run is asked for room, which may take a second, and every fault
    /// locks `places`.
    committed: Mutex<Committed>,
}

/// Which pages are mapped.
#[derive(Debug)]
struct Places {
    /// Managed or foreign.
    mapped: Regions,
    foreign: Regions,
}

impl Mappings {
    /// A range of `pages` pages, all free.
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            places: Mutex::new(Places {
                mapped: Regions::new(pages),
                foreign: Regions::new(pages),
            }),
            committed: Mutex::new(Committed::new(pages)),
        }
    }

    /// Takes `count` free pages; they are managed from now on. `None`: there is no free range for them.
    pub(crate) fn take(&self, count: u32) -> Option<PageId> {
        let align = if count >= LARGE_PAGES {
            LARGE_PAGES
        } else {
            UNIT_PAGES
        };
        self.places.lock().mapped.take(count, align)
    }

    /// Extends the mapping that ends at `end` by `count` pages, if they are free. Returns whether it has.
    pub(crate) fn extend(&self, end: PageId, count: u32) -> bool {
        self.places.lock().mapped.extend(end, count)
    }

    /// Makes these pages one managed mapping, whatever they were.
    pub(crate) fn claim(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.claim(first, count);
        places.foreign.give(first, count);
    }

    /// Makes these pages one foreign mapping, whatever they were.
    pub(crate) fn claim_foreign(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.claim(first, count);
        places.foreign.claim(first, count);
    }

    /// Makes these pages free, whatever they were.
    pub(crate) fn give(&self, first: PageId, count: u32) {
        let mut places = self.places.lock();
        places.mapped.give(first, count);
        places.foreign.give(first, count);
    }

    /// Number of pages of the mapping that starts at this page.
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

    /// Whether all of a range is managed.
    pub(crate) fn is_managed_whole(&self, first: PageId, count: u32) -> bool {
        let places = self.places.lock();
        places.mapped.overlap(first, count) == count && places.foreign.overlap(first, count) == 0
    }

    /// The runs of managed pages.
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

    /// Commits a range. `promise(n)` says whether the run has room for n more pages. Returns whether it has.
    pub(crate) fn commit(
        &self,
        first: PageId,
        count: u32,
        promise: impl FnOnce(u64) -> bool,
    ) -> bool {
        self.committed.lock().commit(first, count, promise)
    }

    /// Ends the commitment of a range. `release` gets the number of pages that are committed no more.
    pub(crate) fn uncommit(&self, first: PageId, count: u32, release: impl FnOnce(u64)) {
        let mut committed = self.committed.lock();
        let pages = committed.uncommit(first, count);
        if pages > 0 {
            release(pages);
        }
    }
}

/// Bytes to whole pages, rounding up.
pub(crate) fn pages_of(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.div_ceil(PAGE_SIZE)).ok()
}
