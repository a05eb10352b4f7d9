//! Streams: several at once, of any stride and direction, with windows that grow while they hit.
//!
//! Faults that follow each other at a constant distance make a stream. It earns its windows: each has
//! half as many pages as the stream is known to have used, so that a stream that ends wastes no more
//! than that. Its first windows go into the shadow, where the engine observes every use. From a length of
//! `TRUSTED_LENGTH` on they go into the region, where a use costs nothing, except for *checkpoints*: pages
//! that wait in the shadow, so that their use is seen. The touch of one of them, the window's *marker*, has
//! the next window read while the program still has part of this one before it (as Linux does with
//! `PG_readahead`).
//! A stream that passes a checkpoint without using it must be recognised again: the
//! pattern may come from a B-tree or a hash table. A stream that skips pages gets checkpoints of several
//! pages.
//! A stream through absent pages maps zeros ahead and needs no marker: the page after the window
//! faults anyway. Nor does a stream through compressed pages in RAM: its windows are short, and the fault on the page
//! after each costs no read.
//!
//! A program that loads from a page and then stores to it pays a second fault, for the store. The
//! windows of such a stream are mapped writable. Each demanded page and each marker is still mapped
//! for the access that faults, and serves as a sample: after a sample without a store, the next
//! windows are write-protected again.
//!
//! Outside of streams the prefetcher expects a store when nearly all loaded pages are stored to (`odds`).
//!
//! While most frames are free, a fault on an absent page fills the aligned chunk around it with zeros, and
//! more if it follows the chunk that was filled last: a program that has not filled its budget yet pays
//! a sixteenth of the faults, in any order of accesses.
//!
//! A fault outside of streams may also read its neighbours in the address space and on flash, as many
//! as earlier guesses have earned. Random accesses soon earn none; then the prefetcher tries one guess
//! every `GUESS_TRIAL_INTERVAL` faults.

use super::odds::StoreOdds;
use super::streams::{Stream, Streams};
use super::{Candidate, Demand, Kind, Passed, Prefetcher, View, Whereabouts};
use crate::event::{Access, Place};
use crate::ids::PageId;

/// Pages of the smallest window.
const WINDOW_MIN: u32 = 4;
/// Longest window of a stream whose pages are not adjacent: each page is a request.
const WINDOW_STRIDED_MAX: u32 = 128;
/// Length from which on the windows of a stream go into the region.
const TRUSTED_LENGTH: u32 = 32;
/// Pages from one checkpoint of a trusted window to the next: `window / CHECKPOINTS_PER_WINDOW`, and at least
/// `CHECKPOINT_SPACING`.
const CHECKPOINTS_PER_WINDOW: u32 = 8;
const CHECKPOINT_SPACING: u32 = 24;
/// A stream of `POOL_LENGTH` pages decompresses up to `POOL_MAX` pages ahead. A wasted page costs its compression, not a
/// read.
const POOL_LENGTH: u32 = 8;
const POOL_MAX: u32 = 24;
/// Most pages zero-filled ahead.
const FILL_MAX: u32 = 64;
/// Absent pages in a row at which a stream over stored pages ends.
const ABSENT_RUN_MAX: u32 = 16;

/// Pages of the aligned chunk that is filled: the unit in which memory is mapped.
const FILL_CHUNK: u32 = 16;

/// Most credit of guesses: a guess costs `GUESS_COST`, a used guess earns `GUESS_REWARD`. So guesses go on where
/// 4 of 5 are used.
const GUESS_CREDIT_MAX: i32 = 256;
const GUESS_CREDIT_FIRST: i32 = 64;
const GUESS_REWARD: i32 = 5;
const GUESS_COST: i32 = 4;
/// Credit that buys one page a fault.
const GUESS_CREDIT_PER_PAGE: i32 = 32;
/// Faults outside of streams between two trials when there is no credit.
const GUESS_TRIAL_INTERVAL: u32 = 256;

/// The prefetcher.
pub(super) struct Modern {
    streams: Streams,
    window_max: u32,
    guess_credit: i32,
    faults_without_guess: u32,
    passed: Option<Passed>,
    /// The last miss, if it belongs to no stream.
    lone: Option<PageId>,
    odds: StoreOdds,
    /// The chunk filled last: its end and its number of pages.
    filled: (PageId, u32),
}

