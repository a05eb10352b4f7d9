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
//! | `bottom` | a `file` or device, an export of a server (`nbd`), or several of these: a `mirror`, a `stripe`, a `tier` | |
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
//! - `side`: a side of a store of several; `sides`, `outage`: sides that the run can go on without;
//!   `link`: a side as the supervisor reaches it;
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
mod link;
#[cfg(test)]
mod memory;
pub(crate) mod mirror;
pub(crate) mod modelled;
pub(crate) mod nbd;
mod outage;
mod queue;
mod read_buffers;
mod ring;
mod side;
mod sides;
mod store;
pub(crate) mod stripe;
#[cfg(test)]
mod testing;
pub(crate) mod tier;
mod write_buffers;

pub use aio_context::is_allowed as io_submit_is_allowed;
pub(crate) use checked::checksum;
pub(crate) use layer::Layer;
pub(crate) use queue::{Queue, ThreadQueue};
pub(crate) use read_buffers::ReadBuffers;
pub(crate) use store::{Completion, Part, Request, Span, Store, StoreQueue, Transfer, offset};

use crate::Error;
use crate::control::{Inject, NbdServer, Process, SidePlace, StorePlace};
use crate::sys::disk_space::Space;
use bottom::Bottom;
use checked::Checked;
use encrypted::Encrypted;
use file::FileStore;
use flashvm_core::PAGE_SIZE;
use injected::Injected;
use mirror::Mirror;
use modelled::{ModelClient, Modelled};
use nbd::NbdStore;
use side::SideStore;
use sides::Sides;
use std::os::fd::OwnedFd;
use stripe::Stripe;
use tier::Tier;

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
    /// Two sides, each with its file if it is here, and the spare, if there is one.
    Mirror(Vec<(SidePlace, Option<OwnedFd>)>, Process),
    /// Several sides, likewise.
    Stripe(Vec<(SidePlace, Option<OwnedFd>)>, Process),
    /// Two sides, likewise, and the bytes that the first may hold.
    Tier([(SidePlace, Option<OwnedFd>); 2], u64, Process),
}

impl Place {
    /// The place that a run's settings name. `files` are its files and devices, in the order in which they are named.
    ///
    /// # Panics
    /// There are fewer: the supervisor hands all of them over.
    pub(crate) fn of(place: &StorePlace, files: Vec<OwnedFd>, process: Process) -> Self {
        let mut files = files.into_iter();
        let mut file = || files.next().expect("the supervisor hands the files over");
        let mut side = |place: &SidePlace| (place.clone(), place.server.is_none().then(&mut file));
        match place {
            StorePlace::Here => Self::File(file()),
            StorePlace::Server(server) => Self::Nbd(server.clone(), process),
            StorePlace::Mirror(sides) => Self::Mirror(sides.iter().map(side).collect(), process),
            StorePlace::Tier { sides, first_bytes } => {
                let [a, b] = sides;
                let a = side(a);
                Self::Tier([a, side(b)], *first_bytes, process)
            }
            StorePlace::Stripe(sides) => Self::Stripe(sides.iter().map(side).collect(), process),
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
        let file = |file, bytes| {
            FileStore::new(file, bytes, setup.without_ring)
                .map_err(Error::memory("the flash store"))
        };
        let side = |(place, opened): (SidePlace, Option<OwnedFd>), process, bytes, connections| {
            match opened {
                Some(opened) => file(opened, bytes).map(SideStore::File),
                None => {
                    let served = place.server.expect("a side is a file or at a server");
                    let server = NbdStore::of_side(served, bytes, process, connections);
                    Ok(SideStore::Nbd(server))
                }
            }
        };
        let bottom = match setup.place {
            Place::File(opened) => Bottom::File(file(opened, bytes)?),
            Place::Nbd(server, process) => {
                let shown = server.to_string();
                NbdStore::open(server, bytes, process)
                    .map(Bottom::Nbd)
                    .map_err(|trouble| Error::Server(shown, trouble))?
            }
            Place::Mirror(places, process) => {
                let connections = nbd::connections(places.len());
                let open = |place: (SidePlace, Option<OwnedFd>)| {
                    let name = place.0.name.clone();
                    side(place, process, bytes, connections).map(|side| (side, name))
                };
                let opened: Result<Vec<_>, Error> = places.into_iter().map(open).collect();
                let mut opened = opened?.into_iter();
                let mut next = || opened.next().expect("a mirror has two sides");
                let [(a, name_of_a), (b, name_of_b)] = [next(), next()];
                let names = [name_of_a, name_of_b];
                let mirror = Mirror::new([a, b], names, bytes, process.mirror());
                Bottom::Mirror(Box::new(mirror.with_spare(opened.next())))
            }
            Place::Stripe(places, process) => {
                let (each, connections) = (
                    stripe::each_of(bytes, places.len()),
                    nbd::connections(places.len()),
                );
                let open = |place: (SidePlace, Option<OwnedFd>)| {
                    let name = place.0.name.clone();
                    Ok((name, side(place, process, each, connections)?))
                };
                let sides: Result<Vec<_>, Error> = places.into_iter().map(open).collect();
                let sides = Sides::new(sides?, process.sides());
                Bottom::Stripe(Box::new(Stripe::new(sides, bytes)))
            }
            Place::Tier([a, b], first_bytes, process) => {
                let each = tier::bytes_of_sides(first_bytes, process.tier());
                let open = |place: (SidePlace, Option<OwnedFd>), bytes| {
                    let name = place.0.name.clone();
                    side(place, process, bytes, nbd::CONNECTIONS_MAX).map(|side| (name, side))
                };
                let sides = vec![open(a, each[0])?, open(b, each[1])?];
                let sides = Sides::new(sides, process.sides());
                let tier = Tier::new(sides, first_bytes, bytes, process.tier());
                Bottom::Tier(Box::new(tier))
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

    /// Where its space on disks is.
    pub(crate) fn space(&self) -> Space {
        self.below.below.below.below.space()
    }
}
