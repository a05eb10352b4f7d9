//! Numbers for the descriptors that the pager opens while the program uses all that it may have (`EMFILE`): the pager
//! opens some late, as a queue to the store at the first page-out, and a child's at a fork.

use super::descriptors::{self, PagerFd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Twice what is opened together: both ends of a socket and the copy of one.
const SPARE: usize = 6;
/// Numbers that the limit is raised by, where the process may.
const RAISED_BY: u64 = 64;

/// Descriptors that are open for their numbers alone, or -1.
static HELD: [AtomicI32; SPARE] = [const { AtomicI32::new(-1) }; SPARE];

/// Opens spare descriptors, as many as there are numbers for.
pub(crate) fn stock() {
    for held in &HELD {
        if held.load(Ordering::Relaxed) >= 0 {
            continue;
        }
        let Ok(spare) = eventfd(0, EventfdFlags::CLOEXEC).and_then(descriptors::keep_in_free)
        else {
            return;
        };
        let spare = spare.into_raw_fd();
        let stocked = held.compare_exchange(-1, spare, Ordering::Relaxed, Ordering::Relaxed);
        if stocked.is_err() {
            release(spare);
        }
    }
}

/// In a forked child, which has closed the pager's descriptors: it has no spare ones either.
pub(crate) fn forget() {
    for held in &HELD {
        held.store(-1, Ordering::Relaxed);
    }
}

/// Runs `open`, which opens descriptors. If there are too few numbers, runs it again with those of the spare
/// descriptors; and if these are beyond a limit that the program has lowered since, with a limit that is raised meanwhile.
///
/// # Errors
/// Those of `open`; `EMFILE` if all of that was not enough.
pub(crate) fn with_room<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match open() {
        Err(Errno::MFILE) => {}
        result => return result,
    }
    for held in &HELD {
        let spare = held.swap(-1, Ordering::Relaxed);
        if spare >= 0 {
            release(spare);
        }
    }
    let opened = match open() {
        Err(Errno::MFILE) => with_higher_limit(open),
        result => result,
    };
    stock();
    opened
}

fn release(spare: RawFd) {
    // SAFETY: `keep` has marked it as the pager's, and whoever took it out of `HELD`, or did not get it in, owns it.
    drop(PagerFd::of_kept(unsafe { OwnedFd::from_raw_fd(spare) }));
}

/// Runs `open` with the highest limit that this process may set.
fn with_higher_limit<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(0);
    let both = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    let to_hard = maximum.filter(|&hard| hard > current).map(both);
    // A privileged process may raise the hard limit, too.
    let beyond = maximum.map(|hard| both(hard.max(current) + RAISED_BY));
    for raised in to_hard.into_iter().chain(beyond) {
        let Ok(before) = prlimit(None, Resource::Nofile, raised) else {
            continue;
        };
        let opened = open();
        let replaced = prlimit(None, Resource::Nofile, before);
        if let Ok(replaced) = replaced
            && replaced != raised
        {
            // Another thread of the program has set a limit meanwhile: that one stays.
            let _ = prlimit(None, Resource::Nofile, replaced);
        }
        if !matches!(opened, Err(Errno::MFILE)) {
            return opened;
        }
    }
    Err(Errno::MFILE)
}
