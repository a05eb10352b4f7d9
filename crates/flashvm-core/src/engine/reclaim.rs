//! Reclaim: from the policy's proposals to free frames.
//!
//! The pipeline is that of VMS and NT. An unreferenced page stays with the policy, in the shadow. A
//! proposed page is condemned, cleaned if it is dirty, and stays on standby until a frame is
//! needed. A touch takes a page back from any of these states.

use super::Engine;
use super::pagein::for_runs;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action};
use crate::ids::PageId;
use crate::page::{Flag, PageState};
use crate::policy::Proposal;
use crate::sampling::Skipped;

/// Frames freed together when one is needed, so that drops come in runs: min(DROP_BATCH, limit /
/// DROP_SHARE).
const DROP_BATCH: u32 = 32;
const DROP_SHARE: u32 = 256;
/// Frames kept free ahead of need, so that no fault has to drop pages first: limit / FREE_SHARE, at
/// most FREE_MAX.
const FREE_SHARE: u32 = 128;
const FREE_MAX: u32 = 512;
/// Pages dropped ahead of need in one batch.
const FREE_BATCH: u32 = 32;
/// Proposals of one batch, for each page it wants to evict.
const TRIES_PER_VICTIM: u32 = 4;
/// Pages that one search for clean ones looks at.
const CLEAN_LOOKS: u32 = 4096;
/// Available frames that prefetch leaves to faults: upper mark / PREFETCH_KEEPS, at least one.
const PREFETCH_KEEPS: u32 = 8;
/// The least reserve is at most limit / RESERVE_MIN_SHARE.
const RESERVE_MIN_SHARE: u32 = 16;
/// Most frames kept free or on standby ahead of need.
const RESERVE_MAX: u32 = 8192;

/// The result of an attempt to evict a page.
pub(super) enum Condemned {
    /// The page is leaving.
    Leaves,
    /// The page stays in the policy's order.
    Stays,
    /// The page is locked, and set aside.
    Locked,
    /// The page shares its frame, and there is none of its own with which it could leave. The caller
    /// returns the page to the policy's order.
    NoFrame,
}

impl<C: ClusterSource> Engine<C> {
    /// Accounts for one more frame; drops standby pages if necessary.
    pub(super) fn take_frame(&mut self, actions: &mut Vec<Action>) -> bool {
        if self.charged() >= self.limit {
            self.drop_stale(actions);
        }
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

    /// Drops standby pages until it has freed `need` frames and dropped `batch` pages, or none is
    /// left. A page that shares its frame frees none.
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

    /// Counts a page that leaves RAM.
    pub(super) fn count_eviction(&mut self, page: PageId) {
        self.note_leaving(page);
        if self.table.has(page, Flag::WasDirtied) {
            self.counters.evicted_dirty += 1;
        } else {
            self.counters.evicted_clean += 1;
            self.note_first_store(page, false);
        }
        if self.table.has(page, Flag::Prefetched) {
            self.counters.prefetch_wasted += 1;
            if let Some(prefetcher) = &mut self.prefetcher {
                prefetcher.wasted(page);
            }
        }
    }

    fn evict(&mut self, page: PageId) {
        self.count_eviction(page);
        self.free_frame(page);
        self.table.reset_flags(page);
        let to = if self.table.has_place(page) {
            PageState::Stored
        } else {
            PageState::Absent
        };
        self.set_state(page, to);
        self.drops.push(page);
    }

    /// Drops the collected pages; one action covers adjacent pages.
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
        let progress = |engine: &Self| {
            let leaving = engine.pool.blocks_leaving();
            (engine.condemned.len(), engine.cleaning_requests, leaving)
        };
        let before = progress(self);
        self.start_cleaning(actions);
        let mut fruitful = before != progress(self);
        if self.expel_ahead(FREE_BATCH, actions) > 0 {
            fruitful = true;
            self.emit_moves(actions);
        }
        let short = self.mark_high().saturating_sub(self.headed_for());
        if short > 0 {
            self.reclaim_batch(short.min(self.settings.preclean), actions);
            fruitful |= self.batch_progressed() || !self.fresh.is_empty();
        }
        if !fruitful
            && self.cleaning_requests == 0
            && self.condemned.len() > 0
            && !self.swap.is_full()
        {
            // No page comes to the run any more.
            self.clean_run(actions);
            fruitful = true;
        }
        self.flush &= self.condemned.len() > 0 || !self.fresh.is_empty();
        self.fruitless = !fruitful;
        if !self.pending.is_empty() && !self.allocator_naps() {
            self.serve_pending(actions);
        }
    }

