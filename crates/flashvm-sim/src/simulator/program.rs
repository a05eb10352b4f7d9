//! What the program does besides its loads and stores: it drops, moves and advises memory, forks, and gets another
//! budget.

use super::{Layout, Outcome, Simulator};
use flashvm_core::{Access, Advice, Event, PageId, PageState};

/// Whether a locked page may be in this state.
pub(super) fn stays(state: PageState) -> bool {
    state.is_mapped() || state == PageState::Shadowed
}

impl Simulator {
    /// The program zaps a range.
    pub fn discard(&mut self, first: PageId, count: u32) {
        self.zap(first, count);
        self.poll_threads();
    }

    /// A thread zaps pages that others touch meanwhile: pages that they have created since the
    /// pager was told are dropped as well. Pages that are only in the region then read as zeros.
    pub fn drop_unreported(&mut self, first: PageId, count: u32) {
        if !self.config.shadow || self.placement.is_parked() {
            return;
        }
        for page in (first.0..first.0 + count).map(PageId) {
            if self.memory.mapped(page).is_some()
                && self.engine.page_state(page) == PageState::Mapped
                && self.engine.slot_of(page).is_none()
            {
                self.memory.zap(page);
                self.truth.remove(&page);
                self.kept.remove(&page);
                self.unreported.insert(page);
            }
        }
    }

    /// Sets the program's mappings.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Moves that were carried out and reported as failed.
    #[must_use]
    pub fn moves_misreported(&self) -> u64 {
        self.placement.moves_misreported()
    }

    /// Zaps a range; no thread runs before the next step.
    fn zap(&mut self, first: PageId, count: u32) {
        self.forget_parked(first, count);
        for page in (first.0..first.0 + count).map(PageId) {
            self.truth.remove(&page);
            self.lost.remove(&page);
            self.kept.remove(&page);
            self.unreported.remove(&page);
            self.memory.zap(page);
            let in_shadow = self.engine.page_state(page).is_in_shadow();
            let to_drop = in_shadow || self.placement.is_parked_on(page, 1);
            if self.config.shadow && to_drop && !self.memory.shadow_holds(page) {
                // It was on its way there, parked. A kernel accepts dropping a missing page.
                self.memory.map_shadow(page, 0);
            }
        }
        self.tell(Event::Zap { first, count });
    }

    /// The program moves a range onto one that it zaps; the two do not overlap.
    pub fn relocate(&mut self, from: PageId, to: PageId, count: u32) {
        self.zap(to, count);
        loop {
            while self.placement.is_parked() {
                self.retry_parked();
            }
            if !self.engine.in_flight(from, count) && !self.engine.in_flight(to, count) {
                break;
            }
            assert!(self.advance(), "a request in flight never ends");
            // A page may have come in ahead of use meanwhile.
            self.zap(to, count);
        }
        // Shared pages are copied.
        let excused = self.engine.frames_in_use() + self.engine.pages_shared();
        self.frames_excused = self.frames_excused.max(excused);
        for i in 0..count {
            let (from, to) = (from.plus(i), to.plus(i));
            self.memory.relocate(from, to, self.engine.is_stale(from));
            if self.unreported.remove(&from) {
                self.unreported.insert(to);
            }
            if let Some(version) = self.truth.remove(&from) {
                self.truth.insert(to, version);
            }
            if self.lost.remove(&from) {
                self.lost.insert(to);
            }
            if self.kept.remove(&from) {
                self.kept.insert(to);
            }
        }
        self.tell(Event::Relocate { from, to, count });
        self.poll_threads();
    }

    /// The program gives advice.
    pub fn advise(&mut self, first: PageId, count: u32, advice: Advice) {
        self.tell(Event::Advise {
            first,
            count,
            advice,
        });
        self.poll_threads();
    }

