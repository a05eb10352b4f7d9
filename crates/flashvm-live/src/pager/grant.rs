//! Carries out what [`Grant`](flashvm_core::grant::Grant) decides: takes frames of the run's budget, gives them back,
//! and tells the engine and the heap of small pages.

use super::workers::By;
use super::{Locked, Pager};
use crate::control::Process;
use crate::flash::demand::BUFFER_PAGES;
use crate::sys::{now, sleep};
use flashvm_core::Event;
use flashvm_core::grant::{Budget, Limits, Look, Sharing, Usage};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest wait for a change of the pressure word, before looking again.
const PRESSURE_WAIT: Duration = Duration::from_secs(3600);
/// Pauses between looks under pressure that change nothing.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

impl Budget for Process {
    fn held(&self) -> u32 {
        self.granted()
    }

    fn share(&self) -> u32 {
        self.limit()
    }

    fn allowance(&self) -> u32 {
        Self::allowance(self)
    }

    fn sharing(&self) -> Sharing {
        Self::sharing(self)
    }

    fn others_want(&self) -> bool {
        Self::others_want(self)
    }

    fn free(&self) -> u32 {
        Self::free(self)
    }
}

impl Locked {
    /// Frames that the pages of this process take.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            own: self.engine.frames_in_use(),
            shared: self.engine.pages_shared(),
            stored: self.engine.slots_used() > 0,
        }
    }
}

/// The limits as the engine hears of them.
pub(super) fn limit_event(Limits { frames, shared }: Limits) -> Event {
    Event::Limit { frames, shared }
}

impl Pager {
    /// Follows this process's share of the budget, and tells the engine its limits.
    pub(super) fn look_at_limit(&self, locked: &mut Locked) {
        self.keep_locks_within_share(locked);
        let (usage, run) = (locked.usage(), &self.process);
        let most = match locked.grant.look(run, &usage) {
            Look::Keep(held) => {
                run.set_wanting(false);
                held
            }
            Look::GiveBack { to, most } => {
                self.publish_use(locked);
                run.shrink(to);
                most
            }
            Look::Take(to) => {
                let got = run.grow(to);
                run.set_wanting(got < to);
                if got < to && locked.grant.presses(now()) {
                    self.control.raise_pressure();
                }
                got
            }
        };
        if locked.grant.offers(run, now()) {
            self.control.raise_pressure();
        }
        if let Some(heap) = &self.chameleon {
            let target = locked.grant.small_target(&usage, most);
            let before = heap.target.swap(target, Ordering::Relaxed);
            if locked.grant.small() > target && before != target {
                heap.call_writer();
            }
        }
        if let Some(limits) = locked.grant.limits(run, &usage, most) {
            self.apply(locked, limit_event(limits));
        }
    }

    /// Follows the shared pressure word: other processes want frames, or have given some back.
    ///
    /// Every process of the run is woken, also those that neither want nor have anything to give: these look less and less
    /// often.
    pub(super) fn watch_pressure(&self) {
        let mut seen = self.pressure_at_start;
        let mut pause = Duration::ZERO;
        loop {
            let word = self.control.wait_pressure(seen, PRESSURE_WAIT);
            if word == seen {
                continue;
            }
            seen = word;
            let mut locked = self.lock();
            let before = (self.process.granted(), locked.grant.told());
            self.own_abandoned(&mut locked);
            let keeps = locked.grant.keeps_under_pressure(&locked.usage());
            self.publish_use(&locked);
            self.process.shrink(keeps);
            self.look_at_limit(&mut locked);
            let changed = before != (self.process.granted(), locked.grant.told());
            self.hand_over(&mut locked, By::Program);
            drop(locked);
            if changed || self.process.is_wanting() {
                pause = Duration::ZERO;
            } else {
                pause = (2 * pause).clamp(PAUSE_MIN, PAUSE_MAX);
                sleep(pause);
            }
        }
    }

    /// Tells the run how many frames are in use. Call it also before giving frames back: see [`Process::set_used`].
    pub(super) fn publish_use(&self, locked: &Locked) {
        let used = locked.engine.frames_in_use() + self.buffer_pages(locked);
        self.process.set_used(used + locked.grant.small());
    }

    /// Whether to open a demand queue now: threads want one, and this process holds frames for its buffer. A queue that
    /// is wanted and lacks frames gets them by a later look at the limit.
    pub(super) fn may_open_queue(&self, locked: &mut Locked) -> bool {
        if !self.demand.wants_more() {
            return false;
        }
        locked.grant.plan_queues(self.demand.pages() + BUFFER_PAGES);
        self.look_at_limit(locked);
        locked.grant.has_room(&self.process, &locked.usage())
    }
}
