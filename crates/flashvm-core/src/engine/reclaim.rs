//! Reclaim: from the policy's proposals to free frames.
//!
//! The pipeline is that of VMS and NT: unreferenced pages stay with the policy, in the shadow;
//! proposed ones are condemned, cleaned if they are dirty, and stand by, clean, until a frame is
//! needed. A touch takes a page back from anywhere in it.

use super::Engine;
use super::pagein::for_runs;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action};
use crate::ids::PageId;
use crate::page::{Flag, PageState};
use crate::policy::Proposal;

/// Frames freed together when one is needed, so that drops come in runs: at most so many, and
/// at most the limit divided by `DROP_SHARE`.
const DROP_BATCH: u32 = 32;
const DROP_SHARE: u32 = 256;
/// Frames that are kept free ahead of need, so that no fault has to drop pages first: one in so
/// many of the limit, at most so many.
const FREE_SHARE: u32 = 128;
const FREE_MAX: u32 = 512;
/// Pages that one round drops for that.
const FREE_BATCH: u32 = 32;
/// Proposals that one round takes for each page it wants to evict.
const TRIES_PER_VICTIM: u32 = 4;
/// Prefetch leaves one in so many of the available frames to faults.
const PREFETCH_KEEPS: u32 = 8;
/// Most frames kept free or on standby ahead of need.
const RESERVE_MAX: u32 = 8192;

/// What became of a page that was to leave.
pub(super) enum Condemned {
    /// It is on its way.
    Leaves,
    /// It stays in the policy's order.
    Stays,
    /// It shares its frame, and there is no frame of its own to leave with. The caller puts it back into the
    /// policy's order.
    NoFrame,
}

impl<C: ClusterSource> Engine<C> {
    /// Accounts for one more frame, freeing some from standby if need be.
    pub(super) fn take_frame(&mut self, actions: &mut Vec<Action>) -> bool {
        if self.charged() >= self.limit {
            let batch = (self.limit / DROP_SHARE).clamp(1, DROP_BATCH);
            self.drop_standby(self.charged() + 1 - self.limit, batch, actions);
            if self.charged() >= self.limit {
                return false;
            }
        }
        self.frames += 1;
        true
    }

    /// Drops pages on standby until `need` frames are free, and at least `batch` pages, as far as there are
    /// any. A page that shares its frame frees none.
    pub(super) fn drop_standby(&mut self, need: u32, batch: u32, actions: &mut Vec<Action>) {
        let goal = self.charged().saturating_sub(need);
        let mut dropped = 0;
        while (self.charged() > goal || dropped < batch)
            && let Some(page) = self.standby.pop(&self.table)
        {
            self.evict(page);
            dropped += 1;
        }
        self.emit_drops(actions);
    }

    fn evict(&mut self, page: PageId) {
        if self.table.has(page, Flag::WasDirtied) {
            self.counters.evicted_dirty += 1;
        } else {
            self.counters.evicted_clean += 1;
        }
        if self.table.has(page, Flag::Prefetched) {
            self.counters.prefetch_wasted += 1;
            if let Some(prefetcher) = &mut self.prefetcher {
                prefetcher.wasted(page);
            }
        }
        self.free_frame(page);
        self.table.reset_flags(page);
        let to = match self.table.slot(page) {
            Some(_) => PageState::Stored,
            None => PageState::Absent,
        };
        self.set_state(page, to);
        self.drops.push(page);
    }

    /// Drops the collected pages, adjacent ones together.
    pub(super) fn emit_drops(&mut self, actions: &mut Vec<Action>) {
        self.drops.sort_unstable();
        for_runs(&self.drops, u32::MAX, |first, count| {
            actions.push(Action::Drop { first, count });
        });
        self.drops.clear();
    }

    /// Reclaims one batch ahead of need.
    pub(super) fn reclaim(&mut self, actions: &mut Vec<Action>) {
        self.free_ahead(actions);
        let before = (self.condemned.len(), self.cleaning_requests);
        self.start_cleaning(actions);
        let mut fruitful = before != (self.condemned.len(), self.cleaning_requests);
        let short = self.mark_high().saturating_sub(self.headed_for());
        if short > 0 {
            self.reclaim_batch(short.min(self.settings.preclean), actions);
            fruitful |= self.batch_progressed() || !self.fresh.is_empty();
        }
        self.flush &= self.condemned.len() > 0 || !self.fresh.is_empty();
        self.fruitless = !fruitful;
        if !self.pending.is_empty() {
            self.serve_pending(actions);
        }
    }

