//! Frames of the run's budget that one process holds: how many it takes, keeps back, lends to small pages, and
//! gives up when other processes want some.
//!
//! A process uses frames for its pages (the engine's), for its heap of small pages, and for the buffers of its reads;
//! and it *reserves* some before they are used, so that no page is ever refused for lack of them. All of this
//! comes out of what it *holds* of the budget. How much it may hold is its *share*, which changes with what the
//! others do: [`Budget`] knows it. Only decisions are made here; the caller carries them out.
//!
//! # Invariants
//!
//! - The engine's limit <= frames held - reserved - lent to small pages - due to small pages; but it is at least
//!   [`Reserve::least`] / 2, so that the engine can go on.
//! - Only free frames change hands: frames in use go back as they come free.

mod sharing;
#[cfg(test)]
mod tests;

pub use sharing::Sharing;

use crate::engine::TRANSIT_PAGES_MAX;
use crate::ids::Nanos;

/// Fewest frames that a process takes at once, within its share.
const STEP: u32 = 64;
/// Frames that a process keeps beyond those in use, when others or its small pages want frames.
const SPARE: u32 = 32;
/// How often the others are asked for frames while there are too few, or told of free ones.
const PRESS_INTERVAL: Nanos = Nanos(2_000_000);
/// A process is small with at most `SMALL_PROCESS * read buffers` frames of its own.
const SMALL_PROCESS: u32 = 4;
/// Frames for shared pages to which stores went unnoticed until now.
const UNNOTICED_PAGES: u32 = 32;

/// The run's budget, as one process sees it now.
pub trait Budget {
    /// Frames of the budget that this process holds.
    fn held(&self) -> u32;
    /// Frames that this process may hold: what the others leave it.
    fn share(&self) -> u32;
    /// Frames that may be accounted to this process: its own, and its part of the shared ones by [`Self::sharing`].
    fn allowance(&self) -> u32;
    /// What each process accounts for of the frames that several share.
    fn sharing(&self) -> Sharing;
    /// Whether another process could use more frames than it has.
    fn others_want(&self) -> bool;
    /// Frames of the budget that no process holds.
    fn free(&self) -> u32;
}

/// What a process sets aside.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// Frames that every process holds, whatever the others do.
    pub least: u32,
    /// Frames for its read buffers, once a page may come back from flash.
    pub read_buffers: u32,
}

/// Frames that the pages of a process take.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Frames of its own.
    pub own: u32,
    /// Pages in frames that it shares with others since a fork.
    pub shared: u32,
    /// Whether any page is on flash.
    pub stored: bool,
}

/// How a process follows its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It holds what it should. It uses at most this number of frames.
    Keep(u32),
    /// It keeps `to` frames and uses at most `most` of them; the others go back as they come free.
    GiveBack {
        /// Frames to hold from now on.
        to: u32,
        /// Frames to use at most.
        most: u32,
    },
    /// It takes frames until it holds this number, if the budget has them, and uses what it holds then.
    Take(u32),
}

/// The limits of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames of the process's own that its pages may use.
    pub frames: u32,
    /// Pages that may be in shared frames.
    pub shared: u32,
}

/// Frames that a fork fills at once: of pages that are stored to before there is a frame for the copy, and of those that it
/// copies itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForkStores {
    /// By the parent.
    pub parent: u32,
    /// By the child.
    pub child: u32,
}

/// What one process does with its frames.
#[derive(Clone, Debug)]
pub struct Grant {
    reserve: Reserve,
    /// What the engine was told last.
    told: Limits,
    /// Frames that small pages have.
    small: u32,
    /// Frames due to small pages: they get them once the engine has freed them.
    small_due: u32,
    /// Frames for the buffers of demand queues, opened or about to be.
    queues: u32,
    /// Frames kept back for a fork that is ahead.
    fork_room: u32,
    /// When the others were last asked for frames.
    pressed: Nanos,
}

impl Grant {
    /// The grant of a process with no frames.
    #[must_use]
    pub fn new(reserve: Reserve) -> Self {
        Self {
            reserve,
            told: Limits {
                frames: 0,
                shared: u32::MAX,
            },
            small: 0,
            small_due: 0,
            queues: 0,
            fork_room: 0,
            pressed: Nanos(0),
        }
    }

    /// What the engine was told last.
    #[must_use]
    pub fn told(&self) -> Limits {
        self.told
    }

