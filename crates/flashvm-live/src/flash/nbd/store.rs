//! The store on an NBD server.
//!
//! When a connection breaks, its request is repeated on a new one: reads and writes may be carried out twice. If there is no
//! reply for [`NbdServer::timeout_ms`], the process ends with the reason, as its pages cannot be had.

use super::super::queue::ThreadQueue;
use super::super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use super::answer::Answer;
use super::connection::Connection;
use super::pool::{CONNECTIONS_MAX, Pool};
use super::trouble::Trouble;
use super::wire::Command;
use crate::control::{NbdServer, Process, ServedSide};
use crate::sys::discard::StoreKind;
use crate::sys::message::{Line, say_plainly};
use crate::sys::signals::abort;
use crate::sys::{disk_space, now, sleep};
use flashvm_core::Nanos;
use rustix::io::Errno;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Threads of each queue to the store. There are two queues: the other connections are for threads that fault.
const THREADS: usize = 4;
/// The smallest unit of requests.
const UNIT_MIN: usize = 512;
/// Pauses before the second, third, ... attempt to reach the server double from here, up to [`PAUSE_MAX`].
const PAUSE_MIN: Nanos = Nanos(5_000_000);
const PAUSE_MAX: Nanos = Nanos(320_000_000);
/// An outage of this length is worth a message.
const OUTAGE_TOLD: Nanos = Nanos(1_000_000_000);
/// Longest discard of one command, in bytes: a multiple of any unit.
const DISCARD_MAX: u64 = 1 << 30;

/// The store of a process on an NBD server.
#[derive(Debug)]
pub(crate) struct NbdStore {
    pub(super) pool: Pool,
    pub(super) geometry: Geometry,
    pub(super) discards: bool,
    pub(super) flushes: bool,
    process: Process,
    /// The user knows of an outage.
    told: AtomicBool,
}

impl NbdStore {
    /// A store of the first `bytes` bytes of an export. Makes the first connection.
    ///
    /// # Errors
    /// The server cannot be reached, or the export has changed since the run began.
    pub(crate) fn open(server: NbdServer, bytes: u64, process: Process) -> Result<Self, Trouble> {
        let until = Nanos(now().0 + server.timeout().0);
        let first = Connection::open(&server, bytes, until)?;
        let export = *first.export();
        let served = ServedSide {
            server,
            unit: export.unit,
            trims: export.trims(),
            flushes: export.flushes(),
        };
        let store = Self::of_side(served, bytes, process, CONNECTIONS_MAX);
        store.pool.put(first);
        Ok(store)
    }

    /// A side of a store of several, whose server may be away.
    pub(crate) fn of_side(
        served: ServedSide,
        bytes: u64,
        process: Process,
        connections: usize,
    ) -> Self {
        Self {
            geometry: Geometry {
                bytes,
                unit: (served.unit as usize).max(UNIT_MIN),
                kind: StoreKind::Device,
                threads: THREADS,
            },
            discards: served.trims,
            flushes: served.flushes,
            pool: Pool::new(served.server, bytes, connections),
            process,
            told: AtomicBool::new(false),
        }
    }

    /// The store of a forked child, which makes connections of its own.
    pub(crate) fn become_child(&mut self, process: Process) {
        self.pool.become_child();
        self.process = process;
        self.told = AtomicBool::new(false);
    }

    /// The server has come back so often: connections that were made before are not used.
    pub(crate) fn set_generation(&self, generation: u32) {
        self.pool.set_generation(generation);
    }

    /// Makes a request until the server has answered it. Ends the process if it does not in time, from `begun` on.
    fn carry_out(
        &self,
        begun: Nanos,
        request: impl FnMut(&mut Connection, Nanos) -> Result<Answer, Trouble>,
    ) -> Answer {
        let until = Nanos(begun.0 + self.pool.server.timeout().0);
        self.repeat(begun, until, request)
            .unwrap_or_else(|trouble| self.end(trouble))
    }