impl Modern {
    pub(super) fn new(window_max: u32) -> Self {
        Self {
            streams: Streams::new(),
            window_max,
            guess_credit: GUESS_CREDIT_FIRST,
            faults_without_guess: 0,
            passed: None,
            lone: None,
            odds: StoreOdds::default(),
            filled: (PageId(0), 0),
        }
    }

    /// Handles a use of a prefetched page.
    fn hit(&mut self, page: i64, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let Some(stream) = self.streams.ahead_of(page) else {
            self.guess_credit = (self.guess_credit + GUESS_REWARD).min(GUESS_CREDIT_MAX);
            self.learn(page, demand, view, out);
            return;
        };
        let at_marker = stream.marker.is_some_and(|m| stream.steps(m, page) >= 0);
        if !stream.passes_checkpoints(page, true) {
            stream.restart(page, demand.access);
            return;
        }
        stream.advance(page, true);
        stream.sample(page, demand.access);
        if stream.steps(stream.next, page) >= 0 {
            stream.next = page + stream.stride;
        }
        if at_marker {
            self.passed = stream.pass(page);
            issue(stream, self.window_max, demand, view, out);
        }
    }

    /// Adds a page to a stream that is not regular yet, if one is near.
    fn learn(
        &mut self,
        page: i64,
        demand: &Demand,
        view: &dyn View,
        out: &mut Vec<Candidate>,
    ) -> bool {
        let resident = |page| is_resident(view, page);
        let Some(stream) = self.streams.learn(page, resident) else {
            return false;
        };
        stream.sample(page, demand.access);
        if stream.is_regular() {
            issue(stream, self.window_max, demand, view, out);
        }
        true
    }

    /// Handles a fault on a page that is not in RAM.
    fn miss(&mut self, page: i64, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let stream = self.streams.ahead_of(page);
        if let Some(stream) = stream.filter(|stream| is_on_its_way(stream, page, view)) {
            let asked_for = stream.steps(page, stream.next) > 0;
            if !stream.passes_checkpoints(page, asked_for) {
                stream.restart(page, demand.access);
                return;
            }
            stream.sample(page, demand.access);
            if asked_for {
                // The page was evicted before its use: the window was too large or too early.
                stream.length /= 2;
            }
            self.passed = stream.pass(page);
            stream.advance(page, false);
            stream.next = page + stream.stride;
            issue(stream, self.window_max, demand, view, out);
            return;
        }
        if self.learn(page, demand, view, out) {
            return;
        }
        self.streams.begin(page, demand.access);
        self.lone = Some(demand.page);
        if let Whereabouts::Flash(slot) = demand.from {
            self.guess(demand.page, slot.0, view, out);
        }
    }

    /// Zero-fills the chunk of an absent page.
    fn fill(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let first = PageId(demand.page.0 / FILL_CHUNK * FILL_CHUNK);
        let (end, pages) = self.filled;
        let goes_on = first == end && pages > 0;
        let pages = if goes_on {
            (2 * pages).min(FILL_MAX)
        } else {
            FILL_CHUNK
        };
        self.filled = (first.plus(pages), pages);
        let block = (0..pages).map(|i| first.plus(i));
        let absent =
            block.filter(|&page| page != demand.page && view.page(page) == Whereabouts::Absent);
        out.extend(absent.map(|page| Candidate {
            page,
            place: Place::Region,
            store: demand.access == Access::Write,
            kind: Kind::Stream,
        }));
    }

    /// Proposes neighbours in the address space that are also neighbours on flash.
    fn guess(&mut self, page: PageId, mut slot: u32, view: &dyn View, out: &mut Vec<Candidate>) {
        let mut pages = self.guess_credit / GUESS_CREDIT_PER_PAGE;
        if pages <= 0 {
            self.faults_without_guess += 1;
            if self.faults_without_guess < GUESS_TRIAL_INTERVAL {
                return;
            }
            self.faults_without_guess = 0;
            pages = 1;
        }
        let room = i32::try_from(view.room()).unwrap_or(i32::MAX);
        for i in 1..=pages.min(room).unsigned_abs() {
            let Some(page) = page.0.checked_add(i).map(PageId) else {
                return;
            };
            match view.page(page) {
                Whereabouts::Flash(at) if at.0.wrapping_sub(slot) <= 1 => slot = at.0,
                _ => return,
            }
            self.guess_credit = (self.guess_credit - GUESS_COST).max(0);
            out.push(Candidate {
                page,
                place: Place::Shadow,
                store: false,
                kind: Kind::Guess,
            });
        }
    }
}