    /// In a forked child: its engine has been told nothing, and it has no demand queues. Small pages have as many
    /// frames as in the parent, since the fork copied these.
    pub fn become_child(&mut self) {
        self.told.frames = 0;
        self.queues = 0;
    }

    /// Frames that small pages have.
    #[must_use]
    pub fn small(&self) -> u32 {
        self.small
    }

    /// Frames in use or reserved.
    #[must_use]
    pub fn in_use(&self, usage: &Usage) -> u32 {
        usage.own + self.reserved(usage) + self.small
    }

    /// Frames that are kept back, so that they are there when they are needed. A small process with nothing on flash
    /// needs no read buffers: frames kept back for them would serve nobody.
    fn reserved(&self, usage: &Usage) -> u32 {
        let may_read =
            usage.stored || usage.own > self.reserve.read_buffers * SMALL_PROCESS || self.small > 0;
        let reads = if may_read {
            self.reserve.read_buffers
        } else {
            0
        };
        let sharing = match usage.shared {
            0 => 0,
            _ => TRANSIT_PAGES_MAX + UNNOTICED_PAGES,
        };
        self.queues + reads + sharing + self.fork_room
    }

    /// How the process follows its share now.
    pub fn look(&self, run: &impl Budget, usage: &Usage) -> Look {
        let (share, held) = (run.share(), run.held());
        let in_use = self.in_use(usage);
        if held > share {
            return Look::GiveBack {
                to: share.max(in_use),
                most: share,
            };
        }
        // Frames that it takes beyond its use are lost to the others.
        let step = if run.others_want() {
            STEP
        } else {
            (held / 2).max(STEP)
        };
        let step = match self.fork_room {
            0 => step,
            _ => step.max(in_use.saturating_sub(held)),
        };
        let wanted = (held + step).min(share);
        if in_use + step / 2 <= held || wanted == held {
            Look::Keep(held)
        } else {
            Look::Take(wanted)
        }
    }

    /// Whether to tell the others now that frames are free: one of them wants some. It may sleep, and until it looks
    /// again it claims an equal share of the budget, whether it needs that or not.
    pub fn offers(&mut self, run: &impl Budget, now: Nanos) -> bool {
        run.free() >= STEP && run.others_want() && self.presses(now)
    }

    /// After a [`Look::Take`] that the budget could not satisfy: whether to ask the others for frames now.
    pub fn presses(&mut self, now: Nanos) -> bool {
        let due = now.since(self.pressed) >= PRESS_INTERVAL;
        if due {
            self.pressed = now;
        }
        due
    }

    /// Frames that this process keeps when others want some.
    #[must_use]
    pub fn keeps_under_pressure(&self, usage: &Usage) -> u32 {
        (self.in_use(usage) + SPARE).max(self.reserve.least)
    }

    /// The limits of the engine if the process uses at most `most` frames. `None`: the engine knows them already.
    pub fn limits(&mut self, run: &impl Budget, usage: &Usage, most: u32) -> Option<Limits> {
        let others = self.reserved(usage) + self.small + self.small_due;
        let limits = Limits {
            frames: most.saturating_sub(others).max(self.floor()),
            shared: self.shared_limit(run, usage, most),
        };
        let news = limits != self.told;
        self.told = limits;
        news.then_some(limits)
    }

    /// Pages that may be in shared frames: all, unless others want frames and this process accounts for more than its
    /// allowance, or a fork lacks frames. The engine lets `least / 2` pages stay whatever the limits.
    fn shared_limit(&self, run: &impl Budget, usage: &Usage, most: u32) -> u32 {
        if usage.shared == 0 {
            return u32::MAX;
        }
        let sharing = run.sharing();
        let part = sharing.frames_of(usage.shared);
        let accounted = if run.others_want() {
            (most + part).saturating_sub(run.allowance())
        } else {
            0
        };
        let fork = match self.lacking(run, usage) {
            lack if self.fork_room > 0 && lack > 0 => lack + self.floor(),
            _ => 0,
        };
        match accounted.max(fork) {
            0 => u32::MAX,
            excess => sharing.pages_in(part.saturating_sub(excess)),
        }
    }

    /// `frames` shared frames are this process's own now, and among those that it holds. Returns the limits to tell
    /// the engine.
    pub fn owns(&mut self, frames: u32) -> Limits {
        self.told.frames += frames;
        self.told
    }

