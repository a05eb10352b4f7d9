//! The checks with which every wrapper begins: whether the pager runs, whether a request is the
//! program's or the pager's, whether the guard catches system calls.

use flashvm_live::guard::{OWN_CALL, Own};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// The pager runs, and the program's memory is managed.
pub(crate) static READY: AtomicBool = AtomicBool::new(false);
/// The pager is starting, or a forked child's is: memory allocated now is the pager's own.
pub(crate) static STARTING: AtomicBool = AtomicBool::new(false);
/// The program's system calls are caught.
pub(crate) static GUARDED: AtomicBool = AtomicBool::new(false);

/// Whether memory requested now belongs to the pager and not to the program.
#[inline]
pub(crate) fn for_pager() -> bool {
    !READY.load(Ordering::Relaxed)
        || STARTING.load(Ordering::Relaxed)
        || flashvm_live::on_pager_stack()
        || flashvm_live::on_guard_stack()
}

/// Whether the program's system calls are caught (inline mode).
#[inline]
pub(crate) fn guarded() -> bool {
    GUARDED.load(Ordering::Relaxed)
}

/// Asks the guard to carry out `what`, on a stack that is not managed memory. It answers with a number: for [`Own::Map`] an
/// address.
///
/// # Safety
/// Nobody uses the range whose contents [`Own::Decommit`] or [`Own::Free`] drops. For
/// [`Own::TakePages`] and [`Own::GivePages`], `address` is that of a [`flashvm_live::PageList`] of the
/// caller, in memory that is not managed; nobody uses the pages that are given.
pub(crate) unsafe fn guard_answer(what: Own, address: usize, len: usize) -> Result<usize, Errno> {
    let what = what as usize;
    // SAFETY: the guard answers this call, which no kernel knows; the caller guarantees what the
    // call needs. The location is that of this thread's `errno`.
    unsafe {
        match libc::syscall(OWN_CALL, what, address, len) {
            -1 => Err(Errno::from_raw_os_error(*libc::__errno_location())),
            answer => Ok(answer as usize),
        }
    }
}

/// As [`guard_answer`], where nobody needs the number.
///
/// # Safety
/// As for [`guard_answer`].
pub(crate) unsafe fn guard_call(what: Own, address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the same.
    unsafe { guard_answer(what, address, len) }.map(drop)
}

/// The pager; there is one whenever [`for_pager`] is false.
pub(crate) fn pager() -> &'static flashvm_live::Pager {
    flashvm_live::pager().expect("a ready process has a pager")
}
