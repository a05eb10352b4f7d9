//! Mappings: the pager's own memory, the reservation of the managed range, and dropping pages.

use super::raw;
use flashvm_core::PAGE_SIZE;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;

/// Reserves `len` bytes of inaccessible addresses, at a multiple of `align`.
pub(crate) fn reserve(len: usize, align: usize) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses a free place for the reservation; no existing mapping changes.
    let address = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + align, ProtFlags::empty(), flags)?
    };
    // The surplus on both sides stays reserved: it only costs address space.
    Ok((address as usize).next_multiple_of(align))
}

/// Puts fresh anonymous memory over a range, whatever is mapped there.
///
/// # Safety
/// No Rust code may refer to what is there.
pub(crate) unsafe fn map_fixed(start: usize, len: usize, prot: ProtFlags) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: `MAP_FIXED` replaces what is mapped in the range; the caller guarantees that no Rust
    // code refers to it.
    unsafe { rustix::mm::mmap_anonymous(start as *mut _, len, prot, flags)? };
    Ok(())
}

/// Moves a mapping of the kernel to `new`, replacing what is there (`mremap`). The old range stays
/// mapped, without its contents: it is never a hole, in which the kernel could place another
/// thread's mapping at that moment. No single call both keeps the old range mapped and changes the
/// length, so the mapping moves through a place of the kernel's choice.
///
/// # Safety
/// No Rust code may refer to what is at either place.
pub(crate) unsafe fn move_mapping(
    old: usize,
    len: usize,
    new: usize,
    new_len: usize,
) -> Result<(), Errno> {
    let len = len.next_multiple_of(PAGE_SIZE);
    let remap = |old: usize, new_len: usize, flags: i32, new: usize| {
        // SAFETY: each place is one of the caller's two, to which no Rust code refers, or `aside`,
        // which the kernel has just chosen and nobody else knows.
        unsafe { mremap(old, len, new_len, flags, new) }
    };
    let aside = remap(old, len, libc::MREMAP_DONTUNMAP, 0)?;
    remap(aside, new_len, libc::MREMAP_FIXED, new)
        // Nothing has changed at the old place: move it back.
        .inspect_err(|_| {
            let _ = remap(aside, len, libc::MREMAP_FIXED, old);
        })
        .map(|_| ())
}

/// # Safety
/// As for [`move_mapping`].
unsafe fn mremap(
    old: usize,
    len: usize,
    new_len: usize,
    flags: i32,
    new: usize,
) -> Result<usize, Errno> {
    let flags = (libc::MREMAP_MAYMOVE | flags) as usize;
    // SAFETY: the call changes what is mapped at `old` and, with `MREMAP_FIXED`, at `new`; the
    // caller guarantees that no Rust code refers to either.
    raw::result(unsafe { raw::syscall(libc::SYS_mremap, [old, len, new_len, flags, new, 0]) })
}

/// Keeps a range out of core dumps: it is far larger than its contents.
pub(crate) fn keep_from_dumps(start: usize, len: usize) {
    // SAFETY: only a flag of the mapping changes. Where the kernel refuses, dumps are larger.
    let _ = unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontDump) };
}

/// Has the kernel fill a range with small pages alone.
pub(crate) fn keep_small(start: usize, len: usize) {
    // SAFETY: only a flag of the mapping changes. A kernel that refuses has no huge pages.
    let _ = unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxNoHugepage) };
}

/// Keeps a range out of core dumps, whatever that takes: it holds a secret.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn leave_out_of_dumps(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: only a flag of the mapping changes.
    unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontDump) }
}

/// Keeps a range in RAM.
///
/// # Errors
/// The kernel refuses, mostly for the limit on locked memory.
pub(crate) fn lock(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the contents and the permissions of the range stay.
    unsafe { rustix::mm::mlock(start as *mut _, len) }
}

/// Lets forked children have zeros in place of a range's contents, which they do not need.
pub(crate) fn keep_from_children(start: usize, len: usize) {
    // SAFETY: only a flag of the mapping changes. Where the kernel refuses, children keep the contents.
    let _ = unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxWipeOnFork) };
}

/// Anonymous zeroed memory of the pager's own, page-aligned.
pub(crate) fn own(len: usize) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh memory at a free place of the kernel's choice; no existing mapping changes.
    let address = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
    Ok(address as usize)
}

/// Zeros that are never changed, page-aligned.
pub(crate) fn own_zeros(len: usize) -> Result<&'static [u8], Errno> {
    let address = own(len)?;
    // SAFETY: fresh, zeroed memory of that length that nobody else knows of, and that is never unmapped.
    Ok(unsafe { bytes(address, len) })
}

