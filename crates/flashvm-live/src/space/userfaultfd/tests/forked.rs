//! The kernel's treatment of pages that a forked child shares.

use super::*;
use crate::space::tests::program::exclude_forks;
use rustix::fs::OFlags;
use std::fs::File;
use std::sync::MutexGuard;

/// The `f_type` of tmpfs, where direct I/O copies data and pins no page.
const TMPFS: i64 = 0x0102_1994;

/// A forked child that only waits; it ends when this is dropped.
struct Child {
    _turn: MutexGuard<'static, ()>,
    process: i32,
    hold: Option<std::os::fd::OwnedFd>,
}

impl Child {
    fn fork() -> Self {
        let turn = exclude_forks();
        let (wait, hold) = rustix::pipe::pipe().unwrap();
        // SAFETY: the child only makes system calls, so it needs no lock that another thread held at the fork.
        match unsafe { libc::fork() } {
            0 => {
                drop(hold);
                let _ = rustix::io::read(&wait, &mut [0_u8; 1]);
                // SAFETY: `_exit` ends the child and runs no code of the process.
                unsafe { libc::_exit(0) }
            }
            process => {
                assert!(process > 0, "a child");
                Self {
                    _turn: turn,
                    process,
                    hold: Some(hold),
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.hold = None;
        // SAFETY: the status pointer may be null. The child is this process' own, and only this value waits for it.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

#[test]
fn a_page_shared_with_a_child_is_busy_until_it_is_unshared() {
    each_kind(MOVING, |space| {
        for at in 0..2 {
            space.put(Place::Region, at, 4);
        }
        let child = Child::fork();
        let away = |run| space.pages().shift(Place::Shadow, run);
        assert_eq!(away(run(0, 2)), Done::stopped(0, Stop::Busy));
        assert!(space.pages().unshare(PageId(0)));
        assert_eq!(away(run(0, 2)), Done::stopped(1, Stop::Again));
        assert_eq!(away(run(1, 1)), Done::stopped(0, Stop::Busy));
        assert_eq!(
            (space.held(0), space.held(1)),
            ((false, true), (true, false))
        );
        drop(child);
        assert!(space.pages().unshare(PageId(1)));
        assert_eq!(away(run(1, 1)), Done::all(1));
        assert_eq!(space.in_shadow(1), Some(4));
    });
}

/// A file for direct I/O. `None`: its file system has none that pins pages.
fn direct_file() -> Option<File> {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let on_disk = rustix::fs::fstatfs(&file).unwrap().f_type != TMPFS;
    let direct = on_disk && rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).is_ok();
    direct.then_some(file)
}

#[test]
fn a_page_that_is_written_to_flash_is_shared_no_more() {
    let Some(file) = direct_file() else {
        eprint_line("SKIPPED: no direct I/O on this file system");
        return;
    };
    each_kind(MOVING, |space| {
        for at in 0..2 {
            space.put(Place::Shadow, at, 4);
        }
        let child = Child::fork();
        // SAFETY: `put` has mapped this page of the shadow, and nobody stores to it while the slice is in use.
        let page = unsafe {
            std::slice::from_raw_parts(space.at(Place::Shadow, 0) as *const u8, PAGE_SIZE)
        };
        assert_eq!(rustix::io::pwrite(&file, page, 0), Ok(PAGE_SIZE));
        // The kernel does not move a shared page.
        let back = |at| space.pages().shift(Place::Region, run(at, 1));
        assert_eq!(back(0), Done::all(1), "it has a frame of its own");
        assert_eq!(back(1), Done::stopped(0, Stop::Busy));
        drop(child);
    });
}
