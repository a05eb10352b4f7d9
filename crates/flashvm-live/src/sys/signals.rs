//! Keeps signal handlers out of the pager.
//!
//! A handler of the program may touch managed memory. On a thread that holds a lock of the pager,
//! its fault could not be resolved: that needs the lock. So the program's threads block every
//! signal while they are in the pager, except those by which the kernel reports faults and system
//! calls.

use super::raw::{self, SignalMask, set_signal_mask};

/// Signals that the kernel raises for an instruction of the thread. If the thread blocks one, the
/// kernel ends the process instead.
pub(crate) const SYNCHRONOUS: SignalMask =
    bit(libc::SIGBUS) | bit(libc::SIGSEGV) | bit(libc::SIGSYS);

/// The bit of a signal in a mask.
pub(crate) const fn bit(signal: i32) -> SignalMask {
    1 << (signal - 1)
}

/// Ends the process with SIGABRT. The program's handler does not run: without the pager its memory
/// is absent.
pub fn abort() -> ! {
    // Not through the C library: in inline mode its calls are caught, and its locks may be managed
    // memory. The kernel's `struct sigaction` of the default action is all zeros.
    let default = [0_usize; 4];
    // SAFETY: the structure is as long as the kernel reads. From here on no code of the program
    // runs.
    unsafe {
        let action = [
            libc::SIGABRT as usize,
            default.as_ptr() as usize,
            0,
            8,
            0,
            0,
        ];
        raw::syscall(libc::SYS_rt_sigaction, action);
        set_signal_mask(!bit(libc::SIGABRT));
        let process = raw::syscall(libc::SYS_getpid, [0; 6]) as usize;
        let thread = raw::syscall(libc::SYS_gettid, [0; 6]) as usize;
        raw::syscall(
            libc::SYS_tgkill,
            [process, thread, libc::SIGABRT as usize, 0, 0, 0],
        );
    }
    std::process::abort()
}

/// Blocks all signals but the synchronous ones in the calling thread, until dropped.
#[derive(Debug)]
pub struct Uninterrupted {
    before: SignalMask,
}

impl Uninterrupted {
    /// Blocks signals.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            before: set_signal_mask(!SYNCHRONOUS),
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        set_signal_mask(self.before);
    }
}
