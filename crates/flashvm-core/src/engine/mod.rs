//! The state machine: its state, the dispatch of events, its queries.
//!
//! The parts are methods in the files beside this one: `fault` serves faults, `pagein` reads and
//! prefetches, `probation` holds prefetched pages that nobody has used yet, `reclaim` moves victims out and
//! frees frames, `observe` watches a sample of the pages, `lock` keeps locked pages in RAM, `clean` writes dirty pages,
//! `congestion` waits for them, `compress` packs pages into the pool, `packed` brings them back,
//! `discard` discards free clusters, `range` handles zaps, moves and advice, `share` the frames shared after
//! a fork, `check` the invariants.
//!
//! A frame is in use for every page that is mapped, in the shadow or being read, and for every
//! shadow copy of a page that was mapped again while a request works on the copy. The copy of a
//! clean page that is restored and dropped within one event is not counted.

mod check;
mod clean;
mod compress;
mod congestion;
mod discard;
mod fault;
mod first_store;
mod huge;
mod kept;
mod lock;
mod observe;
mod packed;
mod pagein;
mod probation;
mod range;
mod reclaim;
mod share;
mod stale;

use crate::clusters::ClusterSource;
use crate::counters::Counters;
use crate::event::{Access, Action, Event};
use crate::gauges::Gauges;
use crate::ids::{IoId, Nanos, PageId, RUN_PAGES_MAX, SlotId};
use crate::io::IoTable;
use crate::page::{Flag, PageState, PageTable};
use crate::policy::{Policy, PolicyContext};
use crate::pool::{Handle, Pool, Share, Trial};
use crate::prefetch::{Candidate, Prefetcher};
use crate::queue::PageQueue;
use crate::sampling::Sampler;
use crate::settings::{ConfigError, EngineConfig, FirstStore, Settings};
use crate::shards::Shards;
use crate::swap::SwapMap;
use first_store::FirstStores;
use kept::KeptObjects;
pub use lock::lock_share;
use packed::PackedRead;
pub use share::TRANSIT_PAGES_MAX;
use std::collections::VecDeque;

/// Initial capacity of queues, so that the fault path does not allocate.
const QUEUE_RESERVE: usize = 1024;
/// Assumed time of a read until one has been measured.
const READ_TIME: Nanos = Nanos(80_000);

/// A fault that waits for a frame, or for a request on a zapped page.
#[derive(Clone, Copy)]
struct PendingFault {
    page: PageId,
    access: Access,
}

/// The engine of one process. See the crate documentation.
pub struct Engine<C> {
    settings: Settings,
    shadow: bool,
    protects: bool,
    copies_back: bool,
    first_stores: FirstStores,
    /// Whether the policy is told of stores to dirty pages ([`Policy::has_write_bits`]).
    write_bits: bool,
    kept: KeptObjects,
    limit: u32,
    table: PageTable,
    swap: SwapMap,
    pool: Pool,
    share: Share,
    trial: Trial,
    clusters: C,
    policy: Box<dyn Policy>,
    prefetcher: Option<Box<dyn Prefetcher>>,
    sampler: Sampler,
    /// The sample of pages that is observed. `None`: none.
    shards: Option<Box<Shards>>,
    discards: discard::Discards,
    ios: IoTable,
    counters: Counters,
    now: Nanos,

    /// Frames that only this process uses, without those of the pool.
    frames: u32,
    /// Pages in frames shared with other processes.
    shared: u32,
    /// Shared pages that are leaving or on standby: they free no frame.
    shared_leaving: u32,
    /// Bound on shared pages; each page beyond counts as a frame of its own.
    shared_limit: u32,
    /// Clean pages in the shadow, dropped when frames are needed.
    standby: PageQueue,
    /// Dirty pages in the shadow that wait for cleaning.
    condemned: PageQueue,
    /// Pages on probation; see `probation`.
    probation: PageQueue,
    /// Pages with stale copies in the shadow; see `stale`.
    stale: Vec<PageId>,
    /// Pages that the last event began to evict; they proceed with the next event, when all refused moves
    /// are known.
    fresh: Vec<PageId>,
    /// Proposed pages whose moves were refused, out of the policy's order: some policies (FAB) would propose them again
    /// before all others. They return when nothing else is proposed, or when reclaim has reached its goal.
    refused: Vec<PageId>,
    /// Moves into the shadow that the last batch requested and that were not refused.
    batch_moved: u32,
    /// The pages that the program has locked.
    locks: lock::Locks,
    /// Where the next search for clean pages begins.
    clean_hand: u32,
    /// The last batch spent its budget clearing reference bits and found no victim.
    batch_searching: bool,

