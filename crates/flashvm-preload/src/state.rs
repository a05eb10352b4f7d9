//! What every wrapper asks first: does the pager run, is a request the program's or the pager's own, does the
//! guard catch system calls.

use flashvm::guard::{OWN_CALL, Own};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// The pager runs, and the program's memory is managed.
pub(crate) static READY: AtomicBool = AtomicBool::new(false);
/// The pager is starting, or a forked child's is: what is allocated now is the pager's own.
pub(crate) static STARTING: AtomicBool = AtomicBool::new(false);
/// System calls of the program's are caught.
pub(crate) static GUARDED: AtomicBool = AtomicBool::new(false);

/// Whether memory that is asked for now belongs to the pager and not to the program.
#[inline]
pub(crate) fn for_pager() -> bool {
    !READY.load(Ordering::Relaxed)
        || STARTING.load(Ordering::Relaxed)
        || flashvm::on_pager_stack()
        || flashvm::on_guard_stack()
}

/// Whether system calls of the program's are caught (inline mode).
#[inline]
pub(crate) fn guarded() -> bool {
    GUARDED.load(Ordering::Relaxed)
}

/// Has the guard do something for the pager on a stack that is not managed memory.
///
/// # Safety
/// What is asked for may be done: nobody uses the range that [`Own::Decommit`] and [`Own::Free`] take the contents of,
/// and the address of [`Own::TakePages`] and [`Own::GivePages`] is that of a [`flashvm::PageList`] of the caller's,
/// with pages that nobody uses if they are given back.
pub(crate) unsafe fn guard_call(what: Own, address: usize, len: usize) -> Result<(), Errno> {
    let what = what as usize;
    // SAFETY: the guard answers this call, which no kernel knows, and the caller vouches for what it does. The
    // location is this thread's own.
    unsafe {
        match libc::syscall(OWN_CALL, what, address, len) {
            -1 => Err(Errno::from_raw_os_error(*libc::__errno_location())),
            _ => Ok(()),
        }
    }
}

/// The pager; there is one whenever [`for_pager`] is false.
pub(crate) fn pager() -> &'static flashvm::Pager {
    flashvm::pager().expect("ready means that there is a pager")
}
