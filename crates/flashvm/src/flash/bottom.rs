//! The bottom of the stack: a store of this machine, or one on a server.

use super::file::FileStore;
use super::nbd::NbdStore;
use super::store::{Failed, Geometry, Part, Span, Store};
use rustix::io::Errno;
use std::os::fd::RawFd;

/// One of the two kinds of stores.
#[derive(Debug)]
pub(crate) enum Bottom {
    File(FileStore),
    Nbd(NbdStore),
}

impl Bottom {
    /// Whether [`Store::queue`] cannot succeed.
    pub(crate) fn needs_threads(&self) -> bool {
        match self {
            Self::File(file) => file.needs_threads(),
            Self::Nbd(_) => true,
        }
    }

    /// The descriptor of the file or device; `None` at a server.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::File(file) => Some(file.descriptor()),
            Self::Nbd(_) => None,
        }
    }
}

impl Store for Bottom {
    type Queue = <FileStore as Store>::Queue;

    fn geometry(&self) -> Geometry {
        match self {
            Self::File(file) => file.geometry(),
            Self::Nbd(server) => server.geometry(),
        }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what the same call to either store asks for.
        unsafe {
            match self {
                Self::File(file) => file.read(at, to),
                Self::Nbd(server) => server.read(at, to),
            }
        }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the caller guarantees what the same call to either store asks for.
        unsafe {
            match self {
                Self::File(file) => file.write(at, parts),
                Self::Nbd(server) => server.write(at, parts),
            }
        }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.discard(spans),
            Self::Nbd(server) => server.discard(spans),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.sync(),
            Self::Nbd(server) => server.sync(),
        }
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        match self {
            Self::File(file) => file.queue(depth, buffers),
            // Threads serve.
            Self::Nbd(_) => Err(Errno::NOSYS),
        }
    }
}
