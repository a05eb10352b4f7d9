//! The engine of small pages: every decision about them, and no I/O.
//!
//! Threads come with a [`Request`]: a fault, pages to take or to give, a system call that pins, a fork, or
//! the writer's turn. Each request is a [`Task`]; [`Engine::handle`] tells the engine what has happened to
//! it ([`Event`]) and returns what its thread does next ([`Action`]). Mapping, unmapping and looking at
//! memory happen at once, through the [`Host`]. Reads and writes take their time: the thread carries them
//! out with the engine unlocked. So waiting is a decision as well: a thread that waits for a read, a round
//! or a fork gets [`Action::Await`], and [`Engine::take_announcement`] says when all who wait have to look
//! again.
//!
//! There are two executors. The live one (`flashvm::chameleon`) locks the engine, calls the kernel and lets
//! threads sleep. The simulated one (`flashvm_sim::chameleon`) interleaves tasks by a seed, injects faults
//! and compares every page with a naive model. [`super::record`] replays what either has recorded.
//!
//! - `fault`: what a touch finds; `room`: victims, and steps ahead of need;
//! - `mappings`: the budget of mappings, and what merges;
//! - `round`: writing what has changed, to the log or to where it was;
//! - `pages`: runs handed out and taken back; `pins`: pages that the kernel works on;
//! - `check`: the invariants.
//!
//! Whether a page has changed is told by its checksum alone. So it does not matter what becomes of a page
//! while it is written: what flash has is what the checksum says, and a page that has changed again is
//! found to be changed when it is unmapped the next time.

mod check;
mod fault;
mod fork;
mod host;
mod mappings;
mod pages;
mod pins;
mod room;
mod round;

pub use host::{Failure, Host, Refused};
pub use pages::{PageList, RUN_PAGES};
pub use pins::PINNED_PAGES_MAX;

use super::{
    BLOCK_SECTORS, Clocks, FlashCounters, FrameId, Frames, InPlace, Location, Log, Organization,
    Shape, Svmp, Table,
};
use crate::ClusterSource;
use fault::Fault;
use mappings::Mappings;
use pages::Addresses;
use pins::PinnedRanges;
use round::Round;
use serde::{Deserialize, Serialize};

/// What an engine is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Most frames that the pool can have.
    pub frames_most: u32,
    /// Most mappings that pages may take.
    pub mappings_most: u32,
    /// Every mapped page counts as a mapping: SSDAlloc's page buffer.
    pub by_page: bool,
    /// New pages are refused when the budget of mappings is used up.
    pub spill: bool,
    /// Changed pages go to a log; else to where they were.
    pub log_structuring: bool,
    /// Blocks of the store.
    pub blocks: u32,
    /// Bytes of RAM that all processes of the run may use together.
    pub budget_bytes: u64,
}

/// What a thread asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lies on the stack of its thread, which must not allocate in a fault"
)]
pub enum Request {
    /// It has touched a page that is not mapped.
    Fault(Svmp),
    /// It needs pages of one shape of so many bytes, one of [`super::SIZES`].
    Take(usize),
    /// It gives pages back, sorted; their contents are of no use to anybody.
    Give(PageList),
    /// The kernel is about to work on so many pages from this one on.
    Pin(Svmp, u32),
    /// It no longer does.
    Unpin(Svmp, u32),
    /// It is the writer, and was called: rounds ahead of need, and frames that the page pager needs.
    WriteBehind,
    /// It is about to fork.
    PrepareFork,
    /// After a fork, in the parent: whether there is a child.
    Resume {
        /// There is one.
        forked: bool,
    },
}

/// What has happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It begins, has waited or has paused.
    Go,
    /// While its page is read, its thread has time for a few steps ahead.
    Meanwhile,
    /// [`Action::Read`] has ended. The checksum of what arrived, if anything did.
    Read(Option<u64>),
    /// [`Action::ReadBlock`] has ended; whether the block was read.
    BlockRead(bool),
    /// [`Action::Write`] has ended; whether all was written.
    Written(bool),
}

