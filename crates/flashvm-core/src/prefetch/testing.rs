//! A small view for the prefetchers' tests.

use super::{Demand, SlotView, View, Whereabouts};
use crate::event::Access;
use crate::ids::{PageId, SlotId};

/// Pages `0..n`, each on flash in the slot of the same number at first.
pub(super) struct FakeView {
    pages: Vec<Whereabouts>,
    slots: Vec<SlotView>,
    pub(super) room: u32,
    pub(super) at_ease: bool,
}

impl FakeView {
    pub(super) fn identity(n: u32) -> Self {
        Self {
            pages: (0..n).map(|i| Whereabouts::Flash(SlotId(i))).collect(),
            slots: (0..n).map(|i| SlotView::Page(PageId(i))).collect(),
            room: 1 << 20,
            at_ease: false,
        }
    }

    pub(super) fn free(&mut self, slot: u32) {
        self.slots[slot as usize] = SlotView::Free;
        self.pages[slot as usize] = Whereabouts::Absent;
    }

    pub(super) fn bad(&mut self, slot: u32) {
        self.slots[slot as usize] = SlotView::Bad;
        self.pages[slot as usize] = Whereabouts::Absent;
    }

    pub(super) fn grow_absent(&mut self, n: usize) {
        self.pages.resize(n, Whereabouts::Absent);
    }

    pub(super) fn set(&mut self, page: u32, whereabouts: Whereabouts) {
        self.pages[page as usize] = whereabouts;
    }
}

impl View for FakeView {
    fn page(&self, page: PageId) -> Whereabouts {
        let found = self.pages.get(page.0 as usize);
        found.copied().unwrap_or(Whereabouts::Outside)
    }

    fn slot(&self, slot: SlotId) -> SlotView {
        let found = self.slots.get(slot.0 as usize);
        found.copied().unwrap_or(SlotView::Outside)
    }

    fn room(&self) -> u32 {
        self.room
    }

    fn at_ease(&self) -> bool {
        self.at_ease
    }
}

/// A read fault on a page that lies in the slot of the same number.
pub(super) fn flash_fault(page: u32) -> Demand {
    Demand {
        page: PageId(page),
        access: Access::Read,
        from: Whereabouts::Flash(SlotId(page)),
        hit: false,
    }
}
