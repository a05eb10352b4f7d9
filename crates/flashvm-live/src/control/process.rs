//! A process's slot in the control region, and its way through fork, exec and death. The frames of a
//! process are in `budget`, its commitments in `commitments`.
//!
//! A process slot is free, being prepared (by its process, or by a parent about to fork), live, dying
//! (the supervisor has noticed the death; the process's writes may still be in flight), or retired
//! (everything returned, the counters still to be collected). The state word carries a generation.
//! Where two may change it, they compare and swap; otherwise its owner stores it: the process or its
//! preparer, and the reaper once these are dead or have retired the slot. Each amount is returned by
//! a swap with 0, each cluster or shared frame by clearing its bit: a second attempt, after a first
//! that was killed, returns only the rest.

use super::clusters::SharedClusters;
use super::holders::Holdings;
use super::layout::{ProcessSlot, Region};
use super::record::SlotRecord;
use super::stats::ProcessStats;
use super::{Control, Error, PROCESS_SLOTS};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Searches for a free process slot, and the pause between two: the supervisor may free one.
const SLOT_TRIES: u32 = 100;
const SLOT_WAIT: Duration = Duration::from_millis(20);

/// The state of a process slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    Free = 0,
    Preparing = 1,
    Live = 2,
    Dying = 3,
    Retired = 4,
}

/// Bits of the state word below its generation.
pub(super) const STATE_BITS: u32 = 3;

impl State {
    pub(super) fn of(word: u32) -> Self {
        match word & ((1 << STATE_BITS) - 1) {
            1 => Self::Preparing,
            2 => Self::Live,
            3 => Self::Dying,
            4 => Self::Retired,
            _ => Self::Free,
        }
    }

    /// The state word that follows `word` within the same generation.
    pub(super) fn within(self, word: u32) -> u32 {
        (word & !((1 << STATE_BITS) - 1)) | self as u32
    }
}

/// The id of this process as `/proc` shows it: as the supervisor sees it, even from within a pid
/// namespace, unless that has mounted a `/proc` of its own. Does not allocate.
///
/// # Errors
/// `/proc` is not mounted, or does not show this process.
pub fn own_pid() -> Result<u32, Error> {
    own_pid_in(&proc_folder()?)
}

/// `/proc` as it is mounted here: its numbers are those of one pid namespace, whoever reads it later.
///
/// # Errors
/// `/proc` is not mounted.
pub fn proc_folder() -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(c"/proc", flags, Mode::empty()).map_err(super::os("opening /proc"))
}

/// The pid namespace of this process, as an inode.
pub(super) fn pid_namespace() -> Result<u64, Error> {
    let found = rustix::fs::stat(c"/proc/self/ns/pid");
    Ok(found
        .map_err(super::os("stat of /proc/self/ns/pid"))?
        .st_ino)
}

/// As [`own_pid`], by a `/proc` that was opened before: a child may be in another pid namespace, and have mounted
/// another `/proc`.
///
/// # Errors
/// `proc` does not show this process.
pub fn own_pid_in(proc: impl AsFd) -> Result<u32, Error> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 16];
    let (target, _) = rustix::fs::readlinkat_raw(proc, c"self", &mut buffer)
        .map_err(super::os("readlink of /proc/self"))?;
    let pid = target.iter().try_fold(0_u32, |pid, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        pid.checked_mul(10)?.checked_add(digit)
    });
    pid.filter(|pid| *pid != 0).ok_or(Error::Foreign)
}

/// One process of the run.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub(super) control: Control,
    pub(super) index: u32,
    /// The state word of this process slot while it is live.
    live: u32,
}

impl Control {
    /// Takes a process slot for this process, and retires the one that it had before an `exec`.
    /// `pid` is that of [`own_pid`]. Waits up to two seconds for a free process slot.
    ///
    /// # Errors
    /// [`Error::Full`] if all process slots are taken.
    pub fn register(&self, pid: u32, command: &str) -> Result<Process, Error> {
        for (index, slot) in self.slots_taken() {
            let word = slot.state.load(Ordering::Acquire);
            if State::of(word) == State::Live && slot.pid.load(Ordering::Relaxed) == pid {
                Process {
                    control: *self,
                    index,
                    live: word,
                }
                .retire();
            }
        }
        let process = self.take_slot(pid)?;
        process.record().set_command(command.as_bytes());
        process.adopt(pid)?;
        Ok(process)
    }

