//! The engine of small pages: all decisions, no I/O.
//!
//! A thread comes with a [`Request`]: a fault, pages to allocate or to free, a system call that
//! pins pages, a fork, or the writer's turn. Each request is a [`Task`]. [`Engine::handle`] takes
//! what has happened to the task ([`Event`]) and returns the next step of its thread ([`Action`]).
//! The [`Host`] maps, unmaps and inspects memory at once. Reads and writes take time: the thread
//! carries them out with the engine unlocked. So waiting is a decision as well: a thread that waits
//! for a read, a round or a fork gets [`Action::Await`], and [`Engine::take_announcement`] says
//! when all waiting threads have to look again.
//!
//! There are two executors. The live one (`flashvm_live::chameleon`) locks the engine, calls the kernel and lets
//! threads sleep. The simulated one (`flashvm_sim::chameleon`) interleaves tasks by a seed, injects faults
//! and compares every page with a naive model. [`super::record`] replays what either has recorded.
//!
//! - `fault`: what a touch finds; `room`: victims, and steps ahead of need;
//! - `neighbours`: pages that come in with the page of a fault;
//! - `mappings`: the budget of mappings;
//! - `round`: writes changed pages to the log, or in place;
//! - `pages`: runs handed out and returned; `pins`: pages that the kernel works on;
//! - `fork`: when a fork may happen, and what follows it; `host`: the calls to the executor;
//! - `check`: the invariants.
//!
//! The checksum alone says whether a page has changed. So a page may change in any way while it is
//! being written: the checksum describes the copy on flash, and the next unmapping finds a page
//! that has changed again.

mod check;
mod fault;
mod fork;
mod host;
mod mappings;
mod neighbours;
mod pages;
mod pins;
mod room;
mod round;

pub use host::{Failure, Host, Refused};
pub use neighbours::{READ_BYTES_MAX, ReadFrames};
pub use pages::{PageList, RUN_PAGES};
pub use pins::PINNED_PAGES_MAX;

use super::{
    BLOCK_SECTORS, Clocks, FlashCounters, FrameId, Frames, InPlace, Location, Log, Organization,
    Shape, Svmp, Table,
};
use crate::ClusterSource;
use fault::Fault;
use mappings::Mappings;
use neighbours::Streams;
use pages::Addresses;
use pins::PinnedSvmps;
use round::Round;
use serde::{Deserialize, Serialize};

/// The configuration of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Upper bound of the heap's frames.
    pub frames_most: u32,
    /// Upper bound of the mappings of pages.
    pub mappings_most: u32,
    /// Every mapped page counts as a mapping: SSDAlloc's page buffer.
    pub by_page: bool,
    /// Refuse new pages once the budget of mappings is used up.
    pub spill: bool,
    /// Write changed pages to a log; otherwise in place.
    pub log_structuring: bool,
    /// Blocks of the store.
    pub blocks: u32,
    /// The run's budget: bytes of RAM for all its processes.
    pub budget_bytes: u64,
}

/// What a thread asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lies on the stack of its thread, which must not allocate in a fault"
)]
pub enum Request {
    /// The thread touched a page that is not mapped.
    Fault(Svmp),
    /// The thread needs pages of one shape of this many bytes, one of [`super::SIZES`].
    Take(usize),
    /// The thread frees pages, sorted by address; nobody needs their contents.
    Give(PageList),
    /// The kernel is about to work on this many pages from this one on.
    Pin(Svmp, u32),
    /// The kernel no longer works on them.
    Unpin(Svmp, u32),
    /// The writer was woken: it runs rounds ahead of need, and returns frames that the page pager needs.
    WriteBehind,
    /// The thread is about to fork.
    PrepareFork,
    /// After a fork, in the parent.
    Resume {
        /// Whether there is a child.
        forked: bool,
    },
    /// After a fork, in the child, whose engine has the child's clusters now.
    BecomeChild,
}

/// What has happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The task begins, has waited or has paused.
    Go,
    /// While its page is read, the thread has time for steps ahead of need.
    Meanwhile,
    /// [`Action::Read`] has ended. The checksum of the first page's data; `None`: the read failed.
    Read(Option<u64>),
    /// [`Action::ReadBlock`] has ended; whether the block was read.
    BlockRead(bool),
    /// [`Action::Write`] has ended; whether all was written.
    Written(bool),
}

