//! The number of runs against a count by page, and which units are withdrawn.

use super::*;
use proptest::prelude::*;

const PAGES: u32 = 5 * UNIT_PAGES - 10;

fn run(first: u32, count: u32) -> Run {
    Run::new(PageId(first), count.min(PAGES - first))
}

proptest! {
    #[test]
    fn like_an_array(steps in prop::collection::vec((0..PAGES, 0..100_u32, any::<bool>()), 1..60)) {
        let mut shown = Shown::new(PAGES, 1000).unwrap();
        let mut naive = [false; PAGES as usize];
        for (first, count, show) in steps {
            let run = run(first, count);
            match show {
                true => shown.show(run),
                false => shown.hide(run),
            }
            naive[first as usize..run.end().0 as usize].fill(show);
            let begins = |&page: &u32| naive[page as usize] && (page == 0 || !naive[page as usize - 1]);
            prop_assert_eq!(shown.runs(), (0..PAGES).filter(begins).count() as u32);
            let inside: Vec<u32> = run.pages().map(|page| page.0).filter(|&page| naive[page as usize]).collect();
            let span = shown.span(run).map(|span| (span.first.0, span.end().0 - 1));
            prop_assert_eq!(span, inside.first().copied().zip(inside.last().copied()));
            for unit in 0..PAGES.div_ceil(UNIT_PAGES) {
                let unit = shown.unit(unit);
                let saved = shown.saved_by(unit);
                let before = shown.runs();
                let parts: Vec<Run> = runs(shown.pages.pages(unit)).collect();
                shown.hide(unit);
                prop_assert_eq!(shown.runs() as i32, before as i32 - saved);
                parts.into_iter().for_each(|part| shown.show(part));
                prop_assert_eq!(shown.runs(), before);
            }
        }
    }
}

/// Every second page of the first units is shown.
fn scattered(mappings: u32) -> Shown {
    let mut shown = Shown::new(PAGES, mappings).unwrap();
    for page in (0..4 * UNIT_PAGES).step_by(2) {
        shown.show(run(page, 1));
    }
    shown
}

#[test]
fn units_leave_in_turn_and_pinned_ones_stay() {
    let mut shown = scattered(2 * 128);
    assert!(shown.is_full() && !shown.has_room());
    shown.pin(run(UNIT_PAGES + 3, 1));
    let mut left = Vec::new();
    while let Some(unit) = shown.next_unit() {
        shown.hide(unit);
        left.push(unit.first.0 / UNIT_PAGES);
    }
    assert_eq!(left, [0, 2, 3]);
    assert_eq!(shown.runs(), 32);
    shown.unpin(run(UNIT_PAGES + 3, 1));
    assert!(shown.next_unit().is_some());
}

#[test]
fn a_unit_within_a_longer_run_stays() {
    let mut shown = Shown::new(PAGES, 4).unwrap();
    shown.show(run(0, PAGES));
    assert_eq!(shown.next_unit(), None);
    assert_eq!(shown.runs(), 1);
}

#[test]
fn a_whole_run_has_no_pinned_page_beside_the_span() {
    let mut shown = Shown::new(PAGES, 100).unwrap();
    shown.show(run(10, 20));
    assert_eq!(shown.whole(run(15, 2)), Some(run(10, 20)));
    shown.pin(run(15, 1));
    assert_eq!(
        shown.whole(run(15, 2)),
        Some(run(10, 20)),
        "the caller asked for it"
    );
    assert_eq!(shown.whole(run(16, 2)), None);
}

#[test]
fn fewer_mappings_leave_room_for_a_batch() {
    let mut shown = scattered(1000);
    assert!(shown.has_room());
    shown.allow_fewer();
    assert!(shown.is_full());
    while !shown.has_room() {
        let unit = shown.next_unit().unwrap();
        shown.hide(unit);
    }
    assert_eq!(shown.runs(), 0, "a batch is more than what is allowed");
    shown.forked();
    assert_eq!(shown.runs(), 0);
}
