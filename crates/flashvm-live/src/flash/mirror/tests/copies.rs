//! Copies to a side that has returned, while threads write; and to one that was wrong, below the whole stack.

use super::super::super::file::FileStore;
use super::super::super::nbd::NbdTrouble;
use super::super::super::side::SideStore;
use super::super::super::store::Store;
use super::super::super::testing::{Pages, file, held, mirror_of, side_here};
use super::super::attendant::MirrorAttendant;
use super::super::health::{Health, Side};
use super::{BYTES, PAGE, read, silent, write};
use flashvm_core::PAGE_SIZE;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::scope;
use std::time::Instant;

/// Threads write while sides are lost and brought up to date. At the end both sides have what was written last.
#[test]
fn copies_and_writes_do_not_hurt_each_other() {
    let (control, process) = held(BYTES);
    let state = process.mirror();
    let files = [file(BYTES), file(BYTES)];
    let places = files
        .each_ref()
        .map(|file| (side_here(), Some(file.try_clone().unwrap())));
    let mut attendant = MirrorAttendant::new(control, places);
    let sides = files.map(|file| SideStore::File(FileStore::new(file, BYTES, false).unwrap()));
    let mirror = silent(sides, state);
    let over = AtomicBool::new(false);
    let never = AtomicBool::new(false);
    let turns = AtomicU32::new(0);
    let mut last = BTreeMap::new();
    scope(|scope| {
        let writers: Vec<_> = (0_u64..3)
            .map(|thread| {
                let (mirror, over) = (&mirror, &over);
                scope.spawn(move || {
                    let mut last = BTreeMap::new();
                    let mut turn = 0;
                    while !over.load(Ordering::Relaxed) {
                        turn += 1;
                        // Pages of its own, beside those of others.
                        let page = thread + 3 * (turn * 7 % 40);
                        let from = Pages::new(1, turn * 4 + thread);
                        if write(mirror, page * PAGE, &from) {
                            last.insert(page, turn * 4 + thread);
                        } else {
                            last.remove(&page);
                        }
                    }
                    last
                })
            })
            .collect();
        let begun = Instant::now();
        while turns.load(Ordering::Relaxed) < 60 && begun.elapsed().as_secs() < 20 {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            let side = Side::BOTH[(turn % 2) as usize];
            let epoch = Health::of(state.health()).epoch(side);
            mirror.lose(side, epoch, NbdTrouble::Closed);
            while Health::of(state.health()).out().is_some() && begun.elapsed().as_secs() < 20 {
                attendant.look(&never);
            }
        }
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            last.extend(writer.join().unwrap());
        }
    });
    assert!(
        turns.load(Ordering::Relaxed) > 4,
        "sides return while others write"
    );
    // Pages that a write left stale, and those that could not be copied then.
    for _ in 0..20 {
        attendant.look(&never);
    }
    assert_eq!(Health::of(state.health()).out(), None);
    assert!(last.len() > 100);
    for (page, seed) in last {
        let (right, to) = (Pages::new(1, seed), Pages::new(1, 0));
        for side in Side::BOTH {
            let pages = page as u32..page as u32 + 1;
            assert!(
                !state.any_stale(side.index(), pages),
                "page {page} of {side:?}"
            );
            // SAFETY: the page lives over the call, and this thread alone uses it.
            let failed = unsafe { mirror.read_copy(side.index(), page * PAGE, to.all()) };
            assert!(
                failed.is_none() && to.bytes(0) == right.bytes(0),
                "page {page} of {side:?}"
            );
        }
    }
}

#[test]
fn the_whole_stack_has_a_damaged_side_mended() {
    for (side, encrypt) in [(0, false), (1, false), (0, true), (1, true)] {
        let (control, process) = held(BYTES);
        let files = [file(BYTES), file(BYTES)];
        let copies = files.each_ref().map(|file| file.try_clone().unwrap());
        let places = files
            .each_ref()
            .map(|file| (side_here(), Some(file.try_clone().unwrap())));
        let mut attendant = MirrorAttendant::new(control, places);
        let store = mirror_of(files, process, BYTES, None, encrypt);
        let (from, to, other) = (Pages::new(16, 1), Pages::new(16, 2), Pages::new(1, 3));
        assert!(write(&store, 0, &from));
        for page in [2, 3, 11] {
            let written = rustix::io::pwrite(&copies[side], other.bytes(0), page * PAGE);
            assert_eq!(written, Ok(PAGE_SIZE));
        }
        // Both sides are read, in turn.
        let state = process.mirror();
        for first in 0..2 {
            state.set_average(first, 1_000);
            state.set_average(1 - first, 1_000_000);
            assert_eq!(read(&store, 0, &to), 0);
            assert!((0..16).all(|page| to.bytes(page) == from.bytes(page)));
        }
        assert_eq!(state.counters().mended, 3);
        attendant.look(&AtomicBool::new(false));
        let [a, b] = copies.map(|copy| {
            let page = Pages::new(16, 0);
            let store = FileStore::new(copy, BYTES, false).unwrap();
            assert_eq!(read(&store, 0, &page), 0);
            page
        });
        assert!((0..16).all(|page| a.bytes(page) == b.bytes(page)));
    }
}
