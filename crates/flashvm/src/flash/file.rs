//! The bottom of the stack: a file or block device, open for direct I/O.

use super::ring::Ring;
use super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use crate::sys::discard::StoreKind;
use crate::sys::{raw, space};
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The smallest unit that is tried.
const SECTOR_BYTES: usize = 512;
/// Threads for the queue depth at which flash is fast.
const THREADS: usize = 4;

/// A file or device.
#[derive(Debug)]
pub(crate) struct FileStore {
    file: OwnedFd,
    geometry: Geometry,
}

/// A sector where direct I/O wants it.
#[repr(align(4096))]
struct Sector([u8; SECTOR_BYTES]);

impl FileStore {
    /// The first `bytes` of an open file or device.
    ///
    /// # Errors
    /// What `fstat` says.
    pub(crate) fn new(file: OwnedFd, bytes: u64) -> Result<Self, Errno> {
        let kind = StoreKind::of(&file)?;
        let mut store = Self {
            file,
            geometry: Geometry {
                bytes,
                unit: SECTOR_BYTES,
                kind,
                threads: THREADS,
            },
        };
        let mut sector = Sector([0; SECTOR_BYTES]);
        let to = Part {
            address: sector.0.as_mut_ptr() as usize,
            len: SECTOR_BYTES,
        };
        // SAFETY: the buffer lies on this stack.
        if !unsafe { store.read(0, to) }.is_none() {
            store.geometry.unit = PAGE_SIZE;
        }
        Ok(store)
    }

    /// Its descriptor, which stays open as long as the store.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Store for FileStore {
    type Queue = Ring;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        let args = [
            self.descriptor() as usize,
            to.address,
            to.len,
            at as usize,
            0,
            0,
        ];
        // SAFETY: the kernel stores at most `to.len` bytes in `to`, which is writable, and which nobody else uses
        // until this function returns, as the caller guarantees.
        let read = unsafe { raw::syscall(libc::SYS_pread64, args) };
        Failed::unless(read == to.len as isize, to.len)
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        let len = bytes_of(parts);
        self.geometry.admit(at, len);
        let vector = parts.as_ptr() as usize;
        let args = [
            self.descriptor() as usize,
            vector,
            parts.len(),
            at as usize,
            0,
            0,
        ];
        // SAFETY: parts are laid out as the kernel's vector, which it only reads. The memory that they name is
        // readable, and nobody changes it until this function returns, as the caller guarantees.
        let written = unsafe { raw::syscall(libc::SYS_pwritev, args) };
        space::look_at(written as i64);
        Failed::unless(written == len as isize, len)
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        // One after the other: the kernel has no list of them.
        spans
            .iter()
            .try_for_each(|span| self.geometry.kind.discard(&self.file, span.at, span.len))
    }

    fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.file)
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Ring, Errno> {
        Ring::open(self.descriptor(), self.geometry, depth, buffers)
    }
}
