//! The live pager: carries out, on this process, what the engine decides.
//!
//! Two threads do its work. The *handler* reads faults and events from userfaultfd, hands them
//! to the engine, places pages and reads from flash. The *cleaner* reclaims ahead of need: it
//! moves pages to the shadow, looks at them, writes them. Both, and the program's own threads
//! when they change mappings, go through [`Pager::apply`] with the engine locked; no lock is held
//! over a request to flash.
//!
//! - `actions`: carries out memory actions on the [address space](crate::space);
//! - `handler`: faults, events and reads;
//! - `inline`: faults that the faulting thread resolves itself; `alone`: the work of both threads,
//!   done by such a thread;
//! - `cleaner`: reclaim, scans and writes;
//! - `limit`: holding writes back;
//! - `discard`: telling the device what is of no use any more;
//! - `managed`: what the program does to its memory: map, unmap, advise; `remap`: move;
//! - `change`: what must not happen while it does;
//! - `lend`: frames of the process that are Chameleon's;
//! - `fork`: how a child comes by a pager of its own; `share`: the frames that both use.

mod actions;
mod change;
mod cleaner;
mod discard;
mod fork;
mod handler;
mod inline;
mod lend;
mod limit;
mod managed;
mod pin;
pub(crate) mod record;
mod regions;
mod remap;
mod share;
mod synchronous;

use self::regions::Regions;
use crate::Error;
use crate::chameleon::Chameleon;
use crate::control::{Control, Process, RunSettings, SharedClusters};
use crate::flash::demand::{DemandQueues, PAGES_MAX};
use crate::flash::file_limit;
use crate::flash::io::Threads;
use crate::flash::model_client;
use crate::flash::{FlashStore, ReadBuffers};
use crate::space::{Backend, Delivery, Userfaultfd};
use crate::sys::{descriptors, thread};
pub(crate) use cleaner::is_zero;
use flashvm_core::record::RecordingClusters;
use flashvm_core::space::Placement;
use flashvm_core::{
    Action, Engine, EngineConfig, Event, IoId, Nanos, PAGE_SIZE, PageId, Place, SlotId,
};
pub use fork::{ForkHooks, set_fork_hooks};
pub use inline::Resolution;
#[cfg(target_arch = "x86_64")]
pub(crate) use pin::Pins;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix_futex_sync::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Pages of the managed range: 512 GiB of address space.
pub(crate) const SPAN_PAGES: u32 = 1 << 27;
/// The share of the budget that goes to read buffers, and their bounds in words of 64 pages.
const BUFFER_SHARE: u32 = 32;
const BUFFER_WORDS_MAX: u32 = 64;

/// With `--check`: every so many events all pages are looked up in the kernel's page table, and all
/// columns of the engine are checked against each other.
const CHECK_PLACES_EVERY: u32 = 32;
const CHECK_ENGINE_EVERY: u32 = 1024;
/// A process is small with fewer frames than so many times its read buffers would take.
const SMALL_PROCESS: u32 = 4;
/// Frames that a process asks for at least when it asks for more.
const GRANT_STEP: u32 = 64;
/// Frames beyond those in use that a process keeps when others ask for some.
const GRANT_SPARE: u32 = 32;
/// How often other processes are asked for frames while there are too few.
const PRESS_INTERVAL: Nanos = Nanos(2_000_000);

/// The engine of a live process.
pub(crate) type LiveEngine = Engine<RecordingClusters<SharedClusters>>;

/// The pager of this process.
pub struct Pager {
    space: Userfaultfd,
    /// Bytes of the largest file that it writes.
    file_bytes: u64,
    delivery: Delivery,
    store: FlashStore,
    settings: RunSettings,
    control: Control,
    process: Process,
    supervisor: OwnedFd,
    /// The heap of small pages, where it was asked for.
    chameleon: Option<Chameleon>,
    locked: Mutex<Locked>,
    /// Signalled when the engine thaws after a fork, or a quiescing request has ended.
    changed: Condvar,
    regions: Mutex<Regions>,
    /// Parts of the managed range that hold memory of the kernel's: the program put it there.
    foreign: Mutex<Regions>,
    committed: Mutex<managed::Committed>,
    /// Queues of threads that read what they wait for.
    demand: DemandQueues,
    resolved_count: inline::ResolvedCount,
    handler_event: OwnedFd,
    handler_called: AtomicBool,
    cleaner_event: OwnedFd,
    cleaner_called: AtomicBool,
    /// The handler is not up: whoever faults does its work.
    synchronous: AtomicBool,
    /// The handler has started: from here on it allocates nothing while the engine is frozen.
    handling: AtomicBool,
    pressure_seen: AtomicU32,
}

