//! Faults: serves them with zeros, from flash, from the pool or from the shadow, and keeps those that must wait.

use super::{Engine, PendingFault};
use crate::clusters::ClusterSource;
use crate::event::{Access, Action};
use crate::fault_cost;
use crate::ids::{Nanos, PageId};
use crate::page::{Flag, PageState};
use crate::prefetch::Whereabouts;

/// Result of an attempt to serve a fault.
enum Outcome {
    Served,
    /// The fault needs a frame and none is free.
    NoFrame,
    /// The page was zapped, and a request on it is still in flight.
    Busy,
}

impl<C: ClusterSource> Engine<C> {
    pub(super) fn fault(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) {
        self.counters.faults_total += 1;
        if self.table.has(page, Flag::Pending) {
            return;
        }
        match self.serve(page, access, actions) {
            Outcome::Served => {}
            Outcome::Busy => self.keep_waiting(page, access),
            Outcome::NoFrame => {
                self.counters.faults_stalled += 1;
                self.keep_waiting(page, access);
                if !self.starved {
                    self.starved = true;
                    self.relieve(actions);
                }
            }
        }
    }

    fn keep_waiting(&mut self, page: PageId, access: Access) {
        self.table.set(page, Flag::Pending);
        self.pending.push_back(PendingFault { page, access });
    }

    /// Serves as many waiting faults as possible.
    pub(super) fn serve_pending(&mut self, actions: &mut Vec<Action>) {
        self.starved = false;
        for _ in 0..self.pending.len() {
            let Some(fault) = self.pending.pop_front() else {
                break;
            };
            self.table.clear(fault.page, Flag::Pending);
            match self.serve(fault.page, fault.access, actions) {
                Outcome::Served => {}
                Outcome::Busy => self.keep_waiting(fault.page, fault.access),
                Outcome::NoFrame => {
                    self.table.set(fault.page, Flag::Pending);
                    self.pending.push_front(fault);
                    self.starved = true;
                    break;
                }
            }
        }
        if !self.starved {
            self.allocator_retry = None;
            self.pool_yields = false;
        }
    }

    /// Serves the waiting faults; if a fault still needs a frame, starts reclaim at once.
    pub(super) fn serve_or_relieve(&mut self, actions: &mut Vec<Action>) {
        if self.pending.is_empty() || self.allocator_naps() {
            return;
        }
        self.serve_pending(actions);
        if self.starved && self.fresh.is_empty() {
            self.relieve(actions);
        }
    }

    fn serve(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) -> Outcome {
        match self.table.state(page) {
            PageState::Absent => self.serve_zero(page, access, Whereabouts::Absent, actions),
            PageState::Stored => self.serve_stored(page, access, actions),
            PageState::Poisoned => {
                actions.push(Action::Poison { page });
                Outcome::Served
            }
            PageState::Reading => {
                self.join_read(page, access, actions);
                Outcome::Served
            }
            PageState::Mapped if access == Access::Write && self.table.has(page, Flag::Shared) => {
                self.store_to_shared(page, actions)
            }
            PageState::Mapped | PageState::Overtaken => {
                actions.push(Action::Wake { page });
                Outcome::Served
            }
            PageState::Doomed => Outcome::Busy,
            // This event began to evict the page while a store to it waited (it was shared). The store is
            // served once the outcome of the move is known, at the next tick.
            PageState::Leaving => Outcome::NoFrame,
            _ if !self.shadow && access == Access::Write && self.table.has(page, Flag::Shared) => {
                self.store_to_shared(page, actions)
            }
            _ if !self.shadow => {
                // The page is still in the region; only stores to it fault.
                actions.push(Action::Wake { page });
                Outcome::Served
            }
            PageState::Shadowed | PageState::Condemned | PageState::Standby => {
                if self.table.has(page, Flag::Shared) {
                    if !self.take_frame(actions) {
                        return Outcome::NoFrame;
                    }
                    if !self.table.state(page).is_in_shadow() {
                        // `take_frame` dropped this page to make room: gives its frame back and looks again.
                        self.frames -= 1;
                        return self.serve(page, access, actions);
                    }
                    self.unshare(page);
                }
                self.soft_fault(page, access, actions);
                Outcome::Served
            }
            PageState::Scanning | PageState::Writing => self.overtake(page, access, actions),
        }
    }

