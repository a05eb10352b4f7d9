//! Pages in RAM that keep their compressed form in the pool.
//!
//! A page of the pool that the program only loads keeps its object, and counts as stored to. When it leaves, a
//! comparison with the checksum in the object tells whether it has changed. If not, it gives up its frame and need not
//! be compressed again. The object takes room meanwhile, so only small ones are kept, only while pages come back
//! unchanged, and none once its block has to leave for flash.

use super::Engine;
use super::first_store::Outcomes;
use crate::clusters::ClusterSource;
use crate::event::{Action, ComparedWith};
use crate::ids::PageId;
use crate::page::Flag;
use crate::pool::{BlockId, Handle, Home};

/// Longest object that is kept, in bytes: an eighth of its page.
const BYTES_MAX: u32 = 512;
/// Objects are kept while at most so many pages have changed for each that has not.
const CHANGED_MAX: u32 = 3;
/// Where keeping does not pay, one page in so many keeps its object all the same: to find out.
const TRY: u32 = 16;
/// Outcomes that are remembered.
const MEMORY: u32 = 1024;

/// What became of pages that kept their object.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptObjects {
    pub(super) outcomes: Outcomes<MEMORY>,
    turn: u32,
}

impl KeptObjects {
    /// Whether the next page keeps its object.
    fn keep(&mut self) -> bool {
        self.turn = (self.turn + 1) % TRY;
        self.turn == 0 || self.outcomes.changed <= self.outcomes.unchanged * CHANGED_MAX
    }
}

impl<C: ClusterSource> Engine<C> {
    /// What a scanned page is to be compared with: a copy of a page that may have been stored to since without a fault.
    /// That is its slot ([`crate::settings::FirstStore`]), or its object in the pool.
    #[must_use]
    pub fn compared_with(&self, page: PageId) -> Option<ComparedWith> {
        if !self.table.has(page, Flag::Dirty) {
            return None;
        }
        let slot = self.table.slot(page).map(ComparedWith::Slot);
        let object = |handle| ComparedWith::Object(self.pool.object(handle));
        slot.or_else(|| self.table.handle(page).map(object))
    }

    /// Whether a page that is taken out of the pool keeps its object.
    pub(super) fn keeps_object(&mut self, handle: Handle) -> bool {
        self.may_compare()
            && self.compresses()
            && self.pool.object(handle).bytes <= BYTES_MAX
            && self.pool.home(handle.block()) == Home::Ram
            && self.kept.keep()
    }

    /// Whether the page has an object in RAM, in a block that does not leave.
    pub(super) fn has_object(&self, page: PageId) -> bool {
        let handle = self.table.handle(page);
        handle.is_some_and(|handle| self.pool.home(handle.block()) == Home::Ram)
    }

    /// A page leaves that has an object in RAM: the object becomes the youngest of the pool, as if the page were
    /// compressed again. Returns whether the page has one.
    pub(super) fn renew_object(&mut self, page: PageId) -> bool {
        if !self.has_object(page) {
            return false;
        }
        let old = self.table.handle(page).expect("it has an object");
        let from = self.pool.object(old);
        if self.admits(from.bytes) {
            let new = self.pool.insert(page, from.bytes);
            let to = self.pool.object(new);
            self.keeps.push(Action::Repack { from, to });
            self.table.set_handle(page, Some(new));
            self.remove_object(old);
        }
        true
    }

    /// Gives up the kept objects of a block that has to leave: their pages are in RAM, and may have changed. Returns
    /// whether there was any. The block may be empty then.
    pub(super) fn forget_kept(&mut self, block: BlockId) -> bool {
        let mut kept = std::mem::take(&mut self.packed);
        let may_differ = |&(_, page): &(Handle, PageId)| self.table.has(page, Flag::Dirty);
        kept.extend(self.pool.live_in(block).filter(may_differ));
        for &(handle, page) in &kept {
            self.table.set_handle(page, None);
            self.table.set(page, Flag::WasDirtied);
            self.remove_object(handle);
        }
        let any = !kept.is_empty();
        kept.clear();
        self.packed = kept;
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1,000 pages would keep their object after outcomes in turn.
    fn kept_after(unchanged: u32, changed: u32) -> usize {
        let mut kept = KeptObjects::default();
        for _ in 0..500 {
            (0..unchanged).for_each(|_| kept.outcomes.note(false));
            (0..changed).for_each(|_| kept.outcomes.note(true));
        }
        (0..1000).filter(|_| kept.keep()).count()
    }

    #[test]
    fn objects_are_kept_while_pages_come_back_unchanged() {
        assert_eq!(kept_after(0, 0), 1000, "nothing is known");
        assert_eq!(kept_after(1, 0), 1000);
        assert_eq!(kept_after(1, 2), 1000);
        assert_eq!(kept_after(1, 5), 1000 / 16, "now and then one finds out");
        assert_eq!(kept_after(0, 1), 1000 / 16);
    }
}
