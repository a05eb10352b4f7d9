//! A guard stack for each guarded thread: the alternate stack of our signal handlers, and the
//! thread's record. None of it is managed memory.
//!
//! Guard stacks are aligned, so that code on one finds its record from its own stack pointer: no
//! thread-local storage, which may itself be managed memory.

use super::actions::Table;
use super::clone::ChildStart;
use super::exec::Strings;
use super::frame::{AltStack, Info};
use super::thread_pointer::{self, Pointers};
use crate::sys::map;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Size and alignment of a guard stack.
pub(super) const STACK_BYTES: usize = 128 << 10;
/// Most guarded threads of a process.
const STACKS_MAX: usize = 8192;

static BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: [AtomicU32; STACKS_MAX] = [const { AtomicU32::new(0) }; STACKS_MAX];

/// The record of a guarded thread. Only the thread itself uses it; before it runs, the thread that
/// creates it does.
pub(crate) struct ThreadRecord {
    /// The alternate stack that the program has set.
    pub(super) stack: AltStack,
    /// Synchronous signals that the program believes it has blocked.
    pub(super) hidden_mask: u64,
    /// The program's signal handlers: those of its process, or of a child that shares its memory.
    pub(super) actions: Table,
    /// The start of the thread.
    pub(super) start: ChildStart,
    /// Managed address to clear and wake when the thread ends.
    pub(super) clear_tid: usize,
    /// The strings of an `execve` by a child that shares our memory.
    pub(super) strings: Option<Strings>,
    /// A child of `vfork` has asked to be traced: from its `execve` on ([`super::exec`]).
    pub(super) wants_tracer: bool,
    /// The thread pointers of a carried program's thread.
    pub(super) pointers: Pointers,
}

impl ThreadRecord {
    /// A thread that has done nothing yet, and has set no alternate stack.
    pub(super) fn new(start: ChildStart, actions: Table) -> Self {
        Self {
            stack: AltStack::NONE,
            hidden_mask: 0,
            actions,
            start,
            clear_tid: 0,
            strings: None,
            wants_tracer: false,
            pointers: Pointers::default(),
        }
    }

    /// The record of the guard stack on which the caller runs.
    pub(super) fn current() -> Option<*mut Self> {
        let here = 0_u8;
        at(&raw const here as usize)
    }
}

/// A signal that arrived while its thread was in the guard; all others are blocked until it is taken.
///
/// It lies beside the record, not in it: the signal's handler stores here while the guard that it has
/// interrupted holds the record as `&mut`.
pub(super) struct Arrived {
    /// The signal, or 0.
    pending: AtomicI32,
    info: UnsafeCell<Info>,
}

/// Offset from a record to its [`Arrived`].
const ARRIVED_AT: usize = size_of::<ThreadRecord>().next_multiple_of(64);

impl Arrived {
    /// The one on the guard stack that contains `address`. That stack is the calling thread's, or that
    /// of a thread that has not begun.
    pub(super) fn at(address: usize) -> &'static Self {
        let record = at(address).expect("a guard stack");
        // SAFETY: room behind the record, never unmapped; zeros are a value, and it is only changed through
        // its cells.
        unsafe { &*((record as usize + ARRIVED_AT) as *const Self) }
    }

    /// Address of the pending signal's number: while it is not 0, `flashvm_guard_call` begins no call.
    pub(super) fn word(&self) -> *const i32 {
        self.pending.as_ptr()
    }

    pub(super) fn is_any(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// Keeps a signal.
    ///
    /// # Safety
    /// The calling thread runs on this guard stack, in a handler of the signal.
    pub(super) unsafe fn put(&self, signal: i32, info: &Info) {
        // SAFETY: this thread alone uses `info`, as the caller guarantees. It reads it with all signals blocked, or
        // while one is pending, when no other is delivered: so no read is under way here.
        unsafe { *self.info.get() = *info };
        self.pending.store(signal, Ordering::Release);
    }

    /// The pending signal, if there is one.
    ///
    /// # Safety
    /// The calling thread runs on this guard stack and has blocked all signals, or no thread runs on it.
    pub(super) unsafe fn take(&self) -> Option<(i32, Info)> {
        match self.pending.swap(0, Ordering::Acquire) {
            0 => None,
            // SAFETY: this thread alone uses `info`, and no handler stores to it, as the caller guarantees.
            signal => Some((signal, unsafe { *self.info.get() })),
        }
    }
}

