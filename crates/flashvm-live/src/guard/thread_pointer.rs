//! The thread pointer (`fs`) of a carried program. Such a program brings a C library of its own, or none, and so thread
//! pointers that mean nothing to ours. A thread in the guard has one of ours: that of the C library's first thread, or
//! one that leads to a copy of its thread-local storage. The copy lies on the guard stack.
//!
//! Little of it is used: `errno`, and the canary of functions of the C library. The guard itself has no thread-local
//! storage.

use super::guard_stack::ThreadRecord;
use super::memory;
use crate::sys::raw::failed;
use crate::sys::thread_storage::Storage;
use crate::sys::unseen;
use rustix::io::Errno;
use std::arch::asm;
use std::sync::OnceLock;

const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
/// `HWCAP2_FSGSBASE`: programs may set `fs` themselves.
const CAN_SET: u64 = 2;
/// Lowest address that is none of a program's: `fs` takes no other.
const USER_END: usize = 0x7fff_ffff_f000;

/// The storage that the threads of a carried program get copies of; unset for other programs.
static STORAGE: OnceLock<&Storage> = OnceLock::new();

/// The thread pointers of a guarded thread of a carried program. Both are 0 for other programs.
#[derive(Clone, Copy, Default)]
pub(super) struct Pointers {
    /// Ours, in the guard.
    ours: usize,
    /// The program's, kept while the thread is in the guard.
    programs: usize,
}

fn get() -> usize {
    let pointer: usize;
    // SAFETY: reads a register. The processor has the instruction, or `begin` would have failed.
    unsafe {
        asm!("rdfsbase {}", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// # Safety
/// Code of the C library that runs before the next change finds its thread-local storage at `pointer`, or none runs.
unsafe fn set(pointer: usize) {
    // SAFETY: the caller guarantees what the register is used for; the value is one that it can hold (`USER_END`).
    unsafe {
        asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags));
    }
}

/// From here on the calling thread, which is the only one of the program, is that of a carried program.
///
/// # Errors
/// `ENOTSUP`: the processor or the kernel (before Linux 5.9) lets programs not set `fs`, or the C library does not tell
/// the size of its thread-local storage.
pub(super) fn begin(record: &mut ThreadRecord) -> Result<(), Errno> {
    // SAFETY: takes and returns numbers.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & CAN_SET == 0 {
        return Err(Errno::NOTSUP);
    }
    let _ = STORAGE.set(unseen::storage().ok_or(Errno::NOTSUP)?);
    record.pointers.ours = get();
    Ok(())
}

/// Bytes that the storage of a thread takes on its guard stack; 0 unless the program is a carried one.
pub(super) fn room() -> usize {
    STORAGE.get().map_or(0, |storage| storage.room())
}

/// Whether the program is a carried one.
#[inline]
pub(super) fn is_foreign() -> bool {
    STORAGE.get().is_some()
}

/// Makes thread pointers for a new thread, whose own is `programs`. Ours leads to a copy in `room` bytes at `start`.
///
/// # Safety
/// [`room`] bytes at `start` are nobody else's until the thread ends.
pub(super) unsafe fn for_thread(start: usize, programs: usize) -> Pointers {
    let Some(storage) = STORAGE.get() else {
        return Pointers::default();
    };
    // SAFETY: the caller guarantees the room.
    let ours = unsafe { storage.copy_to(start) };
    Pointers { ours, programs }
}

impl Pointers {
    /// Ours, or 0.
    pub(super) fn ours(&self) -> usize {
        self.ours
    }

    /// The program's.
    pub(super) fn programs(&self) -> usize {
        self.programs
    }

    pub(super) fn set_programs(&mut self, pointer: usize) {
        self.programs = pointer;
    }

    /// The thread leaves the guard.
    ///
    /// # Safety
    /// No code of the C library runs in this thread until it is in the guard again.
    pub(super) unsafe fn leave(&self) {
        if self.ours != 0 {
            // SAFETY: the caller guarantees that the C library does not run. The program's pointer is one that `fs` can
            // hold: it comes from there, or has been checked.
            unsafe { set(self.programs) };
        }
    }
}

/// A thread's stay in the guard, from the first step of a handler to its last.
pub(super) struct Stay(Option<*mut ThreadRecord>);

impl Stay {
    /// Gives the thread our pointer, unless it has it: a handler may have interrupted the guard.
    #[inline]
    pub(super) fn begin() -> Self {
        if !is_foreign() {
            return Self(None);
        }
        Self(ThreadRecord::current().filter(|record| {
            // SAFETY: this thread's own record. The guard that this handler may have interrupted keeps its references to
            // other fields.
            let pointers = unsafe { &mut (**record).pointers };
            let before = get();
            if before == pointers.ours {
                return false;
            }
            pointers.programs = before;
            // SAFETY: the C library finds the thread-local storage that it has, or a copy of it.
            unsafe { set(pointers.ours) };
            true
        }))
    }
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        if let Some(record) = self.0 {
            // SAFETY: this thread's own record, and the end of the handler: it returns to the program.
            unsafe { (*record).pointers.leave() };
        }
    }
}

/// Whether this request of `arch_prctl` is for [`arch_prctl`], not for the kernel.
pub(super) fn answers(what: usize) -> bool {
    is_foreign() && matches!(what, ARCH_SET_FS | ARCH_GET_FS)
}

/// `arch_prctl` of a carried program, for its thread pointer.
pub(super) fn arch_prctl(record: &mut ThreadRecord, what: usize, address: usize) -> isize {
    if what == ARCH_SET_FS {
        if address >= USER_END {
            return failed(Errno::PERM);
        }
        record.pointers.programs = address;
        return 0;
    }
    // SAFETY: the program has passed the address to the kernel for the value.
    let written = unsafe { memory::write(address, &record.pointers.programs) };
    if written { 0 } else { failed(Errno::FAULT) }
}
