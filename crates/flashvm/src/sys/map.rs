//! Mappings: the pager's own memory, the reservation of the managed range, and giving pages back.

use super::raw;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

/// Maps `len` bytes of address space that nobody can touch yet, at a multiple of `align`.
pub(crate) fn reserve(len: usize, align: usize) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses a free place; no existing mapping changes.
    let address = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + align, ProtFlags::empty(), flags)?
    };
    // What lies before and after stays reserved: address space is all that it costs.
    Ok((address as usize).next_multiple_of(align))
}

/// Puts fresh anonymous memory over part of a range that the caller owns.
pub(crate) fn map_fixed(start: usize, len: usize, prot: ProtFlags) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller owns the range: it lies in the managed range or its shadow.
    unsafe { rustix::mm::mmap_anonymous(start as *mut _, len, prot, flags)? };
    Ok(())
}

/// Moves a mapping of the kernel's to `new`, whatever lies there (`mremap`).
pub(crate) fn move_mapping(
    old: usize,
    len: usize,
    new: usize,
    new_len: usize,
) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the program asked for this, of ranges that are its own.
    let moved = unsafe {
        raw::syscall(
            libc::SYS_mremap,
            [old, len, new_len, flags as usize, new, 0],
        )
    };
    raw::result(moved).map(|_| ())
}

/// Keeps a range out of core dumps: it is far larger than what it holds.
pub(crate) fn keep_from_dumps(start: usize, len: usize) {
    // SAFETY: only a flag of the mapping changes. Where the kernel refuses, dumps are larger.
    let _ = unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontDump) };
}

/// Anonymous zeroed memory of the pager's own, page-aligned.
pub(crate) fn own(len: usize) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a free place; no existing mapping changes.
    let address = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
    Ok(address as usize)
}

/// Zeroed counters of the pager's own, in memory that is not taken before it is touched.
pub(crate) fn own_counters(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let address = own(count.max(1) * size_of::<AtomicU64>())?;
    // SAFETY: fresh, zeroed, page-aligned memory of that length that is never unmapped; any bit
    // pattern is an `AtomicU64`.
    Ok(unsafe { std::slice::from_raw_parts(address as *const AtomicU64, count) })
}

/// Gives the frames of a range back; it reads as zeros, or faults again where registered.
pub(crate) fn drop_pages(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller owns the contents: they are on flash, or given up.
    unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontNeed) }
}

/// Most ranges that [`drop_ranges`] takes at once.
pub(crate) const DROP_RANGES_MAX: usize = 64;