    fn serve_zero(
        &mut self,
        page: PageId,
        access: Access,
        from: Whereabouts,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        self.policy.wanted(page, access, fault_cost::SOFT);
        if !self.take_frame(actions) {
            return Outcome::NoFrame;
        }
        self.counters.faults_zero += 1;
        self.counters.zero_pages_not_read += u64::from(from == Whereabouts::Zero);
        self.map_zero(page, access, Some(access));
        self.zeros.push(page);
        self.propose_ahead(page, access, from, false);
        self.bring_in_candidates(None, actions);
        Outcome::Served
    }

    fn serve_stored(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) -> Outcome {
        let (handle, slot) = (self.table.handle(page), self.table.slot(page));
        if slot.is_some_and(|slot| self.swap.is_zero(slot)) {
            return self.serve_zero(page, access, Whereabouts::Zero, actions);
        }
        let cost = match handle {
            Some(handle) if self.pool.in_ram(handle) => fault_cost::POOL,
            _ => Nanos(self.read_time.0 + fault_cost::SOFT.0),
        };
        self.policy.wanted(page, access, cost);
        if !self.take_frame(actions) {
            return Outcome::NoFrame;
        }
        if let Some(handle) = handle {
            self.serve_packed(page, handle, access, actions);
            return Outcome::Served;
        }
        let slot = slot.expect("stored pages have a place");
        self.counters.faults_major += 1;
        self.missed_plain(page);
        self.begin_read(page, slot);
        self.table.set(page, Flag::Demanded);
        self.table.put(page, Flag::ToStore, access == Access::Write);
        self.propose_ahead(page, access, Whereabouts::Flash(slot), false);
        self.bring_in_candidates(Some(page), actions);
        if access == Access::Read
            && let Some(prefetcher) = &mut self.prefetcher
            && prefetcher.expects_store(page)
        {
            self.table.set(page, self.flag_of_expected_store());
        }
        Outcome::Served
    }

    /// Handles a fault on a page that is being read: the page goes into the region.
    fn join_read(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) {
        let hit = self.use_prefetched(page);
        if !self.table.has(page, Flag::Demanded) {
            // The fault overrides the prefetcher's expectation.
            self.table.clear(page, Flag::ToShadow);
            self.table.clear(page, Flag::ToStore);
            self.table.clear(page, Flag::StoreExpected);
            self.table.set(page, Flag::Demanded);
        }
        if access == Access::Write {
            self.table.set(page, Flag::ToStore);
        }
        if hit {
            self.counters.faults_waited += 1;
            self.propose_ahead(page, access, Whereabouts::Resident, true);
            self.bring_in_candidates(None, actions);
        }
    }

    /// Second chance: moves a page from the shadow back to the region.
    fn soft_fault(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) {
        self.counters.faults_soft += 1;
        let hit = self.use_prefetched(page);
        self.stop_leaving(page);
        self.set_state(page, PageState::Mapped);
        self.policy.touched(page, access);
        let clean = !self.table.has(page, Flag::Dirty);
        // A move would make the page writable, and the engine would no longer know that it is clean, or when it is stored to.
        let protect = (clean || self.write_bits) && !self.may_store(page, access);
        self.table.put(page, Flag::Protected, protect);
        let dropped_later = self.leaves_copy(page, actions);
        actions.push(match dropped_later || protect {
            true => Action::RestoreCopy { page, protect },
            false => Action::Restore { page },
        });
        if protect && !dropped_later {
            actions.push(Action::Drop {
                first: page,
                count: 1,
            });
        }
        if clean && !protect {
            self.count_as_stored(page, access);
        }
        if hit {
            self.propose_ahead(page, access, Whereabouts::Resident, true);
            self.bring_in_candidates(None, actions);
        }
    }

    /// Maps a copy of a page whose shadow is being scanned or written. The copy takes a frame of its own.
    fn overtake(&mut self, page: PageId, access: Access, actions: &mut Vec<Action>) -> Outcome {
        if !self.take_frame(actions) {
            return Outcome::NoFrame;
        }
        self.counters.faults_soft += 1;
        // Stores matter if the page has a clean copy: one that is being written, or one from before a scan.
        let clean = !self.table.has(page, Flag::Dirty);
        let writing = self.table.state(page) == PageState::Writing;
        let protect = (writing || clean || self.write_bits) && !self.may_store(page, access);
        self.use_prefetched(page);
        self.table.put(page, Flag::Protected, protect);
        self.set_state(page, PageState::Overtaken);
        self.policy.touched(page, access);
        if clean && !protect {
            self.count_as_stored(page, access);
        }
        actions.push(Action::RestoreCopy { page, protect });
        Outcome::Served
    }

