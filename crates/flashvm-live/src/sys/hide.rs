//! Pages that are mapped and cannot be touched: guard regions (`MADV_GUARD_INSTALL`, for shared memory since Linux 6.15).
//! A touch is SIGSEGV. The mapping stays whole, however many of its pages are hidden, and its contents stay where they
//! are: in the file. Where the kernel has none, access rights hide pages, and split mappings.

use super::raw;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;

/// `MADV_GUARD_INSTALL`.
const INSTALL: usize = 102;
/// `MADV_GUARD_REMOVE`.
const REMOVE: usize = 103;

/// # Safety
/// No Rust code may refer to what is there.
unsafe fn advise(start: usize, len: usize, advice: usize) -> Result<(), Errno> {
    loop {
        // SAFETY: the advice changes whether the range can be touched; no Rust code refers to it, as the caller guarantees.
        let result = unsafe { raw::syscall(libc::SYS_madvise, [start, len, advice, 0, 0, 0]) };
        match raw::result(result) {
            // The program is changing mappings meanwhile.
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return result.map(|_| ()),
        }
    }
}

/// Hides the pages of a range of a shared mapping. From here on no thread loads from them or stores to them; the contents
/// stay in the file.
///
/// # Safety
/// No Rust code may refer to what is there.
pub(crate) unsafe fn hide(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees what `advise` demands.
    unsafe { advise(start, len, INSTALL) }
}

/// Ends [`hide`]: the next touch finds the page in the file, or a page of zeros.
///
/// # Safety
/// As for [`hide`].
pub(crate) unsafe fn show(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees what `advise` demands.
    unsafe { advise(start, len, REMOVE) }
}

/// Puts pages that are shown into the page table, writable, for less than their first touches cost. It may stop early (a
/// kernel before Linux 5.14, a mapping that is read only): then a touch does that for its page.
///
/// # Safety
/// As for [`hide`].
pub(crate) unsafe fn populate(start: usize, len: usize) {
    // SAFETY: the caller guarantees what `advise` demands.
    let _ = unsafe { advise(start, len, libc::MADV_POPULATE_WRITE as usize) };
}

/// Maps a part of a file over a range, inaccessible, and kept out of core dumps.
///
/// # Safety
/// As for [`hide`].
pub(crate) unsafe fn map_inaccessible(
    file: &OwnedFd,
    start: usize,
    len: usize,
    offset: u64,
) -> Result<(), Errno> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the mapping replaces what is there, to which no Rust code refers, as the caller guarantees.
    unsafe {
        rustix::mm::mmap(
            start as *mut _,
            len,
            ProtFlags::empty(),
            flags,
            file,
            offset,
        )?
    };
    super::map::keep_from_dumps(start, len);
    Ok(())
}

/// Whether this kernel has guard regions in shared memory, tried on one page.
///
/// # Errors
/// What it answers: `EINVAL` before Linux 6.15.
pub fn probe() -> Result<(), Errno> {
    let file = super::map::memory_file("flashvm-probe", PAGE_SIZE as u64)?;
    let at = super::map::map_shared(&file, PAGE_SIZE)?;
    // SAFETY: the page was mapped just now, and nobody refers to it.
    let hidden = unsafe { hide(at, PAGE_SIZE) };
    // SAFETY: as above.
    unsafe { super::map::unmap(at, PAGE_SIZE)? };
    hidden
}