/// What only one thread at a time may touch.
struct Locked {
    engine: LiveEngine,
    events: VecDeque<Event>,
    actions: Vec<Action>,
    placement: actions::LivePlacement,
    /// Reads for the handler to start.
    to_read: VecDeque<Action>,
    /// Scans, writes and discards for the cleaner to start.
    to_clean: VecDeque<Action>,
    reads: HashMap<IoId, Read>,
    buffers: Option<ReadBuffers>,
    /// A fork is about to happen: start nothing.
    freeze: Freeze,
    fork: Option<fork::Fork>,
    recorder: Option<record::Recorder>,
    tracer: Option<record::Tracer>,
    limit: u32,
    /// Frames of the process that Chameleon's heap has.
    lent: u32,
    /// Frames that it is to have once they are free.
    claimed: u32,
    /// Numbers of the frames shared since a fork.
    shares: share::Shares,
    /// Pages that may share frames, as the engine was told last.
    shared_limit: u32,
    /// Frames kept back for a fork that is ahead.
    fork_room: u32,
    /// Times that something was to be checked.
    checks: u32,
    /// Slots of this process' that count as lost room.
    slots_bad: u32,
    /// Pages set aside for the buffers of demand queues, opened or about to be.
    queue_pages: u32,
    /// When the other processes were last asked for frames.
    pressed: Nanos,
    /// The handler has all the memory that it needs to see a fork through.
    handling: bool,
    /// Flash actions that the engine has not had its answer to.
    open: u32,
    /// Scans among them. They take no time to speak of.
    scans: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Freeze {
    No,
    /// Requests in flight may end, none may start.
    Quiescing,
    /// Nothing may change.
    Frozen,
}

/// A read in flight.
#[derive(Clone, Copy)]
struct Read {
    slot: SlotId,
    count: u32,
    /// Address of its buffer.
    buffer: usize,
}

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());

/// The pager of this process, once it runs.
#[must_use]
pub fn pager() -> Option<&'static Pager> {
    let pager = PAGER.load(Ordering::Acquire);
    // SAFETY: set once the pager is complete, and never freed or changed afterwards.
    (!pager.is_null()).then(|| unsafe { &*pager })
}

/// What this process has inherited from `flashvm run`.
#[derive(Debug)]
pub struct Inheritance {
    /// The shared control region.
    pub control: Control,
    /// The flash store, open for direct I/O.
    pub store: OwnedFd,
    /// The supervisor, as a pidfd: when it dies, so does this process.
    pub supervisor: OwnedFd,
    /// The program, for the summary.
    pub command: String,
}

