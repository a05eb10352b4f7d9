//! A fork: the child has the contents of that moment, whatever the parent does later.

use super::*;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The page that a system call works on during the fork.
const PINNED: u32 = 3;
const IN_REGION: [u32; 5] = [0, 1, PINNED, CHUNK_PAGES - 1, CHUNK_PAGES];
const IN_SHADOW: [u32; 2] = [7, PAGES - 1];
/// These of the region have never left it.
const FRESH: [u32; 3] = [1, PINNED, CHUNK_PAGES - 1];
/// The program has no right to store to it.
const CONSTANT: u32 = CHUNK_PAGES;
/// Neither the parent nor the child has touched it.
const ABSENT: u32 = 9;

/// Any byte, other than 0, for each page.
fn byte(page: u32) -> u8 {
    page as u8 % 100 + 1
}

fn fill(space: &Aliased) {
    space.map_anew(space.range.all(), Some(LOAD_STORE)).unwrap();
    for at in IN_REGION {
        if FRESH.contains(&at) {
            let zeros = space.copy(Place::Region, run(at, 1), Source::Zeros, false);
            assert!(zeros == Done::all(1) && space.store(at, byte(at)));
        } else {
            space.put(Place::Region, at, byte(at));
        }
    }
    for at in IN_SHADOW {
        space.put(Place::Shadow, at, byte(at));
    }
    let constant = run(CONSTANT, 1);
    space.set_rights(constant, MprotectFlags::READ).unwrap();
}

/// What the child has, before and after changes of its own.
fn check_child(space: &Aliased) {
    let mut pages = space;
    for at in IN_REGION {
        assert_eq!(space.load(at), Some(byte(at)), "page {at}");
        assert_eq!(space.store(at, byte(at) + 100), at != CONSTANT);
        assert!(pages.holds(Place::Region, PageId(at)));
    }
    for at in IN_SHADOW {
        assert!(space.load(at).is_none() && pages.holds(Place::Shadow, PageId(at)));
        assert!(space.contents(at) == page(byte(at)), "page {at}");
        assert_eq!(pages.shift(Place::Region, run(at, 1)), Done::all(1));
        assert_eq!(space.load(at), Some(byte(at)));
    }
    assert_eq!(space.load(ABSENT), None);
    space.put(Place::Region, ABSENT, 5);
    assert_eq!(space.load(ABSENT), Some(5));
    AddressSpace::zap(&mut pages, Place::Region, &[run(0, PAGES)]).unwrap();
    for at in IN_REGION.into_iter().chain(IN_SHADOW) {
        assert_eq!(space.load(at), None);
        assert!(space.contents(at) == page(0));
    }
}

/// The whole life of the child. Returns its exit code.
fn child(space: Aliased, memory: ForkedMemory, parent_is_ready: &OwnedFd) -> i32 {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        assert_eq!(rustix::io::read(parent_is_ready, &mut [0; 1]), Ok(1));
        // Another thread of the parent read them at the fork.
        std::mem::forget(space.rights.lock());
        std::mem::forget(space.shown.as_ref().map(Mutex::lock));
        let space = space.for_child(memory).unwrap();
        let shown = space.shown.as_ref();
        assert!(
            space.rights.try_lock().is_some()
                && shown.is_none_or(|shown| shown.try_lock().is_some())
        );
        check_child(&space);
    }));
    let Err(why) = checked else {
        return 0;
    };
    // The harness of the tests is the parent's.
    let why = why
        .downcast_ref::<String>()
        .map_or("failed", String::as_str);
    eprint_line(&format!("the forked child: {why}"));
    1
}

/// After the fork, while the child has not begun.
fn change_parent(space: &Aliased) {
    let mut pages = space;
    for at in IN_REGION {
        assert_eq!(space.load(at), Some(byte(at)), "shown again");
        assert_eq!(space.store(at, byte(at) + 50), at != CONSTANT);
    }
    AddressSpace::zap(&mut pages, Place::Region, &[run(1, 1)]).unwrap();
    for at in IN_SHADOW {
        AddressSpace::zap(&mut pages, Place::Shadow, &[run(at, 1)]).unwrap();
        space.put(Place::Region, at, 8);
    }
}

fn check_parent(space: &Aliased) {
    for at in IN_REGION {
        let expected = match at {
            1 => None,
            CONSTANT => Some(byte(at)),
            _ => Some(byte(at) + 50),
        };
        assert_eq!(space.load(at), expected, "page {at}");
    }
    for at in IN_SHADOW {
        assert!(space.load(at) == Some(8) && space.contents(at) == page(8));
    }
    assert_eq!(space.load(ABSENT), None);
}

fn fork(space: Aliased) {
    fill(&space);
    space.pin(run(PINNED, 1), true);
    let _turn = exclude_forks();
    let memory = space.prepare_fork(&[PageId(PINNED)]).unwrap();
    for at in IN_REGION {
        let stays = at == PINNED || space.is_private(PageId(at));
        assert_eq!(store(space.at(at), byte(at)), stays, "page {at}");
    }
    let (wait, ready) = rustix::pipe::pipe().unwrap();
    // SAFETY: the C library's `fork` leaves its own locks, those of its allocator among them, usable in the child, and the
    // child takes no other lock of this process.
    let process = unsafe { libc::fork() };
    if process == 0 {
        drop(ready);
        let code = child(space, memory, &wait);
        // SAFETY: `_exit` ends the child and runs no code of the process.
        unsafe { libc::_exit(code) }
    }
    assert!(process > 0, "a child");
    drop(memory);
    space.resume().unwrap();
    change_parent(&space);
    assert_eq!(rustix::io::write(&ready, &[1]), Ok(1));
    let mut status = 0;
    // SAFETY: `status` is writable. The child is this function's own, and only it waits for it.
    let ended = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!((ended, status), (process, 0), "the child's checks");
    check_parent(&space);
}

#[test]
fn a_child_has_the_contents_of_the_fork() {
    for way in WAYS {
        if let Some(space) = way.open("a_child_has_the_contents_of_the_fork") {
            fork(space);
        }
    }
}

#[test]
fn a_limit_on_file_sizes_is_named_and_ends_nothing() {
    let _turn = exclude_forks();
    // SAFETY: as in `fork`.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let limit = rustix::process::Rlimit {
            current: Some(PAGE_SIZE as u64),
            maximum: Some(PAGE_SIZE as u64),
        };
        let limited = rustix::process::setrlimit(rustix::process::Resource::Fsize, limit);
        let why = Aliased::open(PAGES, Some(1000))
            .err()
            .map(|error| error.to_string());
        let named = why.is_some_and(|why| why.contains("(ulimit -f) is 4096 bytes"));
        let code = i32::from(limited.is_err() || !named);
        // SAFETY: as in `fork`.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` is writable. The child is this function's own, and only it waits for it.
    let ended = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!((ended, status), (process, 0), "no signal, and a reason");
}
