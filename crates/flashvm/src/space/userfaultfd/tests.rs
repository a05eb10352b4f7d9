//! Each operation's postcondition in both kinds: with a shadow, and without.

use super::*;
use crate::sys::message::eprint_line;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod forked;
mod program;

use program::{MAPPED, each_kind, each_kind_by, page, run};

#[test]
fn a_run_is_mapped_with_its_contents() {
    each_kind(None, |space| {
        assert_eq!(space.load(Place::Region, 3), None);
        let contents = [page(1), page(2), page(3)].concat();
        let from = Source::Bytes(&contents);
        assert_eq!(
            space.0.copy(Place::Region, run(3, 3), from, false),
            Done::all(3)
        );
        for (at, byte) in [(3, 1), (4, 2), (5, 3)] {
            assert_eq!(space.load(Place::Region, at), Some(byte));
            assert!(space.store(at, 9));
        }
        assert_eq!(space.held(2), (false, false));
        assert_eq!(space.held(5), (true, false));
        let zeros = space
            .0
            .copy(Place::Region, run(64, 64), Source::Zeros, false);
        assert_eq!(zeros, Done::all(64));
        assert_eq!(space.load(Place::Region, 127), Some(0));
    });
}

#[test]
fn a_page_that_is_mapped_protected_may_be_loaded() {
    each_kind(None, |space| {
        let from = Source::Bytes(&page(7));
        assert_eq!(
            space.0.copy(Place::Region, run(0, 1), from, true),
            Done::all(1)
        );
        assert_eq!(space.load(Place::Region, 0), Some(7));
        assert!(!space.store(0, 8));
        space.pages().protect(run(0, 1), false).unwrap();
        assert!(space.store(0, 8));
        assert_eq!(space.load(Place::Region, 0), Some(8));
    });
}

#[test]
fn a_copy_stops_at_a_page_that_is_there() {
    each_kind(None, |space| {
        space.put(Place::Region, 2, 5);
        let zeros = |run| space.0.copy(Place::Region, run, Source::Zeros, false);
        // Linux gives the reason only for the first page of a call.
        assert_eq!(zeros(run(0, 4)), Done::stopped(2, Stop::Again));
        assert_eq!(zeros(run(2, 2)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.load(Place::Region, 2), Some(5));
        assert_eq!(space.held(3), (false, false));
        assert_eq!(zeros(run(3, 1)), Done::all(1));
    });
}

#[test]
fn a_protected_page_that_is_there_stays_protected() {
    each_kind(None, |space| {
        let copy = |protect| {
            space
                .0
                .copy(Place::Region, run(0, 1), Source::Zeros, protect)
        };
        assert_eq!(copy(true), Done::all(1));
        assert_eq!(copy(false), Done::stopped(0, Stop::Exists));
        assert!(!space.store(0, 1));
    });
}

#[test]
fn a_run_beyond_a_mapping_is_refused_as_a_whole() {
    each_kind(None, |space| {
        let last = MAPPED - 1;
        let copy = |run| space.0.copy(Place::Region, run, Source::Zeros, false);
        assert_eq!(copy(run(last, 2)), Done::stopped(0, Stop::Missing));
        assert_eq!(space.held(last), (false, false));
        assert_eq!(copy(run(MAPPED, 1)), Done::stopped(0, Stop::Missing));
        assert_eq!(copy(run(last, 1)), Done::all(1));
        if space.0.has_shadow() {
            let away = space.pages().shift(Place::Shadow, run(last, 2));
            assert_eq!(away, Done::stopped(0, Stop::Invalid));
            assert_eq!(space.held(last), (true, false));
        }
    });
}

#[test]
fn pages_are_taken_away_and_back() {
    each_kind(Some(true), |space| {
        for at in 0..3 {
            space.put(Place::Region, at, at as u8 + 1);
        }
        space.pages().protect(run(1, 1), true).unwrap();
        assert_eq!(space.pages().shift(Place::Shadow, run(0, 3)), Done::all(3));
        for at in 0..3 {
            assert_eq!(space.held(at), (false, true));
            assert_eq!(space.load(Place::Region, at), None, "a touch is a fault");
            assert_eq!(space.load(Place::Shadow, at), Some(at as u8 + 1));
        }
        assert_eq!(space.pages().shift(Place::Region, run(0, 3)), Done::all(3));
        for at in 0..3 {
            assert_eq!(space.held(at), (true, false));
            assert_eq!(space.load(Place::Region, at), Some(at as u8 + 1));
            assert!(space.store(at, 9), "what comes back is not protected");
        }
    });
}

#[test]
fn a_move_stops_at_a_page_that_is_not_at_its_source() {
    each_kind(Some(true), |space| {
        space.put(Place::Region, 0, 1);
        space.put(Place::Region, 2, 3);
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(0, 3)), Done::stopped(1, Stop::Again));
        assert_eq!(away(run(1, 2)), Done::stopped(0, Stop::Missing));
        assert_eq!(away(run(2, 1)), Done::all(1));
        assert_eq!([0, 1, 2].map(|at| space.held(at).1), [true, false, true]);
        // A page that has been moved already: the kernel looks at the destination first.
        assert_eq!(away(run(0, 1)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.load(Place::Shadow, 0), Some(1));
    });
}

