//! A process's slot in the control region: its limit, its commitments, and the slot's way through
//! fork, exec and death.
//!
//! A process slot is free, being prepared (by a parent about to fork), live, dying (the supervisor
//! has noticed the death; its writes may still be in flight), or retired (everything returned, the
//! counters still to be collected). Only compare-and-swaps on the state word, which carries a
//! generation, change its state. A swap or the clearing of a bit returns each item, so that a
//! second attempt, after a first that was killed, returns only the rest.

use super::clusters::SharedClusters;
use super::holders::Holdings;
use super::layout::{ProcessSlot, Record, Region};
use super::stats::ProcessStats;
use super::{Control, Error, LIMIT_FRAMES_MIN, PROCESS_SLOTS};
use crate::sys::space;
use flashvm_core::PAGE_SIZE;
use rustix::process::{Pid, test_kill_process};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Searches for a free process slot while the supervisor reaps, and the pause between two.
const SLOT_TRIES: u32 = 100;
const SLOT_WAIT: Duration = Duration::from_millis(20);

/// Tries of a commitment meanwhile, and the pause between two.
const COMMIT_TRIES: u32 = 50;
const COMMIT_WAIT: Duration = Duration::from_millis(20);

/// Longest wait of a new process for its first frames, and the pause between two tries. Others give them up as
/// soon as they are scheduled: a machine under load takes more than half a second for that.
const FIRST_FRAMES_WAIT_MAX: Duration = Duration::from_secs(10);
const FIRST_FRAMES_PAUSE: Duration = Duration::from_millis(1);

/// Slots for which space is allocated beyond the need: 256 MiB.
const BACKED_AHEAD_SLOTS: u32 = 1 << 16;

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

/// The id of this process as the supervisor sees it, even from within a pid namespace. Does not
/// allocate.
///
/// # Errors
/// `/proc` is not there, or not the supervisor's.
pub fn own_pid() -> Result<u32, Error> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 16];
    let (target, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self", &mut buffer)
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
    control: Control,
    index: u32,
    /// The state word of this process slot while it is live.
    live: u32,
}

impl Control {
    /// Takes a process slot for this process. A process slot that the same process had before an
    /// `exec` is retired. `pid` is that of [`own_pid`]. Waits up to two seconds for a free process
    /// slot.
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

    /// The process on a process slot whose state word is `word`, for the supervisor.
    pub(super) fn process_at(&self, index: u32, word: u32) -> Process {
        Process {
            control: *self,
            index,
            live: State::Live.within(word),
        }
    }

    /// An empty process slot in preparation by `preparer`.
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

    /// Publishes how many frames only this process uses. More than granted counts as an overrun of
    /// the budget.
    ///
    /// A process publishes a lower number before it returns frames: otherwise they would count
    /// twice once another uses them.
    pub fn set_used(&self, frames: u32) {
        let before = self.slot().used.load(Ordering::Relaxed);
        let header = self.region().header();
        // A kill between two steps leaves the run's sum too small, never too large.
        if frames > before {
            self.slot().used.store(frames, Ordering::Relaxed);
            let more = frames - before;
            let sum = header.used.fetch_add(more, Ordering::Relaxed) + more;
            header.used_max.fetch_max(sum, Ordering::Relaxed);
            if frames > self.granted() {
                self.count_overrun();
            }
        } else {
            self.no_longer_used(before - frames);
            self.slot().used.store(frames, Ordering::Relaxed);
        }
        self.stats()
            .resident_pages_max
            .fetch_max((frames + self.shares()).into(), Ordering::Relaxed);
    }

    /// The run uses this many frames fewer.
    pub(super) fn no_longer_used(&self, frames: u32) {
        let less = |sum: u32| Some(sum.saturating_sub(frames));
        let _ =
            self.region()
                .header()
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Publishes whether this process could use more frames than it has.
    pub fn set_wanting(&self, wanting: bool) {
        self.slot().wanting.store(wanting.into(), Ordering::Relaxed);
    }

    /// Limit of the frames that only this process uses: max(allowance - shared frames / 2,
    /// [`LIMIT_FRAMES_MIN`]).
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.allowance()
            .saturating_sub(self.shares() / 2)
            .max(LIMIT_FRAMES_MIN)
    }

    /// Frames that this process shares with others.
    #[must_use]
    pub fn shares(&self) -> u32 {
        self.slot().shares.load(Ordering::Relaxed)
    }

