//! Discards (TRIM) on the device below a store: `BLKDISCARD` on block devices, holes in files.

use super::raw;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: usize = 0x1277;
/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE` of linux/falloc.h.
const PUNCH_HOLE: usize = 0x01 | 0x02;

/// What backs a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A file: a discarded range becomes a hole.
    File,
    /// A block device, of this machine or of a server.
    Device,
}

impl StoreKind {
    /// The kind of an open store.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub fn of(store: impl AsFd) -> Result<Self, Errno> {
        let mode = rustix::fs::fstat(store)?.st_mode;
        Ok(match FileType::from_raw_mode(mode) {
            FileType::BlockDevice => Self::Device,
            _ => Self::File,
        })
    }

    /// Discards `len` bytes at `offset`; both are multiples of the page size.
    ///
    /// # Errors
    /// The kernel's error; EOPNOTSUPP if the file system or the device has no discards.
    pub fn discard(self, store: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
        let fd = store.as_fd().as_raw_fd() as usize;
        let range = [offset, len];
        let done = match self {
            // SAFETY: the kernel reads two numbers from `range`, which outlives the call; the
            // descriptor is borrowed. The caller owns the data on the device.
            Self::Device => unsafe {
                let range = range.as_ptr() as usize;
                raw::syscall(libc::SYS_ioctl, [fd, BLKDISCARD, range, 0, 0, 0])
            },
            // SAFETY: the call takes only numbers and a borrowed descriptor.
            Self::File => unsafe {
                let args = [fd, PUNCH_HOLE, offset as usize, len as usize, 0, 0];
                raw::syscall(libc::SYS_fallocate, args)
            },
        };
        raw::result(done).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_hole_reads_as_zeros_and_the_rest_stays() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let kind = StoreKind::of(&file).unwrap();
        assert_eq!(kind, StoreKind::File);
        match kind.discard(&file, 4096, 4096) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => {
                let test = "a_hole_reads_as_zeros_and_the_rest_stays";
                eprintln!("SKIPPED: {test}: this file system has no holes");
                return;
            }
            Err(e) => panic!("{e}"),
        }
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let expected = |at: usize| if (4096..8192).contains(&at) { 0 } else { 7 };
        assert_eq!(bytes.len(), 3 * 4096);
        assert!((0..bytes.len()).all(|at| bytes[at] == expected(at)));
    }
}
