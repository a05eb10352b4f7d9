//! Keeping signal handlers out of the pager.
//!
//! A handler of the program's may touch managed memory. If it ran on a thread that holds a lock
//! of the pager's, its fault could not be resolved: the thread that resolves faults needs that
//! lock. So the program's threads have every signal blocked while they are inside.

use std::mem::MaybeUninit;

/// Ends the process with SIGABRT. A handler of the program's does not run: without the pager its
/// memory is not there.
pub fn abort() -> ! {
    // SAFETY: takes no memory; from here on nothing of the program's runs.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    std::process::abort()
}

/// All signals are blocked in this thread while this lives.
#[derive(Debug)]
pub struct Uninterrupted {
    before: libc::sigset_t,
}

impl Uninterrupted {
    /// Blocks all signals.
    #[must_use]
    pub fn begin() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first call initialises the full set, the second the old mask; the call
        // cannot fail with a valid `how`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self {
                before: before.assume_init(),
            }
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // SAFETY: the mask was read when this began, by the thread that now puts it back.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}