    /// Frames that this process may account for: max(an equal share of the budget, budget - the
    /// claims of all others). A process accounts for own frames + shared frames / 2. The claim of
    /// another process is what it accounts for; if it wants more, at least an equal share.
    #[must_use]
    pub fn allowance(&self) -> u32 {
        let others = || {
            self.control
                .slots_taken()
                .filter(|(index, _)| *index != self.index)
                .filter(|(_, slot)| State::of(slot.state.load(Ordering::Relaxed)) == State::Live)
                .map(|(_, slot)| {
                    (
                        slot.used.load(Ordering::Relaxed),
                        slot.shares.load(Ordering::Relaxed) / 2,
                        slot.wanting.load(Ordering::Relaxed) != 0,
                    )
                })
                .filter(|(used, shares, wanting)| *used > 0 || *shares > 0 || *wanting)
        };
        let budget = self.control.budget_frames();
        let share = budget / (others().count() as u32 + 1);
        let mut claimed = 0_u32;
        for (own, shares, wanting) in others() {
            let theirs = own + shares;
            claimed = claimed.saturating_add(if wanting { theirs.max(share) } else { theirs });
        }
        share.max(budget.saturating_sub(claimed))
    }

    /// Whether another process could use more frames than it has.
    #[must_use]
    pub fn others_want(&self) -> bool {
        self.control.slots_taken().any(|(index, slot)| {
            index != self.index
                && State::of(slot.state.load(Ordering::Relaxed)) == State::Live
                && slot.wanting.load(Ordering::Relaxed) != 0
        })
    }