/// Zeroed counters of the pager's own, in memory that takes no RAM before it is touched.
pub(crate) fn own_counters(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let address = own(count.max(1) * size_of::<AtomicU64>())?;
    // SAFETY: fresh, zeroed, page-aligned memory of that length that is never unmapped; any bit
    // pattern is an `AtomicU64`.
    Ok(unsafe { std::slice::from_raw_parts(address as *const AtomicU64, count) })
}

/// A zeroed counter that this process shares with the children that it forks.
pub(crate) fn shared_counter() -> Result<&'static AtomicU64, Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh memory at a free place of the kernel's choice; no existing mapping changes.
    let address = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE_SIZE, prot, MapFlags::SHARED)?
    };
    // SAFETY: fresh, zeroed, page-aligned memory that is never unmapped; any bit pattern is an `AtomicU64`.
    Ok(unsafe { &*(address as *const AtomicU64) })
}

/// Drops the pages of a range; it reads as zeros, or faults again where registered.
///
/// # Safety
/// No Rust code may refer to what is there.
pub(crate) unsafe fn drop_pages(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the call discards the contents of the range; the caller guarantees that no Rust code
    // refers to them.
    unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontNeed) }
}

/// Most ranges of one [`drop_ranges`].
pub(crate) const DROP_RANGES_MAX: usize = 64;

/// Drops the pages of several ranges, as [`drop_pages`] does for one.
///
/// # Safety
/// As for [`drop_pages`], for each range.
pub(crate) unsafe fn drop_ranges(ranges: &[libc::iovec]) -> Result<(), Errno> {
    /// This process, without a descriptor for it (Linux 6.14).
    const PIDFD_SELF: i32 = -10_000;
    let bytes: usize = ranges.iter().map(|range| range.iov_len).sum();
    if ranges.len() > 1 {
        // SAFETY: the kernel reads `ranges.len()` vectors from `ranges`, which is borrowed. It
        // discards what they name, to which no Rust code refers, as the caller guarantees.
        let dropped = unsafe {
            raw::syscall(
                libc::SYS_process_madvise,
                [
                    PIDFD_SELF as usize,
                    ranges.as_ptr() as usize,
                    ranges.len(),
                    libc::MADV_DONTNEED as usize,
                    0,
                    0,
                ],
            )
        };
        if dropped == bytes as isize {
            return Ok(());
        }
    }
    // One range, an older kernel, or a call that stopped short: dropping is idempotent.
    ranges
        .iter()
        // SAFETY: no Rust code refers to what is in any of the ranges, as the caller guarantees.
        .try_for_each(|range| unsafe { drop_pages(range.iov_base as usize, range.iov_len) })
}

/// Gives this process its own copy of a present page that it has shared since a fork, or the page
/// itself once no other process has it. Its write-protection stays.
///
/// Reading memory by address, as a debugger does, pins the page for a moment; the kernel makes a
/// page exclusive before it pins it. A store would do so too, but it could wait for the pager.
pub(crate) fn unshare(page: usize) -> Result<(), Errno> {
    let mut byte = 0_u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: page as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: `local` is one writable byte; the kernel checks `remote` itself.
    let read = unsafe {
        raw::syscall(
            libc::SYS_process_vm_readv,
            [
                rustix::thread::gettid().as_raw_nonzero().get() as usize,
                &raw const local as usize,
                1,
                &raw const remote as usize,
                1,
                0,
            ],
        )
    };
    raw::result(read).map(|_| ())
}

/// Changes the protection of a range.
///
/// # Safety
/// No Rust code may refer to what is there, if it loses a permission.
pub(crate) unsafe fn protect(start: usize, len: usize, prot: MprotectFlags) -> Result<(), Errno> {
    // SAFETY: only permissions change. Where the range loses one, no Rust code refers to it, as the
    // caller guarantees.
    unsafe { rustix::mm::mprotect(start as *mut _, len, prot) }
}

/// Memory of the pager's own as bytes; never managed memory, which [`crate::space`] copies out.
///
/// # Safety
/// The range must be mapped and readable, and nobody may write to it while the slice lives.
pub(crate) unsafe fn bytes<'a>(start: usize, len: usize) -> &'a [u8] {
    // SAFETY: the caller guarantees that the range is mapped and readable, and that nobody writes
    // to it during `'a`.
    unsafe { std::slice::from_raw_parts(start as *const u8, len) }
}

/// Stores bytes in memory of the pager's own.
///
/// # Safety
/// The memory must be mapped for stores, and nobody else may use it.
pub(crate) unsafe fn fill(start: usize, from: &[u8]) {
    // SAFETY: the caller guarantees that the memory is mapped for stores and that nobody else uses
    // it. So `from`, which is borrowed, does not overlap it.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), start as *mut u8, from.len()) };
}

