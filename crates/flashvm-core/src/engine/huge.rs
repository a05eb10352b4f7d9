//! Huge pages: a program that asks for them gets 2 MiB of zeros with one fault, as long as frames are plentiful.
//!
//! The pages of a huge page are ordinary pages to the engine, each with its own state. The first of them that leaves makes
//! the kernel take the huge page apart.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action};
use crate::fault_cost;
use crate::ids::{HUGE_PAGES, PageId};
use crate::page::{Flag, PageState};

/// Frames are plentiful while they would hold so many huge pages.
const PLENTY: u32 = 16;

impl<C: ClusterSource> Engine<C> {
    /// Fills the aligned [`HUGE_PAGES`] pages around a store to a page with zeros. Returns false, with nothing done, if one
    /// of them has contents or is waited for, or if frames are short.
    pub(super) fn fill_huge(
        &mut self,
        page: PageId,
        access: Access,
        actions: &mut Vec<Action>,
    ) -> bool {
        let first = page.huge_start();
        let mut pages = (0..HUGE_PAGES).map(|i| first.plus(i));
        // A page that is only loaded may be protected, and part of a huge page cannot be.
        let fits = access == Access::Write
            && self.at_ease()
            && self.room() >= PLENTY * HUGE_PAGES
            && first.0 + HUGE_PAGES <= self.table.pages()
            && pages.all(|page| {
                self.table.state(page) == PageState::Absent && !self.table.has(page, Flag::Pending)
            });
        if !fits {
            return false;
        }
        self.counters.faults_total += 1;
        self.counters.faults_zero += 1;
        self.counters.huge_pages += 1;
        self.policy.wanted(page, access, fault_cost::SOFT);
        for i in 0..HUGE_PAGES {
            let taken = self.take_frame(actions);
            assert!(taken, "there is room for {HUGE_PAGES} pages");
            let one = first.plus(i);
            self.map_zero(one, access, (one == page).then_some(access));
        }
        actions.push(Action::Zero {
            first,
            count: HUGE_PAGES,
            protect: false,
        });
        true
    }
}