/// Gives the frames of several ranges back, as [`drop_pages`] does for one.
pub(crate) fn drop_ranges(ranges: &[libc::iovec]) -> Result<(), Errno> {
    /// This process, without a descriptor for it (Linux 6.14).
    const PIDFD_SELF: i32 = -10_000;
    let bytes: usize = ranges.iter().map(|range| range.iov_len).sum();
    if ranges.len() > 1 {
        // SAFETY: the caller owns the contents: they are on flash, or given up.
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
    // An older kernel, or a part of it is done: dropping twice is dropping once.
    ranges
        .iter()
        .try_for_each(|range| drop_pages(range.iov_base as usize, range.iov_len))
}

/// Takes a page that is present out of sharing after a fork: a copy of this process' own, or the
/// page itself once nobody else has it. Its write-protection stays.
///
/// Reading memory by address, as a debugger does, pins it for a moment, and what is pinned the
/// kernel first makes exclusive. No store is needed, which could wait for the pager.
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

/// Where the mapping of an address ends, and its protection.
pub(crate) fn mapping_at(address: usize) -> Option<(usize, ProtFlags)> {
    let maps = rustix::fs::open(
        "/proc/thread-self/maps",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .ok()?;
    match query_mapping(&maps, address) {
        // Before Linux 6.11 the whole list has to be read.
        Err(Errno::NOTTY) => find_mapping(&maps, address),
        result => result.ok(),
    }
}

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct MappingQuery {
    size: u64,
    query: [u64; 2],
    start: u64,
    end: u64,
    flags: u64,
    rest: [u64; 7],
}

fn query_mapping(maps: &OwnedFd, address: usize) -> Result<(usize, ProtFlags), Errno> {
    /// `_IOWR('f', 17, struct procmap_query)`.
    const PROCMAP_QUERY: usize = 0xC068_6611;
    let mut query = MappingQuery {
        size: size_of::<MappingQuery>() as u64,
        query: [0, address as u64],
        ..MappingQuery::default()
    };
    // SAFETY: `query` is the structure that this request reads and writes.
    raw::result(unsafe {
        raw::syscall(
            libc::SYS_ioctl,
            [
                std::os::fd::AsRawFd::as_raw_fd(maps) as usize,
                PROCMAP_QUERY,
                &raw mut query as usize,
                0,
                0,
                0,
            ],
        )
    })?;
    let prot = ProtFlags::from_bits_truncate(query.flags as u32 & 7);
    Ok((query.end as usize, prot))
}

fn find_mapping(maps: &OwnedFd, address: usize) -> Option<(usize, ProtFlags)> {
    let mut buffer = [0; 4096];
    let mut kept = 0;
    loop {
        let len = kept + rustix::io::read(maps, &mut buffer[kept..]).ok()?;
        if len == kept {
            return None;
        }
        let mut at = 0;
        while let Some(end) = buffer[at..len].iter().position(|&byte| byte == b'\n') {
            let line = std::str::from_utf8(&buffer[at..at + end]).unwrap_or_default();
            if let Some(found) = parse_mapping(line, address) {
                return Some(found);
            }
            at += end + 1;
        }
        buffer.copy_within(at..len, 0);
        kept = len - at;
    }
}

fn parse_mapping(line: &str, address: usize) -> Option<(usize, ProtFlags)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (start..end).contains(&address).then(|| {
        let mut prot = ProtFlags::empty();
        prot.set(ProtFlags::READ, rest.starts_with('r'));
        prot.set(ProtFlags::WRITE, rest[1..].starts_with('w'));
        prot.set(ProtFlags::EXEC, rest[2..].starts_with('x'));
        (end, prot)
    })
}

/// Changes the protection of a range.
pub(crate) fn protect(start: usize, len: usize, prot: MprotectFlags) -> Result<(), Errno> {
    // SAFETY: the caller owns the range, and no Rust reference points into it.
    unsafe { rustix::mm::mprotect(start as *mut _, len, prot) }
}

/// This process' memory as a file: reads also what the program may not.
pub(crate) fn own_memory() -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        "/proc/thread-self/mem",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .and_then(super::descriptors::keep)
}

/// Copies a page of this process', also one that the program may not read. Whether it could.
pub(crate) fn read_own(address: usize, into: &mut [u8; flashvm_core::PAGE_SIZE]) -> bool {
    rustix::fs::open(
        "/proc/thread-self/mem",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .and_then(|memory| rustix::io::pread(&memory, &mut into[..], address as u64))
        == Ok(flashvm_core::PAGE_SIZE)
}

/// Whether a page has contents, in RAM or in the kernel's own swap. Does not touch it.
pub(crate) fn is_present(address: usize) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    let entry = rustix::fs::open(
        "/proc/thread-self/pagemap",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .and_then(|file| {
        let mut entry = [0; size_of::<u64>()];
        let at = address / flashvm_core::PAGE_SIZE * size_of::<u64>();
        rustix::io::pread(&file, &mut entry, at as u64)?;
        Ok(u64::from_ne_bytes(entry))
    });
    // Where the kernel does not tell, a page is taken to be where it should be.
    entry.map_or(true, |entry| entry & PRESENT_OR_SWAPPED != 0)
}

/// Reads pager-owned or shadow memory as bytes.
///
/// # Safety
/// The range must be mapped and readable, and nobody may write to it while the slice lives.
pub(crate) unsafe fn bytes<'a>(start: usize, len: usize) -> &'a [u8] {
    // SAFETY: by this function's own contract.
    unsafe { std::slice::from_raw_parts(start as *const u8, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_in_both_ways() {
        let page = flashvm_core::PAGE_SIZE;
        let at = own(3 * page).unwrap();
        protect(at + page, page, MprotectFlags::READ).unwrap();
        let maps = rustix::fs::open(
            "/proc/thread-self/maps",
            rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let expected = (at + 2 * page, ProtFlags::READ);
        assert_eq!(find_mapping(&maps, at + page), Some(expected));
        match query_mapping(&maps, at + page) {
            Err(Errno::NOTTY) => println!("SKIPPED: no PROCMAP_QUERY before Linux 6.11"),
            result => assert_eq!(result, Ok(expected)),
        }
    }
}
