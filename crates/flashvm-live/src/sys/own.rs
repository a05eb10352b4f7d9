//! This process's memory as `/proc` presents it.
//!
//! The descriptors stay open, out of the program's way: a temporary one would take, for a moment, a
//! number that the program expects to get.

use super::descriptors::PagerFd;
use super::raw;
use flashvm_core::PAGE_SIZE;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// Entries of the page table that are read with one call.
const ENTRIES: usize = 64;
/// Pages that [`copy_present`] copies at most.
const COPIED_PAGES_MAX: usize = 8;

/// Copies memory of this process from `from` on, until `into` is full or a page is absent. The kernel copies, so that
/// an absent page ends the copy and is no fault. Returns the words copied.
pub(crate) fn copy_present(into: &[AtomicU64], from: usize) -> usize {
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    // The kernel copies all of a part or nothing: so a part ends with its page.
    let mut parts = [none; COPIED_PAGES_MAX];
    let (mut at, mut left, mut count) = (from, size_of_val(into), 0);
    while left > 0 && count < COPIED_PAGES_MAX {
        let len = left.min(PAGE_SIZE - at % PAGE_SIZE);
        parts[count] = libc::iovec {
            iov_base: at as *mut _,
            iov_len: len,
        };
        (at, left, count) = (at.wrapping_add(len), left - len, count + 1);
    }
    let local = libc::iovec {
        iov_base: into.as_ptr().cast_mut().cast(),
        iov_len: size_of_val(into),
    };
    // SAFETY: takes no memory.
    let own = unsafe { raw::syscall(libc::SYS_getpid, [0; 6]) } as usize;
    // SAFETY: `local` is memory of atomics, which anybody may change; the kernel checks the addresses of the parts. The
    // vectors live over the call.
    let copied = unsafe {
        raw::syscall(
            libc::SYS_process_vm_readv,
            [
                own,
                &raw const local as usize,
                1,
                parts.as_ptr() as usize,
                count,
                0,
            ],
        )
    };
    raw::result(copied).unwrap_or(0) / size_of::<u64>()
}

/// Contents, page table and mappings of this process. A forked child needs its own.
#[derive(Debug)]
pub(crate) struct OwnMemory {
    contents: PagerFd,
    pages: PagerFd,
    mappings: PagerFd,
}