    /// Whether a live process of the run has this id, as the supervisor sees it.
    #[must_use]
    pub fn has_process(&self, pid: u32) -> bool {
        self.slots_taken().any(|(_, slot)| {
            State::of(slot.state.load(Ordering::Acquire)) == State::Live
                && slot.pid.load(Ordering::Acquire) == pid
        })
    }

    /// The process slots that have ever been taken.
    pub(super) fn slots_taken(&self) -> impl Iterator<Item = (u32, &'static ProcessSlot)> {
        let high = self
            .region
            .header()
            .slots_high
            .load(Ordering::Acquire)
            .min(PROCESS_SLOTS);
        (0_u32..).zip(&self.region.process_slots()[..high as usize])
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The process on a process slot whose state word is `word`.
    pub(super) fn process_at(&self, index: u32, word: u32) -> Process {
        Process {
            control: *self,
            index,
            live: State::Live.within(word),
        }
    }

    /// Takes a free process slot; `preparer` prepares it.
    fn take_slot(&self, preparer: u32) -> Result<Process, Error> {
        for _ in 0..SLOT_TRIES {
            for (index, slot) in (0..PROCESS_SLOTS).zip(self.region.process_slots()) {
                let word = slot.state.load(Ordering::Relaxed);
                if State::of(word) != State::Free {
                    continue;
                }
                let next = State::Preparing.within(word.wrapping_add(1 << STATE_BITS));
                let taken =
                    slot.state
                        .compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_err() {
                    continue;
                }
                self.region
                    .header()
                    .slots_high
                    .fetch_max(index + 1, Ordering::Release);
                slot.preparer.store(preparer, Ordering::Release);
                slot.pid.store(0, Ordering::Relaxed);
                slot.wrote.store(0, Ordering::Relaxed);
                slot.used.store(0, Ordering::Relaxed);
                self.region.records()[index as usize].clear();
                self.region.decisions(index).clear();
                self.region.writing()[index as usize].clear();
                return Ok(self.process_at(index, next));
            }
            crate::sys::sleep(SLOT_WAIT);
        }
        Err(Error::Full)
    }
}

impl Process {
    /// The clusters of the store as this process sees them.
    #[must_use]
    pub fn clusters(&self) -> SharedClusters {
        SharedClusters::new(*self)
    }

    /// Whether this process is the first that asks to follow the order of the run.
    pub(crate) fn is_first_to_follow(&self) -> bool {
        let followed = &self.region().header().followed;
        followed.swap(1, Ordering::Relaxed) == 0
    }

    /// Notes for the summary that the pager ends this process, and why.
    pub(crate) fn note_end(&self, reason: &str) {
        self.record().ended.note(reason);
    }

    /// Notes for the summary that a system call was refused, and why.
    pub(crate) fn note_refusal(&self, reason: &str) {
        self.record().refused.note(reason);
    }

    /// Prepares a process slot for a child, before the fork, with the same commitments and
    /// clusters. Until the child calls [`Self::adopt`] the process slot belongs to the parent,
    /// which retires it if the fork fails. From this call until the fork, this process must not
    /// lease or release clusters.
    ///
    /// # Errors
    /// [`Error::Commit`] if the commitments do not fit, [`Error::Full`] if no process slot is free.
    pub fn fork(&self) -> Result<Self, Error> {
        let child = self
            .control
            .take_slot(self.slot().pid.load(Ordering::Relaxed))?;
        if !child.commit(self.committed()) {
            child.retire();
            return Err(Error::Commit);
        }
        child.record().copy_command(self.record());
        child.stats().inherit_delivery(self.stats());
        for cluster in self.leases().held() {
            child.leases().join(cluster);
        }
        Ok(child)
    }

