//! Stripes over sides in memory, some of which do not answer.

use super::super::checked::Checked;
use super::super::sides::Sides;
use super::super::store::Store;
use super::super::testing::{Pages, SilentSide, held};
use super::*;
use crate::control::SidesState;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

const PAGE: u64 = PAGE_SIZE as u64;
const UNITS: u64 = 8;
const BYTES: u64 = UNITS * UNIT;

/// A stripe that prints nothing.
fn stripe(sides: usize, state: SidesState) -> Stripe<SilentSide> {
    let each = each_of(BYTES, sides);
    let names = (0..sides).map(|side| format!("side {side}"));
    let sides = names.map(|name| (name, SilentSide::new(each))).collect();
    let sides = Sides {
        says: |_| {},
        ..Sides::new(sides, state)
    };
    Stripe::new(sides, BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Requests anywhere read back, as from a store of one side.
    #[test]
    fn a_stripe_is_one_store(
        sides in 2_usize..=8,
        writes in prop::collection::vec((0..(BYTES / PAGE - 64), 1_usize..=64, 0_usize..64), 1..20),
    ) {
        let stripe = stripe(sides, held(BYTES).1.sides());
        let mut model = vec![None; (BYTES / PAGE) as usize];
        let (mut pages, to) = (Pages::new(64, 0), Pages::new(64, 0));
        for (turn, (page, count, from)) in writes.into_iter().enumerate() {
            pages.fill(turn as u64 + 1);
            let mut parts: Vec<_> = (0..count).map(|at| pages.page(at)).collect();
            parts.rotate_left(from % count);
            // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
            let written = unsafe { stripe.write(page * PAGE, &parts) };
            prop_assert!(written.is_none());
            for at in 0..count {
                let source = pages.bytes((at + from % count) % count);
                model[page as usize + at] = Some(source.to_vec());
            }
            // SAFETY: the pages live over the call, and this thread alone uses them.
            let read = unsafe { stripe.read(page * PAGE, to.all()) };
            prop_assert!(read.is_none());
            for at in 0..64 {
                if let Some(wanted) = &model[page as usize + at] {
                    prop_assert!(to.bytes(at) == wanted, "page {}", page as usize + at);
                }
            }
        }
    }

    /// Parts of requests are those of a flat memory.
    #[test]
    fn cuts_are_parts(lens in prop::collection::vec(1_usize..5, 1..10), from in 0_usize..20, len in 0_usize..20) {
        let mut address = 100;
        let parts: Vec<_> = lens.iter().map(|&len| {
            address += 10;
            Part { address, len }
        }).collect();
        let flat = |parts: &[Part]| {
            let bytes = parts.iter().flat_map(|part| part.address..part.address + part.len);
            bytes.collect::<Vec<_>>()
        };
        let all = flat(&parts);
        let (from, len) = (from % all.len(), len % (all.len() - from % all.len()));
        let mut room = [Part { address: 0, len: 0 }; 10];
        prop_assert_eq!(flat(cut(&parts, from, len, &mut room)), &all[from..from + len]);
    }
}

/// Pages on a side that stays away fail, the others go on; once it answers its pages are there again.
#[test]
fn a_silent_side_loses_its_pages_and_no_others() {
    let (_, process) = held(BYTES);
    let state = process.sides();
    let stripe = Checked::new(stripe(2, state)).unwrap();
    let from = Pages::new(64, 1);
    let all = |store: &Checked<Stripe<SilentSide>>, write: bool| {
        let to = Pages::new(64, 2);
        let request = |unit: u64| match write {
            // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
            true => unsafe { store.write(unit * UNIT, &[from.all()]) },
            // SAFETY: the pages live over the call, and this thread alone uses them.
            false => unsafe { store.read(unit * UNIT, to.all()) },
        };
        (0..UNITS)
            .map(|unit| request(unit).is_none())
            .collect::<Vec<_>>()
    };
    let odd: Vec<_> = (0..UNITS).map(|unit| unit % 2 == 1).collect();
    assert!(all(&stripe, true).into_iter().all(|good| good));
    let side = &stripe.below.sides.stores[0];
    side.is_silent.store(true, Ordering::Relaxed);
    assert_eq!(all(&stripe, false), odd);
    assert_eq!(all(&stripe, true), odd);
    assert_eq!(state.counters(2).given_up, 1);
    // Its writes at first, and one request since.
    let asked = side.asked.load(Ordering::Relaxed);
    assert_eq!(asked, UNITS as u32 / 2 + 1);
    side.is_silent.store(false, Ordering::Relaxed);
    // Its pause is over.
    assert!(state.change_away(0, state.away(0), 1));
    assert!(all(&stripe, false).into_iter().all(|good| good));
    assert_eq!(state.away(0), 0);
}

/// The last side is waited for: the process ends.
#[test]
#[should_panic = "the process ends"]
fn the_last_side_is_not_given_up() {
    let stripe = stripe(2, held(BYTES).1.sides());
    for side in &stripe.sides.stores {
        side.is_silent.store(true, Ordering::Relaxed);
    }
    let to = Pages::new(64, 2);
    for unit in 0..2 {
        // SAFETY: the pages live over the call, and this thread alone uses them.
        let _ = unsafe { stripe.read(unit * UNIT, to.all()) };
    }
}
