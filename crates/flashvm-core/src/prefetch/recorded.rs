//! Follows the order in which an earlier run of the program waited for pages (`--prefetch-pages`).
//!
//! Record and prefetch, as for snapshots of functions (REAP: Ustiugov et al., ASPLOS 2021), with the position found again
//! and again, as in temporal streaming (Wenisch et al., ISCA 2005): each fault and each use of a prefetched page that lies
//! near the position in the order moves it there, and the pages behind it are brought in. A program that leaves the order is
//! soon not trusted any more: nothing is brought in until two faults in a row are found near each other in it, and others
//! follow there. Until the position is quite sure, another prefetcher is asked as well.

use super::{Candidate, Demand, Kind, Passed, Prefetcher, View, Whereabouts};
use crate::event::Place;
use crate::ids::PageId;

/// Pages requested ahead of the position.
const WINDOW_MIN: usize = 4;
const WINDOW_MAX: usize = 128;
/// The order of two runs differs in places: a page tells the position if it is found so near before or behind it, or was
/// requested. Further away, two faults in a row have to be found so near each other.
const NEAR: usize = 64;
/// Trust grows by this with each page that is found near the position, and shrinks by one with each fault that is not. By
/// chance, few pages are found: where `NEAR` pages are a small part of the program's.
const GAIN: u32 = 2;
const TRUST_MIN: u32 = 6;
const TRUST_MAX: u32 = 32;

/// Pages in the order in which a run waited for them; a page may come again.
#[derive(Debug)]
struct Order {
    pages: Vec<PageId>,
    /// Pages and places in `pages`, sorted.
    places: Vec<(PageId, u32)>,
}

impl Order {
    fn new(pages: Vec<PageId>) -> Self {
        let mut places: Vec<_> = pages.iter().copied().zip(0..).collect();
        places.sort_unstable();
        Self { pages, places }
    }

    /// The first place of a page from `from` on.
    fn find(&self, page: PageId, from: usize) -> Option<usize> {
        let key = (page, u32::try_from(from).ok()?);
        let at = self.places.partition_point(|place| *place < key);
        let (found, place) = *self.places.get(at)?;
        (found == page).then_some(place as usize)
    }
}

/// The prefetcher.
pub(crate) struct Recorded {
    order: Order,
    beside: Option<Box<dyn Prefetcher>>,
    /// The position: the program has come so far in the order.
    at: Option<usize>,
    /// Everything before it was requested, or needed no request.
    asked: usize,
    window: usize,
    /// How sure the position is; pages are requested from `TRUST_MIN` on.
    trust: u32,
    /// Where the last fault may be in the order.
    maybe: Option<usize>,
}

impl Recorded {
    /// Follows `order`; `beside` is asked first.
    pub(crate) fn new(order: Vec<PageId>, beside: Option<Box<dyn Prefetcher>>) -> Self {
        Self {
            order: Order::new(order),
            beside,
            at: None,
            asked: 0,
            window: WINDOW_MIN,
            trust: 0,
            maybe: None,
        }
    }

    /// Moves the position to this page. False: the page does not tell where the program is.
    fn moves_to(&mut self, page: PageId) -> bool {
        let order = &self.order;
        if let Some(at) = self.at {
            let reach = (at + NEAR).max(self.asked);
            if let Some(found) = self.near(page).filter(|&found| found <= reach) {
                self.at = Some(at.max(found));
                self.trust = (self.trust + GAIN).min(TRUST_MAX);
                return true;
            }
            self.trust = self.trust.saturating_sub(1);
        }
        let near = self.maybe.and_then(|maybe| {
            let found = order.find(page, maybe + 1);
            found.filter(|&found| found <= maybe + NEAR)
        });
        let from = self.at.unwrap_or(0);
        self.maybe = order.find(page, from).or_else(|| order.find(page, 0));
        if near.is_some() && self.trust < TRUST_MIN {
            (self.at, self.asked, self.trust) = (near, 0, GAIN);
            self.window = WINDOW_MIN;
        }
        near.is_some()
    }

    /// Requests the pages behind the position, once half of the window has been used.
    fn request(&mut self, view: &dyn View, out: &mut Vec<Candidate>) {
        let Some(at) = self.at.filter(|_| self.trust >= TRUST_MIN) else {
            return;
        };
        self.asked = self.asked.max(at + 1);
        if self.asked - at > self.window / 2 + 1 {
            return;
        }
        let end = (at + 1 + self.window).min(self.order.pages.len());
        let room = view.room() as usize;
        let mut requested = 0;
        while self.asked < end && requested < room {
            let page = self.order.pages[self.asked];
            self.asked += 1;
            if let Whereabouts::Flash(_) = view.page(page) {
                requested += 1;
                out.push(Candidate {
                    page,
                    place: Place::Shadow,
                    store: false,
                    kind: Kind::Recorded,
                });
            }
        }
    }

    /// The first place of a page that is not far before the position.
    fn near(&self, page: PageId) -> Option<usize> {
        self.order.find(page, self.at?.saturating_sub(NEAR))
    }

    /// Whether a page was requested lately.
    fn is_ahead(&self, page: PageId) -> bool {
        self.near(page).is_some_and(|found| found < self.asked)
    }
}

