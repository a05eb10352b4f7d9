//! Fast replay: programs as streams of page references, one engine, one device, virtual time.
//!
//! Another executor of the engine beside [`crate::Simulator`], which knows every page's contents
//! and checks them. This one only knows whether a page holds zeros, trusts the engine's page
//! states, and therefore replays millions of references a second. Programs share the engine's
//! frames as processes share a machine's memory; each has a processor of its own.

mod figures;
mod program;

pub use figures::Figures;
pub use program::{Program, Step, Touch};

use crate::block_trace::BlockTrace;
use crate::device::nand::GeometryError;
use crate::device::{Range, Request};
use crate::scheduler::{BlockQueue, Ended};
use crate::setup::Device;
use figures::Runs;
use flashvm_core::{
    Access, Action, ConfigError, Engine, EngineConfig, Event, IoId, LocalClusters, Nanos, PageId,
    Place, Sizes,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Processor time of a fault, without waiting.
const FAULT: Nanos = Nanos(1_000);
/// Delay until the background notices that frames are short.
const BACKGROUND_DELAY: Nanos = Nanos(10_000);
/// Scan time of a page.
const SCAN_PAGE: Nanos = Nanos(200);

/// Why a replay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The engine's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device.
    #[error(transparent)]
    Device(#[from] GeometryError),
}

struct Thread<'a> {
    steps: Program<'a>,
    /// The current reference, before it has succeeded.
    step: Option<Step>,
    state: State,
    /// When it is killed, and the pages that it zaps then.
    killed: Option<(Nanos, PageId, u32)>,
    ended: Nanos,
    faults: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Computes until this time.
    Computing(Nanos),
    /// Waits for its page.
    Waiting,
    Ended,
}

/// An engine, a device and programs.
pub struct Replay<'a> {
    engine: Engine<LocalClusters>,
    queue: BlockQueue,
    hears_of_frees: bool,
    /// By page: whether it holds zeros.
    zero: Vec<bool>,
    threads: Vec<Thread<'a>>,
    now: Nanos,
    /// Scans under way.
    scans: BinaryHeap<Reverse<(Nanos, IoId)>>,
    background_at: Option<Nanos>,
    actions: Vec<Action>,
    ended: Vec<Ended>,
    references: u64,
    runs: Runs,
    /// Time of the next event other than a reference of the running program.
    next: Nanos,
    /// The program whose event the engine handles.
    running: Option<u32>,
    /// The requests sent so far, if they are kept.
    sent: Option<BlockTrace>,
}

/// The process of requests that no program has caused.
const KERNEL: u32 = u32::MAX;

const READ: u64 = 0;
const WRITE: u64 = 1;
const DISCARD: u64 = 2;

impl<'a> Replay<'a> {
    /// An engine over a fresh device of as many pages as it has slots.
    ///
    /// # Errors
    /// If there can be no such engine or device.
    pub fn new(config: EngineConfig, device: &Device) -> Result<Self, ReplayError> {
        let queue = device.build(config.slots, 1)?;
        let clusters = LocalClusters::new(config.slots / config.settings.cluster_pages.max(1));
        let pages = config.pages as usize;
        let mut engine = Engine::new(config, clusters)?;
        let hears_of_frees = queue.model().hears_of_frees();
        if hears_of_frees {
            engine.log_freed();
        }
        Ok(Self {
            engine,
            queue,
            hears_of_frees,
            zero: vec![true; pages],
            threads: Vec::new(),
            now: Nanos(0),
            scans: BinaryHeap::new(),
            background_at: None,
            actions: Vec::with_capacity(256),
            ended: Vec::new(),
            references: 0,
            runs: Runs::default(),
            next: Nanos(u64::MAX),
            running: None,
            sent: None,
        })
    }

    /// Adds a program that begins at `at`.
    #[must_use]
    pub fn program(mut self, at: Nanos, steps: Program<'a>) -> Self {
        self.threads.push(Thread {
            steps,
            step: None,
            state: State::Computing(at),
            killed: None,
            ended: at,
            faults: 0,
        });
        self
    }

    /// Adds a program that begins at `at` and is killed at `end`, unless it has ended; it then zaps
    /// `count` pages from `first` on.
    #[must_use]
    pub fn program_until(
        self,
        at: Nanos,
        end: Nanos,
        (first, count): (PageId, u32),
        steps: Program<'a>,
    ) -> Self {
        let mut replay = self.program(at, steps);
        let thread = replay.threads.last_mut().expect("just added");
        thread.killed = Some((end, first, count));
        replay
    }

    /// Keeps the requests to the device, for [`Self::requests`].
    #[must_use]
    pub fn keep_requests(mut self) -> Self {
        self.sent = Some(BlockTrace::default());
        self
    }