    /// Makes a request until the server has answered it, or until `until`.
    fn repeat(
        &self,
        begun: Nanos,
        until: Nanos,
        mut request: impl FnMut(&mut Connection, Nanos) -> Result<Answer, Trouble>,
    ) -> Result<Answer, Trouble> {
        let mut place = self.pool.take();
        let mut pause = Nanos(0);
        loop {
            let trouble = match self.pool.attempt(&mut place, until, &mut request) {
                Ok(answer) => {
                    if self.told.load(Ordering::Relaxed) && self.told.swap(false, Ordering::Relaxed)
                    {
                        self.say(&"answers again");
                    }
                    return Ok(answer);
                }
                Err(trouble) => trouble,
            };
            let spent = now().since(begun);
            if now() >= until {
                return Err(trouble);
            }
            if spent >= OUTAGE_TOLD && !self.told.swap(true, Ordering::Relaxed) {
                let left = until.since(now()).0.div_ceil(1_000_000_000);
                self.say(&format_args!("{trouble}; waiting for it, {left} s at most"));
            }
            sleep(Duration::from_nanos(pause.0.min(until.since(now()).0)));
            pause = Nanos((2 * pause.0).clamp(PAUSE_MIN.0, PAUSE_MAX.0));
        }
    }

    fn end(&self, trouble: Trouble) -> ! {
        let line = Line::of(&format_args!(
            "the flash store {} has not answered for {} s: {trouble}",
            self.pool.server,
            self.pool.server.timeout().0 as f64 / 1e9
        ));
        self.process.note_end(line.text());
        self.say(&format_args!("ends the process: {}", line.text()));
        abort()
    }

    /// Prints a line about the server.
    fn say(&self, what: &dyn fmt::Display) {
        say_plainly(&format_args!("{}: {what}", self.pool.server));
    }
}

impl Store for NbdStore {
    /// What [`super::super::Queue`] falls back to: `queue` opens none.
    type Queue = ThreadQueue<Self>;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.read_since(at, to, now()) }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.write_since(at, parts, now()) }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        if !self.discards {
            return Err(Errno::OPNOTSUPP);
        }
        discards(spans).try_for_each(|(at, len)| self.command(Command::Trim, at, len))
    }

    fn sync(&self) -> Result<(), Errno> {
        match self.flushes {
            true => self.command(Command::Flush, 0, 0),
            false => Err(Errno::OPNOTSUPP),
        }
    }

    fn queue(&'static self, _: u32, _: Option<Part>) -> Result<Self::Queue, Errno> {
        Err(Errno::NOSYS)
    }
}

/// The commands that discard these spans.
pub(super) fn discards(spans: &[Span]) -> impl Iterator<Item = (u64, u32)> {
    spans.iter().flat_map(|span| {
        (0..span.len)
            .step_by(DISCARD_MAX as usize)
            .map(|from| (span.at + from, (span.len - from).min(DISCARD_MAX) as u32))
    })
}