    /// Faults that wait, oldest first.
    pending: VecDeque<PendingFault>,
    /// The oldest of them waits for a frame.
    starved: bool,
    /// When a starved fault searches for a frame itself.
    allocator_retry: Option<Nanos>,
    /// Scans and writes in flight.
    cleaning_requests: u32,
    /// Pages in those requests.
    cleaning_pages: u32,
    /// When the cleaner issues one more request although its maximum is in flight.
    cleaner_retry: Option<Nanos>,
    /// Reclaim ahead of need continues until the upper mark.
    reclaiming: bool,
    /// Drops ahead of need continue until enough frames are free.
    freeing: bool,
    /// The last reclaim achieved nothing; the next waits for another event.
    fruitless: bool,
    /// A fork is ahead: the pool empties.
    draining: bool,
    /// No run of slots was found for a block of the pool, and none has been freed since.
    pool_stuck: bool,
    /// A fault waits for a frame, and all pages that the policy proposes refuse to leave: the pool gives up its frames.
    pool_yields: bool,
    /// Mean time of a read.
    read_time: Nanos,
    /// Condemned pages are cleaned even while frames are not short ([`crate::Advice::PageOut`]).
    flush: bool,
    /// Share of the write limit's burst that is used, in percent.
    write_limit_used: u8,

    // Scratch, empty between events.
    candidates: Vec<Candidate>,
    reads: Vec<(SlotId, PageId)>,
    zeros: Vec<PageId>,
    moves: Vec<PageId>,
    drops: Vec<PageId>,
    unshared: Vec<PageId>,
    shared_kept: Vec<PageId>,
    skipped: Vec<PageId>,
    batch: Vec<PageId>,
    keeps: Vec<Action>,
    packed: Vec<(Handle, PageId)>,
    packed_reads: Vec<PackedRead>,
}

impl<C: ClusterSource> Engine<C> {
    /// An engine whose pages are all absent.
    ///
    /// # Errors
    /// If the configuration has a value out of range.
    pub fn new(config: EngineConfig, clusters: C) -> Result<Self, ConfigError> {
        config.check()?;
        let EngineConfig {
            pages,
            slots,
            frames,
            shadow,
            protects,
            copies_back,
            settings,
        } = config;
        let run = RUN_PAGES_MAX as usize;
        let discards = discard::Discards::new(settings.discard.build(slots));
        let mut swap = SwapMap::new(slots, settings.cluster_pages);
        swap.keep_emptied(discards.are_sent());
        let context = PolicyContext::of_pages(pages);
        let policy = settings.policy.build(&context, frames);
        let write_bits = policy.has_write_bits();
        let first_store = if shadow && policy.ignores_stores() {
            settings.first_store
        } else {
            FirstStore::Fault
        };
        Ok(Self {
            shadow,
            protects,
            copies_back,
            limit: frames,
            table: PageTable::new(pages),
            swap,
            pool: Pool::default(),
            share: Share::new(frames),
            trial: Trial::default(),
            clusters,
            policy,
            first_stores: FirstStores::new(first_store),
            write_bits,
            kept: KeptObjects::default(),
            prefetcher: settings
                .prefetcher
                .build(settings.readahead, settings.stride),
            sampler: Sampler::new(
                settings.sampling,
                settings.sampling_readings,
                settings.preclean,
            ),
            shards: settings.shards.then(|| Box::new(Shards::new())),
            discards,
            ios: IoTable::default(),
            counters: Counters::default(),
            now: Nanos(0),
            frames: 0,
            shared: 0,
            shared_leaving: 0,
            shared_limit: u32::MAX,
            standby: PageQueue::new(
                |table, page| table.state(page) == PageState::Standby,
                QUEUE_RESERVE,
            ),
            condemned: PageQueue::new(
                |table, page| table.state(page) == PageState::Condemned,
                QUEUE_RESERVE,
            ),
            probation: PageQueue::new(
                |table, page| table.has(page, Flag::Probation),
                QUEUE_RESERVE,
            ),
            stale: Vec::with_capacity(stale::STALE_MAX as usize),
            fresh: Vec::with_capacity(QUEUE_RESERVE),
            batch_moved: 0,
            locks: lock::Locks::default(),
            clean_hand: 0,
            batch_searching: false,
            pending: VecDeque::with_capacity(QUEUE_RESERVE),
            starved: false,
            allocator_retry: None,
            cleaning_requests: 0,
            cleaning_pages: 0,
            cleaner_retry: None,
            reclaiming: false,
            freeing: false,
            fruitless: false,
            draining: false,
            pool_stuck: false,
            pool_yields: false,
            read_time: READ_TIME,
            flush: false,
            write_limit_used: 0,
            candidates: Vec::with_capacity(QUEUE_RESERVE),
            reads: Vec::with_capacity(QUEUE_RESERVE),
            zeros: Vec::with_capacity(QUEUE_RESERVE),
            moves: Vec::with_capacity(QUEUE_RESERVE),
            drops: Vec::with_capacity(QUEUE_RESERVE),
            unshared: Vec::with_capacity(QUEUE_RESERVE),
            shared_kept: Vec::new(),
            skipped: Vec::new(),
            refused: Vec::new(),
            batch: Vec::with_capacity(run),
            keeps: Vec::new(),
            packed: Vec::new(),
            packed_reads: Vec::with_capacity(QUEUE_RESERVE),
            settings,
        })
    }

