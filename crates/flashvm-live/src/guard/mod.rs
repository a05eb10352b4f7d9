//! The system-call guard of inline mode (x86-64).
//!
//! The kernel does not call a signal handler for a page that it touches itself: the system call
//! fails with `EFAULT`, or stops short. So Syscall User Dispatch catches every system call of the
//! program, with this object's text as the one range that may call the kernel. The guard makes the
//! call with its memory resident and pinned. It also sees all that a program does to its mappings,
//! threads, signals and processes, however it does so.
//!
//! - `entry`: the instructions that have to be exact;
//! - `frame`: the kernel's signal frame; `guard_stack`: a stack and a record for each thread;
//! - `signals`: the program's handlers, masks and alternate stacks;
//! - `calls`: the handling of each call; `table` and `walk`: the memory it touches; `transfer`:
//!   transfers that stopped short; `process_vm`: transfers between processes;
//! - `clone`: threads and processes; `exec`: programs; `memory`: access to the program's memory
//!   that may fail;
//! - `refusals`: calls that this mode refuses; `kill`: signals to the own process;
//! - `own_call`: requests of the preloaded object to the guard;
//! - `thread_pointer`, `own_path`: what a carried program sees of the C library that carries it: nothing;
//! - `aside`: the pager's work for threads of the program, in handler mode.
//!
//! Safety argument: handlers run on guard stacks that only this module knows, and access the
//! program's memory by copies that may fail, never by reference. Only these handlers can interrupt a
//! handler, to note a signal or to resolve a fault.
//!
//! aarch64 has no Syscall User Dispatch (Linux 7.3), hence neither inline nor protect mode (`absent.rs`).

mod actions;
mod aside;
mod calls;
mod clone;
mod entry;
mod exec;
mod frame;
mod guard_stack;
mod kill;
mod memory;
mod own_call;
mod own_path;
mod process_vm;
mod refusals;
mod signals;
pub mod table;
mod thread_pointer;
mod transfer;
pub mod walk;

pub use aside::aside;
pub use entry::{Sent, send};
pub use guard_stack::on_guard_stack;
pub use own_call::{OWN_CALL, Own};

use crate::pager::pager;
use crate::sys::own::Mapping;
use crate::sys::raw;
use guard_stack::ThreadRecord;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whether this command has a guard: Linux has Syscall User Dispatch on its processor.
pub const EXISTS: bool = true;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_ON: usize = 1;

/// First address and length of the text that may call the kernel.
static TEXT: std::sync::OnceLock<(usize, usize)> = std::sync::OnceLock::new();

/// The record of the program's first thread.
static FIRST: AtomicPtr<ThreadRecord> = AtomicPtr::new(std::ptr::null_mut());

/// Reserves the guard stacks; called first, in both modes.
///
/// # Errors
/// `ENOMEM` where there is no address space.
pub fn reserve_stacks() -> Result<(), Errno> {
    guard_stack::reserve()
}

/// From here on the calling thread's faults are resolved.
///
/// # Errors
/// The kernel's error for handlers and stacks.
pub fn resolve_faults() -> Result<(), Errno> {
    let record = guard_stack::take().ok_or(Errno::NOMEM)?;
    // SAFETY: `take` has just handed out this guard stack: nobody runs on it, and it has no record.
    unsafe { clone::first(record) };
    FIRST.store(record, Ordering::Relaxed);
    signals::install()?;
    // SAFETY: the guard stack is this thread's, which keeps it until it ends.
    unsafe { set_stack(record) }
}

/// From here on the calling thread's system calls are caught, and those of all threads and
/// processes that it creates. Its faults are already being resolved.
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

/// From here on the calling thread, which is the only one of the program, is that of a carried program: one with a C
/// library of its own. `program` is its path and `file` the file.
///
/// # Errors
/// `ENOTSUP` where a thread pointer cannot be set, or the C library does not tell the size of its thread-local storage;
/// `EMFILE` without a number for the file.
pub fn carry(program: CString, file: OwnedFd) -> Result<(), Errno> {
    let here = FIRST.load(Ordering::Relaxed);
    // SAFETY: the record of this thread, which is not in the guard now: nobody else uses it.
    let record = unsafe { here.as_mut() }.ok_or(Errno::NOENT)?;
    own_path::set(program, file)?;
    thread_pointer::begin(record)
}

/// Gives the calling thread its guard stack, and catches its system calls.
///
/// # Safety
/// `record` is that of a guard stack which the calling thread has taken, and which stays its own until it ends.
unsafe fn arm_thread(record: *mut ThreadRecord) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the same.
    unsafe { set_stack(record) }?;
    dispatch()
}

/// Makes a guard stack the calling thread's stack for signals.
///
/// # Safety
/// As for [`arm_thread`].
unsafe fn set_stack(record: *mut ThreadRecord) -> Result<(), Errno> {
    let stack = guard_stack::stack_of(record);
    // SAFETY: the kernel reads `stack`, which lives over the call. The guard stack that it names is
    // this thread's until the thread ends, as the caller guarantees.
    let result = unsafe {
        raw::syscall(
            libc::SYS_sigaltstack,
            [&raw const stack as usize, 0, 0, 0, 0, 0],
        )
    };
    match raw::result(result) {
        // A forked child is already on this stack.
        Err(Errno::PERM) => Ok(()),
        result => result.map(|_| ()),
    }
}

fn dispatch() -> Result<(), Errno> {
    let &(start, len) = TEXT.get().ok_or(Errno::NOENT)?;
    let on = PR_SYS_DISPATCH_ON;
    // SAFETY: the range is our text; there is no selector for the kernel to read.
    let result = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [PR_SET_SYSCALL_USER_DISPATCH, on, start, len, 0, 0],
        )
    };
    raw::result(result).map(|_| ())
}

/// Whether this kernel can dispatch a process's system calls to it.
#[must_use]
pub fn can_guard() -> bool {
    // SAFETY: `prctl` takes numbers only here. Switching dispatch off where it is off succeeds wherever it exists.
    let result = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0],
        )
    };
    raw::result(result).is_ok()
}