    /// The program locks a range, if a quarter of the frames holds it with what is locked already, and touches it.
    pub fn lock(&mut self, first: PageId, count: u32) {
        if self.engine.locked_pages_with(first, count) > self.engine.frames_limit() / 4 {
            return;
        }
        self.advise(first, count, Advice::Lock);
        for page in (0..count).map(|i| first.plus(i)) {
            let done = self.access(page, Access::Read) == Outcome::Done;
            // Without a shadow a touch does not stop a page that is leaving: it is kept once it has come back.
            if done && stays(self.engine.page_state(page)) {
                self.kept.insert(page);
            }
        }
    }

    /// The program unlocks a range.
    pub fn unlock(&mut self, first: PageId, count: u32) {
        self.kept
            .retain(|page| *page < first || page.0 >= first.0 + count);
        self.advise(first, count, Advice::Unlock);
    }

    /// The budget changes. A quarter of it is for locked pages; without room for them all are unlocked.
    pub fn limit(&mut self, frames: u32) {
        if let Some(locked) = self.engine.locked_range()
            && self.engine.locked_pages() > frames / 4
        {
            self.unlock(locked.first, locked.count);
        }
        self.frames_excused = self.engine.frames_in_use();
        let shared = match self.rng.below(3) {
            0 => self.rng.below_u32(1 + self.engine.pages_shared()),
            _ => u32::MAX,
        };
        self.tell(Event::Limit { frames, shared });
        self.poll_threads();
    }

    /// The process forks, once nothing is in flight. The child's engine is a copy of this one: a
    /// fresh one that replays the same events.
    ///
    /// # Panics
    /// If this run is not recorded.
    pub fn fork(&mut self) -> Self {
        self.tell(Event::Drain { on: true });
        loop {
            self.quiesce();
            if !self.engine.is_draining() {
                break;
            }
            self.tell(Event::Reclaim);
        }
        let seed = self.rng.next_u64();
        let store = self.store.clone();
        let config = self.config.clone();
        let mut child = Self::on(store, Some(self.process), config, self.device.clone(), seed)
            .expect("the configuration was valid for the parent");
        let steps = self
            .recorded
            .as_ref()
            .expect("only a recorded run can fork");
        for step in steps {
            child
                .engine
                .clusters_mut()
                .inner_mut()
                .remember(&step.clusters);
            child
                .engine
                .handle(step.now, &step.event, &mut child.actions);
            assert_eq!(child.actions, step.actions, "the copy differs");
            child.actions.clear();
        }
        child.engine_log();
        (self.has_forked, child.has_forked) = (true, true);
        child.memory = if self.config.protects {
            self.memory.protect_all();
            self.memory.clone()
        } else {
            self.memory.copied()
        };
        // What could not leave: the child has a copy of it.
        child.pool = self.pool.clone();
        child.truth.clone_from(&self.truth);
        child.lost.clone_from(&self.lost);
        child.unreported.clone_from(&self.unreported);
        child.layout = self.layout;
        child.faults = self.faults;
        child.now = self.now;
        child.versions = u64::from(child.process) << 32;
        child.frames_excused = self.frames_excused;
        child.checking = self.checking;
        child.recorded.clone_from(&self.recorded);
        self.tell(Event::Forked);
        child.tell(Event::Forked);
        // A child does not inherit locks.
        if let Some(locked) = child.engine.locked_range() {
            child.unlock(locked.first, locked.count);
        }
        self.poll_threads();
        child
    }

    /// Other processes have left frames that this one shared: they are its own from now on, and
    /// count towards a limit that grows with them.
    pub fn own_what_nobody_shares(&mut self) {
        if self.placement.is_parked() {
            return;
        }
        for page in (0..self.config.pages).map(PageId) {
            let resident = self.engine.page_state(page).is_resident();
            if resident && self.engine.is_shared(page) && !self.memory.is_shared(page) {
                let frames = self.engine.frames_limit() + 1;
                let shared = u32::MAX;
                self.frames_excused += 1;
                self.tell(Event::Limit { frames, shared });
                // Using the limit may have moved it.
                if self.engine.is_shared(page) {
                    let (first, count) = (page, 1);
                    self.tell(Event::Owned { first, count });
                }
            }
        }
    }
}