/// Whether nothing is mapped in a range: maps and unmaps it as a test.
pub(crate) fn is_vacant(start: usize, len: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: nothing is replaced; the test mapping is unmapped again, and nobody knows of it.
    unsafe {
        match rustix::mm::mmap_anonymous(start as *mut _, len, ProtFlags::empty(), flags) {
            // Kernels that do not know the flag take the address for a hint.
            Ok(address) => rustix::mm::munmap(address, len).is_ok() && address as usize == start,
            Err(_) => false,
        }
    }
}

/// Makes a memfd of the pager's own: memory, never a program.
pub(crate) fn memory_file(name: &str, bytes: u64) -> Result<OwnedFd, Errno> {
    let plain = MemfdFlags::CLOEXEC;
    // `vm.memfd_noexec=2` demands the seal, which kernels before 6.3 do not know.
    let file = rustix::fs::memfd_create(name, plain | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, plain))?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Maps a memfd of the pager's own, readable and writable, kept out of core dumps.
pub(crate) fn map_shared(file: &OwnedFd, len: usize) -> Result<usize, Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses a free place for the file; no existing mapping changes.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, 0)? };
    keep_from_dumps(address as usize, len);
    Ok(address as usize)
}

/// Like [`map_shared`], in place of a mapping of the pager's own at `start`.
///
/// # Safety
/// No Rust code may refer to what is there.
pub(crate) unsafe fn map_shared_over(
    file: &OwnedFd,
    start: usize,
    len: usize,
) -> Result<(), Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: `MAP_FIXED` replaces the mapping at `start`; the caller guarantees that no Rust code
    // refers to it.
    unsafe { rustix::mm::mmap(start as *mut _, len, prot, flags, file, 0)? };
    keep_from_dumps(start, len);
    Ok(())
}

/// Maps a part of a memfd at an address where nothing is mapped; `EEXIST` if something is.
///
/// # Safety
/// From here on the program stores to this part of the file: no Rust code may refer to it.
pub(crate) unsafe fn overlay(
    start: usize,
    len: usize,
    file: &OwnedFd,
    offset: u64,
) -> Result<(), Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags =
        MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE | MapFlags::POPULATE;
    // SAFETY: `MAP_FIXED_NOREPLACE` replaces nothing. The caller guarantees that no Rust code refers
    // to this part of the file, to which the program can now store.
    unsafe { rustix::mm::mmap(start as *mut _, len, prot, flags, file, offset)? };
    Ok(())
}

/// Unmaps a range.
///
/// # Safety
/// No Rust code may refer to what is there.
pub(crate) unsafe fn unmap(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the mapping goes away; the caller guarantees that no Rust code refers to it.
    unsafe { rustix::mm::munmap(start as *mut _, len) }
}

/// Frees the memory of pages of a memfd, from byte `offset` on; they read as zeros.
///
/// # Safety
/// No Rust code may refer to them, wherever they are mapped.
pub(crate) unsafe fn punch(file: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len)
}

/// Writes memory to a file. The kernel alone reads it, so others may store to it meanwhile; the file then has either
/// byte.
///
/// # Safety
/// The range must stay mapped until the call returns.
pub(crate) unsafe fn write_all(
    file: &OwnedFd,
    offset: u64,
    start: usize,
    len: usize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let (from, rest, to) = (start + done, len - done, offset as usize + done);
        let arguments = [file.as_raw_fd() as usize, from, rest, to, 0, 0];
        // SAFETY: the kernel reads a part of the range, which stays mapped, as the caller guarantees.
        done += raw::result(unsafe { raw::syscall(libc::SYS_pwrite64, arguments) })?;
    }
    Ok(())
}

/// Writable memory of the pager's own as bytes.
///
/// # Safety
/// The range must be mapped and writable, and nobody else may touch it while the slice lives.
pub(crate) unsafe fn bytes_mut<'a>(start: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller guarantees that the range is mapped and writable, and that nobody else
    // touches it during `'a`.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) }
}

/// Fills memory with zeros.
///
/// # Safety
/// The range must be mapped and writable, and nobody else may touch it until the call returns.
pub(crate) unsafe fn fill_zeros(start: usize, len: usize) {
    // SAFETY: the caller guarantees that the range is mapped and writable, and that nobody else
    // touches it before this function returns.
    unsafe { std::ptr::write_bytes(start as *mut u8, 0, len) };
}

/// Copies memory.
///
/// # Safety
/// Both ranges must be mapped and must not overlap. Until the call returns, nobody else may touch
/// `to` or store to `from`.
pub(crate) unsafe fn copy(from: usize, to: usize, len: usize) {
    // SAFETY: the caller guarantees that the ranges are mapped and do not overlap, that nobody else
    // touches `to`, and that nobody stores to `from`.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
}
