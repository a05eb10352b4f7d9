//! The bottom of the stack: a store of this machine, one on a server, or one of several sides.

use super::file::FileStore;
use super::mirror::Mirror;
use super::nbd::NbdStore;
use super::store::{Failed, Geometry, Part, Span, Store};
use super::stripe::Stripe;
use super::tier::Tier;
use crate::control::{Process, STORES_MAX};
use crate::sys::disk_space::Space;
use rustix::io::Errno;

/// One of the kinds of stores.
#[derive(Debug)]
pub(crate) enum Bottom {
    File(FileStore),
    Nbd(NbdStore),
    Mirror(Box<Mirror>),
    Stripe(Box<Stripe>),
    Tier(Box<Tier>),
}

impl Bottom {
    /// Whether [`Store::queue`] cannot succeed.
    pub(crate) fn needs_threads(&self) -> bool {
        match self {
            Self::File(file) => file.needs_threads(),
            Self::Nbd(_) | Self::Mirror(_) | Self::Stripe(_) | Self::Tier(_) => true,
        }
    }

    /// Where its space on disks is.
    pub(crate) fn space(&self) -> Space {
        match self {
            Self::File(file) => {
                let mut files = [None; STORES_MAX];
                files[0] = Some(file.descriptor());
                Space::whole(files)
            }
            Self::Nbd(_) => Space::whole([None; STORES_MAX]),
            Self::Mirror(mirror) => Space::whole(mirror.descriptors()),
            Self::Stripe(stripe) => stripe.space(),
            Self::Tier(tier) => tier.space(),
        }
    }

    /// In a forked child.
    pub(crate) fn become_child(&mut self, process: Process) {
        match self {
            Self::File(_) => {}
            Self::Nbd(server) => server.become_child(process),
            Self::Mirror(mirror) => mirror.become_child(process),
            Self::Stripe(stripe) => stripe.become_child(process),
            Self::Tier(tier) => tier.become_child(process),
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
            Self::Stripe(stripe) => stripe.geometry(),
            Self::Tier(tier) => tier.geometry(),
        }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what the same call to either store asks for.
        unsafe {
            match self {
                Self::File(file) => file.read(at, to),
                Self::Nbd(server) => server.read(at, to),
                Self::Mirror(mirror) => mirror.read(at, to),
                Self::Stripe(stripe) => stripe.read(at, to),
                Self::Tier(tier) => tier.read(at, to),
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
                Self::Stripe(stripe) => stripe.write(at, parts),
                Self::Tier(tier) => tier.write(at, parts),
            }
        }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.discard(spans),
            Self::Nbd(server) => server.discard(spans),
            Self::Mirror(mirror) => mirror.discard(spans),
            Self::Stripe(stripe) => stripe.discard(spans),
            Self::Tier(tier) => tier.discard(spans),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => file.sync(),
            Self::Nbd(server) => server.sync(),
            Self::Mirror(mirror) => mirror.sync(),
            Self::Stripe(stripe) => stripe.sync(),
            Self::Tier(tier) => tier.sync(),
        }
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        match self {
            Self::File(file) => file.queue(depth, buffers),
            // Threads serve.
            Self::Nbd(_) | Self::Mirror(_) | Self::Stripe(_) | Self::Tier(_) => Err(Errno::NOSYS),
        }
    }

    fn copies(&self) -> usize {
        match self {
            Self::Mirror(mirror) => mirror.copies(),
            _ => 1,
        }
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what these calls ask for.
        unsafe {
            match self {
                Self::Mirror(mirror) => mirror.read_copy(copy, at, to),
                _ => self.read(at, to),
            }
        }
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        if let Self::Mirror(mirror) = self {
            mirror.mend(copy, at, len);
        }
    }
}