impl Prefetcher for Modern {
    fn demand(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        self.passed = None;
        self.lone = None;
        if self.window_max == 0 {
            return;
        }
        let page = i64::from(demand.page.0);
        if demand.from == Whereabouts::Absent && view.at_ease() {
            self.fill(demand, view, out);
        } else if demand.hit {
            self.hit(page, demand, view, out);
        } else {
            self.miss(page, demand, view, out);
        }
    }

    fn passed(&mut self) -> Option<Passed> {
        self.passed.take()
    }

    fn expects_store(&mut self, page: PageId) -> bool {
        self.lone == Some(page) && self.odds.loaded(page)
    }

    fn stored(&mut self, page: PageId) {
        self.odds.stored(page);
        self.streams.stored(page.0.into());
    }

    fn wasted(&mut self, page: PageId) {
        if let Some(stream) = self.streams.ahead_of(page.0.into()) {
            stream.length -= stream.length / 8;
        }
    }
}

/// Maximum window of this stream.
fn longest(stream: &Stream, window_max: u32) -> u32 {
    if stream.stride.abs() == 1 {
        window_max
    } else {
        window_max.min(WINDOW_STRIDED_MAX)
    }
}

fn is_resident(view: &dyn View, page: i64) -> bool {
    u32::try_from(page).is_ok_and(|page| view.page(PageId(page)) == Whereabouts::Resident)
}

/// Whether a stream can have reached a page without another fault: all pages between that it has not
/// requested must have been in RAM.
fn is_on_its_way(stream: &Stream, page: i64, view: &dyn View) -> bool {
    let mut at = stream.next;
    while stream.steps(at, page) > 0 {
        if !is_resident(view, at) {
            return false;
        }
        at += stream.stride;
    }
    true
}