    /// Frames to keep free. None without a shadow: a standby page is then still in the region, and
    /// the longer it stands by, the less likely the kernel is working on it.
    fn free_target(&self) -> u32 {
        if !self.shadow {
            return 0;
        }
        (self.limit / FREE_SHARE).min(FREE_MAX)
    }

    /// Whether standby pages should be dropped to free frames.
    pub(super) fn wants_free(&self) -> bool {
        self.freeing && self.standby.len() > 0
    }

    fn free_ahead(&mut self, actions: &mut Vec<Action>) {
        if self.wants_free() {
            let short = (self.charged() + self.free_target()).saturating_sub(self.limit);
            self.drop_standby(short.min(FREE_BATCH), 0, actions);
        }
    }

    /// Takes proposals until `goal` pages are leaving, or the tries are used up.
    pub(super) fn reclaim_batch(&mut self, goal: u32, actions: &mut Vec<Action>) {
        let (mut evicted, mut declined, mut proposed_all) = (0, false, false);
        self.batch_moved = 0;
        let pressed = self.is_pressed();
        self.sampler.begin_scan(self.now, pressed);
        let mut tries = goal.saturating_mul(TRIES_PER_VICTIM);
        while (evicted < goal && tries > 0) || self.policy.leaves_with_next() {
            tries = tries.saturating_sub(1);
            match self.policy.propose() {
                // Only pages on probation are left.
                None if self.expel(1, actions) == 1 => evicted += 1,
                None => {
                    self.pool_yields |= self.starved && !self.refused.is_empty();
                    self.propose_refused_again();
                    proposed_all = true;
                    break;
                }
                Some(Proposal::Unreference(page)) => {
                    // Observing a shared page would take a frame of its own: the page stays, and
                    // has its second chance when it is proposed for eviction.
                    let observable = !self.table.has(page, Flag::Locked)
                        && (!self.shadow || !self.table.has(page, Flag::Shared));
                    if self.table.state(page) == PageState::Mapped && observable {
                        self.set_state(page, PageState::Shadowed);
                        self.moves.push(page);
                        self.counters.unreferenced += 1;
                    }
                }
                Some(Proposal::Evict(page)) if self.is_sampled(page) => {
                    self.counters.sampled += 1;
                    match self.sampler.skipped() {
                        Skipped::Inactive => self.policy.inserted(page, None),
                        Skipped::Active => self.policy.inserted(page, Some(Access::Write)),
                        Skipped::Kept => self.skipped.push(page),
                    }
                }
                Some(Proposal::Evict(page)) => match self.condemn(page, actions) {
                    Condemned::Leaves => evicted += 1,
                    Condemned::Stays => declined = true,
                    Condemned::Locked => {}
                    Condemned::NoFrame => {
                        self.shared_kept.push(page);
                        tries += 1;
                    }
                },
            }
        }
        if evicted == 0 && declined && self.swap.is_full() {
            // The proposed pages are dirty, and have no place to go.
            evicted = self.expel(goal, actions);
            evicted += self.evict_clean(goal - evicted, actions);
        }
        self.batch_searching = tries == 0 && evicted == 0 && !declined && !proposed_all;
        // The oldest last, so that it is the next victim.
        while let Some(page) = self.skipped.pop() {
            self.policy.inserted(page, None);
            self.policy.cooled(page);
        }
        // Last, so that the policy proposed pages with frames of their own first.
        while let Some(page) = self.shared_kept.pop() {
            self.policy.inserted(page, None);
        }
        self.emit_moves(actions);
    }