    /// Frames to be kept free. None without a shadow: what stands by is still in its region then,
    /// and the longer it stays the likelier it is that nobody in the kernel works on it.
    fn free_target(&self) -> u32 {
        if !self.shadow {
            return 0;
        }
        (self.limit / FREE_SHARE).min(FREE_MAX)
    }

    /// Whether frames that could be free are not.
    pub(super) fn wants_free(&self) -> bool {
        self.freeing && self.standby.len() > 0
    }

    fn free_ahead(&mut self, actions: &mut Vec<Action>) {
        if self.wants_free() {
            let short = (self.charged() + self.free_target()).saturating_sub(self.limit);
            self.drop_standby(short.min(FREE_BATCH), 0, actions);
        }
    }

    /// Takes proposals until `goal` pages are on their way out, or tries run out.
    pub(super) fn reclaim_batch(&mut self, goal: u32, actions: &mut Vec<Action>) {
        let (mut evicted, mut declined) = (0, false);
        self.batch_moved = 0;
        let mut tries = goal.saturating_mul(TRIES_PER_VICTIM);
        while (evicted < goal && tries > 0) || self.policy.leaves_with_next() {
            tries = tries.saturating_sub(1);
            match self.policy.propose() {
                None => break,
                Some(Proposal::Unreference(page)) => {
                    // A shared page would need a frame of its own to be observed: it stays where it is, and
                    // has its second chance when it is proposed for eviction.
                    let observable = !self.shadow || !self.table.has(page, Flag::Shared);
                    if self.table.state(page) == PageState::Mapped && observable {
                        self.set_state(page, PageState::Shadowed);
                        self.moves.push(page);
                        self.counters.unreferenced += 1;
                    }
                }
                Some(Proposal::Evict(page)) if self.is_sampled(page) => {
                    self.counters.sampled += 1;
                    self.policy.inserted(page, None);
                }
                Some(Proposal::Evict(page)) => match self.condemn(page, actions) {
                    Condemned::Leaves => evicted += 1,
                    Condemned::Stays => declined = true,
                    Condemned::NoFrame => {
                        self.shared_kept.push(page);
                        tries += 1;
                    }
                },
            }
        }
        self.batch_searching = tries == 0 && evicted == 0 && !declined;
        // Last of all, so that pages with frames of their own were proposed in their stead.
        while let Some(page) = self.shared_kept.pop() {
            self.policy.inserted(page, None);
        }
        self.emit_moves(actions);
    }

    /// What the executor told last of what may be written at once: used, in percent.
    #[must_use]
    pub fn write_limit_used(&self) -> u8 {
        self.write_limit_used
    }

    /// The executor tells what is used of what may be written at once.
    pub(super) fn set_write_limit(&mut self, used: u8) {
        self.write_limit_used = used;
        self.sampler.set_write_limit(used);
    }

    /// Whether the last round has brought victims nearer.
    pub(super) fn batch_progressed(&self) -> bool {
        self.batch_moved > 0 || self.batch_searching
    }

    /// Whether a victim is dirty and passed over (FlashVM, 4.2.1).
    fn is_sampled(&mut self, page: PageId) -> bool {
        let pressed = self.is_pressed();
        self.table.has(page, Flag::Dirty) && self.sampler.skips(self.now, pressed)
    }

    /// Sends a page on its way out, unless it has to stay. It must not be in the policy's order.
    pub(super) fn condemn(&mut self, page: PageId, actions: &mut Vec<Action>) -> Condemned {
        let state = self.table.state(page);
        let homeless = self.table.has(page, Flag::Dirty) && self.swap.is_full();
        if state == PageState::Overtaken || homeless {
            self.policy.touched(page, Access::Read);
            return Condemned::Stays;
        }
        if !self.own_to_leave(page, actions) {
            return Condemned::NoFrame;
        }
        if state == PageState::Mapped {
            self.moves.push(page);
        }
        self.set_state(page, PageState::Leaving);
        self.fresh.push(page);
        Condemned::Leaves
    }