/// Asks for the next window of a stream.
fn issue(
    stream: &mut Stream,
    window_max: u32,
    demand: &Demand,
    view: &dyn View,
    out: &mut Vec<Candidate>,
) {
    let fill = demand.from == Whereabouts::Absent;
    let store = stream.stores() || (fill && demand.access == Access::Write);
    let longest = longest(stream, window_max);
    // Zeros ahead cost no read.
    let earned = if fill {
        stream.length
    } else {
        stream.length / 2
    };
    stream.window = earned.clamp(WINDOW_MIN.min(longest), longest);
    let window = stream.window.min(view.room());
    let window = if fill { window.min(FILL_MAX) } else { window };
    let looks = window * 4 + 64;
    stream.trusted = stream.length >= TRUSTED_LENGTH;
    let spacing = (window / CHECKPOINTS_PER_WINDOW).max(CHECKPOINT_SPACING);
    // A trusted stream meets its marker at the start of the window, another one when it has used a part of it.
    let marker_at = if stream.trusted { 0 } else { window / 2 };
    let (mut issued, mut absent, mut inflated) = (0, 0, 0);
    stream.marker = None;
    for _ in 0..looks {
        if issued >= window || absent >= ABSENT_RUN_MAX {
            break;
        }
        let Ok(page) = u32::try_from(stream.next).map(PageId) else {
            break;
        };
        let place = match view.page(page) {
            Whereabouts::Outside => break,
            Whereabouts::Resident => None,
            Whereabouts::Zero => Some(Place::Region),
            Whereabouts::Pool if stream.length < POOL_LENGTH || inflated == POOL_MAX => break,
            Whereabouts::Pool => {
                inflated += 1;
                Some(Place::Region)
            }
            Whereabouts::Absent if fill => Some(Place::Region),
            Whereabouts::Absent => {
                absent += 1;
                None
            }
            Whereabouts::Flash(_) => {
                if issued >= marker_at {
                    stream.marker.get_or_insert(stream.next);
                }
                if !stream.trusted {
                    Some(Place::Shadow)
                } else if issued % spacing < stream.gap {
                    if issued % spacing == 0 {
                        stream.add_checkpoint(stream.next);
                    }
                    Some(Place::Shadow)
                } else {
                    Some(Place::Region)
                }
            }
        };
        if let Some(place) = place {
            issued += 1;
            absent = 0;
            out.push(Candidate {
                page,
                place,
                store,
                kind: Kind::Stream,
            });
        }
        stream.next += stream.stride;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeView, flash_fault};
    use super::*;
    use crate::ids::SlotId;
    use std::collections::HashMap;

    /// Touches pages in turn, bringing in at once what is asked for. Returns the pages that had
    /// to be waited for, and those asked for.
    fn run(
        modern: &mut Modern,
        view: &mut FakeView,
        pages: impl Iterator<Item = u32>,
    ) -> (u32, u32) {
        let mut here: HashMap<u32, Place> = HashMap::new();
        let (mut waits, mut asked) = (0, 0);
        let mut out = Vec::new();
        for page in pages {
            let mut demand = flash_fault(page);
            match here.insert(page, Place::Region) {
                Some(Place::Region) => continue,
                Some(Place::Shadow) => {
                    demand.hit = true;
                    demand.from = Whereabouts::Resident;
                }
                None => waits += 1,
            }
            view.set(page, Whereabouts::Resident);
            modern.demand(&demand, &*view, &mut out);
            for candidate in out.drain(..) {
                asked += 1;
                view.set(candidate.page.0, Whereabouts::Resident);
                here.insert(candidate.page.0, candidate.place);
            }
        }
        (waits, asked)
    }

    #[test]
    fn a_chunk_is_filled_while_most_frames_are_free() {
        let mut view = FakeView::identity(0);
        view.grow_absent(128);
        view.set(19, Whereabouts::Resident);
        let mut demand = flash_fault(22);
        (demand.from, demand.access) = (Whereabouts::Absent, Access::Write);
        let mut modern = Modern::new(256);
        let mut filled = |page: u32, view: &FakeView| {
            let mut out = Vec::new();
            demand.page = PageId(page);
            modern.demand(&demand, view, &mut out);
            assert!(out.iter().all(|c| c.store && c.place == Place::Region));
            out.iter().map(|c| c.page.0).collect::<Vec<u32>>()
        };
        assert_eq!(filled(22, &view), [], "frames may be short");
        view.at_ease = true;
        let block = [16, 17, 18, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31];
        assert_eq!(filled(22, &view), block);
        assert_eq!(
            filled(32, &view),
            (33..64).collect::<Vec<u32>>(),
            "it goes on"
        );
        assert_eq!(filled(100, &view).len(), 15, "somewhere else");
    }

    #[test]
    fn a_stream_of_any_stride_and_direction_waits_only_at_its_start() {
        let n = 40_000;
        for stride in [1_u32, 2, 4, 5, 37] {
            let mut view = FakeView::identity(n);
            let mut modern = Modern::new(256);
            let up = (0..n).step_by(stride as usize);
            let (waits, asked) = run(&mut modern, &mut view, up);
            assert!(waits <= 3, "stride {stride}: {waits} waits");
            assert!(asked <= n / stride, "stride {stride}: {asked} asked for");

            let mut view = FakeView::identity(n);
            let mut modern = Modern::new(256);
            let down = (0..n).rev().step_by(stride as usize);
            let (waits, _) = run(&mut modern, &mut view, down);
            assert!(waits <= 3, "stride -{stride}: {waits} waits");
        }
    }

    #[test]
    fn eight_streams_run_side_by_side() {
        let n = 80_000;
        let mut view = FakeView::identity(n);
        let pages = (0..10_000).flat_map(|i| (0..8).map(move |s| s * 10_000 + i));
        let (waits, _) = run(&mut Modern::new(256), &mut view, pages);
        assert!(waits <= 8 * 3, "{waits} waits");
    }

    #[test]
    fn pages_that_are_here_already_do_not_end_a_stream() {
        let n = 20_000;
        let mut view = FakeView::identity(n);
        for page in (0..n).filter(|page| page / 100 % 3 == 0) {
            view.set(page, Whereabouts::Resident);
        }
        let absent = (0..n).filter(|page| page / 100 % 3 != 0);
        let (waits, _) = run(&mut Modern::new(256), &mut view, absent);
        assert!(waits <= 6, "{waits} waits");
    }

    #[test]
    fn a_stream_over_pages_half_of_which_are_here_is_followed_page_by_page() {
        let n = 20_000;
        let mut view = FakeView::identity(n);
        let mut state = 1_u64;
        let mut absent = Vec::new();
        for page in 0..n {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if state >> 63 == 0 {
                absent.push(page);
            } else {
                view.set(page, Whereabouts::Resident);
            }
        }
        let (waits, _) = run(&mut Modern::new(256), &mut view, absent.into_iter());
        assert!(waits <= 20, "{waits} waits");
    }

    #[test]
    fn a_stream_through_compressed_pages_has_short_windows() {
        let n = 4_000;
        let mut view = FakeView::identity(n);
        (0..n).for_each(|page| view.set(page, Whereabouts::Pool));
        let mut modern = Modern::new(256);
        let (mut faults, mut out) = (0, Vec::new());
        for page in 0..n {
            if view.page(PageId(page)) == Whereabouts::Resident {
                continue;
            }
            faults += 1;
            let mut demand = flash_fault(page);
            demand.from = Whereabouts::Pool;
            view.set(page, Whereabouts::Resident);
            modern.demand(&demand, &view, &mut out);
            assert!(out.len() <= POOL_MAX as usize);
            for candidate in out.drain(..) {
                assert_eq!(candidate.place, Place::Region);
                view.set(candidate.page.0, Whereabouts::Resident);
            }
        }
        let least = n / (POOL_MAX + 1);
        assert!((least..least + 40).contains(&faults), "{faults} faults");
    }

    #[test]
    fn neighbours_in_the_same_slot_are_guessed() {
        let mut view = FakeView::identity(16);
        (0..16).for_each(|page| view.set(page, Whereabouts::Flash(SlotId(page / 3))));
        let mut out = Vec::new();
        let mut demand = flash_fault(4);
        demand.from = Whereabouts::Flash(SlotId(1));
        Modern::new(256).demand(&demand, &view, &mut out);
        assert_eq!(
            out.first().map(|c| (c.page, c.kind)),
            Some((PageId(5), Kind::Guess))
        );
    }

    #[test]
    fn random_access_costs_next_to_nothing() {
        let n = 1 << 20;
        let mut view = FakeView::identity(n);
        let mut state = 1_u64;
        let pages = (0..20_000).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u32::try_from(state >> 40).expect("24 bits") % n
        });
        let (_, asked) = run(&mut Modern::new(256), &mut view, pages);
        assert!(asked <= 20_000 / 50, "{asked} pages asked for");
    }

    #[test]
    fn pages_in_pairs_earn_guesses() {
        let n = 1 << 20;
        let mut view = FakeView::identity(n);
        let mut state = 1_u64;
        let pages = (0..4_000).flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let page = u32::try_from(state >> 40).expect("24 bits") % (n - 1);
            [page, page + 1]
        });
        let (waits, _) = run(&mut Modern::new(256), &mut view, pages);
        assert!(waits <= 4_000 * 11 / 10, "{waits} waits");
    }

    #[test]
    fn a_fill_maps_zeros_ahead_in_growing_windows() {
        let mut view = FakeView::identity(0);
        let mut modern = Modern::new(256);
        let mut out = Vec::new();
        let mut demand = Demand {
            page: PageId(0),
            access: Access::Write,
            from: Whereabouts::Absent,
            hit: false,
        };
        view.grow_absent(4096);
        let mut faults = 0;
        for page in 0..4096 {
            if view.page(PageId(page)) == Whereabouts::Resident {
                continue;
            }
            faults += 1;
            demand.page = PageId(page);
            view.set(page, Whereabouts::Resident);
            modern.demand(&demand, &view, &mut out);
            for candidate in out.drain(..) {
                assert_eq!(candidate.place, Place::Region);
                view.set(candidate.page.0, Whereabouts::Resident);
            }
        }
        assert!(faults < 4096 / 50, "{faults} faults");
    }

    #[test]
    fn a_shrunk_window_and_no_room_are_respected() {
        let mut view = FakeView::identity(1000);
        let mut modern = Modern::new(256);
        let mut out = Vec::new();
        modern.demand(&flash_fault(0), &view, &mut out);
        out.clear();
        view.room = 3;
        modern.demand(&flash_fault(1), &view, &mut out);
        assert_eq!(out.len(), 3);
        assert_eq!(view.page(PageId(2)), Whereabouts::Flash(SlotId(2)));
    }
}
