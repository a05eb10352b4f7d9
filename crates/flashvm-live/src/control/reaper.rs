//! The supervisor's reaper: notices deaths, returns what dead processes held, and collects all
//! counters.
//!
//! Frames and commitments of a dead process return at once. Its clusters return a second later if it
//! had leased any itself: the kernel may still be carrying out writes of the process, which must not
//! land in a cluster with a new owner.

use super::Control;
use super::decisions::DecisionLine;
use super::layout::ProcessSlot;
use super::process::State;
use super::stats::StatsSnapshot;
use crate::sys::process_state::ProcessState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the clusters of a killed process stay unused.
const WRITES_SETTLE: Duration = Duration::from_secs(1);
/// How long a prepared process slot outlives its preparer: a forked child may still adopt it.
const PREPARATION_MAX: Duration = Duration::from_secs(5);

/// The record of a process, after its end or while it runs.
#[derive(Clone, Debug)]
pub struct ProcessRecord {
    /// Its process id, as the supervisor sees it.
    pub pid: u32,
    /// Its command, possibly truncated.
    pub command: String,
    /// Its counters.
    pub stats: StatsSnapshot,
    /// Why the pager ended it, if it did.
    pub ended: Option<String>,
    /// The first system call that the pager refused, and why.
    pub refused: Option<String>,
    /// The last decisions of its pager, oldest first.
    pub decisions: Vec<DecisionLine>,
}

/// The reaper's knowledge of the process on a process slot.
struct Watched {
    word: u32,
    pid: u32,
    /// Start time in clock ticks since boot: distinguishes a process from a later one with the same
    /// id.
    started: Option<u64>,
    pidfd: Option<OwnedFd>,
    /// When the death, or an orphaned preparation, was first noticed.
    dead_since: Option<Instant>,
}

/// Interval between looks at the memory of all processes.
const MEMORY_LOOK: Duration = Duration::from_millis(250);

/// Watches all process slots of a run.
pub struct Reaper {
    control: Control,
    watched: Vec<Option<Watched>>,
    looked_at_memory: Option<Instant>,
}

