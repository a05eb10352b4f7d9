//! Kernel interfaces, each behind a small function: userfaultfd, mappings, signals, descriptors.
//!
//! Safety argument of this folder: every call names its memory by address and length. The callers
//! own that memory: the managed range and its shadow ([`crate::space`]), the heap of small pages
//! ([`crate::chameleon`]), or the pager's own buffers ([`crate::pager`](mod@crate::pager)). No Rust
//! reference points into the managed range or its shadow, so the kernel may change what lies there.
//! System calls are made directly (rustix, [`raw`]), never through library symbols that
//! the preloaded object replaces.
#![allow(
    unsafe_code,
    reason = "this folder is where the kernel is called; see the argument above"
)]

pub(crate) mod crowd;
pub(crate) mod descriptors;
pub(crate) mod discard;
pub(crate) mod disk_space;
pub(crate) mod hide;
pub(crate) mod map;
pub(crate) mod mapping_budget;
pub(crate) mod message;
pub(crate) mod own;
pub(crate) mod process_state;
pub(crate) mod raw;
pub(crate) mod signals;
pub(crate) mod spare_descriptors;
pub(crate) mod thread;
#[cfg(target_arch = "x86_64")]
pub(crate) mod thread_storage;
pub(crate) mod uffd;
#[cfg(target_arch = "x86_64")]
pub(crate) mod unseen;

pub use descriptors::is_ours;
pub use disk_space::STORES_MAX;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::fd::AsFd;
use std::time::Duration;

/// Sleeps without the C library, whose calls may touch managed memory: the caller may hold a lock
/// of the pager.
pub(crate) fn sleep(time: Duration) {
    let _ = rustix::thread::nanosleep(&timespec(time));
}

/// Whether the process of this pidfd ends within `time`, or has ended. As careful as [`sleep`].
pub(crate) fn is_dead_within(process: impl AsFd, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&timespec(time))).is_ok() && !fds[0].revents().is_empty()
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// The engines' clock: monotonic time.
pub(crate) fn now() -> flashvm_core::Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    flashvm_core::Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
