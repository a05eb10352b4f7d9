//! What is true of userfaultfd alone: protection, poison, two copies of one page, messages. The common contract is tested
//! in `space/tests`.

use super::*;
use crate::space::tests::program::{
    Kind, MAPPED, Program, each_kind, each_kind_by_handler, page, run,
};
use crate::sys::message::eprint_line;
use rustix::event::{PollFd, PollFlags};
use std::panic::{AssertUnwindSafe, catch_unwind};

mod forked;

const MOVING: &[Kind] = &[Kind::Moving];
const BOTH: &[Kind] = &[Kind::Moving, Kind::Unmoving];

fn userfaultfd(space: &Program) -> &Userfaultfd {
    space.0.userfaultfd()
}

fn await_report(space: &Program) {
    let mut fds = [PollFd::new(userfaultfd(space).region(), PollFlags::IN)];
    while rustix::event::poll(&mut fds, None) != Ok(1) {}
}

/// Waits for the kernel's message, and returns it.
fn reported(space: &Program) -> Message {
    await_report(space);
    let mut messages = Vec::new();
    userfaultfd(space).read(&mut messages).unwrap();
    assert_eq!(messages.len(), 1);
    messages[0]
}

#[test]
fn a_page_that_is_mapped_protected_may_be_loaded() {
    each_kind(BOTH, |space| {
        let from = Source::Bytes(&page(7));
        assert_eq!(
            space.0.copy(Place::Region, run(0, 1), from, true),
            Done::all(1)
        );
        assert_eq!(space.load(0), Some(7));
        assert!(!space.store(0, 8));
        space.pages().protect(run(0, 1), false).unwrap();
        assert!(space.store(0, 8));
        assert_eq!(space.load(0), Some(8));
    });
}

#[test]
fn a_protected_page_that_is_there_stays_protected() {
    each_kind(BOTH, |space| {
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
fn a_move_keeps_both_copies_of_a_page() {
    each_kind(MOVING, |space| {
        for at in 0..3 {
            space.put(Place::Region, at, 1);
        }
        space.put(Place::Shadow, 1, 2);
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(0, 3)), Done::stopped(1, Stop::Again));
        assert_eq!(away(run(1, 2)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.load(1), Some(1));
        assert_eq!(space.in_shadow(1), Some(2));
        space.zap(Place::Shadow, &[run(1, 1)]).unwrap();
        assert_eq!(away(run(1, 2)), Done::all(2));
    });
}

#[test]
fn pages_that_may_not_be_stored_to_are_not_moved() {
    each_kind(MOVING, |space| {
        for at in 0..4 {
            space.put(Place::Region, at, 1);
        }
        let read = ProtFlags::READ.bits();
        space.pages().close_to_moves(run(1, 2), read).unwrap();
        let expected = Mapping {
            pages: 2,
            protection: read,
            writable: false,
        };
        assert_eq!(space.pages().mapping(PageId(1)), Some(expected));
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(1, 2)), Done::stopped(0, Stop::Invalid));
        assert_eq!(space.held(1), (true, false));
        space.pages().open_to_moves(run(1, 2), read).unwrap();
        assert!(space.pages().mapping(PageId(1)).unwrap().writable);
        assert_eq!(away(run(0, 4)), Done::all(4));
    });
}

/// The shadow takes on the rights of the region, keeps them, and takes on others.
#[test]
fn pages_that_may_be_executed_are_moved() {
    each_kind(MOVING, |space| {
        for at in 0..4 {
            space.put(Place::Region, at, 1);
        }
        let away = |run| space.pages().shift(Place::Shadow, run);
        let plain = (ProtFlags::READ | ProtFlags::WRITE).bits();
        let [code, all] = [ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE]
            .map(|rights| (rights | ProtFlags::EXEC).bits());
        space.pages().close_to_moves(run(0, 4), code).unwrap();
        assert_eq!(away(run(0, 2)), Done::stopped(0, Stop::Invalid));
        space.pages().open_to_moves(run(0, 1), code).unwrap();
        let opened = space.pages().mapping(PageId(0)).unwrap();
        assert_eq!(opened.protection, all, "no right is missing");
        assert_eq!(away(run(0, 1)), Done::all(1));
        space.pages().close_to_moves(run(0, 2), all).unwrap();
        assert_eq!(away(run(1, 1)), Done::all(1), "the shadow has these rights");
        space.pages().close_to_moves(run(2, 2), plain).unwrap();
        assert_eq!(away(run(2, 1)), Done::stopped(0, Stop::Invalid));
        space.pages().open_to_moves(run(2, 1), plain).unwrap();
        assert_eq!(away(run(2, 2)), Done::all(2), "all of the mapping is open");
    });
}

