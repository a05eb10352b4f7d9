//! What a program asks for by name: managed memory (`flashvm_map`, `flashvm_unmap`), its statistics (`flashvm_stats`), and
//! an allocator for numpy's arrays (NEP 49). A program finds these symbols only inside a run, or in the object by which it
//! has joined one; `include/flashvm.h` looks them up. With `--select api` nothing else is managed.

use crate::c_library::set_errno;
use crate::mapping::{advise, pin, remap, unmap, unpin};
use crate::state::{for_pager, guard_answer, guarded, pager};
use flashvm_core::PAGE_SIZE;
use flashvm_live::guard::{Own, aside};
use flashvm_live::program::mapping;
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Bytes before an array's data: how long its mapping is (0: it comes from `malloc`), then its size. A cache line, so that
/// data begins at one.
const HEADER_BYTES: usize = 64;
/// Smaller arrays come from `malloc`: a mapping has whole pages, and costs two calls of the pager.
const MAPPED_BYTES: usize = 64 << 10;

/// Managed memory of `len` bytes, rounded up to whole pages: zeros, to read and write. Null and `errno`: `ENOMEM` if budget and
/// store together have no room, `EINVAL` for 0 bytes, `ENOSYS` where no pager runs.
#[unsafe(no_mangle)]
extern "C" fn flashvm_map(len: usize) -> *mut c_void {
    let mapped = if for_pager() {
        Err(Errno::NOSYS)
    } else if guarded() {
        // SAFETY: this call maps fresh memory, and drops none.
        unsafe { guard_answer(Own::Map, 0, len) }
    } else {
        aside(move || mapping::map_for_api(len))
    };
    mapped.map_or_else(
        |error| {
            set_errno(error);
            null_mut()
        },
        |address| address as *mut c_void,
    )
}

/// Frees memory of `flashvm_map`, or whole pages of it.
///
/// # Safety
/// Nobody uses the range any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_unmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller gives up the range.
    unsafe { unmap(at, len) }
}

/// `madvise` of this object: a process that has joined a run has the C library's under that name.
///
/// # Safety
/// The range is the caller's, who gives up contents that the advice drops.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_pages_advise(at: *mut c_void, len: usize, what: c_int) -> c_int {
    // SAFETY: the caller guarantees the same.
    unsafe { advise(at, len, what) }
}

/// `mlock` of this object, as [`flashvm_pages_advise`].
#[unsafe(no_mangle)]
extern "C" fn flashvm_pages_pin(at: *const c_void, len: usize) -> c_int {
    pin(at, len)
}

/// `munlock` of this object, as [`flashvm_pages_advise`].
#[unsafe(no_mangle)]
extern "C" fn flashvm_pages_unpin(at: *const c_void, len: usize) -> c_int {
    unpin(at, len)
}

/// Writes the first `size` bytes of this process's [`flashvm_live::Statistics`] to `out`, and zeros beyond those that this version
/// knows. 0, or -1 and `errno`: `ENOSYS` where no pager runs.
///
/// # Safety
/// `out` is memory of `size` bytes to write.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_stats(out: *mut c_void, size: usize) -> c_int {
    if for_pager() {
        set_errno(Errno::NOSYS);
        return -1;
    }
    let statistics = pager().statistics();
    let known = size.min(size_of_val(&statistics));
    // SAFETY: the caller guarantees `out`; no lock is held, so that it may be managed memory.
    unsafe {
        out.copy_from_nonoverlapping((&raw const statistics).cast(), known);
        out.byte_add(known).write_bytes(0, size - known);
    }
    0
}

/// The header before an array's data.
///
/// # Safety
/// `data` is what one of the functions below has returned, and has not been freed.
unsafe fn header(data: *mut c_void) -> *mut [usize; 2] {
    // SAFETY: the functions below put a header before the data, at an address aligned for it.
    unsafe { data.byte_sub(HEADER_BYTES).cast() }
}

/// How long the mapping for `size` bytes and their header is; 0: they come from `malloc`. `None`: no memory is so long.
fn mapping_bytes(size: usize) -> Option<usize> {
    let bytes = size
        .checked_add(HEADER_BYTES)?
        .checked_next_multiple_of(PAGE_SIZE)?;
    Some(if size >= MAPPED_BYTES { bytes } else { 0 })
}

/// Memory with a header for `size` bytes; with `zero`, of zeros.
fn allocate(size: usize, zero: bool) -> *mut c_void {
    let Some(mapped) = mapping_bytes(size) else {
        return null_mut();
    };
    let start = match (mapped, zero) {
        // SAFETY: these functions take any size.
        (0, true) => unsafe { libc::calloc(1, size + HEADER_BYTES) },
        // SAFETY: as above.
        (0, false) => unsafe { libc::malloc(size + HEADER_BYTES) },
        _ => flashvm_map(mapped),
    };
    if start.is_null() {
        return null_mut();
    }
    // SAFETY: the memory is fresh, at least as long as the header, and aligned for it.
    unsafe {
        start.cast::<[usize; 2]>().write([mapped, size]);
        start.byte_add(HEADER_BYTES)
    }
}

#[unsafe(no_mangle)]
extern "C" fn flashvm_array_malloc(_context: *mut c_void, size: usize) -> *mut c_void {
    allocate(size, false)
}

#[unsafe(no_mangle)]
extern "C" fn flashvm_array_calloc(
    _context: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    count
        .checked_mul(size)
        .map_or(null_mut(), |size| allocate(size, true))
}

/// # Safety
/// `data` is null, or what one of these functions has returned; it is given up unless the result is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_array_realloc(
    _context: *mut c_void,
    data: *mut c_void,
    size: usize,
) -> *mut c_void {
    if data.is_null() {
        return allocate(size, false);
    }
    // SAFETY: the caller guarantees the data.
    let [mapped, before] = unsafe { header(data).read() };
    let bytes = mapping_bytes(size).filter(|&bytes| mapped > 0 && bytes > 0);
    if let Some(bytes) = bytes {
        // SAFETY: the mapping that `allocate` made, from its start on; the caller gives it up if it moves.
        let start = unsafe {
            remap(
                data.byte_sub(HEADER_BYTES),
                mapped,
                bytes,
                libc::MREMAP_MAYMOVE,
                null_mut(),
            )
        };
        if start == libc::MAP_FAILED {
            return null_mut();
        }
        // SAFETY: the header has moved with the mapping.
        unsafe {
            start.cast::<[usize; 2]>().write([bytes, size]);
            return start.byte_add(HEADER_BYTES);
        }
    }
    let new = allocate(size, false);
    if !new.is_null() {
        // SAFETY: both have at least so many bytes, and the new memory is fresh. The caller gives up the old one.
        unsafe {
            data.copy_to_nonoverlapping(new, before.min(size));
            flashvm_array_free(null_mut(), data, before);
        }
    }
    new
}

/// # Safety
/// `data` is null, or what one of these functions has returned; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_array_free(_context: *mut c_void, data: *mut c_void, _size: usize) {
    if data.is_null() {
        return;
    }
    // SAFETY: the caller guarantees the data, and gives it up. The start is what `malloc`, `calloc` or `flashvm_map` returned.
    unsafe {
        let mapped = header(data).read()[0];
        let start = data.byte_sub(HEADER_BYTES);
        match mapped {
            0 => libc::free(start),
            bytes => {
                unmap(start, bytes);
            }
        }
    }
}
