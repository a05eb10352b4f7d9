//! No guard: aarch64 has no Syscall User Dispatch (Linux 7.3), and therefore neither inline nor protect mode.

use rustix::io::Errno;

mod own_call;

pub use own_call::{OWN_CALL, Own};

/// Whether this command has a guard: Linux has Syscall User Dispatch on its processor.
pub const EXISTS: bool = false;

/// Resolves the calling thread's faults.
///
/// # Errors
/// `ENOSYS`, always.
pub fn resolve_faults() -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Catches the calling thread's system calls.
///
/// # Errors
/// `ENOSYS`, always.
pub fn catch_calls() -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Whether this kernel can dispatch a process's system calls to it.
#[must_use]
pub fn can_guard() -> bool {
    false
}

/// Whether the calling code runs on a guard stack.
#[must_use]
#[inline]
pub fn on_guard_stack() -> bool {
    false
}

/// Reserves nothing.
///
/// # Errors
/// Never.
pub fn reserve_stacks() -> Result<(), Errno> {
    Ok(())
}

/// Runs `work` in place: a program must not call the pager on a stack in managed memory.
pub fn aside<R, F: FnOnce() -> R>(work: F) -> R {
    work()
}

/// The result of [`send`].
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Bytes, or a negative error number.
    pub result: isize,
}

impl Sent {
    /// Whether a signal may have ended the call: nobody saw it.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        true
    }
}

/// Makes a call that sends: a descriptor and three arguments.
///
/// # Safety
/// The arguments are valid as this system call demands.
pub unsafe fn send(number: i64, [fd, a, b, c]: [usize; 4]) -> Sent {
    // SAFETY: the caller guarantees arguments that are valid for this call.
    let result = unsafe { crate::sys::raw::syscall(number, [fd, a, b, c, 0, 0]) };
    Sent { result }
}
