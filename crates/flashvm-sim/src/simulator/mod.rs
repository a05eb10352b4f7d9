//! A small executor: threads that touch pages, a device with latency, a background that reclaims,
//! and a memory with known contents.
//!
//! Every load is compared with the last store, and after every event the engine's page states with
//! the model memory; a lost, stale or doubly mapped page, or a frame above the budget, is a panic.

mod check;
mod executor;
mod program;
mod space;

use crate::memory::{Memory, Version};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::scheduler::{BlockQueue, Ended};
use crate::setup::Device;
use crate::store::{Store, StoreClusters};
use executor::Flight;
use flashvm_core::record::{Recording, RecordingClusters, Step};
use flashvm_core::space::Placement;
use flashvm_core::{
    Access, Action, ConfigError, Engine, EngineConfig, Event, IoId, Nanos, PageId, SlotId,
};
pub use space::{KernelFaults, Layout};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};

/// Events without progress of any access before the run counts as stuck.
const STEPS_MAX: u32 = 100_000;
/// Longest delay until the executor notices the end of a request.
const NOTICE_DELAY: u64 = 5_000;
/// Longest delay until the background reclaims.
const BACKGROUND_DELAY: u64 = 20_000;
/// Delay until a postponed kernel call is retried.
const RETRY_DELAY: Nanos = Nanos(3_000);

/// Faults to inject, each with a probability per million for every page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read that fails.
    pub reads: u32,
    /// A write that fails; the slot's contents are lost.
    pub writes: u32,
    /// A discard that the device refuses, per command.
    pub discards: u32,
    /// Answers of the kernel.
    pub kernel: KernelFaults,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It saw the right contents.
    Done,
    /// The page's contents are lost: the program gets SIGBUS.
    Lost,
    /// It waits for a frame and gets none because the store is full.
    StoreFull,
}

/// A thread in the middle of an access.
#[derive(Clone, Copy)]
struct Thread {
    page: PageId,
    access: Access,
    waiting: bool,
}

/// An engine with its environment.
pub struct Simulator {
    config: EngineConfig,
    engine: Engine<RecordingClusters<StoreClusters>>,
    memory: Memory,
    placement: Placement<Vec<Version>>,
    layout: Layout,
    code_in_shadow: BTreeSet<u32>,
    /// Pages that the program has dropped without a report, and not touched since.
    unreported: HashSet<PageId>,
    store: Store,
    process: u32,
    device: Device,
    /// The last stored contents; absent: zeros.
    truth: HashMap<PageId, Version>,
    lost: HashSet<PageId>,
    /// Locked pages that have been touched since: they stay in RAM.
    kept: BTreeSet<PageId>,
    pool: Pool,
    faults: Faults,
    queue: BlockQueue,
    rng: Rng,
    now: Nanos,
    flights: HashMap<u64, Flight>,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
    ended: Vec<Ended>,
    flights_begun: u64,
    /// The data of the read that has just ended.
    just_read: Option<(IoId, Vec<Option<Version>>)>,
    /// The pages of the scan that has just ended.
    just_scanned: Option<(IoId, Vec<Option<Version>>)>,
    /// The read of a compressed page that has just ended, and its first slot.
    just_unpacked: Option<(IoId, SlotId)>,
    background_at: Option<Nanos>,
    /// When parked actions are retried.
    retry_at: Option<Nanos>,
    threads: BTreeMap<u64, Thread>,
    finished: HashMap<u64, Outcome>,
    threads_begun: u64,
    versions: Version,
    /// Frames above the limit that are allowed because the limit was lowered.
    frames_excused: u32,
    /// It has forked, or is a forked child.
    has_forked: bool,
    checking: bool,
    recorded: Option<Vec<Step>>,
    actions: Vec<Action>,
    waited: Nanos,
}

impl Simulator {
    /// An engine over a device; `seed` decides everything random.
    ///
    /// # Errors
    /// If the configuration has a value out of range.
    ///
    /// # Panics
    /// If there can be no such device with as many pages as the store has slots.
    pub fn new(config: EngineConfig, device: Device, seed: u64) -> Result<Self, ConfigError> {
        let clusters = config.slots / config.settings.cluster_pages.max(1);
        Self::on(Store::new(clusters), None, config, device, seed)
    }