    /// Handles an event and appends the resulting actions.
    ///
    /// # Panics
    /// If the event contradicts earlier ones: a bug in the executor.
    pub fn handle(&mut self, now: Nanos, event: &Event, actions: &mut Vec<Action>) {
        if let Event::Refused { page } = *event {
            // Arrives while the actions of the previous event are carried out: nothing is settled
            // yet.
            self.refused(page);
            return;
        }
        self.now = now;
        self.ios.recycle();
        self.pool.recycle();
        self.settle();
        drop(self.take_seen());
        match *event {
            Event::Fault { page, access, huge } => {
                if !(huge && self.fill_huge(page, access, actions)) {
                    self.fault(page, access, actions);
                }
            }
            Event::WriteProtectFault { page } => self.write_protect_fault(page, actions),
            Event::Touched { page, access } => self.referenced(page, access),
            Event::ReadDone { io, failed } => self.read_done(io, failed, actions),
            Event::Scanned {
                io,
                zero,
                same,
                ref sizes,
            } => self.scanned(io, zero, same, sizes, actions),
            Event::WriteDone { io, failed } => self.write_done(io, failed, actions),
            Event::Discarded { refused } => self.discarded(refused, actions),
            Event::Refused { .. } => unreachable!("handled above"),
            Event::Zap { first, count } => self.zap(first, count, actions),
            Event::Relocate { from, to, count } => self.relocate(from, to, count, actions),
            Event::Advise {
                first,
                count,
                advice,
            } => self.advise(first, count, advice, actions),
            Event::Limit { frames, shared } => self.set_limit(frames, shared, actions),
            Event::WriteLimit { used } => self.set_write_limit(used),
            Event::Reclaim => self.reclaim(actions),
            Event::Drain { on } => self.drain(on, actions),
            Event::Forked => self.forked(actions),
            Event::Owned { first, count } => self.owned(first, count),
            Event::Tick => self.tick(actions),
        }
        // Stores made during a fork are reported one by one after it: a page that looks clean now may
        // soon be dirty, so none is dropped yet.
        let after_fork = matches!(
            event,
            Event::WriteProtectFault { .. } | Event::Forked | Event::Owned { .. }
        );
        if !after_fork {
            self.keep_limit(actions);
        }
        self.take_back(event, actions);
        self.emit_unshared(actions);
        self.emit_vacated(actions);
        self.collect_garbage(actions);
        self.fruitless &= matches!(event, Event::Reclaim);
        self.watch_marks();
        let most = u64::from(self.frames_in_use() + self.shared);
        self.counters.resident_pages_max = self.counters.resident_pages_max.max(most);
    }

    /// The pages of a request, in order, until its answer has been handled.
    #[must_use]
    pub fn io_pages(&self, io: IoId) -> &[PageId] {
        self.ios.get(io).pages()
    }

