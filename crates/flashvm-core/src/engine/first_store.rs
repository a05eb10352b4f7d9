//! How the engine learns that a clean page was stored to: by a fault, or by comparison.
//!
//! Either the first store to a clean page faults, or the page counts as stored to from its first load on, keeps its
//! slot, and is compared with the slot's checksum when it leaves. A fault costs a page that is stored to; a comparison
//! costs one that is not. So [`FirstStore::Auto`] compares while more than one loaded page in
//! `COMPARISONS_PER_FAULT` is stored to before it leaves: both ways tell.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Access, ComparedWith};
use crate::ids::PageId;
use crate::page::Flag;
use crate::settings::FirstStore;

/// Pages that are compared in the time of a first-store fault. The fault takes 6 us (`docs/performance.md`); half a
/// microsecond for a comparison is an assumption, not measured.
const COMPARISONS_PER_FAULT: u32 = 12;
/// Outcomes that are remembered.
const MEMORY: u32 = 4096;

/// How many pages have changed, and how many have not: both counts are halved when there are more than `MEMORY`.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcomes<const MEMORY: u32> {
    pub(super) changed: u32,
    pub(super) unchanged: u32,
}

impl<const MEMORY: u32> Outcomes<MEMORY> {
    pub(super) fn note(&mut self, changed: bool) {
        if changed {
            self.changed += 1;
        } else {
            self.unchanged += 1;
        }
        if self.changed + self.unchanged > MEMORY {
            self.changed /= 2;
            self.unchanged /= 2;
        }
    }
}

/// What became of loaded pages: they were stored to, or left without that.
#[derive(Clone, Debug)]
pub(super) struct FirstStores {
    way: FirstStore,
    outcomes: Outcomes<MEMORY>,
}

impl FirstStores {
    pub(super) fn new(way: FirstStore) -> Self {
        Self {
            way,
            outcomes: Outcomes::default(),
        }
    }

    /// Whether pages are compared from now on.
    fn compare(&self) -> bool {
        match self.way {
            FirstStore::Fault => false,
            FirstStore::Compare => true,
            FirstStore::Auto => {
                self.outcomes.changed * COMPARISONS_PER_FAULT >= self.outcomes.unchanged
            }
        }
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Whether a page that the program gets for this access counts as stored to: the access is a store, nothing stops
    /// later ones, or comparing the page costs less.
    pub(super) fn may_store(&self, page: PageId, access: Access) -> bool {
        let unseen = access == Access::Write || !self.protects;
        unseen || self.has_object(page) || (self.first_stores.compare() && self.has_slot(page))
    }

    /// What marks a page that is being read, and for which the prefetcher expects a store. Where pages are compared, the
    /// page does not lose its slot to an expectation.
    pub(super) fn flag_of_expected_store(&self) -> Flag {
        match self.first_stores.way {
            FirstStore::Fault => Flag::ToStore,
            FirstStore::Compare | FirstStore::Auto => Flag::StoreExpected,
        }
    }

    /// Whether some pages are compared.
    pub(super) fn may_compare(&self) -> bool {
        !self.protects || self.first_stores.way != FirstStore::Fault
    }

    /// Whether the page was written to a slot: one with a checksum, as zeros and compressed pages have none.
    fn has_slot(&self, page: PageId) -> bool {
        let slot = self.table.slot(page);
        slot.is_some_and(|slot| !self.swap.is_zero(slot))
    }

    /// Notes whether a loaded page with a slot was stored to.
    pub(super) fn note_first_store(&mut self, page: PageId, stored: bool) {
        if self.has_slot(page) && !self.table.has(page, Flag::Prefetched) {
            self.first_stores.outcomes.note(stored);
        }
    }

    /// Marks a page as dirty that the program gets for this access. Where it only loads, the page keeps its slot or its
    /// object: when it leaves, a comparison tells whether it has changed.
    pub(super) fn count_as_stored(&mut self, page: PageId, access: Access) {
        if access == Access::Write || !(self.has_slot(page) || self.has_object(page)) {
            return self.make_dirty(page);
        }
        self.table.set(page, Flag::Dirty);
        self.table.clear(page, Flag::Incompressible);
        if !self.table.has(page, Flag::Probation) {
            self.policy.dirtied(page);
        }
    }

    /// A page that was to be compared with its slot or object is clean, or the copy is given up.
    pub(super) fn compared(&mut self, page: PageId, same: bool) {
        match self.compared_with(page) {
            None => return,
            Some(ComparedWith::Slot(_)) => {}
            Some(ComparedWith::Object(_)) => self.kept.outcomes.note(!same),
        }
        if same {
            self.table.clear(page, Flag::Dirty);
            self.policy.cleaned(page);
            self.counters.pages_unchanged += 1;
        } else {
            self.note_first_store(page, true);
            self.table.set(page, Flag::WasDirtied);
            self.free_slot(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether pages are compared after outcomes in turn: `stored` pages were stored to, `loaded` only loaded from.
    fn compares_after(stored: u32, loaded: u32, turns: u32) -> bool {
        let mut stores = FirstStores::new(FirstStore::Auto);
        for _ in 0..turns {
            (0..stored).for_each(|_| stores.outcomes.note(true));
            (0..loaded).for_each(|_| stores.outcomes.note(false));
        }
        stores.compare()
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        assert!(compares_after(0, 0, 0), "nothing is known");
        assert!(!compares_after(0, 1, 20));
        assert!(!compares_after(1, 20, 100));
        assert!(compares_after(1, 8, 1000));
        assert!(compares_after(1, 0, 5000));
    }

    #[test]
    fn a_change_is_noticed() {
        let mut stores = FirstStores::new(FirstStore::Auto);
        (0..100_000).for_each(|_| stores.outcomes.note(true));
        (0..20_000).for_each(|_| stores.outcomes.note(false));
        assert!(!stores.compare());
        (0..20_000).for_each(|_| stores.outcomes.note(true));
        assert!(stores.compare());
    }
}