    /// Moves the collected pages into the shadow, adjacent ones together.
    pub(super) fn emit_moves(&mut self, actions: &mut Vec<Action>) {
        self.moves.sort_unstable();
        self.batch_moved += u32::try_from(self.moves.len()).expect("a count of pages");
        for_runs(&self.moves, u32::MAX, |first, count| {
            actions.push(Action::Shadow { first, count });
        });
        self.moves.clear();
    }

    /// A page that was to be moved into the shadow cannot be moved now.
    pub(super) fn refused(&mut self, page: PageId) {
        let state = self.table.state(page);
        assert!(
            matches!(state, PageState::Shadowed | PageState::Leaving),
            "page {} refused a move, but it is {state:?}",
            page.0
        );
        self.counters.refused += 1;
        self.batch_moved = self.batch_moved.saturating_sub(1);
        self.set_state(page, PageState::Mapped);
        self.policy.touched(page, Access::Read);
    }

    /// The moves of the last round have been carried out: its pages go on to be cleaned, or
    /// stand by.
    pub(super) fn settle(&mut self) {
        for i in 0..self.fresh.len() {
            let page = self.fresh[i];
            if self.table.state(page) != PageState::Leaving {
                continue;
            }
            if self.table.has(page, Flag::Dirty) {
                self.set_state(page, PageState::Condemned);
                self.condemned.push(page, &self.table);
            } else {
                self.stand_by(page);
            }
        }
        self.fresh.clear();
    }

    pub(super) fn stand_by(&mut self, page: PageId) {
        self.set_state(page, PageState::Standby);
        self.standby.push(page, &self.table);
    }

    pub(super) fn set_limit(&mut self, frames: u32, shared: u32, actions: &mut Vec<Action>) {
        let resized = frames != self.limit;
        self.limit = frames;
        self.shared_limit = shared;
        if resized {
            self.resize_policy();
        }
        self.keep_limit(actions);
        self.serve_or_relieve(actions);
    }

    /// After the limit was lowered, frames are given back as soon as pages stand by.
    pub(super) fn keep_limit(&mut self, actions: &mut Vec<Action>) {
        if self.charged() > self.limit && self.standby.len() > 0 {
            self.drop_standby(self.charged() - self.limit, 0, actions);
        }
    }

    /// Frames that are free or can be had at once.
    fn available(&self) -> u32 {
        let idle = self.standby.len().saturating_sub(self.shared_leaving);
        (self.limit + idle).saturating_sub(self.charged())
    }

    /// Frames that may be used for what is only expected: a few are left to faults.
    pub(super) fn room(&self) -> u32 {
        let kept = (self.mark_high() / PREFETCH_KEEPS).max(1);
        self.available().saturating_sub(kept)
    }

    /// More frames are available than reclaim ahead of need would ever make so.
    pub(super) fn at_ease(&self) -> bool {
        self.available() > self.mark_high().saturating_mul(2)
    }

    /// Frames that will be available when everything on its way out has got there.
    pub(super) fn headed_for(&self) -> u32 {
        let leaving = u32::try_from(self.fresh.len()).expect("a count of pages");
        let coming = self.standby.len() + self.condemned.len() + self.cleaning_pages + leaving;
        let coming = coming.saturating_sub(self.shared_leaving);
        (self.limit + coming).saturating_sub(self.charged())
    }

    /// Reclaim ahead of need stops here.
    pub(super) fn mark_high(&self) -> u32 {
        (self.limit / self.settings.reserve_share).clamp(1, RESERVE_MAX)
    }

    /// Reclaim ahead of need starts once so few frames are available.
    fn mark_low(&self) -> u32 {
        self.mark_high() / 2 + 1
    }

    /// Most of the reserve is gone.
    pub(super) fn is_pressed(&self) -> bool {
        self.starved || self.available() < self.mark_high() / 4
    }

    pub(super) fn watch_marks(&mut self) {
        let free = self.limit.saturating_sub(self.charged());
        if free < self.free_target() / 4 {
            self.freeing = true;
        } else if free >= self.free_target() {
            self.freeing = false;
        }
        if self.available() < self.mark_low() {
            self.reclaiming = true;
        } else if self.available() >= self.mark_high() {
            self.reclaiming = false;
        }
    }
}
