//! FlashVM's prefetching: valid pages contiguous to the target on flash, up to the readahead, over free and bad slots; then two
//! stride pages. The paper has two readings of contiguous: what follows the target ("first reads pages contiguous to the target
//! page", 4.1.3), or what lies around it, as with Linux ("more pages around the faulting address", 5.2.4).

use super::stride::Strides;
use super::{Candidate, Demand, Kind, Prefetcher, SlotView, View, Whereabouts};
use crate::event::Place;
use crate::ids::SlotId;

/// The search inspects at most this many slots per requested page.
const SCAN_FACTOR: u32 = 8;

/// Where the search begins.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// At the target.
    Target,
    /// At the begin of the target's aligned block, which Linux reads.
    Block,
}

/// The prefetcher.
pub(super) struct Contiguous {
    begin: Begin,
    readahead: u32,
    stride: u32,
    strides: Strides,
}

impl Contiguous {
    pub(super) fn new(begin: Begin, readahead: u32, stride: u32) -> Self {
        Self {
            begin,
            readahead,
            stride,
            strides: Strides::default(),
        }
    }

    /// Valid pages contiguous to the target.
    fn contiguous(&self, target: SlotId, view: &dyn View, out: &mut Vec<Candidate>) {
        let wanted = self.readahead.saturating_sub(1);
        let scan = self.readahead * SCAN_FACTOR;
        let start = out.len();
        let first = match self.begin {
            Begin::Target => target.0,
            Begin::Block => target.0 - target.0 % self.readahead.max(1),
        };
        for slot in (first..first.saturating_add(scan)).filter(|&slot| slot != target.0) {
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
            self.contiguous(target, view, out);
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
        let mut contiguous = Contiguous::new(Begin::Target, 8, 0);
        let mut out = Vec::new();
        contiguous.demand(&flash_fault(8), &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [10, 12, 13, 14, 15, 16, 17]);
    }

    #[test]
    fn around_begins_with_the_block_of_the_target() {
        let mut view = FakeView::identity(32);
        view.free(9);
        let mut around = Contiguous::new(Begin::Block, 8, 0);
        let mut out = Vec::new();
        around.demand(&flash_fault(11), &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [8, 10, 12, 13, 14, 15, 16]);
    }

    #[test]
    fn the_search_is_bounded() {
        let mut view = FakeView::identity(1000);
        for slot in 1..999 {
            view.free(slot);
        }
        let mut out = Vec::new();
        Contiguous::new(Begin::Target, 8, 0).demand(&flash_fault(0), &view, &mut out);
        assert!(out.is_empty());
    }
}
