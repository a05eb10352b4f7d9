//! The bottom of the stack: a file or block device, opened for direct I/O.

use super::aio::Aio;
use super::aio_context;
use super::either::Either;
use super::ring::Ring;
use super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use crate::sys::discard::StoreKind;
use crate::sys::{disk_space, raw};
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The smallest unit that is tried.
const SECTOR_BYTES: usize = 512;
/// Threads that keep enough requests in flight for flash to be fast.
const THREADS: usize = 4;

/// A file or device.
#[derive(Debug)]
pub(crate) struct FileStore {
    file: OwnedFd,
    geometry: Geometry,
    without_ring: bool,
}

/// A sector, aligned for direct I/O.
#[repr(align(4096))]
struct Sector([u8; SECTOR_BYTES]);

impl FileStore {
    /// A store of the first `bytes` of an open file or device. Reads a sector to find its unit. Its queues use no
    /// io_uring if `without_ring`.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub(crate) fn new(file: OwnedFd, bytes: u64, without_ring: bool) -> Result<Self, Errno> {
        let kind = StoreKind::of(&file)?;
        let mut store = Self {
            file,
            geometry: Geometry {
                bytes,
                unit: SECTOR_BYTES,
                kind,
                threads: THREADS,
            },
            without_ring,
        };
        let mut sector = Sector([0; SECTOR_BYTES]);
        let to = Part {
            address: sector.0.as_mut_ptr() as usize,
            len: SECTOR_BYTES,
        };
        // SAFETY: `to` is `sector`, a local that nothing else uses.
        if !unsafe { store.read(0, to) }.is_none() {
            store.geometry.unit = PAGE_SIZE;
        }
        Ok(store)
    }

    /// Whether [`Store::queue`] cannot succeed.
    pub(crate) fn needs_threads(&self) -> bool {
        self.without_ring && !aio_context::is_allowed()
    }

    /// Its descriptor, which stays open as long as the store.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Store for FileStore {
    /// io_uring, or asynchronous I/O where that is forbidden.
    type Queue = Either<Ring, Aio>;

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
        // SAFETY: the kernel stores at most `to.len` bytes in `to`. The caller guarantees that `to` is writable and
        // that nobody else uses it until this function returns.
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
        // SAFETY: `parts` is borrowed and laid out as the vector that the kernel reads. The caller guarantees that the
        // memory of the parts is readable and that nobody changes it until this function returns.
        let written = unsafe { raw::syscall(libc::SYS_pwritev, args) };
        disk_space::look_at(written as i64);
        Failed::unless(written == len as isize, len)
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        // One by one: the kernel takes no list.
        spans
            .iter()
            .try_for_each(|span| self.geometry.kind.discard(&self.file, span.at, span.len))
    }

    fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.file)
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        let (file, geometry) = (self.descriptor(), self.geometry);
        if !self.without_ring
            && let Ok(ring) = Ring::open(file, geometry, depth, buffers)
        {
            return Ok(Either::Preferred(Box::new(ring)));
        }
        Aio::open(file, geometry, depth).map(Either::Fallback)
    }
}
