//! Tiers: requests while chunks move, sides that do not answer, processes that die.

use super::super::checked::Checked;
use super::super::file::FileStore;
use super::super::testing::{Pages, SilentSide, file, held, leak, side_here};
use super::*;
use crate::control::{Control, SidesState};
use flashvm_core::{ClusterSource, PAGE_SIZE};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
const CHUNKS: u64 = 24;
const BYTES: u64 = CHUNKS * CHUNK;
const FIRST: u64 = 4 * CHUNK;

/// A tier of sides in memory that prints nothing.
fn in_memory(state: TierState, sides: SidesState) -> Tier<SilentSide> {
    let each = bytes_of_sides(FIRST, state);
    let side = |at: usize| (format!("side {at}"), SilentSide::new(each[at]));
    let sides = Sides {
        says: |_| {},
        ..Sides::new(vec![side(0), side(1)], sides)
    };
    Tier::new(sides, FIRST, BYTES, state)
}

fn write(store: &impl Store, at: u64, from: &Pages) -> bool {
    // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
    unsafe { store.write(at, &[from.all()]) }.is_none()
}

fn reads(store: &impl Store, at: u64, wanted: &Pages, count: usize) -> bool {
    let to = Pages::new(count, 999);
    // SAFETY: the pages live over the call, and this thread alone uses them.
    let failed = unsafe { store.read(at, to.all()) };
    failed.is_none() && (0..count).all(|page| to.bytes(page) == wanted.bytes(page))
}