impl Prefetcher for Recorded {
    fn demand(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let waited = matches!(demand.from, Whereabouts::Flash(_) | Whereabouts::Pool);
        let tells = waited || demand.hit;
        if let Some(beside) = &mut self.beside
            && !(tells && self.trust == TRUST_MAX)
        {
            beside.demand(demand, view, out);
        }
        if !tells {
            return;
        }
        if demand.hit && self.is_ahead(demand.page) {
            self.window = (self.window + 1).min(WINDOW_MAX);
        }
        if self.moves_to(demand.page) {
            self.request(view, out);
        }
    }

    fn passed(&mut self) -> Option<Passed> {
        self.beside.as_mut()?.passed()
    }

    fn expects_store(&mut self, page: PageId) -> bool {
        let beside = self.beside.as_mut();
        beside.is_some_and(|beside| beside.expects_store(page))
    }

    fn stored(&mut self, page: PageId) {
        if let Some(beside) = &mut self.beside {
            beside.stored(page);
        }
    }

    fn wasted(&mut self, page: PageId) {
        if self.is_ahead(page) {
            self.window = (self.window - self.window / 8).max(WINDOW_MIN);
        }
        if let Some(beside) = &mut self.beside {
            beside.wasted(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeView, flash_fault};
    use super::*;
    use crate::ids::SlotId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 4096;

    /// Pages in an order without a pattern.
    fn scattered(count: u32, seed: u64) -> Vec<u32> {
        let mut state = seed;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32 % PAGES
        };
        (0..count).map(next).collect()
    }

    /// The faults that waited, and the pages brought in, of a program whose pages leave once used and whose prefetched
    /// pages stay until used.
    fn run(order: &[u32], touches: &[u32]) -> (usize, usize) {
        let order = order.iter().map(|&page| PageId(page)).collect();
        let mut recorded = Recorded::new(order, None);
        let mut view = FakeView::identity(PAGES);
        let (mut ahead, mut waited, mut brought) = (BTreeSet::new(), 0, 0);
        for &page in touches {
            let hit = ahead.remove(&page);
            waited += usize::from(!hit);
            let mut out = Vec::new();
            let demand = Demand {
                hit,
                ..flash_fault(page)
            };
            view.set(page, Whereabouts::Resident);
            recorded.demand(&demand, &view, &mut out);
            view.set(page, Whereabouts::Flash(SlotId(page)));
            for candidate in out {
                assert_eq!(
                    (candidate.kind, candidate.place),
                    (Kind::Recorded, Place::Shadow)
                );
                if ahead.insert(candidate.page.0) {
                    brought += 1;
                    view.set(candidate.page.0, Whereabouts::Resident);
                }
            }
        }
        (waited, brought)
    }

    #[test]
    fn the_same_run_waits_for_few_pages() {
        let order = scattered(20_000, 1);
        let (waited, brought) = run(&order, &order);
        // A page that comes twice in a window is brought in once, and leaves with its first use here.
        assert!(waited < 20_000 / 30, "{waited}");
        assert!(brought <= 20_000, "{brought}");
        let alone = scattered(PAGES, 5);
        let once: Vec<u32> = {
            let mut seen = BTreeSet::new();
            alone
                .into_iter()
                .filter(|page| seen.insert(*page))
                .collect()
        };
        assert_eq!(run(&once, &once).0, 4, "until the position is sure");
    }

    #[test]
    fn a_run_with_gaps_and_swaps_is_followed() {
        let order = scattered(20_000, 2);
        let mut touches: Vec<u32> = order
            .iter()
            .copied()
            .enumerate()
            .filter(|(at, _)| at % 10 != 3)
            .map(|(_, page)| page)
            .collect();
        touches.chunks_exact_mut(7).for_each(<[u32]>::reverse);
        let (waited, brought) = run(&order, &touches);
        assert!(waited < touches.len() / 10, "{waited} of {}", touches.len());
        assert!(brought < order.len() * 11 / 10, "{brought}");
    }

    #[test]
    fn a_part_that_is_left_out_is_found_again() {
        let order = scattered(20_000, 3);
        let touches = [&order[..5000], &order[12_000..]].concat();
        let (waited, _) = run(&order, &touches);
        assert!(waited < touches.len() / 20, "{waited}");
    }

    #[test]
    fn another_program_is_not_followed() {
        let (waited, brought) = run(&scattered(20_000, 4), &scattered(20_000, 99));
        assert!(waited > 19_000, "{waited}");
        assert!(brought < 20_000 / 50, "{brought}");
    }

    proptest! {
        /// The places found are those of a search from front to back.
        #[test]
        fn places_are_those_of_a_naive_search(
            pages in proptest::collection::vec(0_u32..50, 0..200), page in 0_u32..50, from in 0_usize..220
        ) {
            let pages: Vec<_> = pages.into_iter().map(PageId).collect();
            let naive = pages.iter().enumerate().skip(from).find(|(_, one)| **one == PageId(page));
            prop_assert_eq!(Order::new(pages.clone()).find(PageId(page), from), naive.map(|(at, _)| at));
        }
    }
}