    /// Plans buffers of `pages` pages for all demand queues together. After the next look [`Self::has_room`] says
    /// whether there is room for them.
    pub fn plan_queues(&mut self, pages: u32) {
        self.queues = pages;
    }

    /// Whether everything that is in use or reserved is held.
    pub fn has_room(&self, run: &impl Budget, usage: &Usage) -> bool {
        self.lacking(run, usage) == 0
    }

    /// Frames that are in use or reserved, and not held.
    #[must_use]
    pub fn lacking(&self, run: &impl Budget, usage: &Usage) -> u32 {
        self.in_use(usage).saturating_sub(run.held())
    }
}

/// Small pages: page pager and heap can have half of the process's frames each, and beyond that what the other
/// leaves unused.
impl Grant {
    /// Frames that the heap may keep if the process uses at most `most`.
    #[must_use]
    pub fn small_target(&self, usage: &Usage, most: u32) -> u32 {
        let frames = most.saturating_sub(self.reserved(usage));
        let left = frames.saturating_sub(usage.own + SPARE);
        left.max(frames / 2)
    }

    /// Frames that the process should hold before the heap takes `more`.
    pub fn wanted_for_small(&self, run: &impl Budget, usage: &Usage, more: u32) -> u32 {
        let wanted = (self.in_use(usage) + more + SPARE).min(run.share());
        wanted.max(run.held())
    }

    /// Lends the heap up to `more` free frames; returns how many. What it could have beyond that is due to it, and the
    /// engine reclaims it.
    pub fn take_for_small(&mut self, run: &impl Budget, usage: &Usage, more: u32) -> u32 {
        let held = run.held();
        let target = self.small_target(usage, held.min(run.share()));
        let due = target.saturating_sub(self.small).min(more);
        let got = held.saturating_sub(self.in_use(usage)).min(due);
        self.small += got;
        self.small_due = due - got;
        got
    }

    /// The heap gives frames back.
    pub fn give_from_small(&mut self, frames: u32) {
        self.small -= frames;
        self.small_due = 0;
    }
}

/// Forks: the child begins with frames of its parent, so that the budget is kept.
impl Grant {
    /// A fork is ahead: keeps back the frames that parent and child need for it.
    pub fn plan_fork(&mut self, stores: ForkStores) {
        self.fork_room = self.reserve.least + stores.parent + self.frames_for_child(stores);
    }

    /// Frames that the engine may use whatever the limits.
    fn floor(&self) -> u32 {
        self.reserve.least / 2
    }

    /// Pages that a fork copies where the kernel cannot share their frames: min(own pages, (allowance - all else) / 2).
    /// The others are paged out first.
    #[must_use]
    pub fn copied_in_fork(&self, run: &impl Budget, usage: &Usage) -> u32 {
        let others = self.reserved(usage) - self.fork_room
            + self.small
            + self.reserve.least
            + self.frames_for_child(ForkStores::default());
        usage.own.min(run.allowance().saturating_sub(others) / 2)
    }

    /// Whether the process can page out more before a fork.
    #[must_use]
    pub fn can_shrink(&self, usage: &Usage) -> bool {
        usage.own > self.floor()
    }

    /// No fork is ahead any more.
    pub fn forget_fork(&mut self) {
        self.fork_room = 0;
    }

    /// Whether the process could ever hold what a fork needs. Small pages and shared pages make room for a fork, so
    /// their frames do not count here.
    pub fn may_have_fork_room(&self, run: &impl Budget) -> bool {
        run.allowance() >= self.fork_room.saturating_sub(self.small) + self.reserve.least
    }

    /// Whether it holds what a fork needs.
    pub fn has_fork_room(&self, run: &impl Budget, usage: &Usage) -> bool {
        self.fork_room > 0 && self.has_room(run, usage)
    }

    /// The fork begins: ends the plan. Returns how many of the parent's frames the child gets.
    pub fn begin_fork(&mut self, run: &impl Budget, usage: &Usage, stores: ForkStores) -> u32 {
        let room = std::mem::take(&mut self.fork_room);
        let free = run.held().saturating_sub(self.in_use(usage));
        self.frames_for_child(stores).min(room).min(free)
    }

    fn frames_for_child(&self, stores: ForkStores) -> u32 {
        let Reserve {
            least,
            read_buffers,
        } = self.reserve;
        least + TRANSIT_PAGES_MAX + read_buffers + self.small + stores.child
    }
}
