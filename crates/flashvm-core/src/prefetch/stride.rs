//! Stride prefetching (FlashVM, 4.1.3): the offsets of the target from each of the last two
//! faulting pages, added to the target, give the next two pages expected.

use super::{Candidate, Kind, View, Whereabouts};
use crate::event::Place;
use crate::ids::PageId;

/// The last two faulting pages, latest first.
#[derive(Default)]
pub(super) struct Strides {
    last: [Option<PageId>; 2],
}

impl Strides {
    /// Notes a fault and appends at most `most` stride pages.
    pub(super) fn fault(
        &mut self,
        page: PageId,
        most: u32,
        view: &dyn View,
        out: &mut Vec<Candidate>,
    ) {
        let offsets = self.last.into_iter().flatten();
        let mut taken = 0;
        for last in offsets {
            let ahead = i64::from(page.0) * 2 - i64::from(last.0);
            let Ok(ahead) = u32::try_from(ahead).map(PageId) else {
                continue;
            };
            let on_flash = matches!(view.page(ahead), Whereabouts::Flash(_) | Whereabouts::Zero);
            if taken < most && ahead != page && on_flash {
                out.push(Candidate {
                    page: ahead,
                    place: Place::Shadow,
                    store: false,
                    kind: Kind::Stride,
                });
                taken += 1;
            }
        }
        self.last = [Some(page), self.last[0]];
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::FakeView;
    use super::*;

    #[test]
    fn offsets_to_the_last_two_faults_give_the_next_two_pages() {
        let view = FakeView::identity(100);
        let mut strides = Strides::default();
        let mut out = Vec::new();
        strides.fault(PageId(10), 2, &view, &mut out);
        assert!(out.is_empty());
        strides.fault(PageId(20), 2, &view, &mut out);
        out.clear();
        strides.fault(PageId(30), 2, &view, &mut out);
        let pages: Vec<_> = out.iter().map(|c| c.page.0).collect();
        assert_eq!(pages, [40, 50]);
        out.clear();
        strides.fault(PageId(0), 2, &view, &mut out);
        assert!(out.is_empty(), "page numbers are not negative");
    }
}