impl Reaper {
    /// A reaper for the run; there must be only one.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self {
            control,
            watched: Vec::new(),
            looked_at_memory: None,
        }
    }

    /// Checks every process slot once; returns the records of processes that have ended. `now` is
    /// the time of the check. Call it a few times a second.
    pub fn look(&mut self, now: Instant) -> Vec<ProcessRecord> {
        let mut records = Vec::new();
        let mut freed = false;
        let looks_at_memory = self
            .looked_at_memory
            .is_none_or(|at| now - at >= MEMORY_LOOK);
        if looks_at_memory {
            self.looked_at_memory = Some(now);
        }
        for (index, slot) in self.control.slots_taken() {
            let at = index as usize;
            self.watched
                .resize_with(self.watched.len().max(at + 1), || None);
            let word = slot.state.load(Ordering::Acquire);
            let state = State::of(word);
            let process = self.control.process_at(index, word);
            match state {
                State::Free => self.watched[at] = None,
                State::Retired => {
                    self.watched[at] = None;
                    records.extend(self.harvest(index, slot, word));
                }
                State::Preparing | State::Live | State::Dying => {
                    let pid = match slot.pid.load(Ordering::Acquire) {
                        0 => slot.preparer.load(Ordering::Acquire),
                        pid => pid,
                    };
                    let watched = match &mut self.watched[at] {
                        Some(watched) if watched.is(word, pid) => watched,
                        other => other.insert(Watched::new(word, pid)),
                    };
                    if looks_at_memory && state == State::Live {
                        note_uncounted(&self.control, index, slot, pid);
                    }
                    if watched.dead_since.is_none() && watched.dead() {
                        watched.dead_since = Some(now);
                    }
                    let Some(since) = watched.dead_since else {
                        continue;
                    };
                    let dead_for = now.duration_since(since);
                    let unsettled = slot.pid.load(Ordering::Relaxed) == 0;
                    if unsettled && dead_for < PREPARATION_MAX {
                        continue;
                    }
                    if state != State::Dying {
                        if !process.advance(word, State::Dying) {
                            continue;
                        }
                        process.give_back_memory();
                        freed = true;
                    }
                    let wrote = slot.wrote.load(Ordering::Relaxed) != 0;
                    if !wrote || dead_for >= WRITES_SETTLE {
                        self.watched[at] = None;
                        process.retire();
                        records.extend(self.harvest(index, slot, word));
                    }
                }
            }
        }
        if freed {
            self.control.raise_pressure();
        }
        records
    }

    /// The records that [`Self::look`] has not returned: of live, dying and retired processes. Without their decisions,
    /// which [`Self::remaining`] reads.
    #[must_use]
    pub fn alive(&self) -> Vec<ProcessRecord> {
        self.records().map(|(_, record)| record).collect()
    }

    /// The same records, whole.
    #[must_use]
    pub fn remaining(&self) -> Vec<ProcessRecord> {
        self.records()
            .map(|(index, record)| self.with_decisions(index, record))
            .collect()
    }

    fn records(&self) -> impl Iterator<Item = (u32, ProcessRecord)> {
        self.control
            .slots_taken()
            .filter(|(_, slot)| {
                matches!(
                    State::of(slot.state.load(Ordering::Acquire)),
                    State::Live | State::Dying | State::Retired
                )
            })
            .filter_map(|(index, slot)| Some((index, self.record(index, slot)?)))
    }

    /// Descriptors that become readable when a watched process dies.
    pub fn pidfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        use rustix::fd::AsFd;
        self.watched
            .iter()
            .flatten()
            .filter(|watched| watched.dead_since.is_none())
            .filter_map(|watched| watched.pidfd.as_ref().map(AsFd::as_fd))
    }

    fn record(&self, index: u32, slot: &ProcessSlot) -> Option<ProcessRecord> {
        let pid = slot.pid.load(Ordering::Relaxed);
        let record = &self.control.region().records()[index as usize];
        (pid != 0).then(|| ProcessRecord {
            pid,
            command: record.command(),
            stats: record.stats.snapshot(),
            ended: record.ended.read(),
            refused: record.refused.read(),
            decisions: Vec::new(),
        })
    }

    fn with_decisions(&self, index: u32, record: ProcessRecord) -> ProcessRecord {
        let region = self.control.region();
        let began = region.header().began.load(Ordering::Relaxed);
        ProcessRecord {
            decisions: region.decisions(index).read(began),
            ..record
        }
    }

    /// Takes the record of a retired process slot, and frees the slot.
    fn harvest(&self, index: u32, slot: &ProcessSlot, word: u32) -> Option<ProcessRecord> {
        let record = self.record(index, slot);
        let record = record.map(|record| self.with_decisions(index, record));
        slot.pid.store(0, Ordering::Relaxed);
        slot.preparer.store(0, Ordering::Relaxed);
        self.control.process_at(index, word).set_state(State::Free);
        record
    }
}

/// Notes how much anonymous memory a process has beyond its frames. In protect mode its frames are not anonymous: the
/// figure is too small then, never too large.
fn note_uncounted(control: &Control, index: u32, slot: &ProcessSlot, pid: u32) {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else {
        return;
    };
    let pages = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    // Size, resident pages, and those of them that are not anonymous.
    let mut words = text.split_whitespace().skip(1);
    let (resident, others) = (pages(words.next()), pages(words.next()));
    let [own, shared] = [&slot.used, &slot.shares].map(|frames| frames.load(Ordering::Relaxed));
    let uncounted = resident
        .saturating_sub(others)
        .saturating_sub(u64::from(own) + u64::from(shared));
    let stats = &control.region().records()[index as usize].stats;
    stats
        .uncounted_pages_max
        .fetch_max(uncounted, Ordering::Relaxed);
}

impl Watched {
    fn new(word: u32, pid: u32) -> Self {
        Self {
            word,
            pid,
            started: ProcessState::of(pid).map(|state| state.started),
            pidfd: i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            dead_since: None,
        }
    }

    /// Whether this is still the same process on the process slot: its state word is unchanged, or
    /// has gone from `Live` to `Dying`.
    fn is(&self, word: u32, pid: u32) -> bool {
        self.pid == pid
            && (self.word == word
                || State::Dying.within(self.word) == word && State::of(self.word) == State::Live)
    }

    fn dead(&mut self) -> bool {
        if let Some(pidfd) = &self.pidfd {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec::default())) == Ok(0) {
                return false;
            }
        }
        let alive = ProcessState::of(self.pid).is_some_and(|state| {
            Some(state.started) == self.started && !(state.is_zombie() && state.threads < 2)
        });
        if alive {
            // Older kernels report an exit when a thread execs: from now on `/proc` alone decides.
            self.pidfd = None;
        }
        !alive
    }
}