    /// When an [`Event::Tick`] is due; a time in the past means now. `None`: the engine waits for no time.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let allocator = if !self.starved {
            None
        } else if self.batch_progressed() || !self.fresh.is_empty() {
            Some(self.now)
        } else {
            self.allocator_retry
        };
        match (allocator, self.cleaner_retry) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether [`Event::Reclaim`] has work: frames are short, pages wait to be cleaned, or too many are on probation
    /// or in the pool.
    #[must_use]
    pub fn wants_reclaim(&self) -> bool {
        if self.cleaner_naps() {
            return false;
        }
        if self.wants_free() {
            return true;
        }
        if self.fruitless {
            return false;
        }
        if self.probation_excess() > 0 || self.wants_flush() {
            return true;
        }
        let can_clean = self.condemned.len() > 0
            && !self.swap.is_full()
            && self.cleaning_requests < self.requests_allowed();
        if self.reclaiming {
            !self.fresh.is_empty() || can_clean || self.headed_for() < self.mark_high()
        } else {
            self.flush && (!self.fresh.is_empty() || can_clean)
        }
    }

    /// Whether a fault waits for a frame.
    #[must_use]
    pub fn stalled(&self) -> bool {
        self.starved
    }

    /// Faults that wait for a frame, or for a request on a zapped page.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.pending.len()
    }

    /// Whether the last page to write found no slot, and none has been freed since.
    #[must_use]
    pub fn store_full(&self) -> bool {
        self.swap.is_full()
    }

    /// Whether a request in flight has any of these pages.
    #[must_use]
    pub fn in_flight(&self, first: PageId, count: u32) -> bool {
        let end = first.0.saturating_add(count).min(self.table.pages());
        let mut at = first.0;
        while let Some(page) = self.table.next_present(at, end) {
            if self.table.state(page).is_in_flight() {
                return true;
            }
            at = page.0 + 1;
        }
        false
    }

    /// Where a page is.
    #[must_use]
    pub fn page_state(&self, page: PageId) -> PageState {
        self.table.state(page)
    }

    /// The pages that are not absent, in order.
    pub fn present_pages(&self) -> impl Iterator<Item = PageId> {
        self.present_pages_from(PageId(0))
    }

    fn present_pages_from(&self, first: PageId) -> impl Iterator<Item = PageId> {
        let next = |from| self.table.next_present(from, self.table.pages());
        std::iter::successors(next(first.0), move |page| next(page.0 + 1))
    }

    /// The slot that holds the current contents of a page, if there is one. A page in a write in
    /// flight has none yet.
    #[must_use]
    pub fn slot_of(&self, page: PageId) -> Option<SlotId> {
        self.table.slot(page)
    }

    /// Whether a used slot has only its zero flag, and nothing was written to it.
    #[must_use]
    pub fn is_zero_slot(&self, slot: SlotId) -> bool {
        self.swap.is_zero(slot)
    }

    /// Whether the program's next store to this mapped page will be reported.
    #[must_use]
    pub fn is_protected(&self, page: PageId) -> bool {
        self.table.has(page, Flag::Protected)
    }

    /// Frames that only this process uses, those of the pool included. They exceed the limit only after the limit was
    /// lowered, or when shared pages take frames of their own.
    #[must_use]
    pub fn frames_in_use(&self) -> u32 {
        self.frames + self.pool.frames()
    }

    /// Pages in frames shared with other processes since a fork.
    #[must_use]
    pub fn pages_shared(&self) -> u32 {
        self.shared
    }

    /// Whether a page shares its frame with another process.
    #[must_use]
    pub fn is_shared(&self, page: PageId) -> bool {
        self.table.has(page, Flag::Shared)
    }

    /// Limit of the frames that only this process uses.
    #[must_use]
    pub fn frames_limit(&self) -> u32 {
        self.limit
    }

    /// Those of them that the pool leaves to pages.
    #[must_use]
    pub fn plain_frames(&self) -> u32 {
        self.limit.saturating_sub(self.pool.frames())
    }

    /// Slots in use, including those of zero pages.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.swap.slots_used()
    }

    /// Slots out of use after a failure.
    #[must_use]
    pub fn slots_bad(&self) -> u32 {
        self.swap.slots_bad()
    }

    /// Slots of the store, without a partial last cluster.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.swap.slots()
    }

    /// The counters since the start or the last [`Self::reset_counters`].
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the engine holds now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let has_read = self.counters.pages_in > 0;
        Gauges {
            slots_used: self.swap.slots_used().into(),
            pool_frames: self.pool.frames().into(),
            pool_pages_held: self.pool.objects().into(),
            pool_share_frames: self.pool_share().into(),
            read_time_ns: if has_read { self.read_time.0 } else { 0 },
            locked_pages: self.locked_pages().into(),
        }
    }

    /// Resets the counters: a forked child has done nothing yet.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The source of clusters.
    pub fn clusters_mut(&mut self) -> &mut C {
        &mut self.clusters
    }
}

#[cfg(test)]
mod tests;