#[test]
fn protection_stops_stores_and_nothing_else() {
    each_kind(BOTH, |space| {
        for at in [0, 2] {
            space.put(Place::Region, at, 6);
        }
        // Twice: a page that is in the wanted state stays so.
        for _ in 0..2 {
            space.pages().protect(run(0, 3), true).unwrap();
            assert_eq!(space.load(0), Some(6));
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
    each_kind(BOTH, |space| {
        space.put(Place::Region, MAPPED - 1, 6);
        let protected = space.pages().protect(run(MAPPED - 1, 2), true);
        assert_eq!(protected, Err(Stop::Missing));
        assert!(!space.store(MAPPED - 1, 7));
    });
}

#[test]
fn a_page_is_poisoned_once() {
    each_kind(BOTH, |space| {
        space.pages().poison(PageId(0)).unwrap();
        assert_eq!(space.pages().poison(PageId(0)), Err(Stop::Exists));
        assert_eq!(space.load(0), None);
    });
}

#[test]
fn a_fault_is_resolved_with_what_there_is() {
    each_kind(BOTH, |space| {
        let contents = page(2);
        let resolve = |at, from| {
            userfaultfd(space).resolve_through(userfaultfd(space).region(), PageId(at), from);
        };
        resolve(0, Some(Source::Bytes(&contents)));
        resolve(1, None);
        resolve(0, Some(Source::Zeros));
        resolve(0, None);
        assert_eq!(space.load(0), Some(2), "what is there stays");
        assert_eq!(space.load(1), None);
        space.pages().protect(run(0, 1), true).unwrap();
        userfaultfd(space).unprotect_through(userfaultfd(space).region(), PageId(0));
        assert!(space.store(0, 3));
    });
}

#[test]
fn who_waits_for_a_page_goes_on_when_it_is_mapped() {
    each_kind_by_handler(|space| {
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
        assert_eq!(reported(space), fault);
        space.pages().wake(run(4, 1));
        assert_eq!(reported(space), fault, "woken, and nothing is there");
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
        assert_eq!(reported(space), stopped);
        space.pages().protect(run(4, 1), false).unwrap();
        thread.join().unwrap();
        assert_eq!(space.load(4), Some(10));
    });
}

#[test]
fn operations_are_put_off_until_a_change_of_the_program_is_read() {
    each_kind_by_handler(|space| {
        space.put(Place::Region, 0, 1);
        space.put(Place::Region, 1, 2);
        let address = space.at(Place::Region, 0);
        let zap = move || {
            // SAFETY: the page lies in the region, to which no Rust code refers.
            unsafe { map::drop_pages(address, PAGE_SIZE) }
        };
        let thread = std::thread::spawn(zap);
        await_report(space);
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
        assert_eq!(reported(space), change);
        thread.join().unwrap().unwrap();
        assert_eq!(copy(), Done::all(2));
        assert_eq!(space.held(0), (false, false));
    });
}

#[test]
fn memory_that_is_mapped_anew_is_the_kernels_until_it_is_registered() {
    each_kind(BOTH, |space| {
        for at in 1..3 {
            space.put(Place::Region, at, 1);
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        space.0.range().map_anew(run(1, 1), prot).unwrap();
        assert_eq!(space.load(1), Some(0));
        assert_eq!(space.load(2), Some(1));
        let copied = space.0.copy(Place::Region, run(1, 1), Source::Zeros, false);
        assert_eq!(copied, Done::stopped(0, Stop::Missing));
    });
}

#[test]
fn without_a_shadow_nothing_is_moved_there() {
    each_kind(&[Kind::Unmoving], |space| {
        let shift = || space.pages().shift(Place::Shadow, run(0, 1));
        assert!(catch_unwind(AssertUnwindSafe(shift)).is_err(), "it panics");
    });
}
#[test]
fn a_move_ends_protection() {
    each_kind(MOVING, |space| {
        space.put(Place::Region, 1, 1);
        space.pages().protect(run(1, 1), true).unwrap();
        for place in [Place::Shadow, Place::Region] {
            assert_eq!(space.pages().shift(place, run(1, 1)), Done::all(1));
        }
        assert_eq!(space.load(1), Some(1));
        assert!(space.store(1, 9));
    });
}

#[test]
fn a_copy_of_a_page_may_be_protected() {
    each_kind(BOTH, |space| {
        space.put(Place::Region, 0, 8);
        let from = Source::Page(Place::Region, PageId(0));
        let copied = space.0.copy(Place::Region, run(9, 1), from, true);
        assert_eq!(copied, Done::all(1));
        assert_eq!(space.load(9), Some(8));
        assert!(!space.store(9, 1) && space.store(0, 1));
    });
}
