//! Readahead of Linux 2.6.28 (`swapin_readahead`): the aligned window of slots around the
//! target, ended on both sides by the first free or bad slot (FlashVM, 4.1.3 and figure 3). With a stride, FlashVM's stride
//! pages as well: this mechanism alone.

use super::stride::Strides;
use super::{Candidate, Demand, Kind, Prefetcher, SlotView, View, Whereabouts};
use crate::event::Place;
use crate::ids::SlotId;

/// The prefetcher.
pub(super) struct Native {
    window: u32,
    stride: u32,
    strides: Strides,
}

impl Native {
    pub(super) fn new(window: u32, stride: u32) -> Self {
        Self {
            window,
            stride,
            strides: Strides::default(),
        }
    }

    /// The aligned window.
    fn around(&self, target: SlotId, view: &dyn View, out: &mut Vec<Candidate>) {
        if self.window < 2 {
            return;
        }
        let first = target.0 - target.0 % self.window;
        let mut take = |slot| match view.slot(SlotId(slot)) {
            SlotView::Page(page) => {
                out.push(Candidate {
                    page,
                    place: Place::Shadow,
                    store: false,
                    kind: Kind::Neighbour,
                });
                true
            }
            SlotView::Free | SlotView::Bad | SlotView::Outside => false,
        };
        for slot in (first..target.0).rev() {
            if !take(slot) {
                break;
            }
        }
        for slot in target.0 + 1..first.saturating_add(self.window) {
            if !take(slot) {
                break;
            }
        }
    }
}

impl Prefetcher for Native {
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
    fn aligned_window_ends_at_free_and_bad_slots() {
        // Slots 0..16 hold the pages of the same number, but 9 is free and 14 is bad.
        let mut view = FakeView::identity(16);
        view.free(9);
        view.bad(14);
        let mut native = Native::new(8, 0);
        let mut out = Vec::new();
        native.demand(&flash_fault(11), &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [10, 12, 13]);
        out.clear();
        native.demand(&flash_fault(7), &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [6, 5, 4, 3, 2, 1, 0]);
    }
}