impl NbdStore {
    /// [`Store::read`], which has waited since `since`.
    ///
    /// # Safety
    /// As [`Store::read`].
    pub(crate) unsafe fn read_since(&self, at: u64, to: Part, since: Nanos) -> Failed {
        let until = Nanos(since.0 + self.pool.server.timeout().0);
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.read_until(at, to, since, until) }.unwrap_or_else(|trouble| self.end(trouble))
    }

    /// [`Store::read`], which has waited since `since` and gives up at `until`.
    ///
    /// # Safety
    /// As [`Store::read`].
    pub(crate) unsafe fn read_until(
        &self,
        at: u64,
        to: Part,
        since: Nanos,
        until: Nanos,
    ) -> Result<Failed, Trouble> {
        self.geometry.admit(at, to.len);
        let answer = self.repeat(since, until, |connection, until| {
            // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function
            // returns.
            unsafe { connection.read(at, to, until) }
        })?;
        Ok(Failed::unless(answer == Answer::Done, to.len))
    }

    /// [`Store::write`], which has waited since `since`.
    ///
    /// # Safety
    /// As [`Store::write`].
    pub(crate) unsafe fn write_since(&self, at: u64, parts: &[Part], since: Nanos) -> Failed {
        let until = Nanos(since.0 + self.pool.server.timeout().0);
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.write_until(at, parts, since, until) }
            .unwrap_or_else(|trouble| self.end(trouble))
    }

    /// [`Store::write`], which has waited since `since` and gives up at `until`.
    ///
    /// # Safety
    /// As [`Store::write`].
    pub(crate) unsafe fn write_until(
        &self,
        at: u64,
        parts: &[Part],
        since: Nanos,
        until: Nanos,
    ) -> Result<Failed, Trouble> {
        let len = bytes_of(parts);
        self.geometry.admit(at, len);
        let answer = self.repeat(since, until, |connection, until| {
            // SAFETY: the caller guarantees that the memory of the parts is readable and that nobody changes it until
            // this function returns.
            unsafe { connection.write(at, parts, until) }
        })?;
        if let Answer::Failed(error) = answer {
            disk_space::look_at(-i64::from(error.raw_os_error()));
        }
        Ok(Failed::unless(answer == Answer::Done, len))
    }

    fn command(&self, command: Command, at: u64, len: u32) -> Result<(), Errno> {
        match self.carry_out(now(), |connection, until| {
            connection.command(command, at, len, until)
        }) {
            Answer::Done => Ok(()),
            Answer::Failed(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Pages, settings};
    use super::super::testing::{Manner, Mishap, TestServer};
    use super::*;
    use crate::control::Control;
    use flashvm_core::PAGE_SIZE;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BYTES: u64 = 4 << 20;

    fn process() -> Process {
        let control = Control::create(&settings(BYTES)).unwrap().0;
        control.register(1, "nbd").unwrap()
    }

    fn open(server: &TestServer) -> NbdStore {
        NbdStore::open(server.server.clone(), BYTES, process()).unwrap()
    }

    fn written(server: &TestServer) -> (NbdStore, Pages) {
        let store = open(server);
        let pages = Pages::new(16, 1);
        // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
        assert!(unsafe { store.write(8 * PAGE, &[pages.all()]) }.is_none());
        (store, pages)
    }

    fn reads_back(store: &NbdStore, pages: &Pages) -> bool {
        let to = Pages::new(16, 2);
        // SAFETY: the pages live over the call, and this thread alone uses them.
        let failed = unsafe { store.read(8 * PAGE, to.all()) };
        assert!(failed.is_none() || failed == Failed::all(to.all().len));
        failed.is_none() && (0..16).all(|page| to.bytes(page) == pages.bytes(page))
    }

    #[test]
    fn a_request_is_repeated_however_its_connection_breaks() {
        for manner in [Manner::Simple, Manner::Whole, Manner::Pieces] {
            let server = TestServer::start(BYTES, manner);
            let (store, pages) = written(&server);
            for mishap in [
                Mishap::Closes,
                Mishap::ClosesInside,
                Mishap::Magic,
                Mishap::Cookie,
                Mishap::Beyond,
                Mishap::Short,
                Mishap::Greeting,
                Mishap::Shutdown,
            ] {
                let before = server.connections();
                server.spoil([mishap, mishap]);
                assert!(reads_back(&store, &pages), "{manner:?} {mishap:?}");
                let made = server.connections() - before;
                // A wrong greeting takes one connection more.
                assert!((2..=4).contains(&made), "{manner:?} {mishap:?}: {made}");
            }
        }
    }

    #[test]
    fn an_error_of_the_server_fails_the_request_and_keeps_the_connection() {
        for manner in [Manner::Simple, Manner::Whole, Manner::Pieces] {
            let server = TestServer::start(BYTES, manner);
            let (store, pages) = written(&server);
            server.spoil([Mishap::Error]);
            assert!(!reads_back(&store, &pages));
            assert!(reads_back(&store, &pages));
            assert_eq!(server.connections(), 1);
        }
    }

    #[test]
    fn a_child_makes_connections_of_its_own() {
        let server = TestServer::start(BYTES, Manner::Whole);
        let (mut store, pages) = written(&server);
        store.become_child(process());
        assert!(reads_back(&store, &pages));
        assert_eq!(server.connections(), 2);
    }

    #[test]
    fn exports_that_cannot_be_stores_are_refused_by_name() {
        const SHARED: u16 = 1 | 1 << 8;
        for (bytes, flags, trouble) in [
            (BYTES, SHARED | 1 << 1, Trouble::ReadOnly),
            (BYTES, 1, Trouble::NotShared),
            (BYTES - 1, SHARED, Trouble::Small(BYTES - 1)),
        ] {
            let server = TestServer::with_flags(bytes, Manner::Simple, flags);
            let refused = NbdStore::open(server.server.clone(), BYTES, process());
            assert_eq!(refused.unwrap_err(), trouble);
        }
        let plain = TestServer::with_flags(BYTES, Manner::Simple, SHARED);
        let store = open(&plain);
        assert_eq!(store.sync(), Err(Errno::OPNOTSUPP));
        assert_eq!(store.discard(&[]), Err(Errno::OPNOTSUPP));
    }
}