/// Starts the pager of this process.
///
/// # Errors
/// What the kernel lacks or refuses, what the settings get wrong.
pub fn start(inheritance: Inheritance) -> Result<&'static Pager, Error> {
    let Inheritance {
        control,
        store,
        supervisor,
        command,
    } = inheritance;
    let store = descriptors::keep(store).map_err(Error::memory("descriptor"))?;
    let supervisor = descriptors::keep(supervisor).map_err(Error::memory("descriptor"))?;
    let settings = control.settings()?;
    let pid = crate::control::own_pid()?;
    let delivery = settings.delivery;
    let space = Userfaultfd::open(SPAN_PAGES, delivery, !settings.no_move)?;
    let process = control.register(pid, &command)?;
    let config = EngineConfig {
        pages: SPAN_PAGES,
        slots: control.store_slots(),
        frames: crate::control::LIMIT_FRAMES_MIN,
        shadow: space.has_shadow(),
        settings: settings.engine.clone(),
    };
    let recorder = match &settings.record {
        Some(path) => Some(record::Recorder::create(path, pid, &config)?),
        None => None,
    };
    let trace = settings.trace.as_deref();
    let tracer = trace
        .map(|path| record::Tracer::open(path, pid))
        .transpose()?;
    let clusters = RecordingClusters::new(process.clusters());
    let mut engine =
        Engine::new(config, clusters).map_err(|error| Error::Settings(error.to_string()))?;
    if let Some(model) = settings.device_model {
        model_client::begin(process);
        if model.hears_of_frees {
            engine.log_freed();
        }
    }
    let store = FlashStore::new(store, control.store_slots(), settings.inject)
        .map_err(Error::memory("checksums"))?;
    process.take_space_from(store.file());
    process.stats().set_delivery(delivery);

    let locked = Locked {
        engine,
        events: VecDeque::with_capacity(64),
        actions: Vec::with_capacity(1024),
        placement: Placement::default(),
        to_read: VecDeque::with_capacity(256),
        to_clean: VecDeque::with_capacity(64),
        reads: HashMap::with_capacity(256),
        buffers: None,
        freeze: Freeze::No,
        fork: None,
        recorder,
        tracer,
        limit: 0,
        lent: 0,
        claimed: 0,
        shares: share::Shares::default(),
        shared_limit: u32::MAX,
        fork_room: 0,
        checks: 0,
        slots_bad: 0,
        queue_pages: 0,
        pressed: Nanos(0),
        handling: false,
        open: 0,
        scans: 0,
    };
    let small = settings.chameleon.map(|_| control.budget_frames());
    let file_bytes = file_limit::needed(&store, settings.flash_bytes, small);
    if let Some(why) = file_limit::too_low(file_bytes) {
        return Err(Error::Settings(why));
    }
    let chameleon = match settings.chameleon {
        Some(chameleon) if delivery == Delivery::Inline => {
            let (frames, blocks) = (control.budget_frames(), control.clusters().0);
            let config = Chameleon::config(chameleon, frames, blocks);
            let recorder = match &settings.record {
                Some(path) => {
                    let path = PathBuf::from(format!("{}.small", path.display()));
                    Some(record::Recorder::create(&path, pid, &config)?)
                }
                None => None,
            };
            let heap = Chameleon::new(chameleon, config, &process, store.file(), recorder);
            Some(heap.map_err(Error::memory("the heap of small pages"))?)
        }
        Some(_) => return Err(Error::Settings(HANDLER_MODE.to_owned())),
        None => None,
    };
    let pager = Pager {
        chameleon,
        space,
        delivery,
        demand: DemandQueues::new(settings.no_uring, control.budget_frames()),
        resolved_count: inline::ResolvedCount::default(),
        store,
        settings,
        control,
        process,
        supervisor,
        locked: Mutex::new(locked),
        changed: Condvar::new(),
        regions: Mutex::new(Regions::new(SPAN_PAGES)),
        foreign: Mutex::new(Regions::new(SPAN_PAGES)),
        committed: Mutex::new(managed::Committed::new(SPAN_PAGES)),
        handler_event: new_event()?,
        handler_called: AtomicBool::new(false),
        cleaner_event: new_event()?,
        cleaner_called: AtomicBool::new(false),
        synchronous: AtomicBool::new(true),
        handling: AtomicBool::new(false),
        pressure_seen: AtomicU32::new(control.pressure()),
        file_bytes,
    };
    let pager = publish(pager);
    // Before anybody asks for frames on its behalf.
    pager.process.await_first_frames();
    pager.start_threads().map_err(Error::Threads)?;
    thread::await_begun();
    pager.look_at_limit(&mut pager.lock());
    Ok(pager)
}

/// Why there is no heap of small pages in handler mode.
const HANDLER_MODE: &str = "--granularity 512 needs inline mode: leave --fault handler out";

/// Makes a pager the one of this process.
fn publish(pager: Pager) -> &'static Pager {
    let pager: &'static Pager = Box::leak(Box::new(pager));
    PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
    pager
}