    /// Frames of the budget granted to this process.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.slot().granted.load(Ordering::Relaxed)
    }

    /// Takes frames from the budget until this process holds `frames`, or none are left; always at
    /// least [`LIMIT_FRAMES_MIN`], so that every process can continue. Returns the frames it holds.
    pub fn grow(&self, frames: u32) -> u32 {
        let (held, budget) = (self.granted(), self.control.budget_frames());
        let least = LIMIT_FRAMES_MIN.saturating_sub(held);
        let taken = self.take(|granted| {
            let free = budget.saturating_sub(granted).max(least);
            frames.saturating_sub(held).min(free)
        });
        if taken > 0 && self.region().header().granted.load(Ordering::Relaxed) > budget {
            // The minimum of every process.
            self.count_overrun();
        }
        held + taken
    }

    /// Takes frames from the budget: `wanted` maps the granted frames to the number to take.
    /// Returns that number.
    fn take(&self, wanted: impl Fn(u32) -> u32) -> u32 {
        let mut taken = 0;
        let granted = self.region().header().granted.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |granted| {
                taken = wanted(granted);
                (taken > 0).then(|| granted + taken)
            },
        );
        if granted.is_err() {
            return 0;
        }
        self.slot().granted.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    /// Waits until the budget has room for the frames that this process lacks of
    /// [`LIMIT_FRAMES_MIN`], and takes them. Once nobody has more than that, or after
    /// `FIRST_FRAMES_WAIT_MAX`, [`Self::grow`] takes them regardless, and counts an overrun.
    pub(crate) fn await_first_frames(&self) {
        let budget = self.control.budget_frames();
        let lacks = LIMIT_FRAMES_MIN.saturating_sub(self.granted());
        if lacks == 0 {
            return;
        }
        self.set_wanting(true);
        let end = Instant::now() + FIRST_FRAMES_WAIT_MAX;
        while self.others_can_give() && Instant::now() < end {
            let fits = |granted| granted + lacks <= budget;
            if self.take(|granted| if fits(granted) { lacks } else { 0 }) > 0 {
                return;
            }
            self.control.raise_pressure();
            crate::sys::sleep(FIRST_FRAMES_PAUSE);
        }
        self.grow(LIMIT_FRAMES_MIN);
    }

    /// Whether another process has more frames than the minimum.
    fn others_can_give(&self) -> bool {
        self.control.slots_taken().any(|(index, slot)| {
            let held = slot.granted.load(Ordering::Relaxed) + slot.shares.load(Ordering::Relaxed);
            index != self.index && held > LIMIT_FRAMES_MIN
        })
    }

    fn count_overrun(&self) {
        self.stats().budget_overruns.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns frames until this process holds no more than `frames`.
    pub fn shrink(&self, frames: u32) {
        let given = self.granted().saturating_sub(frames);
        self.slot().granted.fetch_sub(given, Ordering::Relaxed);
        self.region()
            .header()
            .granted
            .fetch_sub(given, Ordering::Relaxed);
    }

    /// Commits `pages` more of memory to the program. `false` if budget and store together cannot
    /// hold all commitments of the run, even after a short wait for the commitments of processes
    /// that have just ended.
    #[must_use]
    pub fn commit_patiently(&self, pages: u64) -> bool {
        (0..COMMIT_TRIES).any(|attempt| {
            if attempt > 0 {
                if !self.somebody_has_died() {
                    return false;
                }
                crate::sys::sleep(COMMIT_WAIT);
            }
            self.commit(pages)
        })
    }

    /// Whether a process has ended and was not reaped yet.
    fn somebody_has_died(&self) -> bool {
        self.control.slots_taken().any(|(_, slot)| {
            let pid = i32::try_from(slot.pid.load(Ordering::Relaxed)).unwrap_or(0);
            State::of(slot.state.load(Ordering::Acquire)) == State::Live
                && Pid::from_raw(pid)
                    .is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
        })
    }

    /// Like [`Self::commit_patiently`], without a wait.
    #[must_use]
    pub fn commit(&self, pages: u64) -> bool {
        let (geometry, header) = (self.region().geometry(), self.region().header());
        loop {
            let max = geometry.commit_pages_with(header.backed.load(Ordering::Acquire));
            let more = |now: u64| now.checked_add(pages).filter(|sum| *sum <= max);
            let Err(now) =
                header
                    .committed
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            else {
                self.slot().committed.fetch_add(pages, Ordering::Relaxed);
                return true;
            };
            let sum = now.saturating_add(pages);
            if sum > geometry.commit_pages_max() || !self.back(geometry.slots_for(sum)) {
                return false;
            }
        }
    }

    /// Slots of this process have gone bad: their room is lost and counts as committed, even beyond
    /// the bound.
    pub fn lose_room(&self, pages: u64) {
        let header = self.region().header();
        header.committed.fetch_add(pages, Ordering::Relaxed);
        self.slot().committed.fetch_add(pages, Ordering::Relaxed);
    }

    /// Allocates disk space for the first `slots` slots of the store. `false` if the disk has none.
    pub(super) fn back(&self, slots: u32) -> bool {
        let header = self.region().header();
        let backed = header.backed.load(Ordering::Acquire);
        if slots <= backed {
            return true;
        }
        let ahead = slots
            .saturating_add(BACKED_AHEAD_SLOTS)
            .min(self.region().geometry().slots());
        // Concurrent allocations by other processes cover the same space.
        let taken = [ahead, slots].into_iter().find(|&end| {
            let (from, to) = (u64::from(backed), u64::from(end));
            space::take(from * PAGE_SIZE as u64, (to - from) * PAGE_SIZE as u64).is_ok()
        });
        let backed = match taken {
            Some(end) => header.backed.fetch_max(end, Ordering::AcqRel).max(end),
            // Another process may have taken the last of it.
            None => header.backed.load(Ordering::Acquire),
        };
        if backed < slots {
            space::note_full();
        }
        backed >= slots
    }

    /// Sets the file of the store, in which the run allocates space on demand.
    pub(crate) fn take_space_from(&self, store: RawFd) {
        space::take_from(store, &self.region().header().disk_refusals);
    }

    /// Notes for the summary that the pager ends this process, and why.
    pub(crate) fn note_end(&self, reason: &str) {
        self.record().ended.note(reason);
    }

    /// Notes for the summary that a system call was refused, and why.
    pub(crate) fn note_refusal(&self, reason: &str) {
        self.record().refused.note(reason);
    }

    /// Undoes a [`Self::commit`].
    pub fn uncommit(&self, pages: u64) {
        let before = self.slot().committed.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "{pages} pages uncommitted of {before}");
        self.region()
            .header()
            .committed
            .fetch_sub(pages, Ordering::Relaxed);
    }

    /// Pages committed by this process.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.slot().committed.load(Ordering::Relaxed)
    }

    /// Prepares a process slot for a child, before the fork, with the same commitments and
    /// clusters. Until the child calls [`Self::adopt`] the process slot belongs to the parent,
    /// which retires it if the fork fails. This process must not lease or release clusters
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Commit`] if the copy does not fit, [`Error::Full`] if no process slot is free.
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
    /// [`Error::Stale`] if the supervisor has freed the process slot (the parent was
    /// killed and the child did not run for a long time): the child's memory is lost, it must end.
    pub fn adopt(&self, pid: u32) -> Result<(), Error> {
        let prepared = State::Preparing.within(self.live);
        self.slot()
            .state
            .compare_exchange(prepared, self.live, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Error::Stale)?;
        // Only now does the process slot certainly belong to this process; the supervisor tolerates
        // a live process slot without an id.
        self.slot().pid.store(pid, Ordering::Release);
        Ok(())
    }

    /// Returns leases, frames and commitments and keeps the counters for the supervisor: after a
    /// failed fork, or at a clean exit. No write to the store may be in flight.
    pub fn retire(&self) {
        self.give_back_memory();
        self.give_back_leases();
        self.set_state(State::Retired);
        self.control.raise_pressure();
    }

    /// In the parent, once its child is known to have adopted its process slot or to be dead: gives a slot back that
    /// nobody has adopted. The fork has failed, or the child died at once.
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

    /// Sets the state, whatever it was in this generation.
    pub(super) fn set_state(&self, state: State) {
        self.slot()
            .state
            .store(state.within(self.live), Ordering::Release);
    }

    /// Changes the state from the state word `from`; `false` if it has changed meanwhile.
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

    /// Process slot and generation, in 30 bits: distinguishes this process from earlier ones with
    /// its process slot.
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

    pub(super) fn record(&self) -> &'static Record {
        &self.region().records()[self.index as usize]
    }
}