#[test]
fn a_move_stops_at_a_page_that_is_at_its_destination() {
    each_kind(Some(true), |space| {
        for at in 0..3 {
            space.put(Place::Region, at, 1);
        }
        space.put(Place::Shadow, 1, 2);
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(0, 3)), Done::stopped(1, Stop::Again));
        assert_eq!(away(run(1, 2)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.load(Place::Region, 1), Some(1));
        assert_eq!(space.load(Place::Shadow, 1), Some(2));
        space.pages().zap(Place::Shadow, &[run(1, 1)]).unwrap();
        assert_eq!(away(run(1, 2)), Done::all(2));
    });
}

#[test]
fn pages_that_may_not_be_stored_to_are_not_moved() {
    each_kind(Some(true), |space| {
        for at in 0..4 {
            space.put(Place::Region, at, 1);
        }
        let read = Some(ProtFlags::READ.bits());
        space.pages().set_protection(run(1, 2), read).unwrap();
        let expected = Mapping {
            pages: 2,
            protection: ProtFlags::READ.bits(),
            writable: false,
        };
        assert_eq!(space.pages().mapping(PageId(1)), Some(expected));
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(1, 2)), Done::stopped(0, Stop::Invalid));
        assert_eq!(space.held(1), (true, false));
        space.pages().set_protection(run(1, 2), None).unwrap();
        assert!(space.pages().mapping(PageId(1)).unwrap().writable);
        assert_eq!(away(run(0, 4)), Done::all(4));
    });
}

#[test]
fn a_page_that_is_not_there_cannot_be_unshared() {
    each_kind(None, |space| {
        assert!(!space.pages().unshare(PageId(0)));
        assert_eq!(space.held(0), (false, false));
    });
}

#[test]
fn protection_stops_stores_and_nothing_else() {
    each_kind(None, |space| {
        for at in [0, 2] {
            space.put(Place::Region, at, 6);
        }
        // Twice: a page that is in the wanted state stays so.
        for _ in 0..2 {
            space.pages().protect(run(0, 3), true).unwrap();
            assert_eq!(space.load(Place::Region, 0), Some(6));
            assert!(!space.store(0, 1) && !space.store(2, 1));
            assert_eq!(
                space.held(1),
                (false, false),
                "what is not there is passed over"
            );
        }
        for _ in 0..2 {
            space.pages().protect(run(0, 2), false).unwrap();
            assert!(space.store(0, 7) && !space.store(2, 7));
        }
        space.put(Place::Region, 1, 1);
        assert!(
            space.store(1, 2),
            "it was not there when its neighbours were protected"
        );
    });
}

#[test]
fn protection_that_fails_has_reached_the_pages_before() {
    each_kind(None, |space| {
        space.put(Place::Region, MAPPED - 1, 6);
        let protected = space.pages().protect(run(MAPPED - 1, 2), true);
        assert_eq!(protected, Err(Stop::Missing));
        assert!(!space.store(MAPPED - 1, 7));
    });
}

#[test]
fn a_poisoned_page_fails_until_it_is_overwritten_or_zapped() {
    each_kind(None, |space| {
        let absent = |at| space.load(Place::Region, at).is_none() && !space.store(at, 1);
        for at in 0..2 {
            space.pages().poison(PageId(at)).unwrap();
            assert!(absent(at));
        }
        assert_eq!(space.pages().poison(PageId(0)), Err(Stop::Exists));
        let from = Source::Bytes(&page(3));
        assert_eq!(
            space.0.copy(Place::Region, run(0, 1), from, false),
            Done::all(1)
        );
        assert_eq!(space.load(Place::Region, 0), Some(3));
        space.pages().zap(Place::Region, &[run(1, 1)]).unwrap();
        assert_eq!(space.held(1), (false, false));
        assert_eq!(
            space.0.copy(Place::Region, run(1, 1), Source::Zeros, false),
            Done::all(1)
        );
    });
}