impl OwnMemory {
    pub(crate) fn open() -> Result<Self, Errno> {
        // The thread's files: those of the process fail once its main thread has ended.
        let open = |path| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            PagerFd::open(|| rustix::fs::open(path, flags, Mode::empty()))
        };
        Ok(Self {
            contents: open("/proc/thread-self/mem")?,
            pages: open("/proc/thread-self/pagemap")?,
            mappings: open("/proc/thread-self/maps")?,
        })
    }

    /// Copies a page, even one that the program may not read.
    pub(crate) fn read(&self, address: usize, into: &mut [u8; PAGE_SIZE]) -> Result<(), Errno> {
        match rustix::io::pread(&self.contents, &mut into[..], address as u64)? {
            PAGE_SIZE => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Whether a page has contents, in RAM or in the kernel's own swap. Does not touch it.
    pub(crate) fn is_present(&self, address: usize) -> bool {
        let mut present = [true];
        self.are_present(address, &mut present);
        present[0]
    }

    /// [`Self::is_present`] for the pages from an address on.
    pub(crate) fn are_present(&self, address: usize, present: &mut [bool]) {
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        const ENTRY: usize = size_of::<u64>();
        let mut at = address / PAGE_SIZE * ENTRY;
        for part in present.chunks_mut(ENTRIES) {
            let mut entries = [0; ENTRIES * ENTRY];
            let entries = &mut entries[..part.len() * ENTRY];
            let read = rustix::io::pread(&self.pages, &mut *entries, at as u64);
            at += entries.len();
            let answered = read == Ok(entries.len());
            for (is_present, entry) in part.iter_mut().zip(entries.as_chunks::<ENTRY>().0) {
                // If the kernel does not answer, the page counts as present.
                *is_present = !answered || u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0;
            }
        }
    }

    /// The mapping of an address.
    pub(crate) fn mapping_at(&self, address: usize) -> Option<Mapping> {
        match self.query_mapping(address) {
            // Before Linux 6.11 the whole list has to be read.
            Err(Errno::NOTTY) => self.find_mapping(address),
            result => result.ok(),
        }
    }

    fn query_mapping(&self, address: usize) -> Result<Mapping, Errno> {
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
                    self.mappings.as_raw_fd() as usize,
                    PROCMAP_QUERY,
                    &raw mut query as usize,
                    0,
                    0,
                    0,
                ],
            )
        })?;
        Ok(Mapping {
            start: query.start as usize,
            end: query.end as usize,
            prot: ProtFlags::from_bits_truncate(query.flags as u32 & 7),
        })
    }

    fn find_mapping(&self, address: usize) -> Option<Mapping> {
        let mut buffer = [0; 4096];
        let (mut kept, mut offset) = (0, 0);
        loop {
            let read = rustix::io::pread(&self.mappings, &mut buffer[kept..], offset).ok()?;
            if read == 0 {
                return None;
            }
            offset += read as u64;
            let len = kept + read;
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
}

/// A mapping: its start, its end, and its access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) prot: ProtFlags,
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

fn parse_mapping(line: &str, address: usize) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (start..end).contains(&address).then(|| {
        let mut prot = ProtFlags::empty();
        prot.set(ProtFlags::READ, rest.starts_with('r'));
        prot.set(ProtFlags::WRITE, rest[1..].starts_with('w'));
        prot.set(ProtFlags::EXEC, rest[2..].starts_with('x'));
        Mapping { start, end, prot }
    })
}

#[cfg(test)]
mod tests {
    use super::super::map;
    use super::super::message::eprint_line;
    use super::*;
    use rustix::mm::MprotectFlags;

    #[test]
    fn a_mapping_is_found_in_both_ways() {
        let at = map::own(3 * PAGE_SIZE).unwrap();
        // SAFETY: just mapped, and nobody refers to it.
        unsafe { map::protect(at + PAGE_SIZE, PAGE_SIZE, MprotectFlags::READ).unwrap() };
        let own = OwnMemory::open().unwrap();
        let expected = Mapping {
            start: at + PAGE_SIZE,
            end: at + 2 * PAGE_SIZE,
            prot: ProtFlags::READ,
        };
        assert_eq!(own.find_mapping(at + PAGE_SIZE), Some(expected));
        match own.query_mapping(at + PAGE_SIZE) {
            // Written directly: the harness hides what a test prints.
            Err(Errno::NOTTY) => eprint_line(
                "SKIPPED: a_mapping_is_found_in_both_ways: no PROCMAP_QUERY before Linux 6.11",
            ),
            result => assert_eq!(result, Ok(expected)),
        }
    }

    #[test]
    fn contents_and_presence() {
        let at = map::own(2 * PAGE_SIZE).unwrap();
        // SAFETY: just mapped, and nobody else's.
        unsafe { *(at as *mut u8) = 7 };
        // SAFETY: the test's own mapping, to which it keeps no reference.
        unsafe { map::protect(at, PAGE_SIZE, MprotectFlags::empty()).unwrap() };
        let own = OwnMemory::open().unwrap();
        let mut page = [0; PAGE_SIZE];
        own.read(at, &mut page).unwrap();
        assert_eq!(page[..2], [7, 0], "also where the program may not look");
        assert!(own.is_present(at) && !own.is_present(at + PAGE_SIZE));
        let mut present = [false, true];
        own.are_present(at, &mut present);
        assert_eq!(present, [true, false]);
        // SAFETY: the test's own mapping, to which it keeps no reference.
        unsafe { map::drop_pages(at, PAGE_SIZE).unwrap() };
        assert!(!own.is_present(at));
    }
}