/// The record of the guard stack that contains an address.
pub(super) fn at(address: usize) -> Option<*mut ThreadRecord> {
    is_guard_stack(address).then_some((address & !(STACK_BYTES - 1)) as *mut ThreadRecord)
}

fn is_guard_stack(address: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address.wrapping_sub(base) < STACKS_MAX * STACK_BYTES
}

/// Whether the calling code runs on a guard stack, and thus for the pager.
#[must_use]
#[inline]
pub fn on_guard_stack() -> bool {
    let here = 0_u8;
    is_guard_stack(&raw const here as usize)
}

/// Reserves address space for the guard stacks.
pub(super) fn reserve() -> Result<(), Errno> {
    let space = map::own(STACKS_MAX * STACK_BYTES + STACK_BYTES)?;
    map::keep_from_dumps(space, STACKS_MAX * STACK_BYTES + STACK_BYTES);
    BASE.store(space.next_multiple_of(STACK_BYTES), Ordering::Relaxed);
    Ok(())
}

/// Takes a guard stack: the first one that is free, so that no more of them are in RAM than were taken at once.
pub(super) fn take() -> Option<*mut ThreadRecord> {
    let index = TAKEN.iter().position(|taken| {
        taken.load(Ordering::Relaxed) == 0 && taken.swap(1, Ordering::Acquire) == 0
    })?;
    let start = BASE.load(Ordering::Relaxed) + index * STACK_BYTES;
    // SAFETY: the guard stack has just been taken, and no thread runs on it. The one that had it may have ended with a
    // signal pending.
    let _ = unsafe { Arrived::at(start).take() };
    Some(start as *mut ThreadRecord)
}

/// The word that says that a guard stack is taken.
pub(super) fn taken_word(record: *mut ThreadRecord) -> &'static AtomicU32 {
    &TAKEN[(record as usize - BASE.load(Ordering::Relaxed)) / STACK_BYTES]
}

/// Frees a guard stack.
///
/// # Safety
/// Nobody runs on it or uses its record any more: the next [`take`] may hand it out.
pub(super) unsafe fn give(record: *mut ThreadRecord) {
    taken_word(record).store(0, Ordering::Release);
}

/// After a fork: frees all other guard stacks.
///
/// # Safety
/// The caller is the only thread of this process, and runs on the guard stack of `record`.
pub(super) unsafe fn keep_only(record: *mut ThreadRecord) {
    let own = std::ptr::from_ref(taken_word(record));
    for taken in &TAKEN {
        if !std::ptr::eq(taken, own) {
            taken.store(0, Ordering::Relaxed);
        }
    }
}

/// Where the guard stack has [`thread_pointer::room`] for thread-local storage.
pub(super) fn storage_of(record: *mut ThreadRecord) -> usize {
    record as usize + ARRIVED_AT + size_of::<Arrived>()
}

/// The guard stack as an alternate stack for the kernel: all but the record, its [`Arrived`] and thread-local storage.
pub(super) fn stack_of(record: *mut ThreadRecord) -> AltStack {
    let start = (storage_of(record) + thread_pointer::room()).next_multiple_of(4096);
    AltStack {
        sp: start as u64,
        flags: 0,
        pad: 0,
        size: (record as usize + STACK_BYTES - start) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_arrived_is_taken_once() {
        // SAFETY: structures of integers.
        let (arrived, mut info) = unsafe { std::mem::zeroed::<(Arrived, Info)>() };
        // SAFETY: it lies on this test's stack, and no other thread knows it.
        let take = || unsafe { arrived.take() }.map(|(signal, info)| (signal, info.address));
        assert!(!arrived.is_any() && take().is_none());
        info.address = 77;
        // SAFETY: `arrived` lies on this test's stack, and no other thread knows it: nobody changes it or its word
        // meanwhile.
        let word = unsafe {
            arrived.put(10, &info);
            *arrived.word()
        };
        assert!(arrived.is_any() && word == 10);
        assert_eq!(take(), Some((10, 77)));
        assert!(!arrived.is_any() && take().is_none());
    }
}
