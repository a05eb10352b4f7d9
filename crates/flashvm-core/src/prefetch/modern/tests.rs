//! The prefetcher against patterns of accesses.

use super::super::testing::{FakeView, flash_fault};
use super::super::{Demand, Kind, Prefetcher, View, Whereabouts};
use super::Modern;
use super::window::POOL_MAX;
use crate::event::{Access, Place};
use crate::ids::{PageId, SlotId};
use std::collections::HashMap;

/// Touches pages in turn, and brings in requested pages at once. Returns how many pages had to be
/// waited for, and how many were requested.
fn run(modern: &mut Modern, view: &mut FakeView, pages: impl Iterator<Item = u32>) -> (u32, u32) {
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

/// The pages before the stream are the oldest of a loop larger than RAM.
#[test]
fn a_stream_asks_for_pages_that_are_about_to_leave() {
    let mut view = FakeView::identity(4000);
    for page in (0..4000).filter(|page| page % 3 == 0) {
        view.set(page, Whereabouts::Leaving);
    }
    let mut modern = Modern::new(256);
    let (mut asked, mut waits) = (Vec::new(), 0);
    let mut here = HashMap::new();
    for page in 0..4000 {
        let mut demand = flash_fault(page);
        match here.insert(page, Place::Region) {
            Some(Place::Region) => continue,
            Some(Place::Shadow) => demand.hit = true,
            None => waits += 1,
        }
        let mut out = Vec::new();
        modern.demand(&demand, &view, &mut out);
        for candidate in out {
            let at = candidate.page.0;
            assert!(
                at % 3 != 0 || candidate.place == Place::Shadow,
                "its use is seen"
            );
            here.insert(at, candidate.place);
            view.set(at, Whereabouts::Resident);
            asked.push(at);
        }
    }
    assert!(waits <= 3, "{waits} waits");
    asked.sort_unstable();
    asked.dedup();
    assert!(asked.len() > 3990, "{} pages", asked.len());
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
