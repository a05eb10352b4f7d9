//! Moves bytes to flash and back. The engine decides which slot holds which page.
//!
//! One contract ([`store`]), and a stack of layers, each of which adds one thing ([`layer`]):
//!
//! | | adds | |
//! | --- | --- | --- |
//! | `checked` | checksums, and the only loop that repeats reads | pages only |
//! | `encrypted` | encryption (`--encrypt`), with `cipher`, `key` and `write_buffers` | pages only |
//! | `injected` | faults that a test asks for | |
//! | `modelled` | the time of a device model | |
//! | `bottom` | a `file` or device, an export of a server (`nbd`), or a `mirror` of two of these | |
//!
//! Pages use the whole stack ([`FlashStore`]). Small pages enter below `checked` ([`UncheckedStore`]): their engine
//! keeps checksums in its tables, and repeats a read itself, as its cleaner may have moved the page. They are never
//! encrypted.
//!
//! Safety argument: a request names its memory by address, and its maker guarantees that nobody else uses this
//! memory until the request has ended. Code here holds a reference to a request's memory only within one call, and
//! never references the shadow.
//!
//! - `ring`: requests in flight by io_uring; `aio`, `aio_context`: by asynchronous I/O; `either`: a queue of one of two
//!   kinds; `queue`: a store's own queue, or threads;
//! - `file_limit`: the limit on file sizes (`ulimit -f`);
//! - `demand`: the read that a faulting thread waits for;
//! - `read_buffers`: the memory that queued reads of pages go to;
//! - `memory`, `testing`, `conformance`: a store for tests, and the test of every store and stack.
//!
//! `docs/design/store.md` has the invariants, and the assumptions about kernel and device.

mod aio;
mod aio_context;
mod bottom;
mod checked;
mod cipher;
#[cfg(test)]
mod conformance;
pub(crate) mod demand;
mod either;
mod encrypted;
mod file;
pub(crate) mod file_limit;
mod injected;
mod key;
mod layer;
#[cfg(test)]
mod memory;
pub(crate) mod mirror;
pub(crate) mod modelled;
pub(crate) mod nbd;
mod queue;
mod read_buffers;
mod ring;
mod store;
#[cfg(test)]
mod testing;
mod write_buffers;

pub use aio_context::is_allowed as io_submit_is_allowed;
pub(crate) use checked::checksum;
pub(crate) use layer::Layer;
pub(crate) use queue::{Queue, ThreadQueue};
pub(crate) use read_buffers::ReadBuffers;
pub(crate) use store::{Completion, Part, Request, Span, Store, StoreQueue, Transfer, offset};

use crate::Error;
use crate::control::{Inject, NbdServer, Process, SidePlace, StorePlace};
use bottom::Bottom;
use checked::Checked;
use encrypted::Encrypted;
use file::FileStore;
use flashvm_core::PAGE_SIZE;
use injected::Injected;
use mirror::{Mirror, SideStore};
use modelled::{ModelClient, Modelled};
use nbd::NbdStore;
use std::os::fd::{OwnedFd, RawFd};

/// The stack without checksums, for small pages.
pub(crate) type UncheckedStore = Encrypted<Injected<Modelled<Bottom>>>;
/// The whole stack, for pages.
pub(crate) type FlashStore = Checked<UncheckedStore>;

/// What holds the bytes of a store.
#[derive(Debug)]
pub(crate) enum Place {
    /// A file or device, opened for direct I/O.
    File(OwnedFd),
    /// An export of a server.
    Nbd(NbdServer, Process),
    /// Two sides, each with its file if it is here.
    Mirror([(SidePlace, Option<OwnedFd>); 2], Process),
}

impl Place {
    /// The place that a run's settings name. `files` are its files and devices, in the order in which they are named.
    ///
    /// # Panics
    /// There are fewer: the supervisor hands all of them over.
    pub(crate) fn of(place: &StorePlace, files: Vec<OwnedFd>, process: Process) -> Self {
        let mut files = files.into_iter();
        let mut file = || files.next().expect("the supervisor hands the files over");
        match place {
            StorePlace::Here => Self::File(file()),
            StorePlace::Server(server) => Self::Nbd(server.clone(), process),
            StorePlace::Mirror(sides) => {
                let [a, b] = sides;
                let a = (a.clone(), a.server.is_none().then(&mut file));
                let b = (b.clone(), b.server.is_none().then(&mut file));
                Self::Mirror([a, b], process)
            }
        }
    }
}

/// The inputs of a process' stack.
#[derive(Debug)]
pub(crate) struct Setup {
    /// What holds the bytes.
    pub(crate) place: Place,
    /// Pages that may be used, from the start of the place.
    pub(crate) slots: u32,
    /// This process, if its run has a device model.
    pub(crate) modelled: Option<Process>,
    /// Whether io_uring is forbidden.
    pub(crate) without_ring: bool,
    /// Faults to make.
    pub(crate) inject: Option<Inject>,
    /// Whether pages are encrypted.
    pub(crate) encrypt: bool,
}

impl FlashStore {
    /// Builds the stack.
    ///
    /// # Errors
    /// `fstat` fails, the server does not serve, there is no memory for checksums and tags, or the kernel does not protect the key.
    pub(crate) fn open(setup: Setup) -> Result<Self, Error> {
        let bytes = u64::from(setup.slots) * PAGE_SIZE as u64;
        let file = |file| {
            FileStore::new(file, bytes, setup.without_ring)
                .map_err(Error::memory("the flash store"))
        };
        let bottom = match setup.place {
            Place::File(opened) => Bottom::File(file(opened)?),
            Place::Nbd(server, process) => {
                let shown = server.to_string();
                NbdStore::open(server, bytes, process)
                    .map(Bottom::Nbd)
                    .map_err(|trouble| Error::Server(shown, trouble))?
            }
            Place::Mirror(sides, process) => {
                let names = [0, 1].map(|side: usize| sides[side].0.name.clone());
                let side = |(place, opened): (SidePlace, Option<OwnedFd>)| match opened {
                    Some(opened) => file(opened).map(SideStore::File),
                    None => {
                        let served = place.server.expect("a side is a file or at a server");
                        let server = NbdStore::of_side(served, bytes, process);
                        Ok(SideStore::Nbd(server))
                    }
                };
                let [a, b] = sides;
                let state = process.mirror();
                Bottom::Mirror(Box::new(Mirror::new(
                    [side(a)?, side(b)?],
                    names,
                    bytes,
                    state,
                )))
            }
        };
        let modelled = Modelled::new(bottom, setup.modelled);
        let injected = Injected::new(modelled, setup.inject);
        let encrypted = Encrypted::new(injected, setup.encrypt)?;
        Checked::new(encrypted).map_err(Error::memory("checksums"))
    }

    /// The stack of a forked child, which gets connections and a device-model client of its own.
    ///
    /// # Errors
    /// The kernel does not protect the child's copy of the key.
    pub(crate) fn for_child(mut self, process: Process) -> Result<Self, Error> {
        self.below.become_child()?;
        if let Some(model) = &mut self.below.below.below.model {
            *model = ModelClient::of(process);
        }
        self.below.below.below.below.become_child(process);
        Ok(self)
    }

    /// The device-model client, if the run has a model.
    pub(crate) fn model(&self) -> Option<&ModelClient> {
        self.below.below.below.model.as_ref()
    }

    /// Whether [`Queue`]s to it need threads.
    pub(crate) fn needs_threads(&self) -> bool {
        self.model().is_some() || self.below.below.below.below.needs_threads()
    }

    /// The descriptors of files or devices.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; 2] {
        self.below.below.below.below.descriptors()
    }
}
