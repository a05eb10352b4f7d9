//! FlashVM's prefetching (4.1.3): the valid pages that follow the target on flash, up to the
//! readahead, over free and bad slots; then two stride pages.

use super::stride::Strides;
use super::{Candidate, Demand, Kind, Prefetcher, SlotView, View, Whereabouts};
use crate::event::Place;
use crate::ids::SlotId;

/// The search inspects at most this many slots per requested page.
const SCAN_FACTOR: u32 = 8;

/// The prefetcher.
pub(super) struct Contiguous {
    readahead: u32,
    stride: u32,
    strides: Strides,
}

impl Contiguous {
    pub(super) fn new(readahead: u32, stride: u32) -> Self {
        Self {
            readahead,
            stride,
            strides: Strides::default(),
        }
    }

    /// Valid pages that follow the target on flash.
    fn around(&self, target: SlotId, view: &dyn View, out: &mut Vec<Candidate>) {
        let wanted = self.readahead.saturating_sub(1);
        let scan = self.readahead * SCAN_FACTOR;
        let start = out.len();
        for slot in target.0 + 1..target.0.saturating_add(scan) {
            if out.len() - start >= wanted as usize {
                return;
            }
            match view.slot(SlotId(slot)) {
                SlotView::Page(page) => out.push(Candidate {
                    page,
                    place: Place::Shadow,
                    store: false,
                    kind: Kind::Neighbour,
                }),
                SlotView::Free | SlotView::Bad | SlotView::Outside => {}
            }
        }
    }
}

impl Prefetcher for Contiguous {
    fn demand(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        if demand.hit {
            return;
        }
        if let Whereabouts::Flash(target) = demand.from {
            self.around(target, view, out);
        }
        if matches!(demand.from, Whereabouts::Flash(_) | Whereabouts::Zero) {
            self.strides.fault(demand.page, self.stride, view, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeView, flash_fault};
    use super::*;

    #[test]
    fn goes_over_free_and_bad_slots() {
        let mut view = FakeView::identity(32);
        view.free(9);
        view.bad(11);
        let mut contiguous = Contiguous::new(8, 0);
        let mut out = Vec::new();
        contiguous.demand(&flash_fault(8), &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [10, 12, 13, 14, 15, 16, 17]);
    }

    #[test]
    fn the_search_is_bounded() {
        let mut view = FakeView::identity(1000);
        for slot in 1..999 {
            view.free(slot);
        }
        let mut out = Vec::new();
        Contiguous::new(8, 0).demand(&flash_fault(0), &view, &mut out);
        assert!(out.is_empty());
    }
}