fn new_event() -> Result<OwnedFd, Error> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .and_then(descriptors::keep)
        .map_err(Error::memory("eventfd"))
}

impl Locked {
    /// Nothing is in flight, nothing waits to be started, and the handler is up.
    fn is_quiet(&self) -> bool {
        self.handling && self.open == 0 && !self.placement.is_parked()
    }
}

impl Pager {
    /// Starts the pager's threads.
    ///
    /// # Errors
    /// What the C library says to a new thread.
    pub fn start_threads(&'static self) -> Result<(), Errno> {
        // Those of the store's queues now: later the program's threads may hold the C library's locks.
        let io = || {
            let wanted = self.settings.no_uring;
            wanted
                .then(|| Threads::start(self.store.file()))
                .transpose()
        };
        let (reads, writes) = (io()?, io()?);
        thread::spawn("flashvm-fault", || self.handle_faults(reads))?;
        thread::spawn("flashvm-clean", || self.clean(writes))?;
        thread::spawn("flashvm-limit", || self.watch_pressure())?;
        if let Some(heap) = &self.chameleon {
            thread::spawn("flashvm-log", || heap.write_behind(self))?;
        }
        Ok(())
    }

    /// How faults come to this pager.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Address of a page in its region, as the program has it.
    fn address(&self, page: PageId) -> usize {
        self.space.range().at(Place::Region, page).get()
    }

