//! The connections of a process to one export: each is opened when it is first needed, and carries out one request at a
//! time.

use super::connection::Connection;
use super::trouble::Trouble;
use crate::control::NbdServer;
use crate::sys::now;
use flashvm_core::Nanos;
use rustix_futex_sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Most connections of a process to one server: requests in flight.
pub(in crate::flash) const CONNECTIONS_MAX: usize = 16;
/// Most connections of a process to the servers of a stripe: a process has few descriptors of its own.
const CONNECTIONS_OF_ALL: usize = 32;

/// The connections to each of so many servers.
pub(in crate::flash) fn connections(servers: usize) -> usize {
    (CONNECTIONS_OF_ALL / servers.max(1)).clamp(1, CONNECTIONS_MAX)
}

/// The place of a connection, held by the request that uses it.
pub(super) type Place<'a> = MutexGuard<'a, Option<Connection>>;

/// Who takes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A request that waits for its server.
    Waits,
    /// A read that another server can answer. Beside a connection that owes a reply it makes no new one, as the
    /// handshake may take as long. Unless it `may_wait`, it takes none that is in use.
    Reads { may_wait: bool },
}

/// The connections.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) server: NbdServer,
    /// Bytes that the export has to have.
    bytes: u64,
    /// Connections of another generation are not used any more.
    generation: AtomicU32,
    /// Not in the store itself, which a forked child moves over a thread's stack.
    connections: Box<[Mutex<Option<Connection>>]>,
    /// The connection to wait for next; they are taken in turn only while all are busy.
    busy: AtomicUsize,
}

impl Pool {
    pub(super) fn new(server: NbdServer, bytes: u64, connections: usize) -> Self {
        Self {
            server,
            bytes,
            generation: AtomicU32::new(0),
            connections: unconnected(connections),
            busy: AtomicUsize::new(0),
        }
    }

    /// Puts the first connection in.
    pub(super) fn put(&self, first: Connection) {
        *self.connections[0].lock() = Some(first);
    }

    /// In a forked child. The parent's sockets are its own, and [`crate::sys::descriptors::close_inherited`] has closed the
    /// child's copies by number: their owners are forgotten here.
    pub(super) fn become_child(&mut self) {
        let none = unconnected(self.connections.len());
        std::mem::forget(std::mem::replace(&mut self.connections, none));
    }

    /// The server has come back so often: connections that were made before are not used.
    pub(super) fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// When a request that begins now has waited for too long.
    pub(super) fn deadline(&self) -> Nanos {
        Nanos(now().0 + self.server.timeout().0)
    }

    /// A free connection that owes no reply, or whose reply is here; else a place for a new one; if all are in use, the
    /// next one.
    pub(super) fn take(&self) -> Place<'_> {
        self.take_as(Taker::Waits).expect("waited for")
    }

    /// A place, as `taker` wants it.
    pub(super) fn take_as<'a>(&'a self, taker: Taker) -> Option<Place<'a>> {
        let (mut owing, mut unconnected) = (None, None);
        let mut good = |place: &'a Mutex<Option<Connection>>| {
            let place = Mutex::try_lock(place)?;
            match place.as_ref().map(Connection::is_quiet) {
                Some(true) => return Some(place),
                Some(false) => owing.get_or_insert(place),
                None => unconnected.get_or_insert(place),
            };
            None
        };
        let found = self.connections.iter().find_map(&mut good);
        let found = found.or(match taker {
            Taker::Waits => unconnected.or(owing),
            Taker::Reads { .. } => owing.or(unconnected),
        });
        let mut place = match found {
            Some(place) => place,
            None if taker == (Taker::Reads { may_wait: false }) => return None,
            None => {
                let next = self.busy.fetch_add(1, Ordering::Relaxed);
                self.connections[next % self.connections.len()].lock()
            }
        };
        let generation = self.generation.load(Ordering::Relaxed);
        let is_old = |connection: &Connection| connection.generation() != generation;
        if place.as_ref().is_some_and(is_old) {
            *place = None;
        }
        if let Some(connection) = place.as_mut()
            && connection.owes_since().is_some()
            && connection.socket().is_readable()
            && connection.settle(self.deadline()).is_err()
        {
            *place = None;
        }
        Some(place)
    }

    /// Makes a request once, on a new connection if there is none. After trouble there is none.
    pub(super) fn attempt<T>(
        &self,
        place: &mut Option<Connection>,
        until: Nanos,
        request: impl FnOnce(&mut Connection, Nanos) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let connection = match place {
            Some(connection) => connection,
            None => {
                let generation = self.generation.load(Ordering::Relaxed);
                let open = Connection::open(&self.server, self.bytes, until)?;
                place.insert(open.of_generation(generation))
            }
        };
        let outcome = connection
            .settle(until)
            .and_then(|()| request(connection, until));
        if outcome.is_err() {
            *place = None;
        }
        outcome
    }
}

fn unconnected(connections: usize) -> Box<[Mutex<Option<Connection>>]> {
    std::iter::repeat_with(|| Mutex::new(None))
        .take(connections)
        .collect()
}
