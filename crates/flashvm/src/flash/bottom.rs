//! The bottom of the stack: a store of this machine, one on a server, or a mirror.

use super::file::FileStore;
use super::mirror::Mirror;
use super::nbd::NbdStore;
use super::store::{Failed, Geometry, Part, Span, Store};
use crate::control::Process;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// One of the kinds of stores.
#[derive(Debug)]
pub(crate) enum Bottom {
    File(FileStore),
    Nbd(NbdStore),
    Mirror(Box<Mirror>),
}

impl Bottom {
    /// Whether [`Store::queue`] cannot succeed.
    pub(crate) fn needs_threads(&self) -> bool {
        match self {
            Self::File(file) => file.needs_threads(),
            Self::Nbd(_) | Self::Mirror(_) => true,
        }
    }

    /// The descriptors of files or devices.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; 2] {
        match self {
            Self::File(file) => [Some(file.descriptor()), None],
            Self::Nbd(_) => [None; 2],
            Self::Mirror(mirror) => mirror.descriptors(),
        }
    }

    /// In a forked child.
    pub(crate) fn become_child(&mut self, process: Process) {
        match self {
            Self::File(_) => {}
            Self::Nbd(server) => server.become_child(process),
            Self::Mirror(mirror) => mirror.become_child(process),
        }
    }
}

impl Store for Bottom {
    type Queue = <FileStore as Store>::Queue;

    fn geometry(&self) -> Geometry {
        match self {
            Self::File(file) => file.geometry(),
            Self::Nbd(server) => server.geometry(),
            Self::Mirror(mirror) => mirror.geometry(),
        }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what the same call to either store asks for.
        unsafe {
            match self {
                Self::File(file) => file.read(at, to),
                Self::Nbd(server) => server.read(at, to),
                Self::Mirror(mirror) => mirror.read(at, to),
            }
        }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the caller guarantees what the same call to either store asks for.
        unsafe {
            match self {
                Self::File(file) => file.write(at, parts),
                Self::Nbd(server) => server.write(at, parts),
                Self::Mirror(mirror) => mirror.write(at, parts),
            }
        }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.discard(spans),
            Self::Nbd(server) => server.discard(spans),
            Self::Mirror(mirror) => mirror.discard(spans),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.sync(),
            Self::Nbd(server) => server.sync(),
            Self::Mirror(mirror) => mirror.sync(),
        }
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        match self {
            Self::File(file) => file.queue(depth, buffers),
            // Threads serve.
            Self::Nbd(_) | Self::Mirror(_) => Err(Errno::NOSYS),
        }
    }

    fn copies(&self) -> usize {
        match self {
            Self::Mirror(mirror) => mirror.copies(),
            Self::File(_) | Self::Nbd(_) => 1,
        }
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what these calls ask for.
        unsafe {
            match self {
                Self::Mirror(mirror) => mirror.read_copy(copy, at, to),
                Self::File(_) | Self::Nbd(_) => self.read(at, to),
            }
        }
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        match self {
            Self::Mirror(mirror) => mirror.mend(copy, at, len),
            Self::File(_) | Self::Nbd(_) => {}
        }
    }
}
