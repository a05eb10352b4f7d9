//! Drives the engine of small pages: threads that touch, allocate and free pages, system calls that
//! pin, forks, and flash with latency and faults, interleaved by a seed under a virtual clock.
//!
//! It is an executor of `flashvm_core::chameleon::Engine`, like the live heap. Every load is
//! compared with the last store. A lost page, a range from which two pages are mapped, a page
//! mapped twice, a fork during a round, and a thread that waits and is never woken are panics.
//!
//! - `memory`: mappings and frames; `flash`: the contents of flash;
//! - `program`: the operations of threads; this file: their requests;
//! - `setup`: the sizes of a run, and what goes wrong in it.

mod flash;
mod memory;
mod program;
mod setup;
#[cfg(test)]
mod tests;

use crate::rng::Rng;
use crate::store::{Store, StoreClusters};
use flash::{Buffer, Flash};
use flashvm_core::Nanos;
use flashvm_core::chameleon::record::{Recording, RecordingHost, Step};
use flashvm_core::chameleon::{
    Action, Engine, Event, FrameId, Outcome, Request, SECTOR_BYTES, Shape, Task,
};
use flashvm_core::record::RecordingClusters;
use memory::{Memory, checksum, pages_of};
use program::Thread;
pub use setup::{Faults, Sabotage, Setup};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events without the end of a request before the run counts as stuck.
const STEPS_MAX: u32 = 100_000;
/// Duration of [`Action::Pause`].
const PAUSE: u64 = 1_000_000;

/// A request in progress.
#[derive(Clone)]
struct Flight {
    id: u64,
    request: Request,
    task: Task,
    /// It waits for an announcement.
    waits: bool,
    /// Its read or write.
    io: Option<Io>,
    /// Reads of its page, and how many of them failed by injection.
    reads: u32,
    failed_reads: u32,
}

#[derive(Clone)]
enum Io {
    Page {
        sector: u64,
        shape: Shape,
        /// What a device reads that reads at once.
        seen: Option<Vec<u64>>,
    },
    Block(u32),
    Write {
        sector: u64,
        from: u32,
        count: u32,
        buffer: Buffer,
    },
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// It performs the next operation of the program.
    Operation,
    /// Its request continues.
    Go,
    /// Its read has not ended.
    Meanwhile,
    /// Its read or write has ended.
    IoEnd,
}

/// The engine of a process with its environment.
pub struct Simulator {
    setup: Setup,
    engine: Engine<RecordingClusters<StoreClusters>>,
    memory: Memory,
    flash: Flash,
    store: Store,
    process: u32,
    rng: Rng,
    now: Nanos,
    /// Due steps, earliest first; among equals in order of arrival.
    due: BinaryHeap<Reverse<(Nanos, u64, usize, Due)>>,
    dues: u64,
    /// The program's threads, followed by the writer.
    threads: Vec<Thread>,
    requests: u64,
    steps_idle: u32,
    versions: u64,
    /// The page that an operation named last: many go from page to page.
    walk: u32,
    forks: u32,
    recorded: Option<Vec<Step>>,
    children: Vec<Simulator>,
}

impl Simulator {
    /// A process with an empty heap; `seed` decides everything random.
    #[must_use]
    pub fn new(setup: Setup, seed: u64) -> Self {
        let blocks = setup.config.blocks;
        let store = Store::new(blocks);
        let process = store.process(None);
        let mut rng = Rng::new(seed);
        let clusters = RecordingClusters::new(StoreClusters::new(store.clone(), process));
        let frames = setup.config.frames_most;
        let mut memory = Memory::new(rng.next_u64(), store.clone(), blocks, frames);
        memory.faults = setup.faults;
        memory.sabotage = setup.sabotage;
        memory.mappings_most = setup.mappings_most;
        // A fiftieth of a store counts as live.
        memory.commit_most = pages_of(blocks) - pages_of(blocks) / 50;
        let mut simulator = Self {
            engine: Engine::new(setup.config, clusters),
            memory,
            flash: Flash::default(),
            store,
            process,
            rng,
            now: Nanos(0),
            due: BinaryHeap::new(),
            dues: 0,
            threads: Vec::new(),
            requests: 0,
            steps_idle: 0,
            versions: 0,
            walk: 0,
            forks: 0,
            recorded: None,
            children: Vec::new(),
            setup,
        };
        simulator.start_threads(setup.threads);
        simulator
    }

