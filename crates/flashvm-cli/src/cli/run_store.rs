//! The store of a run: a store at one place, or a `mirror` of two.

use super::mirror::{self, MirrorStore};
use super::nbd;
use super::options::RunOptions;
use super::refusal::Refusal;
use super::single_store::SingleStore;
use super::store;
use flashvm::control::StorePlace;
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::path::Path;

const SECTOR_BYTES: usize = 512;

/// An open store.
#[derive(Debug)]
pub(crate) enum RunStore {
    Single(SingleStore),
    Mirror(MirrorStore),
}

impl RunStore {
    /// Opens the store at a path or URI, for a budget of `ram` bytes, as the options say.
    pub(crate) fn open(flash: &Path, ram: u64, options: &RunOptions) -> Result<Self, Refusal> {
        let (size, timeout) = (options.flash_size, options.flash_timeout);
        if let Some(uri) = nbd::uri(flash) {
            let server = nbd::open(uri, ram, size, timeout)?;
            return Ok(Self::Single(SingleStore::Server(server)));
        }
        if let Some(sides) = mirror::sides(flash) {
            return mirror::open(sides, ram, options).map(Self::Mirror);
        }
        if let Some(timeout) = timeout {
            return Err(Refusal::new(format!(
                "--flash-timeout {timeout} is for a store at a server, and {} is here: leave it out",
                flash.display()
            )));
        }
        if !options.flash_in_ram.is_some_and(|flag| flag.0) {
            store::refuse_ram(flash)?;
        }
        let file = store::open(flash, ram, size)?;
        Ok(Self::Single(SingleStore::File(file)))
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Single(store) => store.bytes(),
            Self::Mirror(mirror) => mirror.bytes,
        }
    }

    /// Bytes from the start that have disk space.
    pub(crate) fn backed(&self) -> u64 {
        match self {
            Self::Single(store) => store.backed(),
            Self::Mirror(mirror) => mirror.backed(),
        }
    }

    /// Discards the first page, to see whether the store accepts discards. For a store without data.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        match self {
            Self::Single(store) => store.try_discard(),
            Self::Mirror(mirror) => mirror.try_discard(),
        }
    }

    /// Whether it can read 512 bytes.
    pub(crate) fn reads_sectors(&self) -> bool {
        match self {
            Self::Single(SingleStore::File(store)) => {
                // Not on the stack: there rustc 1.95 leaves the function's first instructions out (eval/frames.sh).
                let mut page = store::Page::zeros();
                rustix::io::pread(&store.fd, &mut page.0[..SECTOR_BYTES], 0) != Err(Errno::INVAL)
            }
            Self::Single(SingleStore::Server(store)) => store.unit as usize <= SECTOR_BYTES,
            // Small pages, which ask for this, cannot be mirrored.
            Self::Mirror(_) => false,
        }
    }

    /// The descriptors of files or devices.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; 2] {
        match self {
            Self::Single(store) => [store.descriptor(), None],
            Self::Mirror(mirror) => mirror.descriptors(),
        }
    }

    /// Where it is, for the processes.
    pub(crate) fn place(&self) -> StorePlace {
        match self {
            Self::Single(SingleStore::File(_)) => StorePlace::Here,
            Self::Single(SingleStore::Server(store)) => StorePlace::Server(store.server.clone()),
            Self::Mirror(mirror) => StorePlace::Mirror(mirror.places()),
        }
    }
}