    /// Handles a store to a page that shares its frame: the page gets a frame of its own.
    fn store_to_shared(&mut self, page: PageId, actions: &mut Vec<Action>) -> Outcome {
        if !self.take_frame(actions) {
            return Outcome::NoFrame;
        }
        if !self.table.has(page, Flag::Shared) {
            // Without a shadow: `take_frame` dropped this page, which stood by. The thread tries its store again.
            self.frames -= 1;
            actions.push(Action::Wake { page });
            return Outcome::Served;
        }
        self.unshare(page);
        self.stored_to(page, actions);
        Outcome::Served
    }

    pub(super) fn write_protect_fault(&mut self, page: PageId, actions: &mut Vec<Action>) {
        self.counters.faults_write_protect += 1;
        if self.table.has(page, Flag::Pending) {
            return;
        }
        let in_region = !self.shadow || self.table.state(page) == PageState::Mapped;
        if !in_region || !self.table.has(page, Flag::Shared) {
            self.stored_to(page, actions);
            return;
        }
        if let Outcome::NoFrame = self.store_to_shared(page, actions) {
            self.counters.faults_stalled += 1;
            self.keep_waiting(page, Access::Write);
            if !self.starved {
                self.starved = true;
                self.relieve(actions);
            }
        }
    }

    /// Handles a store to a write-protected page: removes the protection.
    fn stored_to(&mut self, page: PageId, actions: &mut Vec<Action>) {
        let state = self.table.state(page);
        match state {
            PageState::Mapped | PageState::Overtaken => {
                if !self.table.take(page, Flag::Protected) {
                    actions.push(Action::Wake { page });
                    return;
                }
                self.prove(page);
                self.policy.touched(page, Access::Write);
            }
            PageState::Shadowed | PageState::Condemned | PageState::Standby if !self.shadow => {
                self.stop_leaving(page);
                self.counters.faults_soft += 1;
                self.table.clear(page, Flag::Protected);
                self.set_state(page, PageState::Mapped);
                self.prove(page);
                self.policy.touched(page, Access::Write);
            }
            PageState::Scanning | PageState::Writing if !self.shadow => {
                self.counters.faults_soft += 1;
                self.table.clear(page, Flag::Protected);
                self.set_state(page, PageState::Overtaken);
                self.prove(page);
                self.policy.touched(page, Access::Write);
            }
            _ => {
                // The page left the region after the store was stopped: the thread tries again.
                actions.push(Action::Wake { page });
                return;
            }
        }
        self.use_prefetched(page);
        self.note_first_store(page, true);
        self.make_dirty(page);
        if let Some(prefetcher) = &mut self.prefetcher {
            prefetcher.stored(page);
        }
        actions.push(Action::Unprotect { page });
    }

    pub(super) fn referenced(&mut self, page: PageId, access: Access) {
        if self.table.state(page).is_mapped() {
            self.use_prefetched(page);
            self.policy.touched(page, access);
        }
    }

    /// Counts the first use of a prefetched page. Returns whether this was the first use.
    pub(super) fn use_prefetched(&mut self, page: PageId) -> bool {
        let first_use = self.table.take(page, Flag::Prefetched);
        self.counters.prefetch_used += u64::from(first_use);
        if self.table.state(page) != PageState::Reading {
            self.prove(page);
        }
        first_use
    }

    /// Marks a page as dirty: its contents in RAM are newer than its slot, which is freed.
    pub(super) fn make_dirty(&mut self, page: PageId) {
        self.table.set(page, Flag::WasDirtied);
        if self.table.has(page, Flag::Dirty) {
            return;
        }
        self.table.set(page, Flag::Dirty);
        self.table.clear(page, Flag::Incompressible);
        self.free_slot(page);
        if !self.table.has(page, Flag::Probation) {
            self.policy.dirtied(page);
        }
    }

    /// Frees the slot of a page, or its object in the pool, if it has one.
    pub(super) fn free_slot(&mut self, page: PageId) {
        if let Some(handle) = self.table.handle(page) {
            self.table.set_handle(page, None);
            self.remove_object(handle);
            self.pool_stuck = false;
            return;
        }
        if let Some(slot) = self.table.slot(page) {
            self.table.set_slot(page, None);
            self.swap.free(slot, &mut self.clusters);
        }
    }
}