    /// Evicts clean pages wherever the policy has them, and looks at up to [`CLEAN_LOOKS`] pages for that: some
    /// policies would propose dirty ones for ever. Returns how many.
    fn evict_clean(&mut self, goal: u32, actions: &mut Vec<Action>) -> u32 {
        let mut evicted = 0;
        for _ in 0..CLEAN_LOOKS {
            if evicted == goal {
                break;
            }
            let Some(page) = self.table.next_present(self.clean_hand, self.table.pages()) else {
                if std::mem::replace(&mut self.clean_hand, 0) == 0 {
                    break;
                }
                continue;
            };
            self.clean_hand = page.0 + 1;
            let state = self.table.state(page);
            let ordered = matches!(state, PageState::Mapped | PageState::Shadowed);
            let kept = [Flag::Probation, Flag::Locked]
                .into_iter()
                .any(|flag| self.table.has(page, flag));
            if !ordered || kept || self.is_homeless(page) {
                continue;
            }
            self.policy.removed(page);
            match self.condemn(page, actions) {
                Condemned::Leaves => evicted += 1,
                Condemned::Stays | Condemned::Locked => {
                    unreachable!("it has a place and is not locked")
                }
                Condemned::NoFrame => self.policy.inserted(page, None),
            }
        }
        evicted
    }

    /// The last reported use of the write limit's burst, in percent.
    #[must_use]
    pub fn write_limit_used(&self) -> u8 {
        self.write_limit_used
    }

    /// The executor reports the use of the write limit's burst.
    pub(super) fn set_write_limit(&mut self, used: u8) {
        self.write_limit_used = used;
        self.sampler.set_write_limit(used);
    }

    /// Whether the last batch made progress towards victims.
    pub(super) fn batch_progressed(&self) -> bool {
        self.batch_moved > 0 || self.batch_searching
    }

    /// Whether a victim is dirty and skipped by sampling (FlashVM, 4.2.1).
    fn is_sampled(&mut self, page: PageId) -> bool {
        let pressed = self.is_pressed();
        self.table.has(page, Flag::Dirty) && self.sampler.skips(self.now, pressed)
    }

