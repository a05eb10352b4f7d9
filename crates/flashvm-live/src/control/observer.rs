//! A view of a run's control region from outside the run: mapped read-only, without locks, for readers that
//! attach and leave at any time (`flashvm top`).
//!
//! The run does not notice. While the observer reads a process's counters, the process may end and another take its
//! slot. The state word carries a generation: if the word has changed, the observer drops the reading.

use super::layout::{Region, Window};
use super::process::{STATE_BITS, State};
use super::stats::StatsSnapshot;
use super::{Control, Error, RunSettings};
use rustix::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

/// A reader of one run. It gives out copies only, so that its mapping can be removed when it is dropped.
#[derive(Debug)]
pub struct Observer {
    window: Window,
}

/// What a run has and uses, all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunReading {
    /// Frames that all processes may use together.
    pub budget_frames: u32,
    /// Frames that they use, each shared frame once.
    pub used_frames: u32,
    /// Maximum of `used_frames`.
    pub used_frames_max: u32,
    /// Slots of the store.
    pub store_slots: u32,
}

/// A process of a run, while it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReading {
    /// Distinguishes the process from earlier ones, and from itself before an `exec`.
    pub identity: u64,
    /// Its process id, as the supervisor sees it.
    pub pid: u32,
    /// Its command, possibly truncated.
    pub command: String,
    /// Frames that it uses, shared ones included.
    pub resident_pages: u64,
    /// Pages committed to it.
    pub committed_pages: u64,
    /// Its counters.
    pub stats: StatsSnapshot,
}

impl Observer {
    /// Maps the region behind `fd`, read-only; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::Foreign`] if this is no control region of this version; memory that the kernel refuses.
    pub fn attach(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        let window = Window::open(fd)?;
        Ok(Self { window })
    }

    /// For this observer's methods alone, which store nothing (the mapping is read-only) and return copies.
    #[allow(
        unsafe_code,
        reason = "references into a mapping that ends; argued below"
    )]
    fn region(&self) -> Region {
        // SAFETY: the observer's methods return copies, and borrow the observer, so no reference outlives the window.
        unsafe { self.window.region() }
    }

    fn control(&self) -> Control {
        let region = self.region();
        Control { region }
    }

    /// Process id of the supervisor, as the supervisor sees it.
    #[must_use]
    pub fn supervisor(&self) -> u32 {
        let header = self.region().header();
        header.supervisor.load(Ordering::Relaxed)
    }

    /// The settings of the run. Allocates.
    ///
    /// # Errors
    /// [`Error::Settings`] if they were written by another version.
    pub fn settings(&self) -> Result<RunSettings, Error> {
        self.control().settings()
    }

    /// What the run has and uses now.
    #[must_use]
    pub fn run(&self) -> RunReading {
        let control = self.control();
        RunReading {
            budget_frames: control.budget_frames(),
            used_frames: control.used_frames(),
            used_frames_max: control.used_frames_max(),
            store_slots: control.store_slots(),
        }
    }

    /// The processes that live. Allocates.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessReading> {
        let control = self.control();
        let indices = control.slots_taken().map(|(index, _)| index);
        indices.filter_map(|index| self.process(index)).collect()
    }

    /// The process on a process slot; `None` if it ends during the reading.
    fn process(&self, index: u32) -> Option<ProcessReading> {
        let slot = &self.region().process_slots()[index as usize];
        let word = slot.state.load(Ordering::Acquire);
        let pid = slot.pid.load(Ordering::Acquire);
        if State::of(word) != State::Live || pid == 0 {
            return None;
        }
        let record = &self.region().records()[index as usize];
        let frames = slot.used.load(Ordering::Relaxed);
        let shares = slot.shares.load(Ordering::Relaxed);
        let reading = ProcessReading {
            identity: u64::from(word >> STATE_BITS) << 32 | u64::from(index),
            pid,
            command: record.command(),
            resident_pages: u64::from(frames) + u64::from(shares),
            committed_pages: slot.committed.load(Ordering::Relaxed),
            stats: record.stats.snapshot(),
        };
        // The loads above come before the second load of the state word.
        fence(Ordering::Acquire);
        (slot.state.load(Ordering::Relaxed) == word).then_some(reading)
    }
}