    /// A process on a store.
    fn on(
        store: Store,
        parent: Option<u32>,
        config: EngineConfig,
        device: Device,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let process = store.process(parent);
        let slots = config.slots;
        let clusters = RecordingClusters::new(StoreClusters::new(store.clone(), process));
        let queue = device.build(slots, seed).expect("a device for this store");
        let mut engine = Engine::new(config.clone(), clusters)?;
        if queue.model().hears_of_frees() {
            engine.log_freed();
        }
        Ok(Self {
            engine,
            store,
            process,
            queue,
            device,
            config,
            memory: Memory::default(),
            placement: Placement::default(),
            layout: Layout::default(),
            code_in_shadow: BTreeSet::new(),
            unreported: HashSet::new(),
            truth: HashMap::new(),
            lost: HashSet::new(),
            kept: BTreeSet::new(),
            faults: Faults::default(),
            rng: Rng::new(seed),
            now: Nanos(0),
            flights: HashMap::new(),
            ends: BinaryHeap::new(),
            ended: Vec::new(),
            flights_begun: 0,
            just_read: None,
            just_scanned: None,
            just_unpacked: None,
            pool: Pool::default(),
            background_at: None,
            retry_at: None,
            threads: BTreeMap::new(),
            finished: HashMap::new(),
            threads_begun: 0,
            versions: 0,
            frames_excused: 0,
            has_forked: false,
            checking: false,
            recorded: None,
            actions: Vec::new(),
            waited: Nanos(0),
        })
    }

    /// Injects faults from now on.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Checks everything after every event: slow, for small runs.
    #[must_use]
    pub fn checked(mut self) -> Self {
        self.checking = true;
        self
    }