#[test]
fn sizes_leave_room_for_moves() {
    let (_, process) = held(BYTES);
    let state = process.tier();
    assert_eq!(u64::from(state.chunks()), CHUNKS);
    let [first, second] = bytes_of_sides(FIRST, state);
    assert_eq!(first, FIRST);
    assert_eq!(tiered(first, second), BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Writes and reads anywhere, with moves of chunks between them.
    #[test]
    fn a_tier_is_one_store(
        steps in prop::collection::vec((0_u64..BYTES / PAGE - 64, 1_usize..=64, any::<bool>()), 1..30),
    ) {
        let (_, process) = held(BYTES);
        let state = process.tier();
        let tier = in_memory(state, process.sides());
        let mut model = vec![None; (BYTES / PAGE) as usize];
        let (mut pages, to) = (Pages::new(64, 0), Pages::new(64, 0));
        for (turn, (page, count, moves)) in steps.into_iter().enumerate() {
            pages.fill(turn as u64 + 1);
            let parts: Vec<_> = (0..count).map(|at| pages.page(at)).collect();
            // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
            let written = unsafe { tier.write(page * PAGE, &parts) };
            prop_assert!(written.is_none());
            for at in 0..count {
                model[page as usize + at] = Some(pages.bytes(at).to_vec());
            }
            if moves {
                shuffle(&tier, &to);
            }
            for at in 0..64 {
                // SAFETY: the pages live over the call, and this thread alone uses them.
                let read = unsafe { tier.read((page + at) * PAGE, to.page(0)) };
                if let Some(wanted) = &model[(page + at) as usize] {
                    prop_assert!(read.is_none() && to.bytes(0) == wanted, "page {}", page + at);
                }
            }
        }
        one_place_each(state);
    }
}

/// Moves each chunk to the other side, by hand, as far as there is room. `room` is that of a chunk.
fn shuffle(tier: &Tier<SilentSide>, room: &Pages) {
    let state = tier.state;
    for chunk in 0..state.chunks() {
        let word = state.word(chunk);
        let Some(from) = word.place() else {
            continue;
        };
        let side = 1 - tier.places.side(from);
        let Some(to) = state.claim(side, tier.places.of(side), u32::MAX, chunk) else {
            continue;
        };
        let stores = &tier.sides.stores;
        // SAFETY: the pages live over the calls, and this thread alone uses them.
        unsafe {
            let read = stores[1 - side]
                .store
                .read(tier.places.at(from), room.all());
            let written = stores[side].store.write(tier.places.at(to), &[room.all()]);
            assert!(read.is_none() && written.is_none());
        }
        assert!(state.change(chunk, word, word.moved_to(Some(to))));
        state.free(1 - side, from);
    }
}

/// Each chunk has a place of its own.
fn one_place_each(state: TierState) {
    for chunk in 0..state.chunks() {
        if let Some(place) = state.word(chunk).place() {
            assert_eq!(state.owner(place), Some(chunk));
        }
    }
}

/// A tier of two files, and its mover.
fn in_files(control: Control, process: Process) -> (&'static Tier, TierMover) {
    let state = process.tier();
    let each = bytes_of_sides(FIRST, state);
    let files = each.map(file);
    let twins = [0, 1].map(|side: usize| {
        let twin = files[side].try_clone().unwrap();
        (side_here(), Some(twin))
    });
    let stores = files.into_iter().zip(each).map(|(file, bytes)| {
        let store = FileStore::new(file, bytes, false).unwrap();
        ("a file".to_owned(), SideStore::File(store))
    });
    let sides = Sides::new(stores.collect(), process.sides());
    let tier = leak(Tier::new(sides, FIRST, BYTES, state));
    (tier, TierMover::new(control, twins, FIRST))
}

/// Threads write and read their own pages, in chunks that they share, while the mover does what it can.
#[test]
fn threads_never_lose_a_write_to_a_move() {
    let (control, process) = held(BYTES);
    let (tier, mut mover) = in_files(control, process);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                scope.spawn(move || {
                    let mut last = vec![0_u64; (BYTES / PAGE) as usize];
                    let (mut page_of, to) = (Pages::new(1, 0), Pages::new(1, 0));
                    let mut random = thread + 1;
                    for turn in 1..3000_u64 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        // A warm part, and the rest.
                        let span = if turn % 4 > 0 { BYTES / 8 } else { BYTES } / PAGE;
                        let page = random % span / 4 * 4 + thread;
                        let mine = &mut last[page as usize];
                        let writes = turn % 2 == 0 || *mine == 0;
                        if writes {
                            *mine = turn << 3 | thread;
                        }
                        page_of.fill(*mine);
                        if writes {
                            assert!(write(tier, page * PAGE, &page_of));
                        } else {
                            // SAFETY: the page lives over the call, and this thread alone uses it.
                            let read = unsafe { tier.read(page * PAGE, to.all()) };
                            let is_right = to.bytes(0) == page_of.bytes(0);
                            assert!(read.is_none() && is_right, "page {page}");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                mover.look(&AtomicBool::new(false));
            }
        });
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    one_place_each(process.tier());
    let counters = control.tier().counters();
    assert!(counters.demoted_bytes > 0, "{counters:?}");
}

#[test]
fn warm_chunks_come_to_the_first_side_and_cold_ones_leave() {
    let (control, process) = held(BYTES);
    let (tier, mut mover) = in_files(control, process);
    let pages = |chunk: u64| Pages::new(64, chunk);
    let over = AtomicBool::new(false);
    for chunk in 0..CHUNKS {
        assert!(write(tier, chunk * CHUNK, &pages(chunk)));
        mover.look(&over);
    }
    let side = |chunk: u64| {
        let place = process.tier().word(chunk as u32).place();
        tier.places.side(place.expect("written"))
    };
    // One place of four is kept free.
    assert_eq!((0..CHUNKS).filter(|&chunk| side(chunk) == 0).count(), 3);
    for _ in 0..10 {
        for chunk in 5..8 {
            assert!(reads(tier, chunk * CHUNK, &pages(chunk), 64));
        }
    }
    for _ in 0..3 {
        mover.look(&over);
    }
    assert!((5..8).all(|chunk| side(chunk) == 0));
    assert!((0..CHUNKS).all(|chunk| reads(tier, chunk * CHUNK, &pages(chunk), 64)));
    assert!(control.tier().counters().promoted_bytes >= 3 * CHUNK);
    // What nobody holds any more has no place.
    let mut clusters = process.clusters();
    for cluster in 0..control.clusters().0 {
        clusters.release(flashvm_core::ClusterId(cluster));
    }
    mover.look(&over);
    assert!((0..CHUNKS as u32).all(|chunk| process.tier().word(chunk).place().is_none()));
    let places = 0..process.tier().places();
    assert!(
        places
            .into_iter()
            .all(|place| process.tier().owner(place).is_none())
    );
}

/// A process that is killed while it writes holds a chunk in its place until its slot is free; a place that it has taken
/// is taken back.
#[test]
fn what_a_killed_process_leaves_is_taken_back() {
    let (control, process) = held(BYTES);
    let (tier, mut mover) = in_files(control, process);
    let over = AtomicBool::new(false);
    let other = control.register(2, "killed").unwrap();
    let state = other.tier();
    let (writing, _) = state.begin_write(3).unwrap();
    std::mem::forget(writing);
    let place = state.claim(0, tier.places.of(0), u32::MAX, 3).unwrap();
    let looks = || (0..200).for_each(|_| mover.look(&over));
    let mut looks = looks;
    looks();
    assert_eq!(state.owner(place), Some(3), "it may still use it");
    other.retire();
    looks();
    assert_eq!(state.owner(place), None);
    assert!(write(tier, 3 * CHUNK, &Pages::new(64, 1)));
    assert!(reads(tier, 3 * CHUNK, &Pages::new(64, 1), 64));
}

/// Without the second side, pages that are there fail, and the rest goes on.
#[test]
fn a_silent_second_side_loses_its_pages_alone() {
    let (_, process) = held(BYTES);
    let tier = Checked::new(in_memory(process.tier(), process.sides())).unwrap();
    let from = Pages::new(64, 1);
    assert!((0..8).all(|chunk| write(&tier, chunk * CHUNK, &from)));
    tier.below.sides.stores[1]
        .is_silent
        .store(true, Ordering::Relaxed);
    let good = |chunk: u64| reads(&tier, chunk * CHUNK, &from, 64);
    let all: Vec<_> = (0..8).map(good).collect();
    assert_eq!(all, [true, true, true, true, false, false, false, false]);
    assert!(write(&tier, 0, &from) && !write(&tier, 7 * CHUNK, &from));
    assert_eq!(process.sides().counters(2).given_up, 1);
}

#[test]
fn a_process_writes_few_chunks_at_a_time() {
    let (_, process) = held(BYTES);
    let state = process.tier();
    let writing: Vec<_> = std::iter::from_fn(|| state.begin_write(1)).collect();
    assert_eq!(writing.len(), 32);
    assert!(state.is_written(1) && !state.is_written(2));
    drop(writing);
    assert!(!state.is_written(1) && state.begin_write(2).is_some());
}