/// What the task's thread does next, with the engine unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Nothing: the request is done.
    Done(Outcome),
    /// Waits for the next announcement ([`Engine::take_announcement`]), then [`Event::Go`].
    Await,
    /// Sleeps for a millisecond, then [`Event::Go`].
    Pause,
    /// Reads a page from flash into its range, then [`Event::Read`].
    Read {
        /// Where flash has it.
        at: Location,
        /// The frame.
        frame: FrameId,
        /// The range.
        shape: Shape,
    },
    /// Reads this block into the second buffer, then [`Event::BlockRead`].
    ReadBlock(u32),
    /// Writes a part of the first buffer to flash, then [`Event::Written`].
    Write {
        /// Where to.
        at: Location,
        /// Where the part begins in the buffer, in bytes.
        from: u32,
        /// Its bytes.
        bytes: u32,
    },
    /// After [`Event::Meanwhile`]: whether there are more steps to take.
    More(bool),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A fault: the page is mapped.
    Resolved,
    /// A fault: no page was handed out here.
    NotOurs,
    /// A fault: the page's contents are lost.
    Lost,
    /// [`Request::Take`]: the pages are [`Task::taken`].
    Taken,
    /// [`Request::Take`]: budget, store, addresses or mappings have no room.
    NoRoom,
    /// [`Request::PrepareFork`]: nothing is under way, nothing is mapped, and it stays so until
    /// [`Request::Resume`].
    Quiet,
    /// Any other request is done.
    Over,
}

/// A request from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Task {
    work: Work,
    /// It runs the round that is under way.
    runs_round: bool,
    /// It is counted among those who wait.
    waits: bool,
}

/// How far a request has come.
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

    /// Whether it belongs to a fork, and so goes on while all others wait for its end.
    fn is_of_fork(&self) -> bool {
        matches!(
            self.work,
            Work::PrepareFork { frozen: true } | Work::Resume { .. }
        )
    }
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults.
    pub faults: u64,
    /// Of these, with a read.
    pub major: u64,
    /// Of these, soft faults.
    pub soft: u64,
    /// Pages of zeros that were mapped.
    pub fresh: u64,
    /// Pages that came in.
    pub read_pages: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Pages that were lost.
    pub read_errors: u64,
    /// Pages that were evicted without a write.
    pub evicted_clean: u64,
    /// Pages that were evicted after a write.
    pub evicted_dirty: u64,
    /// Pages that were evicted as zeros.
    pub zero_pages: u64,
}

/// The engine of one process' small pages.
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
    pins: PinnedRanges,
    pages: Addresses,
    /// Frames of the process' grant that it has.
    held: u32,
    /// Faults until it asks for more frames again.
    ask_again: u32,
    /// Reads of pages under way.
    reads: u32,
    /// The round under way.
    round: Option<Round>,
    /// By sector of the block that is being filled, the checksum of the changed page that begins there.
    checks: Box<[Option<u64>; BLOCK_SECTORS as usize]>,
    /// A fork is under way: nothing may begin.
    frozen: bool,
    /// Tasks that wait for an announcement, and whether there is one.
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
            pins: PinnedRanges::default(),
            pages: Addresses::new(),
            held: 0,
            ask_again: 0,
            reads: 0,
            round: None,
            checks: Box::new([None; BLOCK_SECTORS as usize]),
            frozen: false,
            waiters: 0,
            announced: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Something has happened to a task: what its thread does next. After [`Action::Done`] the task is over.
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
            // What it does next may not be half done in the child.
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
                self.pins.add(*first, *count);
                Action::Done(Outcome::Over)
            }
            Work::Unpin(first, count) => {
                self.pins.remove(*first, *count);
                Action::Done(Outcome::Over)
            }
            Work::WriteBehind => self.write_behind(host, runs_round),
            Work::PrepareFork { frozen } => self.prepare_fork(host, frozen),
            Work::Resume { forked } => self.resume(*forked),
        }
    }

    /// Whether all tasks that wait have to look again. Asked after each [`Engine::handle`].
    pub fn take_announcement(&mut self) -> bool {
        std::mem::take(&mut self.announced)
    }

    /// A read, a round or a fork has ended.
    fn announce(&mut self) {
        self.announced = self.waiters > 0;
    }

    /// What has been counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was written to flash.
    #[must_use]
    pub fn flash_counters(&self) -> &FlashCounters {
        self.flash.counters()
    }

    /// Most mappings that there were at once.
    #[must_use]
    pub fn mappings_max(&self) -> u32 {
        self.mappings.most_seen
    }

    /// Bytes of the table.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The source of clusters.
    pub fn clusters_mut(&mut self) -> &mut C {
        &mut self.clusters
    }

    /// Most frames that the pool can have.
    #[must_use]
    pub fn frames_most(&self) -> u32 {
        self.frames.most()
    }

    /// Frames of the process' grant that it has.
    #[must_use]
    pub fn frames_held(&self) -> u32 {
        self.held
    }

    /// Frames in which pages lie, in the order of their numbers.
    pub fn frames_in_use(&self) -> impl Iterator<Item = FrameId> {
        self.frames
            .all()
            .filter(|&frame| !self.frames.is_free(frame, Shape::WHOLE))
    }
}
