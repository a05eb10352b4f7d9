//! Thread-local storage for threads that our C library has not made: copies of its first thread's.
//!
//! What it needs to know of the C library (glibc): the descriptor of a thread begins at the thread pointer, with that
//! address, that of the vector of blocks, and its own address again; debuggers are told the descriptor's size and where
//! in it the thread's id lies.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_void};

/// Alignment of a thread pointer.
const ALIGN: usize = 64;
/// Offsets from a thread pointer: to the vector of the thread's blocks, and to a copy of the pointer.
const BLOCKS_AT: usize = 8;
const SELF_AT: usize = 16;
/// The address of a block that has not been allocated.
const NO_BLOCK: usize = usize::MAX;

/// A slot of the vector of blocks: the block's address, and what the C library frees with it.
type Slot = [usize; 2];

/// The thread-local storage of the C library's first thread, as it was when the program began.
pub(crate) struct Storage {
    bytes: Box<[u8]>,
    /// Offset to the place that the thread pointer names.
    pointer_at: usize,
    /// The thread pointer of the first thread.
    pointer: usize,
    /// The vector of its blocks, from the slot before the first on: that has the number of slots behind it and the next.
    blocks: Box<[Slot]>,
    /// Where this object's block begins in `bytes`, and its first contents.
    own: Option<(usize, Box<[u8]>)>,
    /// Offset from a thread pointer to the thread's id.
    id_at: usize,
}

/// A number for debuggers, by its name.
fn number<const N: usize>(name: &CStr) -> Result<[u32; N], Errno> {
    // SAFETY: the name is a string. The C library has as many numbers at this name as the callers below ask for.
    unsafe {
        let numbers = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        numbers.cast::<[u32; N]>().as_ref().copied()
    }
    .ok_or(Errno::NOTSUP)
}

impl Storage {
    /// That of the calling thread, the program's first, before the program's code runs.
    ///
    /// # Errors
    /// `ENOTSUP`: the C library does not tell what debuggers need.
    pub(crate) fn of_this_thread() -> Result<Self, Errno> {
        let [above] = number(c"_thread_db_sizeof_pthread")?;
        let [_, _, id_at] = number(c"_thread_db_pthread_tid")?;
        let pointer = thread_pointer();
        let found = Found::in_this_process();
        let below = found.bytes.next_multiple_of(ALIGN);
        let start = pointer - below;
        // SAFETY: the C library has `above` bytes at the thread pointer and `below` bytes below it, both of this thread's. No
        // other code of this thread changes them meanwhile. The vector has two more slots than it counts.
        let (bytes, blocks) = unsafe {
            let bytes = std::slice::from_raw_parts(start as *const u8, below + above as usize);
            let first = ((pointer + BLOCKS_AT) as *const *const Slot).read().sub(1);
            (bytes, std::slice::from_raw_parts(first, (*first)[0] + 2))
        };
        let own = found.own.filter(|(at, _)| (start..pointer).contains(at));
        Ok(Self {
            bytes: bytes.into(),
            pointer_at: below,
            pointer,
            blocks: blocks.into(),
            own: own.map(|(at, first)| (at - start, first)),
            id_at: id_at as usize,
        })
    }

    /// Bytes that a copy takes.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() + ALIGN
    }

    /// Makes a copy in [`Self::room`] bytes at `start`. Its vector of blocks is still the first thread's. Returns the thread
    /// pointer that leads to it.
    ///
    /// # Safety
    /// The bytes are nobody else's.
    pub(crate) unsafe fn copy_to(&self, start: usize) -> usize {
        let pointer = (start + self.pointer_at).next_multiple_of(ALIGN);
        // SAFETY: `ALIGN` more bytes than the copy has are the caller's to give.
        unsafe {
            let to = (pointer - self.pointer_at) as *mut u8;
            std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), to, self.bytes.len());
            (pointer as *mut usize).write(pointer);
            ((pointer + SELF_AT) as *mut usize).write(pointer);
        }
        pointer
    }

    /// Makes a copy with blocks of its own, in which this object's variables have their first values. The thread calls
    /// [`Self::begin`] first.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for the vector of blocks.
    ///
    /// # Safety
    /// The bytes are nobody else's.
    pub(crate) unsafe fn copy_for_thread(&self, start: usize) -> Result<usize, Errno> {
        // SAFETY: the C library's contract. It may reallocate the vector.
        let blocks = unsafe { libc::calloc(self.blocks.len(), size_of::<Slot>()) }.cast::<Slot>();
        if blocks.is_null() {
            return Err(Errno::NOMEM);
        }
        // SAFETY: the caller's bytes; the vector has as many slots as ours, and both places lie in the copy.
        unsafe {
            let pointer = self.copy_to(start);
            let ours = self.pointer - self.pointer_at..self.pointer;
            for (at, &[block, freed]) in self.blocks.iter().enumerate() {
                blocks.add(at).write(match () {
                    // The number of slots, and the state of the linker's list of objects.
                    () if at < 2 => [block, freed],
                    () if ours.contains(&block) => [block - self.pointer + pointer, 0],
                    () => [NO_BLOCK, 0],
                });
            }
            ((pointer + BLOCKS_AT) as *mut *mut Slot).write(blocks.add(1));
            if let Some((at, first)) = &self.own {
                let to = (pointer - self.pointer_at + at) as *mut u8;
                std::ptr::copy_nonoverlapping(first.as_ptr(), to, first.len());
            }
            Ok(pointer)
        }
    }

    /// Puts the calling thread's id into its copy.
    pub(crate) fn begin(&self) {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: the calling thread's own descriptor, in which the C library keeps the id at this place.
        unsafe { ((thread_pointer() + self.id_at) as *mut i32).write(id) };
    }
}

/// The calling thread's. Its descriptor begins with it.
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the descriptor.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// What the objects of this process say of their thread-local storage.
#[derive(Default)]
struct Found {
    /// Upper bound of the bytes below a thread pointer: for each object its size, and its alignment once. The C library keeps
    /// more than this for objects that are loaded later.
    bytes: usize,
    /// This object's block in the calling thread, and its first contents.
    own: Option<(usize, Box<[u8]>)>,
}

impl Found {
    fn in_this_process() -> Self {
        let mut found = Self::default();
        // SAFETY: `add` is called with `found`, which lives over the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
        found
    }
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that lives over this call, and `Found::in_this_process` its structure.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    // SAFETY: the object's headers, as many as it says.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let is_own = headers.iter().any(|header| {
        let start = base + header.p_vaddr as usize;
        header.p_type == libc::PT_LOAD
            && (start..start + header.p_memsz as usize).contains(&(add as *const () as usize))
    });
    for header in headers {
        if header.p_type != libc::PT_TLS {
            continue;
        }
        found.bytes += (header.p_memsz + header.p_align) as usize;
        if is_own && !info.dlpi_tls_data.is_null() {
            let mut first = vec![0; header.p_memsz as usize];
            let given = header.p_filesz as usize;
            // SAFETY: the object has the first contents of its block there.
            first[..given].copy_from_slice(unsafe {
                std::slice::from_raw_parts((base + header.p_vaddr as usize) as *const u8, given)
            });
            found.own = Some((info.dlpi_tls_data as usize, first.into()));
        }
    }
    0
}