    /// The requests that were sent to the device.
    ///
    /// # Panics
    /// If they were not to be kept.
    #[must_use]
    pub fn requests(&self) -> &BlockTrace {
        self.sent.as_ref().expect("requests are kept")
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<LocalClusters> {
        &self.engine
    }

    /// Runs all programs to their ends.
    ///
    /// # Panics
    /// If one waits for ever: the store is too small for its pages, or a bug.
    pub fn run(&mut self) -> Figures {
        self.run_until(Nanos(u64::MAX), |_, _| ());
        self.figures()
    }

    /// As [`Self::run`], at most until a time; `sample` is called with the engine every virtual
    /// second.
    ///
    /// # Panics
    /// See [`Self::run`].
    pub fn run_until(&mut self, end: Nanos, mut sample: impl FnMut(Nanos, &Engine<LocalClusters>)) {
        const SECOND: Nanos = Nanos(1_000_000_000);
        let mut sample_at = Nanos(0);
        loop {
            let computing = self
                .threads
                .iter()
                .enumerate()
                .filter_map(|(i, thread)| match thread.state {
                    State::Computing(until) => Some((until, i)),
                    _ => None,
                });
            let program = computing.min();
            let event = self.next_event();
            let at = match (program, event) {
                (None, None) => {
                    let waits = self.threads.iter().any(|t| t.state == State::Waiting);
                    assert!(!waits, "a program waits and nothing will wake it");
                    return;
                }
                (Some((at, _)), None) => at,
                (None, Some(at)) if self.threads.iter().all(|t| t.state == State::Ended) => {
                    // Remaining requests concern no program.
                    let _ = at;
                    return;
                }
                (None, Some(at)) => at,
                (Some((program, _)), Some(event)) => program.min(event),
            };
            if at > end {
                return;
            }
            while sample_at <= at {
                sample(sample_at, &self.engine);
                sample_at = sample_at.plus(SECOND);
            }
            self.now = self.now.max(at);
            match (program, event) {
                (Some((until, index)), event) if event.is_none_or(|event| until <= event) => {
                    self.next = event.unwrap_or(Nanos(u64::MAX));
                    let others = self.threads.iter().enumerate();
                    for (i, thread) in others {
                        if let State::Computing(until) = thread.state
                            && i != index
                        {
                            self.next = self.next.min(until);
                        }
                    }
                    self.next = self.next.min(sample_at).min(end);
                    self.running = Some(index as u32);
                    self.run_program(index);
                    self.running = None;
                }
                _ => self.happen(),
            }
        }
    }

    /// The results so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let ended = Vec::from_iter(self.threads.iter().map(|thread| thread.ended));
        Figures {
            elapsed: ended.iter().max().copied().unwrap_or_default(),
            ended,
            faults: self.threads.iter().map(|thread| thread.faults).collect(),
            references: self.references,
            counters: *self.engine.counters(),
            wear: self.queue.wear(),
            read_run: self.runs.mean(false),
            write_run: self.runs.mean(true),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let scan = self.scans.peek().map(|Reverse((at, _))| *at);
        let kills = self.threads.iter().filter(|t| t.state != State::Ended);
        let kill = kills.filter_map(|t| t.killed).map(|(at, _, _)| at).min();
        let times = [
            kill,
            scan,
            self.queue.next_time(),
            self.engine.deadline(),
            self.background_at,
        ];
        times.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// References of one program, until it waits or ends, or another event is due.
    fn run_program(&mut self, index: usize) {
        loop {
            let thread = &mut self.threads[index];
            let step = match thread.step.take().or_else(|| thread.steps.next()) {
                Some(step) => step,
                None => {
                    thread.state = State::Ended;
                    thread.ended = self.now;
                    return;
                }
            };
            let Step { page, touch, work } = step;
            if touch == Touch::Zap {
                self.zero[page.0 as usize] = true;
                self.tell(&Event::Zap {
                    first: page,
                    count: 1,
                });
                // An event that this caused may come before the next reference.
                self.threads[index].state = State::Computing(self.now.plus(work));
                return;
            }
            let mapped = self.engine.page_state(page).is_mapped();
            let access = touch.access();
            if !mapped || (access == Access::Write && self.engine.is_protected(page)) {
                thread.step = Some(step);
                thread.state = State::Waiting;
                thread.faults += u64::from(!mapped);
                self.tell(&match mapped {
                    true => Event::WriteProtectFault { page },
                    false => Event::Fault {
                        page,
                        access,
                        huge: false,
                    },
                });
                return;
            }
            match touch {
                Touch::Read => {}
                Touch::Write => self.zero[page.0 as usize] = false,
                Touch::Clear => self.zero[page.0 as usize] = true,
                Touch::Zap => unreachable!("dealt with above"),
            }
            self.references += 1;
            let until = self.now.plus(work);
            if until > self.next {
                thread.state = State::Computing(until);
                return;
            }
            self.now = until;
        }
    }

    /// Kills a program whose time has come.
    fn kill(&mut self) -> bool {
        let now = self.now;
        let due = self.threads.iter_mut().find(|thread| {
            let due = thread.killed.is_some_and(|(at, _, _)| at <= now);
            due && thread.state != State::Ended
        });
        let Some(thread) = due else {
            return false;
        };
        thread.state = State::Ended;
        thread.ended = now;
        if let Some((_, first, count)) = thread.killed {
            let pages = first.0 as usize..(first.0 + count) as usize;
            self.zero[pages].fill(true);
            self.tell(&Event::Zap { first, count });
        }
        true
    }

    /// The next event other than a reference.
    fn happen(&mut self) {
        if self.kill() {
            return;
        }
        if self
            .scans
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= self.now)
        {
            let Reverse((_, io)) = self.scans.pop().expect("just seen");
            let pages = (0..).zip(self.engine.io_pages(io));
            let zero = pages.fold(0_u64, |zero, (i, page)| {
                zero | u64::from(self.zero[page.0 as usize]) << i
            });
            self.tell(&Event::Scanned {
                io,
                zero,
                same: 0,
                sizes: Sizes::default(),
            });
        } else if self.queue.next_time().is_some_and(|at| at <= self.now) {
            let mut ended = std::mem::take(&mut self.ended);
            self.queue.advance(self.now, &mut ended);
            for Ended { tag, done } in ended.drain(..) {
                let io = IoId((tag >> 2) as u32);
                let failed = if done { 0 } else { u64::MAX };
                self.tell(&match tag & 3 {
                    READ => Event::ReadDone { io, failed },
                    WRITE => Event::WriteDone { io, failed },
                    _ => Event::Discarded { refused: !done },
                });
            }
            self.ended = ended;
        } else if self.background_at.is_some_and(|at| at <= self.now) {
            self.background_at = None;
            if self.engine.wants_reclaim() {
                self.tell(&Event::Reclaim);
            }
        } else {
            self.tell(&Event::Tick);
        }
    }

    fn tell(&mut self, event: &Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.handle(self.now, event, &mut actions);
        // The program whose fault or whose freed memory this is; the kernel's own threads submit the rest.
        let process = self.running.unwrap_or(KERNEL);
        for &action in &actions {
            match action {
                Action::Read {
                    io,
                    slot,
                    count,
                    demand,
                } => {
                    self.runs.note(false, count);
                    let first = slot.0;
                    let request = Request::Read(Range { first, count });
                    let tag = u64::from(io.0) << 2 | READ;
                    self.submit(tag, request, process, demand);
                }
                Action::Write { io, slot, count } => {
                    self.runs.note(true, count);
                    let first = slot.0;
                    let request = Request::Write(Range { first, count });
                    let tag = u64::from(io.0) << 2 | WRITE;
                    self.submit(tag, request, process, false);
                }
                Action::Scan { io, count, .. } => {
                    let time = Nanos(SCAN_PAGE.0 * u64::from(count));
                    self.scans.push(Reverse((self.now.plus(time), io)));
                }
                Action::Discard { .. } => {
                    let ranges = self.engine.discard_ranges().iter();
                    let ranges = ranges.map(|&(first, count)| Range {
                        first: first.0,
                        count,
                    });
                    let request = Request::Discard(ranges.collect());
                    self.submit(DISCARD, request, process, false);
                }
                // The engine's page states reflect these.
                _ => {}
            }
        }
        if self.hears_of_frees {
            while let Some(slot) = self.engine.pop_freed() {
                self.queue.freed(slot.0);
            }
        }
        self.wake(&actions);
        actions.clear();
        self.actions = actions;
        if self.background_at.is_none() && self.engine.wants_reclaim() {
            self.background_at = Some(self.now.plus(BACKGROUND_DELAY));
        }
    }

    fn submit(&mut self, tag: u64, request: Request, process: u32, demanded: bool) {
        if let Some(sent) = &mut self.sent {
            sent.push(self.now, request.clone());
        }
        self.queue.submit(self.now, tag, request, process, demanded);
    }

    /// Resumes programs whose page is resident, or that have to retry. The page may have left again
    /// within the same event: then they fault once more.
    fn wake(&mut self, actions: &[Action]) {
        for thread in &mut self.threads {
            let State::Waiting = thread.state else {
                continue;
            };
            let page = thread.step.expect("it waits for a page").page;
            if actions.iter().any(|action| resolves(action, page)) {
                thread.state = State::Computing(self.now.plus(FAULT));
            }
        }
    }
}

/// Whether an action resumes the threads that wait for a page.
pub(crate) fn resolves(action: &Action, page: PageId) -> bool {
    let (first, count) = match *action {
        Action::Zero { first, count, .. }
        | Action::Map {
            first,
            count,
            place: Place::Region,
            ..
        } => (first, count),
        Action::Restore { page }
        | Action::RestoreCopy { page, .. }
        | Action::Inflate {
            page,
            place: Place::Region,
            ..
        }
        | Action::Unprotect { page }
        | Action::Poison { page }
        | Action::Wake { page } => (page, 1),
        _ => return false,
    };
    page.0.wrapping_sub(first.0) < count
}