    /// The mapping of an address of this process'.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn mapping_at(&self, address: usize) -> Option<crate::sys::own::Mapping> {
        self.space.mapping_at(address)
    }

    /// Whether pages on their way out are moved, so that every touch is a fault.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn moves(&self) -> bool {
        self.space.has_shadow()
    }

    /// Whether the kernel tells the handler what the program does to its mappings.
    fn hears_of_changes(&self) -> bool {
        self.delivery == Delivery::Handler
    }

    /// The page of a managed address.
    fn page_at(&self, address: usize) -> Option<PageId> {
        self.space.range().page_at(address)
    }

    /// Locks the engine; waits while a fork is under way.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        let mut locked = self.locked.lock();
        while locked.freeze == Freeze::Frozen {
            locked = self.changed.wait(locked);
        }
        locked
    }

    /// The one way into the engine: handles an event and all that follows from it.
    fn apply(&self, locked: &mut Locked, event: Event) {
        locked.events.push_back(event);
        self.handle_events(locked);
    }

    /// Handles what has come of actions that were carried out outside of an event.
    fn handle_events(&self, locked: &mut Locked) {
        while let Some(event) = locked.events.pop_front() {
            let now = now();
            if let Event::ReadDone { .. }
            | Event::Scanned { .. }
            | Event::WriteDone { .. }
            | Event::Discarded { .. } = event
            {
                locked.open -= 1;
                locked.scans -= u32::from(matches!(event, Event::Scanned { .. }));
            }
            let mut actions = std::mem::take(&mut locked.actions);
            actions.clear();
            let engine = &locked.engine;
            locked
                .placement
                .trace
                .told(now, &event, |page| engine.page_state(page));
            locked.engine.handle(now, &event, &mut actions);
            if let Some(pace) = model_client::client() {
                pace.freed(std::iter::from_fn(|| locked.engine.pop_freed()));
            }
            let clusters = locked.engine.clusters_mut().take_log();
            if let Some(recorder) = &mut locked.recorder {
                recorder
                    .step(now, &event, &actions, clusters)
                    .unwrap_or_else(|error| self.die(&error.to_string()));
            }
            if let Some(tracer) = &mut locked.tracer {
                let noted = tracer.note(&event);
                noted.unwrap_or_else(|error| self.die(&error.to_string()));
            }
            let mut rest = &actions[..];
            while let Some((action, behind)) = rest.split_first() {
                let dropped =
                    self.with_space(locked, |placement, host| placement.drop_first(host, rest));
                if dropped > 0 {
                    rest = &rest[dropped..];
                    continue;
                }
                rest = behind;
                if action.is_flash() {
                    locked.open += 1;
                    locked.scans += u32::from(matches!(action, Action::Scan { .. }));
                    locked.placement.begun(action);
                    match action {
                        Action::Read { .. } => locked.to_read.push_back(*action),
                        _ => locked.to_clean.push_back(*action),
                    }
                } else {
                    self.with_space(locked, |placement, host| placement.carry_out(host, action));
                    self.note_resolved(locked, action);
                }
            }
            locked.actions = actions;
        }
        if self.settings.check {
            self.check(locked);
        }
    }

    /// Compares every page with where the engine has it, and now and then all that the engine knows.
    fn check(&self, locked: &mut Locked) {
        locked.checks += 1;
        if locked.checks.is_multiple_of(CHECK_PLACES_EVERY) {
            self.with_space(locked, |placement, host| {
                let engine = host.engine;
                placement.check(host, engine.present_pages());
            });
        }
        if locked.checks.is_multiple_of(CHECK_ENGINE_EVERY) {
            locked.engine.check();
        }
    }

    /// Counts the latency of faults that an action has resolved.
    fn note_resolved(&self, locked: &mut Locked, action: &Action) {
        let (now, stats) = (now(), self.process.stats());
        let ends_waits = locked.placement.end_waits(action, |since| {
            stats.latency.record(now.since(since).0);
        });
        if ends_waits && self.delivery == Delivery::Inline {
            self.resolved_count.announce();
        }
    }

    /// Calls the other thread for what it has to do now, and publishes counters.
    fn hand_over(&self, locked: &mut Locked, from_handler: bool) {
        self.look_at_limit(locked);
        if !from_handler && (!locked.to_read.is_empty() || locked.placement.is_parked()) {
            self.wake_handler();
        }
        if !locked.to_clean.is_empty() || locked.engine.wants_reclaim() {
            self.call_cleaner();
        }
        self.publish_use(locked);
        let slots_bad = locked.engine.slots_bad();
        if slots_bad > locked.slots_bad {
            self.process
                .lose_room((slots_bad - locked.slots_bad).into());
            locked.slots_bad = slots_bad;
        }
        let (stats, counters) = (self.process.stats(), locked.engine.counters());
        stats.publish(counters);
        stats
            .moves_misreported
            .store(locked.placement.moves_misreported(), Ordering::Relaxed);
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        stats
            .bytes_read
            .store(bytes(counters.pages_in), Ordering::Relaxed);
        stats
            .bytes_written
            .store(bytes(counters.pages_out), Ordering::Relaxed);
    }

    /// Tells the run how many frames are in use. Before frames are given back, too: see [`Process::set_used`].
    fn publish_use(&self, locked: &Locked) {
        self.process
            .set_used(locked.engine.frames_in_use() + self.buffer_pages(locked) + locked.lent);
    }

    fn buffer_pages(&self, locked: &Locked) -> u32 {
        locked.buffers.as_ref().map_or(0, ReadBuffers::pages) + self.demand.pages()
    }

    /// Frames for buffers, counted before there are any: a page is never refused for want of one. A
    /// small process with nothing on flash needs none: its share would belong to nobody.
    fn buffers_reserved(&self, locked: &Locked) -> u32 {
        let pages = self.read_buffer_pages();
        let may_read = locked.engine.slots_used() > 0
            || locked.engine.frames_in_use() > pages * SMALL_PROCESS
            || locked.lent > 0;
        locked.queue_pages + if may_read { pages } else { 0 } + self.frames_kept_back(locked)
    }

    /// Frames in use, with those kept back.
    fn frames_in_use(&self, locked: &Locked) -> u32 {
        locked.engine.frames_in_use() + self.buffers_reserved(locked) + locked.lent
    }

    /// Whether a demand queue is to be opened now: threads want one, and the budget has room for its
    /// buffer. If it has none yet, room is being made.
    fn may_open_queue(&self, locked: &mut Locked) -> bool {
        if !self.demand.wants_more() {
            return false;
        }
        locked.queue_pages = self.demand.pages() + PAGES_MAX;
        self.look_at_limit(locked);
        self.frames_in_use(locked) <= self.process.granted()
    }

    /// Words of read buffers that this process has once a page comes back from flash.
    fn buffer_words(&self) -> u32 {
        buffer_words_of(self.control.budget_frames())
    }

    /// Pages of those.
    fn read_buffer_pages(&self) -> u32 {
        self.buffer_words() * ReadBuffers::RUN
    }

    fn wake_handler(&self) {
        if !self.handler_called.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.handler_event, &1u64.to_ne_bytes());
        }
    }

    fn call_cleaner(&self) {
        if !self.cleaner_called.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.cleaner_event, &1u64.to_ne_bytes());
        }
    }

    /// Applies an event that a thread of the program reports.
    fn report(&self, event: Event) {
        let mut locked = self.lock();
        self.apply(&mut locked, event);
        self.hand_over(&mut locked, false);
    }

    /// Takes more of the budget if it is needed and this process' share allows it, gives back what
    /// is beyond its share, and tells the engine what it has.
    fn look_at_limit(&self, locked: &mut Locked) {
        let buffers = self.buffers_reserved(locked);
        let in_use = self.frames_in_use(locked);
        let share = self.process.limit();
        let held = self.process.granted();
        let limit = if held > share {
            // Frames that are in use go back as they come free.
            self.publish_use(locked);
            self.process.shrink(share.max(in_use));
            share
        } else {
            // What it takes beyond its use, others cannot have.
            let step = if self.process.others_want() {
                GRANT_STEP
            } else {
                (held / 2).max(GRANT_STEP)
            };
            let wanted = (held + step).min(share);
            if in_use + step / 2 <= held || wanted == held {
                self.process.set_wanting(false);
                held
            } else {
                let got = self.process.grow(wanted);
                self.process.set_wanting(got < wanted);
                let now = now();
                if got < wanted && now.since(locked.pressed) >= PRESS_INTERVAL {
                    locked.pressed = now;
                    self.control.raise_pressure();
                }
                got
            }
        };
        self.tell_heap(locked, limit.saturating_sub(buffers));
        let frames = limit
            .saturating_sub(buffers + locked.lent + locked.claimed)
            .max(crate::control::LIMIT_FRAMES_MIN / 2);
        let shared = self.shared_limit(locked, limit);
        if frames != locked.limit || shared != locked.shared_limit {
            (locked.limit, locked.shared_limit) = (frames, shared);
            self.apply(locked, Event::Limit { frames, shared });
        }
    }

    /// Follows the shared pressure word: other processes want frames, or have given some back.
    fn watch_pressure(&self) {
        let mut seen = self.pressure_seen.load(Ordering::Relaxed);
        loop {
            let word = self
                .control
                .wait_pressure(seen, std::time::Duration::from_secs(3600));
            if word != seen {
                seen = word;
                let mut locked = self.lock();
                self.own_abandoned(&mut locked);
                let in_use = self.frames_in_use(&locked);
                let least = crate::control::LIMIT_FRAMES_MIN;
                self.publish_use(&locked);
                self.process.shrink((in_use + GRANT_SPARE).max(least));
                self.look_at_limit(&mut locked);
                self.hand_over(&mut locked, false);
            }
        }
    }

    /// Read buffers, made when the first page comes back from flash.
    fn buffers<'a>(&self, locked: &'a mut Locked) -> &'a mut ReadBuffers {
        if locked.buffers.is_none() {
            let buffers = ReadBuffers::new(self.buffer_words() as usize)
                .unwrap_or_else(|error| self.die(&format!("no memory for read buffers: {error}")));
            locked.buffers = Some(buffers);
        }
        locked.buffers.as_mut().expect("just made")
    }

    /// Ends the process: the pager cannot go on, and the program must not read wrong data.
    pub(crate) fn die(&self, reason: &str) -> ! {
        self.process.note_end(reason);
        crate::sys::message::say(reason);
        crate::sys::signals::abort()
    }
}

/// Words of read buffers of each process of a run with so many frames.
fn buffer_words_of(budget_frames: u32) -> u32 {
    (budget_frames / BUFFER_SHARE / ReadBuffers::RUN).clamp(1, BUFFER_WORDS_MAX)
}

/// Time on the clock that the engine is told.
pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
