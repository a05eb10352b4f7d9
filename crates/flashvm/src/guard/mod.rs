//! The system-call guard of inline mode (x86-64).
//!
//! The kernel does not call a signal handler for a page that it touches itself: the system call
//! fails with `EFAULT`, or stops short. So every system call of the program's is caught (Syscall
//! User Dispatch, with this object's text as the one range from which calls are let through), and
//! made here, with the memory that it names in RAM and kept there. What a program does to its mappings, threads, signals and processes is seen here too,
//! however it does it.
//!
//! - `entry`: the instructions that have to be exact;
//! - `frame`: the kernel's signal frame; `guard_stack`: a stack and a record for each thread;
//! - `signals`: the program's handlers, masks and alternate stacks;
//! - `calls`: what is done about each call; `table` and `walk`: what it touches; `transfer`: what
//!   stopped short;
//! - `clone`: threads and processes; `exec`: programs; `memory`: the program's, carefully;
//! - `refusals`: what cannot be had in this mode;
//! - `own_call`: what the preloaded object asks of the guard;
//! - `aside`: the pager's work for threads of the program's, in handler mode.
//!
//! Safety argument: handlers run on blocks that only this module knows, and refer to the program's
//! memory by copies that may fail, never by reference. What interrupts them can be one of these
//! handlers only: it notes a signal, or resolves a fault.
//!
//! aarch64 has no Syscall User Dispatch (Linux 6.18): there is no inline mode there (`absent.rs`).

mod aside;
mod calls;
mod clone;
mod entry;
mod exec;
mod frame;
mod guard_stack;
mod memory;
mod own_call;
mod refusals;
mod signals;
pub mod table;
mod transfer;
pub mod walk;

pub use aside::aside;
pub use guard_stack::on_guard_stack;
pub use own_call::{OWN_CALL, Own};

use crate::pager::pager;
use crate::sys::own::Mapping;
use crate::sys::raw;
use guard_stack::Record;
use rustix::io::Errno;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_ON: usize = 1;

/// First address and length of the text from which calls are let through.
static TEXT: std::sync::OnceLock<(usize, usize)> = std::sync::OnceLock::new();

/// Reserves the blocks; first of all, in both modes.
///
/// # Errors
/// `ENOMEM` where there is no address space.
pub fn reserve_blocks() -> Result<(), Errno> {
    guard_stack::reserve()
}

/// From here on the calling thread's faults are resolved.
///
/// # Errors
/// What the kernel says to handlers and stacks.
pub fn resolve_faults() -> Result<(), Errno> {
    let record = guard_stack::take().ok_or(Errno::NOMEM)?;
    clone::first(record);
    signals::install()?;
    set_stack(record)
}

/// From here on the calling thread's system calls are caught, and those of all threads and
/// processes that it makes. Its faults are resolved already.
///
/// # Errors
/// `EINVAL` where the kernel has no Syscall User Dispatch (before Linux 5.11).
pub fn catch_calls() -> Result<(), Errno> {
    let here = catch_calls as *const () as usize;
    let text = pager().and_then(|pager| pager.mapping_at(here));
    let Mapping { start, end, .. } = text.ok_or(Errno::NOENT)?;
    let _ = TEXT.set((start, end - start));
    dispatch()
}

/// Gives the calling thread its block, and has its system calls caught.
fn arm_thread(record: *mut Record) -> Result<(), Errno> {
    set_stack(record)?;
    dispatch()
}

fn set_stack(record: *mut Record) -> Result<(), Errno> {
    let stack = guard_stack::stack_of(record);
    // SAFETY: the block is this thread's as long as it lives.
    let result = unsafe {
        raw::syscall(
            libc::SYS_sigaltstack,
            [&raw const stack as usize, 0, 0, 0, 0, 0],
        )
    };
    match raw::result(result) {
        // A forked child is on this very stack already.
        Err(Errno::PERM) => Ok(()),
        result => result.map(|_| ()),
    }
}

fn dispatch() -> Result<(), Errno> {
    let &(start, len) = TEXT.get().ok_or(Errno::NOENT)?;
    let on = PR_SYS_DISPATCH_ON;
    // SAFETY: the range is our text; there is no selector that the kernel would read.
    let result = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [PR_SET_SYSCALL_USER_DISPATCH, on, start, len, 0, 0],
        )
    };
    raw::result(result).map(|_| ())
}

/// Runs `work`, in which a thread of the pager's makes others through the C library. They begin as those
/// that the guard makes: with the signals open by which faults come, which the C library would close
/// until it has looked at the program's locale.
pub(crate) fn making_threads<T>(work: impl FnOnce() -> T) -> T {
    let caught = dispatch().is_ok();
    let result = work();
    if caught {
        // SAFETY: no memory is passed.
        unsafe {
            raw::syscall(
                libc::SYS_prctl,
                [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0],
            )
        };
    }
    result
}

/// Whether this kernel catches system calls for a process.
#[must_use]
pub fn can_guard() -> bool {
    // Switching it off where it is off already: refused only where it is not there.
    // SAFETY: no memory is passed.
    let result = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0],
        )
    };
    raw::result(result).is_ok()
}