#[test]
fn a_page_that_is_there_cannot_be_poisoned() {
    each_kind(None, |space| {
        space.put(Place::Region, 0, 2);
        assert_eq!(space.pages().poison(PageId(0)), Err(Stop::Exists));
        assert_eq!(space.load(Place::Region, 0), Some(2));
    });
}

#[test]
fn zapped_pages_are_gone() {
    each_kind(None, |space| {
        let places = [Place::Region, Place::Shadow];
        for &place in &places[..1 + usize::from(space.0.has_shadow())] {
            for at in 0..MAPPED {
                space.put(place, at, 1);
            }
            // More runs than one call of the kernel takes; the second time there are no pages in them.
            let odd: Vec<Run> = (0..MAPPED / 2).map(|i| run(2 * i + 1, 1)).collect();
            for _ in 0..2 {
                space.pages().zap(place, &odd).unwrap();
                for at in 0..MAPPED {
                    assert_eq!(space.pages().holds(place, PageId(at)), at % 2 == 0);
                }
            }
            space.pages().zap(place, &[run(0, MAPPED)]).unwrap();
            assert!(!(0..MAPPED).any(|at| space.pages().holds(place, PageId(at))));
        }
        assert_eq!(
            space.load(Place::Region, 0),
            None,
            "a touch is a fault again"
        );
    });
}

#[test]
fn a_page_is_copied_out_of_where_it_waits() {
    each_kind(None, |space| {
        let place = if space.0.has_shadow() {
            Place::Shadow
        } else {
            Place::Region
        };
        let mut contents = page(0);
        (contents[0], contents[PAGE_SIZE - 1]) = (1, 2);
        let done = space
            .0
            .copy(place, run(5, 1), Source::Bytes(&contents), false);
        assert_eq!(done, Done::all(1));
        // The pager can read a page that the program may not.
        space.pages().set_protection(run(5, 1), Some(0)).unwrap();
        let mut copy = PageBuffer::new();
        // SAFETY: no other thread uses the space, so the page stays where it is, unchanged.
        unsafe { space.0.copy_out(PageId(5), &mut copy) }.unwrap();
        assert!(copy.0 == contents);
    });
}

#[test]
fn zeros_in_the_shadow_are_told_from_a_last_byte() {
    each_kind(Some(true), |space| {
        for byte in [None, Some(0), Some(2000), Some(PAGE_SIZE - 1)] {
            let mut contents = page(0);
            if let Some(byte) = byte {
                contents[byte] = 1;
            }
            let from = Source::Bytes(&contents);
            assert_eq!(
                space.0.copy(Place::Shadow, run(0, 1), from, false),
                Done::all(1)
            );
            // SAFETY: no other thread uses the space, so the page stays in the shadow, unchanged.
            let is_zero = unsafe { space.0.is_zero(PageId(0)) };
            assert_eq!(is_zero, byte.is_none(), "{byte:?}");
            space.pages().zap(Place::Shadow, &[run(0, 1)]).unwrap();
        }
    });
}

#[test]
fn a_page_changes_its_address() {
    each_kind(None, |space| {
        space.put(Place::Region, 0, 8);
        let moved = space.pages().relocate(Place::Region, PageId(0), PageId(9));
        if space.0.has_shadow() {
            assert_eq!(moved, Done::all(1));
            assert_eq!(space.held(0), (false, false));
        } else {
            assert_eq!(moved, Done::stopped(0, Stop::Invalid));
            let from = Source::Page(Place::Region, PageId(0));
            assert_eq!(
                space.0.copy(Place::Region, run(9, 1), from, true),
                Done::all(1)
            );
            assert_eq!(space.held(0), (true, false));
            assert!(!space.store(9, 1));
        }
        assert_eq!(space.load(Place::Region, 9), Some(8));
        space.put(Place::Region, 10, 1);
        let onto = space.pages().relocate(Place::Region, PageId(10), PageId(9));
        assert!(matches!(onto.stop, Some(Stop::Exists | Stop::Invalid)));
        assert_eq!(space.load(Place::Region, 9), Some(8));
    });
}

