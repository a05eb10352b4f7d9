//! Space on the disk for the flash store, taken ahead of the promises that it has to keep: so a
//! disk that fills up means refused allocations, not writes that fail.

use super::raw;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The file, whose descriptor stays open, also in forked children; and where the run counts how often
/// its disk was full.
static STORE: OnceLock<(RawFd, &'static AtomicU32)> = OnceLock::new();

/// Names the file in which space is taken, and the count.
pub(crate) fn take_from(store: RawFd, full: &'static AtomicU32) {
    // A second pager in one process would have the same store.
    let _ = STORE.set((store, full));
}

/// Free bytes that the store leaves on its disk.
const LEFT_BYTES: u64 = 16 << 20;

/// Takes space for a part of the store. Contents stay as they are.
///
/// # Errors
/// `ENOSPC` if the disk has less than that, and a little for others; what `fallocate` says; `EBADF`
/// without a store.
pub(crate) fn take(offset: u64, len: u64) -> Result<(), Errno> {
    let (store, _) = *STORE.get().ok_or(Errno::BADF)?;
    // SAFETY: the descriptor stays open.
    let free = rustix::fs::fstatfs(unsafe { BorrowedFd::borrow_raw(store) })
        .map(|statfs| statfs.f_bavail.saturating_mul(statfs.f_frsize as u64))?;
    // Asked first: a call that fails keeps what it has got, to the last block of the disk.
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

/// Looks at the result of a write to the store, as the kernel gave it.
pub(crate) fn look_at(result: i64) {
    if [libc::ENOSPC, libc::EDQUOT].contains(&-(result as i32)) {
        note_full();
    }
}
