//! A store at one place: a file or device of this machine (`store`), or an export of a server (`nbd`).

use super::nbd::ServerStore;
use super::store::{Page, Store};
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;

const SECTOR_BYTES: usize = 512;

/// An open store at one place.
#[derive(Debug)]
pub(crate) enum SingleStore {
    File(Store),
    Server(ServerStore),
}

impl SingleStore {
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
        match self {
            Self::File(store) => {
                // Not on the stack: there rustc 1.95 leaves the function's first instructions out (eval/frames.sh).
                let mut page = Page::zeros();
                rustix::io::pread(&store.fd, &mut page.0[..SECTOR_BYTES], 0) != Err(Errno::INVAL)
            }
            Self::Server(store) => store.unit as usize <= SECTOR_BYTES,
        }
    }

    /// The file or device.
    pub(crate) fn file(&self) -> Option<&Store> {
        match self {
            Self::File(store) => Some(store),
            Self::Server(_) => None,
        }
    }

    /// The descriptor of the file or device.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.file().map(|store| store.fd.as_raw_fd())
    }
}
