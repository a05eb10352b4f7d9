//! The live pager executes the engine's decisions on this process.
//!
//! The *handler* reads faults and events from userfaultfd, hands them to the engine, places pages and reads from
//! flash. The *cleaner* reclaims ahead of need: it moves pages to the shadow, scans them for zeros, writes them. A
//! third thread follows the pressure of other processes; a fourth writes small pages behind. All of them, and the
//! program's own threads when they fault or change mappings, go through [`Pager::apply`] with the engine locked.
//! Nobody holds the lock during a request to flash, except the handler when it resolves faults during a fork.
//!
//! | what | where |
//! | --- | --- |
//! | how a pager comes to be | `start`; in a forked child `fork`; shared frames `share` |
//! | its threads, and how they are called | `workers`, `handler`, `cleaner` |
//! | faulting threads | they resolve their faults `inline`; they do the work of the pager's threads `synchronous` |
//! | memory actions on the [address space](crate::space) | `actions`; what must stay in place `pin` |
//! | frames of the budget | `grant`; read buffers `buffers`; compressed pages `pool`, `codec` |
//! | what the program does to its memory | `managed`, `remap`; changes under way `change` |
//! | what the heap of small pages asks for | `small` |
//! | what onlookers learn | `tell`: `probes`, `decisions`, the `journal` of a report |
//! | the store | `discard`; the write limit `limit` |

mod actions;
mod buffers;
mod change;
mod cleaner;
pub mod codec;
mod decisions;
mod discard;
mod fork;
mod grant;
mod handler;
mod inline;
mod journal;
mod limit;
mod lock;
mod managed;
mod pin;
mod pool;
mod probes;
mod remap;
mod share;
mod small;
mod start;
mod statistics;
mod synchronous;
mod tell;
mod workers;

use self::journal::FaultKinds;
use self::pool::{Compressor, Inflater, PoolMemory};
use self::workers::{By, Crew, Workers};
use crate::chameleon::Chameleon;
use crate::control::{Control, Malloc, Process, RunSettings, Select, SharedClusters};
use crate::flash::demand::DemandQueues;
use crate::flash::{FlashStore, ReadBuffers};
use crate::mappings::Mappings;
use crate::record::{Recorder, Tracer};
use crate::space::{Delivery, Space};
use crate::sys::descriptors::PagerFd;
use crate::sys::now;
use flashvm_core::grant::Grant;
use flashvm_core::record::RecordingClusters;
use flashvm_core::{Action, Engine, Event, IoId, PAGE_SIZE, PageId, Place, SlotId};
pub use fork::{ForkHooks, set_fork_hooks};
#[cfg(target_arch = "x86_64")]
pub(crate) use pin::Pins;
pub use probes::{PROBES, StaticProbe};
use rustix_futex_sync::{Condvar, Mutex, MutexGuard};
pub use start::{Inheritance, start};
pub use statistics::Statistics;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Pages of the managed range: 512 GiB of address space.
pub(crate) const SPAN_PAGES: u32 = 1 << 27;

/// With `--check`: calls of [`Pager::check`] between two comparisons of all pages with the kernel's page table, and
/// between two checks of the engine's columns against each other.
const CHECK_PLACES_EVERY: u32 = 32;
const CHECK_ENGINE_EVERY: u32 = 1024;
/// The engine of a live process.
pub(crate) type LiveEngine = Engine<RecordingClusters<SharedClusters>>;

/// The pager of this process.
pub struct Pager {
    space: Space,
    delivery: Delivery,
    store: FlashStore,
    /// Bytes of the largest file that the pager writes: the store, or the frames of small pages.
    file_bytes: u64,
    settings: RunSettings,
    control: Control,
    process: Process,
    supervisor: PagerFd,
    /// `/proc` of the supervisor's pid namespace: forked children look up their numbers in it.
    proc_folder: PagerFd,
    /// The heap of small pages, with `--granularity 512`.
    chameleon: Option<Chameleon>,
    locked: Mutex<Locked>,
    /// Signalled when nothing is in flight any more, when the last change of mappings ends, when a forked child
    /// resolves its own faults, and when the engine thaws.
    changed: Condvar,
    mappings: Mappings,
    /// Queues for threads that read their own pages.
    demand: DemandQueues,
    resolved_count: inline::ResolvedCount,
    workers: Workers,
    /// The run's pressure word when this process got its first frames.
    pressure_at_start: u32,
    /// The memory of compressed pages, with `--compress`.
    pool: Option<PoolMemory>,
    /// `None` while a scan uses it: from the first page until the scan's actions are carried out.
    compressor: Mutex<Option<Box<Compressor>>>,
    inflater: Option<Mutex<Inflater>>,
}