    /// Records every step from the start.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        self.recorded = Some(Vec::new());
        self
    }

    /// The recording.
    #[must_use]
    pub fn into_recording(self) -> Option<Recording> {
        Some(Recording {
            config: self.config,
            steps: self.recorded?,
        })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<RecordingClusters<StoreClusters>> {
        &self.engine
    }

    /// The device.
    #[must_use]
    pub fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Virtual time that threads of [`Simulator::access`] spent waiting.
    #[must_use]
    pub fn waited(&self) -> Nanos {
        self.waited
    }

    /// The program computes for a while.
    pub fn compute(&mut self, time: Nanos) {
        let until = self.now.plus(time);
        while self.next_time().is_some_and(|at| at <= until) {
            self.advance();
        }
        self.now = Nanos(self.now.0.max(until.0));
    }

    /// One thread touches a page; returns when it has.
    pub fn access(&mut self, page: PageId, access: Access) -> Outcome {
        let begun = self.now;
        let thread = self.begin(page, access);
        let outcome = self.finish(thread);
        self.waited = self.waited.plus(self.now.since(begun));
        outcome
    }

    /// A thread begins an access; other threads run concurrently.
    pub fn begin(&mut self, page: PageId, access: Access) -> u64 {
        let id = self.threads_begun;
        self.threads_begun += 1;
        self.threads.insert(
            id,
            Thread {
                page,
                access,
                waiting: false,
            },
        );
        self.poll_threads();
        id
    }

    /// Runs until a thread has completed its access.
    ///
    /// # Panics
    /// If it never does although the store is not full: a bug in the engine.
    pub fn finish(&mut self, thread: u64) -> Outcome {
        for _ in 0..STEPS_MAX {
            if let Some(outcome) = self.finished.remove(&thread) {
                return outcome;
            }
            if self.is_starved_by_store() {
                self.threads.remove(&thread);
                return Outcome::StoreFull;
            }
            assert!(
                self.advance(),
                "thread {thread} waits for {:?} and nothing will wake it",
                self.threads[&thread].page
            );
        }
        let engine = &self.engine;
        let pages: Vec<_> = engine
            .present_pages()
            .map(|page| (page.0, engine.page_state(page), engine.is_shared(page)))
            .collect();
        panic!(
            "thread {thread} is stuck on {:?}: {} of {} frames in use, {} pages shared; {pages:?}",
            self.threads[&thread].page,
            engine.frames_in_use(),
            engine.frames_limit(),
            engine.pages_shared(),
        );
    }

    /// Whether the store is full, a fault waits, and nothing in flight could help.
    fn is_starved_by_store(&self) -> bool {
        let progresses = self.engine.deadline().is_some_and(|at| at <= self.now);
        let full = self.engine.store_full() && self.engine.stalled();
        full && self.flights.is_empty() && !progresses
    }

    /// Runs until nothing is in flight.
    ///
    /// # Panics
    /// If that takes for ever: a bug in the engine.
    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.is_starved_by_store() || !self.advance() {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    fn quiesce(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.flights.is_empty() && !self.placement.is_parked() {
                return;
            }
            self.advance();
        }
        panic!("requests in flight never end");
    }

    /// The process ends, once nothing is in flight.
    pub fn exit(mut self) {
        self.quiesce();
        self.store.exit(self.process);
    }

    fn next_time(&self) -> Option<Nanos> {
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        let device = self.queue.next_time();
        let tick = self.engine.deadline().map(|at| Nanos(at.0.max(self.now.0)));
        [end, device, tick, self.background_at, self.retry_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Advances to the next event. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        let Some(at) = self.next_time() else {
            return false;
        };
        self.now = Nanos(self.now.0.max(at.0));
        if self.ends.peek().is_some_and(|Reverse((end, _))| *end == at) {
            let Reverse((_, id)) = self.ends.pop().expect("just seen");
            let flight = self.flights.remove(&id).expect("flights end once");
            self.end_flight(flight);
        } else if self.queue.next_time().is_some_and(|due| due <= self.now) {
            self.notice_ended();
        } else if self.retry_at == Some(at) {
            self.retry_parked();
        } else if self.background_at == Some(at) {
            self.background_at = None;
            if self.engine.wants_reclaim() {
                self.tell(Event::Reclaim);
            }
        } else {
            self.tell(Event::Tick);
        }
        self.poll_threads();
        true
    }

    /// The executor notices ended requests a little later, in any order.
    fn notice_ended(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        self.queue.advance(self.now, &mut ended);
        for Ended { tag, done } in ended.drain(..) {
            if !done {
                let flight = self.flights.get_mut(&tag).expect("it has not ended");
                flight.refused = true;
            }
            let at = self.now.plus(Nanos(self.rng.below(NOTICE_DELAY)));
            self.ends.push(Reverse((at, tag)));
        }
        self.ended = ended;
    }

    fn poll_threads(&mut self) {
        loop {
            let ready = self.threads.iter().find(|(_, thread)| !thread.waiting);
            let Some((&id, &thread)) = ready else {
                break;
            };
            let outcome = self.attempt(thread);
            if let Some(outcome) = outcome {
                self.threads.remove(&id);
                self.finished.insert(id, outcome);
                continue;
            }
            let entry = self.threads.get_mut(&id).expect("it waits");
            entry.waiting = true;
            let Thread { page, access, .. } = thread;
            // A thread that resolves its own faults first retries parked actions.
            if self.placement.is_parked() && self.rng.below(2) == 0 && !self.retry_parked() {
                continue;
            }
            if self.memory.mapped(page).is_some() {
                if !self.config.protects {
                    // The page has come meanwhile.
                    let entry = self.threads.get_mut(&id).expect("it waits");
                    entry.waiting = false;
                } else if !self.unprotect(page) {
                    self.tell(Event::WriteProtectFault { page });
                }
            } else if !self.resolve_spurious(page) {
                self.tell(Event::Fault {
                    page,
                    access,
                    huge: self.layout.is_huge(page),
                });
            }
        }
    }

    /// The access of a thread, or a fault (`None`).
    fn attempt(&mut self, thread: Thread) -> Option<Outcome> {
        let Thread { page, access, .. } = thread;
        if self.memory.is_poisoned(page) {
            assert!(self.lost.contains(&page));
            return Some(Outcome::Lost);
        }
        let mapped = self.memory.mapped(page)?;
        let truth = self.truth.get(&page).copied().unwrap_or(0);
        assert_eq!(mapped.version, truth, "{page:?} is stale or lost");
        if access == Access::Write {
            if !self.layout.is_writable(page) {
                // The program gets its SIGSEGV.
                return Some(Outcome::Done);
            }
            if mapped.protected {
                return None;
            }
            self.versions += 1;
            // Sometimes zeros are stored, for the scan to find.
            let version = if self.rng.below(4) == 0 {
                0
            } else {
                self.versions
            };
            self.memory.store(page, version);
            self.truth.insert(page, version);
        }
        Some(Outcome::Done)
    }

    fn tell(&mut self, event: Event) {
        self.handle(VecDeque::from([event]));
    }

    fn handle(&mut self, mut events: VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            if let Event::Refused { page } = event {
                // Charged as a frame of its own, whether or not the kernel has copied it by now.
                self.memory.unshare(page);
            }
            let mut actions = std::mem::take(&mut self.actions);
            let engine = &self.engine;
            self.placement
                .trace
                .told(self.now, &event, |page| engine.page_state(page));
            self.engine.handle(self.now, &event, &mut actions);
            let clusters = self.engine_log();
            self.perform(&actions, &mut events);
            if let Some(steps) = &mut self.recorded {
                steps.push(Step {
                    now: self.now,
                    thread: 0,
                    event,
                    clusters,
                    actions: actions.clone(),
                });
            }
            while let Some(slot) = self.engine.pop_freed() {
                self.queue.freed(slot.0);
            }
            actions.clear();
            self.actions = actions;
        }
        if self.checking {
            self.check();
        }
        if self.placement.is_parked() && self.retry_at.is_none() {
            self.retry_at = Some(self.now.plus(RETRY_DELAY));
        }
        if self.engine.wants_reclaim() && self.background_at.is_none() {
            let delay = Nanos(self.rng.below(BACKGROUND_DELAY));
            self.background_at = Some(self.now.plus(delay));
        }
    }
}
