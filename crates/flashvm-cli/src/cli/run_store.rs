//! The store of a run: a file or device of this machine (`store`), or an export of a server (`nbd`).

use super::nbd::{self, ServerStore};
use super::options::RunOptions;
use super::refusal::Refusal;
use super::store::{self, Store};
use flashvm::control::NbdServer;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use std::path::Path;

const SECTOR_BYTES: usize = 512;

/// An open store.
#[derive(Debug)]
pub(crate) enum RunStore {
    File(Store),
    Server(ServerStore),
}

impl RunStore {
    /// Opens the store at a path or URI, for a budget of `ram` bytes, as the options say.
    pub(crate) fn open(flash: &Path, ram: u64, options: &RunOptions) -> Result<Self, Refusal> {
        let (size, timeout) = (options.flash_size, options.flash_timeout);
        if let Some(uri) = nbd::uri(flash) {
            return nbd::open(uri, ram, size, timeout).map(Self::Server);
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
        store::open(flash, ram, size).map(Self::File)
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::File(store) => store.bytes,
            Self::Server(store) => store.bytes,
        }
    }

    /// Bytes from the start that have disk space. A server is trusted with the size that it says.
    pub(crate) fn backed(&self) -> u64 {
        match self {
            Self::File(store) => store.backed,
            Self::Server(store) => store.bytes,
        }
    }

    /// Discards the first page, to see whether the store accepts discards. For a store without data.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        match self {
            Self::File(store) => store.try_discard().map_err(|e| e.to_string()),
            Self::Server(store) => store.try_discard(),
        }
    }

    /// Whether it can read 512 bytes.
    pub(crate) fn reads_sectors(&self) -> bool {
        #[repr(align(4096))]
        struct Sector([u8; SECTOR_BYTES]);
        match self {
            Self::File(store) => {
                let mut sector = Sector([0; SECTOR_BYTES]);
                rustix::io::pread(&store.fd, &mut sector.0, 0) != Err(Errno::INVAL)
            }
            Self::Server(store) => store.unit as usize <= SECTOR_BYTES,
        }
    }

    /// The descriptor of a file or device.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::File(store) => Some(store.fd.as_raw_fd()),
            Self::Server(_) => None,
        }
    }

    /// The server that holds it.
    pub(crate) fn server(&self) -> Option<&NbdServer> {
        match self {
            Self::File(_) => None,
            Self::Server(store) => Some(&store.server),
        }
    }
}