    /// In the child: takes the prepared process slot. `pid` is that of [`own_pid`] in the child.
    ///
    /// # Errors
    /// [`Error::Stale`] if the supervisor has taken the process slot back (the parent was killed,
    /// and the child did not run for a long time): the child's memory is lost, and the child must end.
    pub fn adopt(&self, pid: u32) -> Result<(), Error> {
        let prepared = State::Preparing.within(self.live);
        self.slot()
            .state
            .compare_exchange(prepared, self.live, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Error::Stale)?;
        // Only now does the process slot certainly belong to this process. The supervisor tolerates
        // a live process slot without a pid.
        self.slot().pid.store(pid, Ordering::Release);
        Ok(())
    }

    /// Returns leases, frames and commitments and keeps the counters for the supervisor: after a
    /// failed fork, or at a clean exit. The process must have no write to the store in flight.
    pub fn retire(&self) {
        self.give_back_memory();
        self.give_back_leases();
        self.set_state(State::Retired);
        self.control.raise_pressure();
    }

    /// In the parent, once its child has adopted this process slot or is dead: retires the slot if nobody has adopted
    /// it, because the fork failed or the child died at once.
    pub fn retire_unadopted(&self) {
        if self.advance(State::Preparing.within(self.live), State::Dying) {
            self.retire();
        }
    }

    /// The counters of this process.
    #[must_use]
    pub fn stats(&self) -> &'static ProcessStats {
        &self.record().stats
    }

    /// Returns frames and commitments to the run.
    pub(super) fn give_back_memory(&self) {
        self.no_longer_used(self.slot().used.swap(0, Ordering::Relaxed));
        self.slot().wanting.store(0, Ordering::Relaxed);
        self.leave_all_frames();
        let granted = self.slot().granted.swap(0, Ordering::Relaxed);
        self.region()
            .header()
            .granted
            .fetch_sub(granted, Ordering::Relaxed);
        let pages = self.slot().committed.swap(0, Ordering::Relaxed);
        self.region()
            .header()
            .committed
            .fetch_sub(pages, Ordering::Relaxed);
    }

    /// Returns all clusters to the run.
    pub(super) fn give_back_leases(&self) {
        for cluster in self.leases().held() {
            self.give_back(cluster);
        }
        self.slot().leases_high.store(0, Ordering::Relaxed);
    }

    /// Sets the state, whatever it was in this generation. Only for the slot's owner.
    pub(super) fn set_state(&self, state: State) {
        self.slot()
            .state
            .store(state.within(self.live), Ordering::Release);
    }

    /// Changes the state if the state word still is `from`; otherwise returns `false`.
    pub(super) fn advance(&self, from: u32, to: State) -> bool {
        let to = to.within(from);
        self.slot()
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns one cluster; `false` if it was not held.
    pub(super) fn give_back(&self, cluster: u32) -> bool {
        let last = self.leases().leave(cluster);
        if last == Some(true) {
            let header = self.region().header();
            header.clusters_free.fetch_add(1, Ordering::Relaxed);
            header.cluster_hint.fetch_min(cluster, Ordering::Relaxed);
        }
        last.is_some()
    }

    /// The clusters that this process slot holds.
    pub(super) fn leases(&self) -> Holdings {
        Holdings {
            holders: self.region().holders(),
            bits: self.region().leases(self.index),
            high: &self.slot().leases_high,
        }
    }

    /// Process slot and generation, in 30 bits: distinguishes this process from earlier ones on the
    /// same slot.
    pub(super) fn owner(&self) -> u32 {
        let generation = self.live >> STATE_BITS;
        (self.index | generation << PROCESS_SLOTS.ilog2()) & (u32::MAX >> 2)
    }

    pub(super) fn region(&self) -> &Region {
        self.control.region()
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn slot(&self) -> &'static ProcessSlot {
        &self.region().process_slots()[self.index as usize]
    }

    pub(super) fn record(&self) -> &'static SlotRecord {
        &self.region().records()[self.index as usize]
    }
}
