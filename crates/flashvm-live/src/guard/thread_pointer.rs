//! The thread pointer (`fs`) of a carried program. Such a program brings a C library of its own, or none, and so thread
//! pointers that mean nothing to ours. A thread in the guard has one of ours: that of the C library's first thread, or
//! one that leads to a copy of its thread-local storage. The copy lies on the guard stack.
//!
//! Little of it is used: `errno`, and the canary of functions of the C library. The guard itself has no thread-local
//! storage.

use super::guard_stack::ThreadRecord;
use super::memory;
use crate::sys::raw::failed;
use rustix::io::Errno;
use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
/// `HWCAP2_FSGSBASE`: programs may set `fs` themselves.
const CAN_SET: u64 = 2;
/// Alignment of a thread pointer of the C library's.
const ALIGN: usize = 64;
/// Offset from a thread pointer to the C library's pointer to the same place.
const SELF_AT: usize = 16;
/// Lowest address that is none of a program's: `fs` takes no other.
const USER_END: usize = 0x7fff_ffff_f000;

/// The thread-local storage of the C library's first thread, as it was when the program began.
struct Template {
    bytes: Box<[u8]>,
    /// Offset to the place that the thread pointer names.
    pointer_at: usize,
}

static TEMPLATE: OnceLock<Template> = OnceLock::new();

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
    // SAFETY: the name is a string. It is the C library's number for debuggers: the size of its descriptor of a thread.
    let above = unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"_thread_db_sizeof_pthread".as_ptr());
        size.cast::<u32>().as_ref()
    };
    let above = *above.ok_or(Errno::NOTSUP)? as usize;
    let below = bytes_below().next_multiple_of(ALIGN);
    let pointer = get();
    // SAFETY: the C library has `above` bytes at the thread pointer and `below` bytes below it, both of this thread's. No
    // other code of this thread changes them meanwhile.
    let bytes =
        unsafe { std::slice::from_raw_parts((pointer - below) as *const u8, below + above) };
    let _ = TEMPLATE.set(Template {
        bytes: bytes.into(),
        pointer_at: below,
    });
    record.pointers.ours = pointer;
    Ok(())
}

/// Upper bound of the bytes of thread-local storage below a thread pointer: for each object its size, and its alignment
/// once. The C library keeps more than this for objects that are loaded later.
fn bytes_below() -> usize {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, bytes: *mut c_void) -> c_int {
        // SAFETY: the C library passes an object that lives over this call, and `bytes_below` its sum.
        unsafe {
            let (info, bytes) = (&*info, &mut *bytes.cast::<usize>());
            for index in 0..usize::from(info.dlpi_phnum) {
                let header = &*info.dlpi_phdr.add(index);
                if header.p_type == libc::PT_TLS {
                    *bytes += (header.p_memsz + header.p_align) as usize;
                }
            }
        }
        0
    }
    let mut bytes = 0_usize;
    // SAFETY: `add` is called with the sum, which lives over the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut bytes).cast()) };
    bytes
}

/// Bytes that the storage of a thread takes on its guard stack; 0 unless the program is a carried one.
pub(super) fn room() -> usize {
    TEMPLATE
        .get()
        .map_or(0, |template| template.bytes.len() + ALIGN)
}

/// Whether the program is a carried one.
#[inline]
pub(super) fn is_foreign() -> bool {
    TEMPLATE.get().is_some()
}

/// Makes thread pointers for a new thread, whose own is `programs`. Ours leads to a copy in `room` bytes at `start`.
///
/// # Safety
/// [`room`] bytes at `start` are nobody else's until the thread ends.
pub(super) unsafe fn for_thread(start: usize, programs: usize) -> Pointers {
    let Some(template) = TEMPLATE.get() else {
        return Pointers::default();
    };
    let ours = (start + template.pointer_at).next_multiple_of(ALIGN);
    // SAFETY: `ALIGN` more bytes than the template has are the caller's to give. The C library's descriptor of a thread
    // begins with its own address, which is also `SELF_AT` bytes further.
    unsafe {
        let to = (ours - template.pointer_at) as *mut u8;
        std::ptr::copy_nonoverlapping(template.bytes.as_ptr(), to, template.bytes.len());
        (ours as *mut usize).write(ours);
        ((ours + SELF_AT) as *mut usize).write(ours);
    }
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