/// The next step of the task's thread, with the engine unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// The request is done.
    Done(Outcome),
    /// Wait for the next announcement ([`Engine::take_announcement`]), then send [`Event::Go`].
    Await,
    /// Sleep for a millisecond, then send [`Event::Go`].
    Pause,
    /// Read pages of one shape from flash into their ranges of [`Task::read_frames`], then send [`Event::Read`]. They lie side by
    /// side on flash, and have at most [`READ_BYTES_MAX`] bytes.
    Read {
        /// The place of the first on flash.
        at: Location,
        /// The range.
        shape: Shape,
        /// Pages.
        count: u32,
    },
    /// Read this block into the second buffer, then send [`Event::BlockRead`].
    ReadBlock(u32),
    /// Write a part of the first buffer to flash, then send [`Event::Written`].
    Write {
        /// The destination.
        at: Location,
        /// The start of the part in the buffer, in bytes.
        from: u32,
        /// Bytes of the part.
        bytes: u32,
    },
    /// After [`Event::Meanwhile`]: whether more steps remain.
    More(bool),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A fault: the page is mapped.
    Resolved,
    /// A fault: no page was handed out at this address.
    NotOurs,
    /// A fault: the page's contents are lost.
    Lost,
    /// [`Request::Take`]: the pages are [`Task::taken`].
    Taken,
    /// [`Request::Take`]: budget, store, addresses or mappings have no room.
    NoRoom,
    /// [`Request::PrepareFork`]: no request is in flight and no page is mapped, until
    /// [`Request::Resume`].
    Quiet,
    /// Any other request is done.
    Over,
}

/// A request from beginning to end.
#[derive(Clone, Debug)]
pub struct Task {
    work: Work,
    /// The task runs the current round.
    runs_round: bool,
    /// The task is counted as waiting.
    waits: bool,
}

/// The progress of a request.
#[derive(Clone, Debug)]
enum Work {
    Fault(Fault),
    Take(usize),
    Taken(PageList),
    Give(PageList),
    Pin(Svmp, u32),
    Unpin(Svmp, u32),
    WriteBehind,
    PrepareFork { frozen: bool },
    Resume { forked: bool },
    BecomeChild,
}

impl Task {
    /// A request that has not begun.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        let work = match *request {
            Request::Fault(page) => Work::Fault(Fault::new(page)),
            Request::Take(size) => Work::Take(size),
            Request::Give(list) => Work::Give(list),
            Request::Pin(first, count) => Work::Pin(first, count),
            Request::Unpin(first, count) => Work::Unpin(first, count),
            Request::WriteBehind => Work::WriteBehind,
            Request::PrepareFork => Work::PrepareFork { frozen: false },
            Request::Resume { forked } => Work::Resume { forked },
            Request::BecomeChild => Work::BecomeChild,
        };
        Self {
            work,
            runs_round: false,
            waits: false,
        }
    }

    /// The pages that were handed out.
    #[must_use]
    pub fn taken(&self) -> Option<&PageList> {
        match &self.work {
            Work::Taken(list) => Some(list),
            _ => None,
        }
    }

    /// The frames of the read that [`Action::Read`] asked for.
    #[must_use]
    pub fn read_frames(&self) -> Option<ReadFrames> {
        match &self.work {
            Work::Fault(fault) => fault.read_frames(),
            _ => None,
        }
    }

    /// Whether the task belongs to a fork, and so proceeds while all others wait.
    fn is_of_fork(&self) -> bool {
        matches!(
            self.work,
            Work::PrepareFork { frozen: true } | Work::Resume { .. } | Work::BecomeChild
        )
    }
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults.
    pub faults: u64,
    /// Faults with a read.
    pub major: u64,
    /// Soft faults.
    pub soft: u64,
    /// Pages of zeros that were mapped.
    pub fresh: u64,
    /// Pages read.
    pub read_pages: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Pages that were lost.
    pub read_errors: u64,
    /// Pages evicted without a write.
    pub evicted_clean: u64,
    /// Pages evicted after a write.
    pub evicted_dirty: u64,
    /// Pages evicted as zeros.
    pub zero_pages: u64,
}

/// The engine of one process's small pages.
#[derive(Clone, Debug)]
pub struct Engine<C> {
    config: Config,
    frames: Frames,
    clocks: Clocks,
    table: Table,
    flash: Organization,
    clusters: C,
    /// Changed victims that wait for a round.
    condemned: Vec<Svmp>,
    condemned_sectors: u32,
    mappings: Mappings,
    pins: PinnedSvmps,
    pages: Addresses,
    /// Frames of the process's grant that the heap holds.
    held: u32,
    /// Faults until the heap asks for more frames again.
    ask_again: u32,
    /// Where the search for the next frame to empty begins.
    empty_next: u32,
    /// Pages that are being read.
    reads: u32,
    streams: Streams,
    /// The current round.
    round: Option<Round>,
    /// By sector of the block being filled: the checksum of the changed page that begins there.
    checks: Box<[Option<u64>; BLOCK_SECTORS as usize]>,
    /// A fork is in progress: nothing may begin.
    frozen: bool,
    /// Tasks that wait for an announcement, and whether one is due.
    waiters: u32,
    announced: bool,
    counters: Counters,
}