    /// Starts the eviction of a page, unless it has to stay. The page must not be in the policy's
    /// order.
    pub(super) fn condemn(&mut self, page: PageId, actions: &mut Vec<Action>) -> Condemned {
        let state = self.table.state(page);
        if state == PageState::Overtaken || self.is_homeless(page) {
            self.policy.touched(page, Access::Read);
            return Condemned::Stays;
        }
        if self.table.has(page, Flag::Locked) {
            self.refused.push(page);
            return Condemned::Locked;
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

    /// Moves the collected pages into the shadow; one action covers adjacent pages.
    pub(super) fn emit_moves(&mut self, actions: &mut Vec<Action>) {
        if !self.moves.is_empty() {
            self.drop_stale(actions);
        }
        self.moves.sort_unstable();
        self.batch_moved += u32::try_from(self.moves.len()).expect("a count of pages");
        for_runs(&self.moves, u32::MAX, |first, count| {
            actions.push(Action::Shadow { first, count });
        });
        self.moves.clear();
    }

    /// The executor could not move a page into the shadow.
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
        if state == PageState::Leaving {
            self.refused.push(page);
        } else {
            self.policy.touched(page, Access::Read);
        }
    }

    /// Returns the refused pages to the policy's order.
    pub(super) fn propose_refused_again(&mut self) {
        while let Some(page) = self.refused.pop() {
            let ordered = matches!(
                self.table.state(page),
                PageState::Mapped | PageState::Shadowed
            );
            if ordered && !self.table.has(page, Flag::Probation) {
                self.policy.touched(page, Access::Read);
            }
        }
    }

    /// The moves of the last batch have been carried out: its pages are condemned, or stand by.
    pub(super) fn settle(&mut self) {
        for i in 0..self.fresh.len() {
            let page = self.fresh[i];
            if self.table.state(page) != PageState::Leaving {
                continue;
            }
            if self.table.has(page, Flag::Dirty) || self.keeps_clean(page) {
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

    /// A page stays: it leaves the queue of condemned pages, or of those on standby. The caller changes its state.
    pub(super) fn stop_leaving(&mut self, page: PageId) {
        match self.table.state(page) {
            PageState::Condemned => self.condemned.forget(),
            PageState::Standby => self.standby.forget(),
            _ => {}
        }
    }

    pub(super) fn set_limit(&mut self, frames: u32, shared: u32, actions: &mut Vec<Action>) {
        let resized = frames != self.limit;
        self.limit = frames;
        self.share.resized(frames);
        self.shared_limit = shared;
        if resized {
            self.resize_policy();
        }
        self.keep_limit(actions);
        self.serve_or_relieve(actions);
    }

    /// After the limit was lowered: frees frames as soon as pages stand by.
    pub(super) fn keep_limit(&mut self, actions: &mut Vec<Action>) {
        if self.charged() > self.limit {
            self.drop_stale(actions);
        }
        if self.charged() > self.limit && self.standby.len() > 0 {
            self.drop_standby(self.charged() - self.limit, 0, actions);
        }
    }

    /// Frames that are free or on standby.
    fn available(&self) -> u32 {
        let idle = self.standby.len().saturating_sub(self.shared_leaving);
        (self.limit + idle).saturating_sub(self.charged())
    }

    /// Frames that prefetch may use: a few are left to faults.
    pub(super) fn room(&self) -> u32 {
        let kept = (self.mark_high() / PREFETCH_KEEPS).max(1);
        self.available().saturating_sub(kept)
    }

    /// Whether frames are plentiful: available > 2 * upper mark.
    pub(super) fn at_ease(&self) -> bool {
        self.available() > self.mark_high().saturating_mul(2)
    }

    /// Frames that will be available once all leaving pages have left.
    pub(super) fn headed_for(&self) -> u32 {
        let coming =
            self.standby.len() + self.condemned.len() + self.cleaning_pages + self.fresh_pages();
        let coming = coming.saturating_sub(self.shared_leaving);
        (self.limit + coming).saturating_sub(self.charged())
    }

    /// Pages whose move into the shadow is not known yet.
    fn fresh_pages(&self) -> u32 {
        u32::try_from(self.fresh.len()).expect("a count of pages")
    }

    /// Reclaim ahead of need stops at this number of available frames.
    pub(super) fn mark_high(&self) -> u32 {
        let least = self
            .settings
            .reserve_min
            .min(self.limit / RESERVE_MIN_SHARE);
        let share = self.limit / self.settings.reserve_share;
        share.max(least).clamp(1, RESERVE_MAX)
    }

    /// Reclaim ahead of need starts at this number of available frames.
    fn mark_low(&self) -> u32 {
        self.mark_high() / 2 + 1
    }

    /// Whether most of the reserve is used.
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
        // A run of writes is not continued page by page while it is under way: what it frees counts as available, unless
        // the limit was lowered. A run that is not whole is not due while half of the reserve is there without it.
        let (ahead, unwritten) = match self.collects_runs() && self.charged() <= self.limit {
            true => (self.headed_for(), self.condemned.len() + self.fresh_pages()),
            false => (self.available(), 0),
        };
        if ahead < self.mark_low() {
            self.reclaiming = true;
        } else if ahead >= self.mark_high() && ahead.saturating_sub(unwritten) >= self.mark_low() {
            self.reclaiming = false;
            // While a fault waits for a frame, its search ends when the policy has proposed every page once. Pages that
            // came back at every event would be proposed for ever.
            if !self.starved {
                self.propose_refused_again();
            }
        }
    }
}
