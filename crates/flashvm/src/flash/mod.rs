//! The way to flash and back. The engine decides which slot holds which page; this module moves the bytes.
//!
//! One contract ([`store`]), and a stack of layers that each add one thing ([`layer`]):
//!
//! | | adds | |
//! | --- | --- | --- |
//! | `checked` | checksums, and the one loop that reads again | pages only |
//! | `injected` | faults that a test asks for | |
//! | `modelled` | the time of a device model | |
//! | `limited` | the limit on file sizes | |
//! | `file` | the file or device | |
//!
//! Pages use the whole stack ([`FlashStore`]). Small pages enter below `checked` ([`UncheckedStore`]): their
//! checksums are in their engine's tables, which also says where to read again, as its cleaner moves them.
//!
//! Safety argument: a request names its memory by address, and whoever makes it vouches that nobody else uses that
//! memory until it has ended. Nothing here refers to memory of requests but for the length of a call, and never to
//! the shadow.
//!
//! - `ring`: requests in flight by io_uring; `queue`: that, or threads;
//! - `demand`: the one read that a faulting thread waits for;
//! - `read_buffers`: where pages lie when they have come;
//! - `memory`, `testing`, `conformance`: a store for tests, and the test of every store and stack.
//!
//! `docs/design/store.md` has the invariants and what is assumed of kernel and device.

mod checked;
#[cfg(test)]
mod conformance;
pub(crate) mod demand;
mod file;
mod injected;
mod layer;
pub(crate) mod limited;
#[cfg(test)]
mod memory;
pub(crate) mod modelled;
mod queue;
mod read_buffers;
mod ring;
mod store;
#[cfg(test)]
mod testing;

pub(crate) use checked::checksum;
pub(crate) use layer::Layer;
pub(crate) use queue::{Queue, ThreadQueue};
pub(crate) use read_buffers::ReadBuffers;
pub(crate) use store::{Completion, Part, Request, Span, Store, StoreQueue, Transfer, offset};

use crate::Error;
use crate::control::{Inject, Process};
use checked::Checked;
use file::FileStore;
use flashvm_core::PAGE_SIZE;
use injected::Injected;
use limited::Limited;
use modelled::{ModelClient, Modelled};
use std::os::fd::{OwnedFd, RawFd};

/// The stack without checksums, for small pages.
pub(crate) type UncheckedStore = Injected<Modelled<Limited<FileStore>>>;
/// The whole stack, for pages.
pub(crate) type FlashStore = Checked<UncheckedStore>;

/// What the stack of a process is made from.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Opened for direct I/O.
    pub(crate) file: OwnedFd,
    /// Pages of it that may be used.
    pub(crate) slots: u32,
    /// Bytes of another file that the pager writes: the frames of small pages.
    pub(crate) other_file: u64,
    /// The process, if its run has a device model.
    pub(crate) modelled: Option<Process>,
    /// Faults to make.
    pub(crate) inject: Option<Inject>,
}

impl FlashStore {
    /// Builds the stack.
    ///
    /// # Errors
    /// A limit on file sizes that is too low; what the kernel says to memory for checksums.
    pub(crate) fn open(setup: Setup) -> Result<Self, Error> {
        let bytes = u64::from(setup.slots) * PAGE_SIZE as u64;
        let file = FileStore::new(setup.file, bytes).map_err(Error::memory("the flash store"))?;
        let limited = Limited::new(file, setup.other_file).map_err(Error::Settings)?;
        let modelled = Modelled::new(limited, setup.modelled);
        let injected = Injected::new(modelled, setup.inject);
        Checked::new(injected).map_err(Error::memory("checksums"))
    }

    /// The stack of a forked child, with the device model's client of its own process.
    pub(crate) fn for_child(mut self, process: Process) -> Self {
        if let Some(model) = &mut self.below.below.model {
            *model = ModelClient::of(process);
        }
        self
    }

    /// The device model's client, if the run has a model.
    pub(crate) fn model(&self) -> Option<&ModelClient> {
        self.below.below.model.as_ref()
    }

    /// The descriptor of the file or device.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.below.below.below.below.descriptor()
    }

    /// Bytes of the largest file that the pager writes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.below.below.below.needed()
    }
}
