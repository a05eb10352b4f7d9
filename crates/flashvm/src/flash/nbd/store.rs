//! The store on an NBD server: a few connections, each opened when it is first needed.
//!
//! A request takes a free connection, and the connection carries out no other until its reply is here. When the
//! connection breaks, the request is repeated on a new one: reads and writes may be carried out twice. If there is no
//! reply for [`NbdServer::timeout_ms`], the process ends with the reason, as its pages cannot be had.

use super::super::queue::ThreadQueue;
use super::super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use super::connection::{Answer, Connection};
use super::trouble::Trouble;
use super::wire::Command;
use crate::control::{NbdServer, Process};
use crate::sys::discard::StoreKind;
use crate::sys::message::eprint_line;
use crate::sys::signals::abort;
use crate::sys::{disk_space, now};
use flashvm_core::Nanos;
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};
use rustix_futex_sync::{Mutex, MutexGuard};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most connections of a process: requests in flight.
const CONNECTIONS_MAX: usize = 16;
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
    server: NbdServer,
    geometry: Geometry,
    discards: bool,
    flushes: bool,
    process: Process,
    /// Not in the store itself, which a forked child moves over a thread's stack.
    connections: Box<[Mutex<Option<Connection>>]>,
    /// The connection to try first; they are taken in turn only while others are busy.
    busy: AtomicUsize,
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
        let store = Self {
            geometry: Geometry {
                bytes,
                unit: (export.unit as usize).max(UNIT_MIN),
                kind: StoreKind::Device,
                threads: THREADS,
            },
            discards: export.trims(),
            flushes: export.flushes(),
            server,
            process,
            connections: unconnected(),
            busy: AtomicUsize::new(0),
            told: AtomicBool::new(false),
        };
        *store.connections[0].lock() = Some(first);
        Ok(store)
    }

    /// The store of a forked child. The parent's sockets are its own, and [`crate::sys::descriptors::close_inherited`]
    /// has closed the child's copies by number: their owners are forgotten here.
    pub(crate) fn become_child(&mut self, process: Process) {
        std::mem::forget(std::mem::replace(&mut self.connections, unconnected()));
        self.process = process;
        self.told = AtomicBool::new(false);
    }

    /// A free connection, or the next one if all are busy.
    fn take(&self) -> MutexGuard<'_, Option<Connection>> {
        let free = self.connections.iter().find_map(Mutex::try_lock);
        free.unwrap_or_else(|| {
            let next = self.busy.fetch_add(1, Ordering::Relaxed);
            self.connections[next % CONNECTIONS_MAX].lock()
        })
    }

    /// Makes a request until the server has answered it. Ends the process if it does not in time.
    fn carry_out(
        &self,
        mut request: impl FnMut(&mut Connection, Nanos) -> Result<Answer, Trouble>,
    ) -> Answer {
        let mut place = self.take();
        let begun = now();
        let until = Nanos(begun.0 + self.server.timeout().0);
        let mut pause = Nanos(0);
        loop {
            let trouble = match self.attempt(&mut place, until, &mut request) {
                Ok(answer) => {
                    if self.told.load(Ordering::Relaxed) && self.told.swap(false, Ordering::Relaxed)
                    {
                        self.say(&"answers again");
                    }
                    return answer;
                }
                Err(trouble) => trouble,
            };
            *place = None;
            let spent = now().since(begun);
            if now() >= until {
                self.end(trouble);
            }
            if spent >= OUTAGE_TOLD && !self.told.swap(true, Ordering::Relaxed) {
                let left = until.since(now()).0.div_ceil(1_000_000_000);
                self.say(&format_args!("{trouble}; waiting for it, {left} s at most"));
            }
            sleep(Nanos(pause.0.min(until.since(now()).0)));
            pause = Nanos((2 * pause.0).clamp(PAUSE_MIN.0, PAUSE_MAX.0));
        }
    }

    fn attempt(
        &self,
        place: &mut Option<Connection>,
        until: Nanos,
        request: impl FnOnce(&mut Connection, Nanos) -> Result<Answer, Trouble>,
    ) -> Result<Answer, Trouble> {
        let connection = match place {
            Some(connection) => connection,
            None => place.insert(Connection::open(&self.server, self.geometry.bytes, until)?),
        };
        request(connection, until)
    }

    fn end(&self, trouble: Trouble) -> ! {
        let line = Line::of(&format_args!(
            "the flash store {} has not answered for {} s: {trouble}",
            self.server,
            self.server.timeout().0 as f64 / 1e9
        ));
        self.process.note_end(line.text());
        self.say(&format_args!("ends the process: {}", line.text()));
        abort()
    }

    /// Prints a line about the server.
    fn say(&self, what: &dyn fmt::Display) {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let server = &self.server;
        let line = Line::of(&format_args!("flashvm: process {pid}: {server}: {what}"));
        eprint_line(line.text());
    }
}

fn unconnected() -> Box<[Mutex<Option<Connection>>]> {
    std::iter::repeat_with(|| Mutex::new(None))
        .take(CONNECTIONS_MAX)
        .collect()
}

fn sleep(time: Nanos) {
    let _ = nanosleep(&Timespec {
        tv_sec: (time.0 / 1_000_000_000) as i64,
        tv_nsec: (time.0 % 1_000_000_000) as i64,
    });
}

/// A line of text without memory of the heap: a faulting thread writes it.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    /// The text, cut where it is too long.
    fn of(what: &dyn fmt::Display) -> Self {
        let mut line = Self {
            bytes: [0; 512],
            len: 0,
        };
        // Cut: the error of `write_str`.
        let _ = write!(line, "{what}");
        line
    }

    fn text(&self) -> &str {
        let bytes = &self.bytes[..self.len];
        std::str::from_utf8(bytes).expect("`write_str` cuts between characters")
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = (0..=text.len().min(room))
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .expect("the start is a boundary");
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        match taken == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

impl Store for NbdStore {
    /// What [`super::super::Queue`] falls back to: `queue` opens none.
    type Queue = ThreadQueue<Self>;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function returns.
        let answer = self.carry_out(|connection, until| unsafe { connection.read(at, to, until) });
        Failed::unless(answer == Answer::Done, to.len)
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        let len = bytes_of(parts);
        self.geometry.admit(at, len);
        let answer = self.carry_out(|connection, until| {
            // SAFETY: the caller guarantees that the memory of the parts is readable and that nobody changes it until
            // this function returns.
            unsafe { connection.write(at, parts, until) }
        });
        if let Answer::Failed(error) = answer {
            disk_space::look_at(-i64::from(error.raw_os_error()));
        }
        Failed::unless(answer == Answer::Done, len)
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        if !self.discards {
            return Err(Errno::OPNOTSUPP);
        }
        for span in spans {
            for from in (0..span.len).step_by(DISCARD_MAX as usize) {
                let len = (span.len - from).min(DISCARD_MAX) as u32;
                self.command(Command::Trim, span.at + from, len)?;
            }
        }
        Ok(())
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

impl NbdStore {
    fn command(&self, command: Command, at: u64, len: u32) -> Result<(), Errno> {
        match self.carry_out(|connection, until| connection.command(command, at, len, until)) {
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

    #[test]
    fn a_line_is_cut_between_characters() {
        let long = "ä".repeat(400);
        assert_eq!(Line::of(&long).text(), "ä".repeat(256));
        let odd = format!("x{long}");
        assert_eq!(Line::of(&odd).text(), format!("x{}", "ä".repeat(255)));
        assert_eq!(Line::of(&"short").text(), "short");
    }
}
