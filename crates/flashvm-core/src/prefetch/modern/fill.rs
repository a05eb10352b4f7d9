//! Fills memory with zeros ahead, outside of streams, while enough frames are free.
//!
//! A fault on an absent page fills the aligned chunk around it, and more if that chunk follows the range filled
//! last. So a program that has not used up its budget takes a sixteenth of the faults, in any order of accesses.

use super::super::{Candidate, Demand, Kind, View, Whereabouts};
use crate::event::{Access, Place};
use crate::ids::{HUGE_PAGES, PageId};

/// Most pages zero-filled ahead.
pub(super) const FILL_MAX: u32 = 64;
/// Pages of the aligned chunk that is filled.
const FILL_CHUNK: u32 = 16;

/// Grows the fill while faults continue it.
#[derive(Default)]
pub(super) struct Fill {
    /// The range filled last: its end and its number of pages.
    last: (PageId, u32),
}

impl Fill {
    /// Proposes the absent pages of the chunk around an absent page, and of those after it.
    pub(super) fn propose(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let first = PageId(demand.page.0 / FILL_CHUNK * FILL_CHUNK);
        let (end, pages) = self.last;
        let goes_on = first == end && pages > 0;
        let pages = if goes_on {
            (2 * pages).min(FILL_MAX)
        } else {
            FILL_CHUNK
        };
        // The next huge page stays whole.
        let here = pages.min(HUGE_PAGES - first.0 % HUGE_PAGES);
        self.last = (first.plus(here), pages);
        let block = (0..here).map(|i| first.plus(i));
        let absent =
            block.filter(|&page| page != demand.page && view.page(page) == Whereabouts::Absent);
        out.extend(absent.map(|page| Candidate {
            page,
            place: Place::Region,
            store: demand.access == Access::Write,
            kind: Kind::Stream,
        }));
    }
}