/// The state that only one thread at a time uses.
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
    /// The scan whose actions are being carried out, and what it compressed.
    scanned: Option<(IoId, Box<Compressor>)>,
    buffers: Option<ReadBuffers>,
    /// What a fork forbids at the moment.
    freeze: Freeze,
    /// Which threads do the work of handler and cleaner.
    crew: Crew,
    fork: Option<fork::Fork>,
    recorder: Option<Recorder>,
    tracer: Option<Tracer>,
    grant: Grant,
    /// Numbers of the frames shared since a fork.
    shares: share::Shares,
    /// Calls of [`Pager::check`].
    checks: u32,
    /// Bad slots of this process that the run has been told of.
    slots_bad: u32,
    /// Flash actions whose answer the engine waits for.
    open: u32,
    /// Scans among `open`; a scan takes microseconds.
    scans: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Freeze {
    No,
    /// The engine's requests end, queued ones included; faults, changes and reclaim wait.
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
    // SAFETY: `install` leaks a complete pager and then stores its address. Nobody frees it; only a forked child moves
    // it out (`inherit`), before it installs its own.
    (!pager.is_null()).then(|| unsafe { &*pager })
}

impl Pager {
    /// How faults come to this pager.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Whether all memory that the program asks for is managed; otherwise only what it asks this library for.
    #[must_use]
    pub fn manages_all(&self) -> bool {
        self.settings.select == Select::All
    }

    /// Where the program's objects come from.
    #[must_use]
    pub fn malloc(&self) -> Malloc {
        self.settings.malloc
    }

    /// Address of a page in the region.
    fn address(&self, page: PageId) -> usize {
        self.space.range().at(Place::Region, page).get()
    }

    /// The mapping that holds an address.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn mapping_at(&self, address: usize) -> Option<crate::sys::own::Mapping> {
        self.space.mapping_at(address)
    }

    /// Whether pages move to the shadow before they leave RAM, so that every touch is a fault.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn moves(&self) -> bool {
        self.space.has_shadow()
    }

    /// Whether pages stay where they are while the kernel works on them after a call has returned.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn keeps_pinned_pages(&self) -> bool {
        self.space.moves_pages()
    }

    /// Whether the kernel tells the handler what the program does to its mappings.
    fn hears_of_changes(&self) -> bool {
        !self.delivery.is_in_thread()
    }

    /// The page of an address in the managed range.
    fn page_at(&self, address: usize) -> Option<PageId> {
        self.space.range().page_at(address)
    }

    /// Locks the engine; waits while a fork keeps it frozen.
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

    /// Handles the events that actions have raised.
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
            let before = FaultKinds::of(locked);
            locked.engine.handle(now, &event, &mut actions);
            self.tell(locked, before, &event, &actions);
            if let Some(model) = self.store.model() {
                model.freed(std::iter::from_fn(|| locked.engine.pop_freed()));
            }
            let clusters = locked.engine.clusters_mut().take_log();
            if let Some(recorder) = &mut locked.recorder {
                recorder
                    .step(now, &event, &actions, clusters)
                    .unwrap_or_else(|error| self.die(&error.to_string()));
            }
            if let Some(tracer) = &mut locked.tracer {
                let noted = match locked.engine.shard_bits() {
                    None => tracer.note(&event),
                    Some(bits) => tracer.note_seen(bits, &event, locked.engine.take_seen()),
                };
                noted.unwrap_or_else(|error| self.die(&error.to_string()));
            }
            let mut rest = &actions[..];
            while let Some((action, behind)) = rest.split_first() {
                let together = self.with_space(locked, |placement, host| {
                    placement.carry_out_first(host, rest)
                });
                if together > 0 {
                    let (done, behind) = rest.split_at(together);
                    done.iter()
                        .for_each(|action| self.note_resolved(locked, action));
                    rest = behind;
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
                } else if action.is_of_pool() {
                    self.work_on_pool(locked, action);
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

    /// Compares, at intervals, the engine's places of pages with the kernel's, and the engine's columns with each
    /// other.
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

    /// Counts the latency of the faults that an action has resolved.
    fn note_resolved(&self, locked: &mut Locked, action: &Action) {
        let stats = self.process.stats();
        let ends_waits = locked.placement.end_waits(action, |page, since| {
            let waited = now().since(since);
            probes::resolved(self.address(page), waited);
            stats.latency.record(waited.0);
        });
        if ends_waits && self.delivery.is_in_thread() {
            self.resolved_count.announce();
        }
    }

    /// Ends a use of the engine: calls the threads that have work now, and publishes counters.
    fn hand_over(&self, locked: &mut Locked, by: By) {
        self.look_at_limit(locked);
        self.workers.call(by, locked.due());
        self.publish_use(locked);
        let slots_bad = locked.engine.slots_bad();
        if slots_bad > locked.slots_bad {
            self.process
                .lose_room((slots_bad - locked.slots_bad).into());
            locked.slots_bad = slots_bad;
        }
        let (stats, counters) = (self.process.stats(), locked.engine.counters());
        stats.publish(counters, locked.engine.gauges());
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

    /// Applies an event that a thread of the program reports.
    fn report(&self, event: Event) {
        let mut locked = self.lock();
        self.apply(&mut locked, event);
        self.hand_over(&mut locked, By::Program);
    }

    /// Ends the process: the pager cannot go on, and the program must not read wrong data.
    pub(crate) fn die(&self, reason: &str) -> ! {
        tracing::error!("{reason}");
        self.process.note_end(reason);
        crate::sys::message::say(reason);
        crate::sys::signals::abort()
    }

    /// Ends the process, as [`Self::die`]: without the supervisor nothing accounts for store and budget.
    fn die_without_supervisor(&self) -> ! {
        self.die("the supervisor (flashvm run) has died")
    }
}
