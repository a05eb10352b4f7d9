//! The frames that a process uses, shares, may use and holds: the processes of a run divide the budget without a
//! lock and without an arbiter.
//!
//! *Used* frames are in use by this process alone; *shared* frames belong to several processes since a fork. *Granted*
//! frames are taken from the budget for this process; used <= granted, or an overrun is counted.

use super::LIMIT_FRAMES_MIN;
use super::process::{Process, State};
use flashvm_core::grant::Sharing;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait of a new process for its first frames, and the pause between two tries. Other processes give frames
/// up as soon as they are scheduled: on a loaded machine that takes more than half a second.
pub(super) const FIRST_FRAMES_WAIT_MAX: Duration = Duration::from_secs(10);
const FIRST_FRAMES_PAUSE: Duration = Duration::from_millis(1);

impl Process {
    /// Publishes how many frames this process alone uses. A rise to more than granted counts as an
    /// overrun of the budget.
    ///
    /// A process publishes a lower number before it returns frames: otherwise they would count
    /// twice once another process uses them.
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

    /// Whether this process could use more frames than it has.
    #[must_use]
    pub fn is_wanting(&self) -> bool {
        self.slot().wanting.load(Ordering::Relaxed) != 0
    }

    /// Limit of the frames that only this process uses: max(allowance - what its shared frames account for,
    /// [`LIMIT_FRAMES_MIN`]).
    #[must_use]
    pub fn limit(&self) -> u32 {
        let sharing = self.sharing();
        self.allowance_with(sharing)
            .saturating_sub(sharing.frames_of(self.shares()))
            .max(LIMIT_FRAMES_MIN)
    }

    /// Frames that this process shares with others.
    #[must_use]
    pub fn shares(&self) -> u32 {
        self.slot().shares.load(Ordering::Relaxed)
    }

    /// What each process accounts for of the frames that several share.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        let (mut holdings, mut held) = (0_u64, 0_u64);
        for (_, slot) in self.control.slots_taken() {
            holdings += u64::from(slot.shares.load(Ordering::Relaxed));
            held += u64::from(slot.granted.load(Ordering::Relaxed));
        }
        let granted = self.region().header().granted.load(Ordering::Relaxed);
        Sharing::new(u64::from(granted).saturating_sub(held), holdings)
    }

    /// Frames that this process may account for: max(an equal share of the budget, budget - claims
    /// of all others), where others are the live processes that use or want frames. A process
    /// accounts for its own frames and its part of the shared ones. The claim of another process is what it accounts
    /// for; if it wants more, at least an equal share.
    #[must_use]
    pub fn allowance(&self) -> u32 {
        self.allowance_with(self.sharing())
    }

    fn allowance_with(&self, sharing: Sharing) -> u32 {
        let others = || {
            self.control
                .slots_taken()
                .filter(|(index, _)| *index != self.index)
                .filter(|(_, slot)| State::of(slot.state.load(Ordering::Relaxed)) == State::Live)
                .map(move |(_, slot)| {
                    (
                        slot.used.load(Ordering::Relaxed),
                        sharing.frames_of(slot.shares.load(Ordering::Relaxed)),
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

    /// Frames of the budget that no process holds.
    #[must_use]
    pub fn free(&self) -> u32 {
        let granted = self.region().header().granted.load(Ordering::Relaxed);
        self.control.budget_frames().saturating_sub(granted)
    }

    /// Frames with memory of this process: its own, and those that it shares.
    #[must_use]
    pub fn resident(&self) -> u32 {
        self.slot().used.load(Ordering::Relaxed) + self.shares()
    }

    /// Frames of the budget granted to this process.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.slot().granted.load(Ordering::Relaxed)
    }

    /// Takes frames from the budget until this process holds `frames`, or none are left. The first
    /// [`LIMIT_FRAMES_MIN`] come even beyond the budget, so that every process can continue. Returns
    /// the frames that it holds.
    pub fn grow(&self, frames: u32) -> u32 {
        let (held, budget) = (self.granted(), self.control.budget_frames());
        let least = LIMIT_FRAMES_MIN.saturating_sub(held);
        let taken = self.take(|granted| {
            let free = budget.saturating_sub(granted).max(least);
            frames.saturating_sub(held).min(free)
        });
        if taken > 0 && self.region().header().granted.load(Ordering::Relaxed) > budget {
            // Only the minimum of a process comes beyond the budget.
            self.count_overrun();
        }
        held + taken
    }

    /// Takes frames from the budget: `wanted` maps the frames granted in the run to the number to
    /// take. Returns that number.
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
    /// [`LIMIT_FRAMES_MIN`], and takes them. Once no other process has more than that minimum, or
    /// after `FIRST_FRAMES_WAIT_MAX`, takes them even beyond the budget, which counts as an overrun.
    ///
    /// Without the supervisor nobody returns the frames of dead processes: the wait ends, and the new pager ends this
    /// process. `supervisor` is a pidfd.
    pub(crate) fn await_first_frames(&self, supervisor: impl AsFd) {
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
            if crate::sys::is_dead_within(&supervisor, FIRST_FRAMES_PAUSE) {
                break;
            }
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
}