#[test]
fn a_fault_is_resolved_with_what_there_is() {
    each_kind(None, |space| {
        let contents = page(2);
        let resolve = |at, from| {
            space.0.resolve_through(space.0.region(), PageId(at), from);
        };
        resolve(0, Some(Source::Bytes(&contents)));
        resolve(1, None);
        resolve(0, Some(Source::Zeros));
        resolve(0, None);
        assert_eq!(space.load(Place::Region, 0), Some(2), "what is there stays");
        assert_eq!(space.load(Place::Region, 1), None);
        space.pages().protect(run(0, 1), true).unwrap();
        space.0.unprotect_through(space.0.region(), PageId(0));
        assert!(space.store(0, 3));
    });
}

#[test]
fn who_waits_for_a_page_goes_on_when_it_is_mapped() {
    each_kind_by(Delivery::Handler, None, |space| {
        let address = space.at(Place::Region, 4);
        // SAFETY: the page lies in the mapped region, and no Rust code refers to it. Only one thread at a time
        // accesses it.
        let load = move || unsafe { (address as *const u8).read_volatile() };
        let fault = Message::Fault {
            address,
            write: false,
            protected: false,
        };
        let thread = std::thread::spawn(load);
        assert_eq!(space.reported(), fault);
        space.pages().wake(run(4, 1));
        assert_eq!(space.reported(), fault, "woken, and nothing is there");
        let from = Source::Bytes(&page(9));
        assert_eq!(
            space.0.copy(Place::Region, run(4, 1), from, true),
            Done::all(1)
        );
        assert_eq!(thread.join().unwrap(), 9);
        // SAFETY: the test's own page, to which nobody else stores.
        let store = move || unsafe { (address as *mut u8).write_volatile(10) };
        let thread = std::thread::spawn(store);
        let stopped = Message::Fault {
            address,
            write: true,
            protected: true,
        };
        assert_eq!(space.reported(), stopped);
        space.pages().protect(run(4, 1), false).unwrap();
        thread.join().unwrap();
        assert_eq!(space.load(Place::Region, 4), Some(10));
    });
}

#[test]
fn operations_are_put_off_until_a_change_of_the_program_is_read() {
    each_kind_by(Delivery::Handler, None, |space| {
        space.put(Place::Region, 0, 1);
        space.put(Place::Region, 1, 2);
        let address = space.at(Place::Region, 0);
        let zap = move || {
            // SAFETY: the page lies in the region, to which no Rust code refers.
            unsafe { map::drop_pages(address, PAGE_SIZE) }
        };
        let thread = std::thread::spawn(zap);
        space.await_report();
        let postponed = Done::stopped(0, Stop::Again);
        let copy = || space.0.copy(Place::Region, run(5, 2), Source::Zeros, false);
        for _ in 0..3 {
            assert_eq!(copy(), postponed);
            assert_eq!(space.pages().protect(run(1, 1), true), Err(Stop::Again));
            assert_eq!(space.pages().poison(PageId(7)), Err(Stop::Again));
        }
        assert!(space.store(1, 3) && space.held(1) == (true, false));
        if space.0.has_shadow() {
            // The shadow's descriptor knows of no change.
            assert_eq!(space.pages().shift(Place::Shadow, run(1, 1)), Done::all(1));
            assert_eq!(space.pages().shift(Place::Region, run(1, 1)), postponed);
            assert_eq!(space.held(1), (false, true));
        }
        let change = Message::Remove {
            start: address,
            end: address + PAGE_SIZE,
        };
        assert_eq!(space.reported(), change);
        thread.join().unwrap().unwrap();
        assert_eq!(copy(), Done::all(2));
        assert_eq!(space.held(0), (false, false));
    });
}

#[test]
fn a_page_given_up_by_the_program_is_gone() {
    each_kind(None, |space| {
        for at in 0..3 {
            space.put(Place::Region, at, 1);
        }
        space.0.range().zap(run(0, 1)).unwrap();
        // The kernel resolves faults of memory that is mapped anew, until it is registered.
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        space.0.range().map_anew(run(1, 1), prot).unwrap();
        assert_eq!(space.load(Place::Region, 0), None);
        assert_eq!(space.load(Place::Region, 1), Some(0));
        assert_eq!(space.load(Place::Region, 2), Some(1));
        let copied = space.0.copy(Place::Region, run(1, 1), Source::Zeros, false);
        assert_eq!(copied, Done::stopped(0, Stop::Missing));
    });
}

#[test]
fn without_a_shadow_nothing_is_moved_there() {
    each_kind(Some(false), |space| {
        let shift = || space.pages().shift(Place::Shadow, run(0, 1));
        assert!(catch_unwind(AssertUnwindSafe(shift)).is_err(), "it panics");
    });
}
