//! The file that is read and written, and buffers for direct I/O. The first word of each page is the page's offset, so
//! that each read can be checked.

use crate::PAGE;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A file without a name, opened for direct I/O.
pub(crate) struct Disk {
    file: File,
    pub(crate) bytes: u64,
}

impl Disk {
    /// A file with all its pages written.
    pub(crate) fn written(folder: &Path, bytes: u64) -> io::Result<Self> {
        let disk = Self::allocated(folder, bytes)?;
        let buffers = Buffers::new(1, 1 << 20);
        for at in (0..bytes).step_by(1 << 20) {
            buffers.stamp(0, at, 1 << 20);
            // SAFETY: memory of `buffers`, which nobody stores to meanwhile.
            let from =
                unsafe { std::slice::from_raw_parts(buffers.address(0) as *const u8, 1 << 20) };
            disk.file.write_all_at(from, at)?;
        }
        disk.file.sync_all()?;
        Ok(disk)
    }

    /// A file that has its space but no contents, as a new flash store.
    pub(crate) fn allocated(folder: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE | libc::O_DIRECT)
            .open(folder)?;
        let disk = Self { file, bytes };
        disk.allocate(0)?;
        Ok(disk)
    }

    /// Drops all contents and allocates the space again.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)?;
        self.allocate(0)?;
        self.file.sync_all()
    }

    fn allocate(&self, mode: i32) -> io::Result<()> {
        // SAFETY: the call takes no pointer.
        match unsafe { libc::fallocate(self.descriptor(), mode, 0, self.bytes as i64) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Buffers of equal size, page-aligned.
pub(crate) struct Buffers {
    base: usize,
    each: usize,
    bytes: usize,
}

impl Buffers {
    pub(crate) fn new(count: usize, each: usize) -> Self {
        // SAFETY: fresh anonymous memory at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * each,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "no memory");
        Self {
            base: base as usize,
            each,
            bytes: count * each,
        }
    }

    pub(crate) fn address(&self, buffer: usize) -> usize {
        self.base + buffer * self.each
    }

    /// Gives each page of a buffer the word that belongs at `at` and after.
    pub(crate) fn stamp(&self, buffer: usize, at: u64, bytes: usize) {
        for offset in (0..bytes).step_by(PAGE) {
            // SAFETY: the start of a page of this buffer, which no operation uses now.
            unsafe { ((self.address(buffer) + offset) as *mut u64).write(at + offset as u64) };
        }
    }

    /// Panics unless a buffer holds what was read at `at`. Spoils the words for the next check.
    pub(crate) fn check(&self, buffer: usize, at: u64, bytes: usize) {
        for offset in (0..bytes).step_by(PAGE) {
            let word = (self.address(buffer) + offset) as *mut u64;
            // SAFETY: the start of a page of this buffer, whose read has ended.
            let found = unsafe { word.replace(u64::MAX) };
            assert_eq!(found, at + offset as u64, "another page was read");
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which no operation uses any more: a way ends before its buffers.
        unsafe { libc::munmap(self.base as *mut _, self.bytes) };
    }
}