    /// Records every step.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        self.recorded = Some(Vec::new());
        self
    }

    /// The recording.
    #[must_use]
    pub fn into_recording(self) -> Option<Recording> {
        Some(Recording {
            config: self.setup.config,
            steps: self.recorded?,
        })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<RecordingClusters<StoreClusters>> {
        &self.engine
    }

    /// Processes forked off since the last call.
    pub fn take_children(&mut self) -> Vec<Self> {
        std::mem::take(&mut self.children)
    }

    /// Runs until all threads have ended, then compares every page with the model.
    ///
    /// # Panics
    /// If anything is wrong.
    pub fn run(&mut self) {
        while self.advance() {}
        self.finish();
    }

    /// Advances to the next step. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        let Some(Reverse((at, _, thread, due))) = self.due.pop() else {
            for (at, thread) in self.threads.iter().enumerate() {
                if let Some(flight) = &thread.flight {
                    panic!(
                        "thread {at} waits in {:?}, and nothing will wake it",
                        flight.request
                    );
                }
            }
            return false;
        };
        self.now = Nanos(self.now.0.max(at.0));
        self.steps_idle += 1;
        if self.steps_idle == STEPS_MAX {
            let flights = self
                .threads
                .iter()
                .filter_map(|thread| thread.flight.as_ref());
            let requests: Vec<_> = flights
                .map(|flight| (&flight.request, flight.waits))
                .collect();
            panic!(
                "no request comes to its end: {requests:?} (whether they wait); {:?}",
                self.engine.flash_counters()
            );
        }
        match due {
            Due::Operation => self.operate(thread),
            Due::Go => self.tell(thread, Event::Go),
            Due::Meanwhile => {
                let reads = self.threads[thread].flight.as_ref();
                if reads.is_some_and(|flight| matches!(flight.io, Some(Io::Page { .. }))) {
                    self.tell(thread, Event::Meanwhile);
                }
            }
            Due::IoEnd => self.end_io(thread),
        }
        if self.steps_idle < 100 && self.rng.one_in(200) {
            self.engine.check();
        }
        if std::mem::take(&mut self.memory.writer_called) {
            self.call_writer();
        }
        true
    }

    fn schedule(&mut self, thread: usize, delay: u64, due: Due) {
        self.dues += 1;
        let at = self.now.plus(Nanos(delay));
        self.due.push(Reverse((at, self.dues, thread, due)));
    }

    /// A thread begins a request.
    fn begin(&mut self, thread: usize, request: Request) {
        let flight = Flight {
            id: self.requests,
            task: Task::new(&request),
            request: request.clone(),
            waits: false,
            io: None,
            reads: 0,
            failed_reads: 0,
        };
        self.requests += 1;
        let before = self.threads[thread].flight.replace(flight);
        assert!(before.is_none(), "one request at a time");
        self.tell_of(thread, Some(request), Event::Go);
    }

    fn tell(&mut self, thread: usize, event: Event) {
        self.tell_of(thread, None, event);
    }

    /// Tells the engine what has happened to a thread's request, and carries out its action.
    fn tell_of(&mut self, thread: usize, request: Option<Request>, event: Event) {
        let flight = self.threads[thread].flight.as_mut();
        let flight = flight.expect("a request is under way");
        if event == Event::Go {
            flight.waits = false;
        }
        let mut host = RecordingHost {
            inner: &mut self.memory,
            calls: Vec::new(),
        };
        let action = self.engine.handle(&mut host, &mut flight.task, event);
        let (task, calls) = (flight.id, host.calls);
        let clusters = self.engine.clusters_mut().take_log();
        if let Some(steps) = &mut self.recorded {
            steps.push(Step {
                task,
                request,
                event,
                calls,
                clusters,
                action,
            });
        }
        if self.engine.take_announcement() {
            self.wake_all();
        }
        self.carry_out(thread, action);
    }

    fn wake_all(&mut self) {
        if self.setup.sabotage == Some(Sabotage::LoseWakeUp) && self.rng.one_in(20) {
            return;
        }
        for thread in 0..self.threads.len() {
            if let Some(flight) = &mut self.threads[thread].flight
                && std::mem::take(&mut flight.waits)
            {
                let delay = self.rng.below(20_000);
                self.schedule(thread, delay, Due::Go);
            }
        }
    }

    fn carry_out(&mut self, thread: usize, action: Action) {
        let is_quick = self.rng.one_in(2);
        let delay = 1_000 + self.rng.below(if is_quick { 10_000 } else { 300_000 });
        let flash = &self.flash;
        let flight = self.threads[thread].flight.as_mut();
        let flight = flight.expect("a request is under way");
        match action {
            Action::Done(outcome) => {
                self.steps_idle = 0;
                let flight = self.threads[thread].flight.take().expect("seen above");
                self.ended(thread, &flight, outcome);
            }
            Action::Await => {
                flight.waits = true;
                if self.setup.sabotage == Some(Sabotage::ForkInRound)
                    && flight.request == Request::PrepareFork
                    && self.engine.writes()
                {
                    self.fork_child();
                }
            }
            Action::Pause => self.schedule(thread, PAUSE, Due::Go),
            Action::Read { at, shape, count } => {
                let frames = flight.task.read_frames().expect("it asked for a read");
                assert_eq!(frames.all().len(), count as usize);
                let sector = at.offset() / SECTOR_BYTES as u64;
                let seen = is_quick.then(|| flash.read(sector, count * shape.sectors()));
                flight.io = Some(Io::Page {
                    sector,
                    shape,
                    seen,
                });
                for &frame in frames.all() {
                    let first = self.memory.reading.insert((frame, shape));
                    assert!(first, "two reads into {shape:?} of {frame:?}");
                }
                for _ in 0..self.rng.below(3) {
                    let before = self.rng.below(delay);
                    self.schedule(thread, before, Due::Meanwhile);
                }
                self.schedule(thread, delay, Due::IoEnd);
            }
            Action::ReadBlock(block) => {
                flight.io = Some(Io::Block(block));
                self.schedule(thread, delay, Due::IoEnd);
            }
            Action::Write { at, from, bytes } => {
                let sector = at.offset() / SECTOR_BYTES as u64;
                let count = bytes / SECTOR_BYTES as u32;
                if self.setup.sabotage != Some(Sabotage::LoseWrite) {
                    flash.tear(sector, count);
                }
                flight.io = Some(Io::Write {
                    sector,
                    from: from / SECTOR_BYTES as u32,
                    count,
                    buffer: self.memory.target.clone(),
                });
                self.schedule(thread, delay, Due::IoEnd);
            }
            Action::More(_) => {}
        }
    }

    /// A read or write has ended.
    fn end_io(&mut self, thread: usize) {
        let flight = self.threads[thread].flight.as_mut();
        let flight = flight.expect("a request is under way");
        let Faults {
            reads,
            flips,
            writes,
            ..
        } = self.setup.faults;
        let event = match flight.io.take().expect("a read or write is under way") {
            Io::Page {
                sector,
                shape,
                seen,
            } => {
                let frames = flight.task.read_frames().expect("it asked for a read");
                let count = frames.all().len() as u32;
                let read = || self.flash.read(sector, count * shape.sectors());
                let mut contents = seen.unwrap_or_else(read);
                let (failed, flipped) = (self.rng.chance(reads), self.rng.chance(flips));
                let flip = self.rng.below_u32(count * shape.sectors());
                contents[flip as usize] ^= u64::from(flipped);
                flight.reads += 1;
                flight.failed_reads += u32::from(failed || flipped && flip < shape.sectors());
                let pages = contents.chunks(shape.sectors() as usize);
                for (&frame, contents) in frames.all().iter().zip(pages) {
                    self.memory.reading.remove(&(frame, shape));
                    self.memory.fill(frame, shape, contents);
                }
                let first = &contents[..shape.sectors() as usize];
                Event::Read((!failed).then(|| checksum(first)))
            }
            Io::Block(block) => {
                let mut buffer = self.flash.read_block(block);
                if self.rng.chance(flips) {
                    let at = self.rng.below(buffer.sectors.len() as u64) as usize;
                    buffer.sectors[at] ^= 1;
                }
                self.memory.source = buffer;
                Event::BlockRead(!self.rng.chance(reads))
            }
            Io::Write {
                sector,
                from,
                count,
                buffer,
            } => {
                let target = &self.memory.target;
                assert_eq!(target.sectors, buffer.sectors, "a buffer amid its write");
                let failed = self.rng.chance(writes);
                let lost = self.setup.sabotage == Some(Sabotage::LoseWrite) && self.rng.one_in(4);
                if !failed && !lost {
                    let range = from as usize..(from + count) as usize;
                    let pointers = buffer.pointers.as_ref();
                    self.flash.write(sector, &buffer.sectors[range], pointers);
                }
                Event::Written(!failed)
            }
        };
        self.tell(thread, event);
    }

    /// The child of a fork that happens now, as the kernel creates it.
    fn fork_child(&mut self) {
        let frames = self.engine.frames_in_use().map(|FrameId(frame)| frame);
        let frames = frames.collect();
        let process = self.store.process(Some(self.process));
        let clusters = self.engine.clusters_mut().inner_mut().of_child(process);
        let mut child = Self {
            setup: self.setup,
            engine: self.engine.clone(),
            memory: self.memory.clone(),
            flash: self.flash.clone(),
            store: self.store.clone(),
            process,
            rng: Rng::new(self.rng.next_u64()),
            now: self.now,
            due: BinaryHeap::new(),
            dues: 0,
            threads: Vec::new(),
            requests: 0,
            steps_idle: 0,
            versions: (u64::from(process) + 1) << 32,
            walk: 0,
            // Children of children seldom fork.
            forks: self.forks + 2,
            recorded: None,
            children: Vec::new(),
        };
        *child.engine.clusters_mut() = RecordingClusters::new(clusters);
        let mut task = Task::new(&Request::BecomeChild);
        let action = child.engine.handle(&mut child.memory, &mut task, Event::Go);
        assert_eq!(action, Action::Done(Outcome::Over));
        child.engine.clusters_mut().take_log();
        child.memory.forked(&frames, self.rng.next_u64());
        child.start_threads(1);
        self.children.push(child);
    }

    /// After the last thread has ended: every page matches the model, and the frames that the page
    /// pager needs have been returned.
    fn finish(&mut self) {
        self.engine.check();
        assert!(self.engine.is_idle(), "nothing is under way");
        let (held, most) = (self.engine.frames_held(), self.memory.frames_most);
        assert!(
            held <= most,
            "{held} frames of {most} are not given back, and nobody will"
        );
        for page in self.memory.pages() {
            self.touch(0, page, None, 0);
            while self.advance() {}
        }
        self.engine.check();
    }

    /// A process ends: its blocks become free.
    pub fn exit(self) {
        self.store.exit(self.process);
    }
}

/// Whether an outcome is that of a resolved fault.
fn is_resolved(outcome: Outcome) -> bool {
    outcome == Outcome::Resolved
}