impl<C: ClusterSource> Engine<C> {
    /// An engine without frames and without pages.
    #[must_use]
    pub fn new(config: Config, clusters: C) -> Self {
        Self {
            frames: Frames::new(config.frames_most),
            clocks: Clocks::new(config.frames_most),
            table: Table::new(),
            flash: match config.log_structuring {
                true => Organization::Log(Log::new(config.blocks)),
                false => Organization::InPlace(InPlace::new(config.blocks)),
            },
            clusters,
            condemned: Vec::with_capacity(1024),
            condemned_sectors: 0,
            mappings: Mappings::new(config.mappings_most, config.by_page),
            pins: PinnedSvmps::default(),
            pages: Addresses::new(),
            held: 0,
            ask_again: 0,
            empty_next: 0,
            reads: 0,
            streams: Streams::default(),
            round: None,
            checks: Box::new([None; BLOCK_SECTORS as usize]),
            frozen: false,
            waiters: 0,
            announced: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Handles what has happened to a task; returns the next step of its thread. [`Action::Done`]
    /// ends the task.
    pub fn handle(&mut self, host: &mut impl Host, task: &mut Task, event: Event) -> Action {
        if std::mem::take(&mut task.waits) {
            self.waiters -= 1;
        }
        let action = self.go_on(host, task, event);
        if action == Action::Await {
            task.waits = true;
            self.waiters += 1;
        }
        action
    }

    fn go_on(&mut self, host: &mut impl Host, task: &mut Task, mut event: Event) -> Action {
        if task.runs_round {
            if let Some(action) = self.step_round(host, event) {
                return action;
            }
            task.runs_round = false;
            event = Event::Go;
        } else if event == Event::Go && self.frozen && !task.is_of_fork() {
            // Its next step must not be half done in the child.
            return Action::Await;
        }
        let Task {
            work, runs_round, ..
        } = task;
        match work {
            Work::Fault(fault) => self.fault(host, fault, runs_round, event),
            Work::Take(size) => match self.take_pages(host, *size) {
                Some(list) => {
                    *work = Work::Taken(list);
                    Action::Done(Outcome::Taken)
                }
                None => Action::Done(Outcome::NoRoom),
            },
            Work::Taken(_) => unreachable!("the request is done"),
            Work::Give(list) => self.give_pages(host, list),
            Work::Pin(first, count) => {
                self.pins.pin(*first, *count);
                Action::Done(Outcome::Over)
            }
            Work::Unpin(first, count) => {
                self.pins.unpin(*first, *count);
                Action::Done(Outcome::Over)
            }
            Work::WriteBehind => self.write_behind(host, runs_round),
            Work::PrepareFork { frozen } => self.prepare_fork(host, frozen),
            Work::Resume { forked } => self.resume(*forked),
            Work::BecomeChild => self.become_child(host),
        }
    }

    /// Whether all waiting tasks have to look again. Called after each [`Engine::handle`].
    pub fn take_announcement(&mut self) -> bool {
        std::mem::take(&mut self.announced)
    }

    /// A read, a round or a fork has ended.
    fn announce(&mut self) {
        self.announced = self.waiters > 0;
    }

    /// The counters since the start, or since the fork in a forked child.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counters of writes to flash.
    #[must_use]
    pub fn flash_counters(&self) -> &FlashCounters {
        self.flash.counters()
    }

    /// The largest number of mappings so far.
    #[must_use]
    pub fn mappings_max(&self) -> u32 {
        self.mappings.most_seen
    }

    /// Bytes of the table.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Frames that have ever been of the heap, and the bytes that are kept of them: owners, checksums, free ranges and
    /// FIFOs (paper, 3.6).
    #[must_use]
    pub fn frame_bytes(&self) -> (u32, usize) {
        let frames = self.frames.high();
        (frames, self.frames.bytes() + self.clocks.bytes(frames))
    }

    /// The source of clusters.
    pub fn clusters_mut(&mut self) -> &mut C {
        &mut self.clusters
    }

    /// Upper bound of the heap's frames.
    #[must_use]
    pub fn frames_most(&self) -> u32 {
        self.frames.most()
    }

    /// Frames of the process's grant that the heap holds.
    #[must_use]
    pub fn frames_held(&self) -> u32 {
        self.held
    }

    /// Frames that hold pages, in the order of their numbers.
    pub fn frames_in_use(&self) -> impl Iterator<Item = FrameId> {
        self.frames
            .all()
            .filter(|&frame| !self.frames.is_free(frame, Shape::WHOLE))
    }
}
