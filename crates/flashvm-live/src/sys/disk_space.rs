//! Disk space for the flash store, allocated before memory is committed: a disk that fills up means
//! refused allocations, not failed writes.

use super::raw;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most sides of a store, and so most files or devices.
pub const STORES_MAX: usize = 8;

/// Where the space of a store is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Files and devices, which stay open, even in forked children: none for a store at a server.
    pub(crate) stores: [Option<RawFd>; STORES_MAX],
    /// The range of each of them that holds these bytes of the store, from an offset on.
    pub(crate) share: fn(offset: u64, len: u64, sides: usize) -> (u64, u64),
    /// Sides of the store, for `share`.
    pub(crate) sides: usize,
}

impl Space {
    /// Each file has all bytes of the store, at the same places.
    pub(crate) fn whole(stores: [Option<RawFd>; STORES_MAX]) -> Self {
        Self {
            stores,
            share: |offset, len, _| (offset, len),
            sides: 1,
        }
    }
}

/// Where space is allocated, and the run's counter for a full disk.
static STORE: OnceLock<(Space, &'static AtomicU32)> = OnceLock::new();

/// Sets where space is allocated, and the counter.
pub(crate) fn take_from(space: Space, full: &'static AtomicU32) {
    // A second pager in one process would have the same store.
    let _ = STORE.set((space, full));
}

/// Free bytes that the store leaves on its disk.
const LEFT_BYTES: u64 = 16 << 20;

/// Allocates space for a part of the store. Contents are unchanged.
///
/// # Errors
/// `ENOSPC` if the disk has less than `len + LEFT_BYTES`; the error of `fallocate`; `EBADF` without
/// a file or device.
pub(crate) fn take(offset: u64, len: u64) -> Result<(), Errno> {
    let (space, _) = *STORE.get().ok_or(Errno::BADF)?;
    if space.stores == [None; STORES_MAX] {
        return Err(Errno::BADF);
    }
    let (offset, len) = (space.share)(offset, len, space.sides);
    let mut stores = space.stores.into_iter().flatten();
    stores.try_for_each(|store| take_in(store, offset, len))
}

/// [`take`] in one of the files.
fn take_in(store: RawFd, offset: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: the store's descriptor stays open as long as the process.
    let free = rustix::fs::fstatfs(unsafe { BorrowedFd::borrow_raw(store) })
        .map(|statfs| statfs.f_bavail.saturating_mul(statfs.f_frsize as u64))?;
    // Checked first: a failed `fallocate` keeps what it has allocated, even the disk's last block.
    if free < len.saturating_add(LEFT_BYTES) {
        return Err(Errno::NOSPC);
    }
    loop {
        let args = [store as usize, 0, offset as usize, len as usize, 0, 0];
        // SAFETY: the call takes no pointer.
        match raw::result(unsafe { raw::syscall(libc::SYS_fallocate, args) }) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}

/// Counts for the summary that the disk was full.
pub(crate) fn note_full() {
    if let Some((_, full)) = STORE.get() {
        full.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a write to the store that failed for want of disk space or quota. `result`: the kernel's.
pub(crate) fn look_at(result: i64) {
    if [libc::ENOSPC, libc::EDQUOT].contains(&-(result as i32)) {
        note_full();
    }
}
