//! Ranges that the program zaps, moves or advises on. A range may span the whole table; chunks
//! without present pages are skipped.

use super::Engine;
use super::reclaim::Condemned;
use crate::clusters::ClusterSource;
use crate::event::{Action, Advice, Place};
use crate::ids::PageId;
use crate::page::{Flag, PageState};
use crate::prefetch::{Candidate, Kind};

/// Pages collected on advice before their reads are issued.
const WILL_NEED_BATCH: usize = 512;

impl<C: ClusterSource> Engine<C> {
    pub(super) fn range_end(&self, first: PageId, count: u32) -> u32 {
        first.0.saturating_add(count).min(self.table.pages())
    }

    pub(super) fn zap(&mut self, first: PageId, count: u32, actions: &mut Vec<Action>) {
        let end = self.range_end(first, count);
        self.unpark(first, end, actions);
        self.unlock_range(first, end);
        let mut at = first.0;
        while let Some(page) = self.table.next_present(at, end) {
            self.zap_page(page, actions);
            at = page.0 + 1;
        }
        self.collect_stale();
        self.emit_drops(actions);
        self.serve_or_relieve(actions);
    }

    /// Forgets the faults that wait for pages of the range, and wakes their threads, which retry.
    fn unpark(&mut self, first: PageId, end: u32, actions: &mut Vec<Action>) {
        let table = &mut self.table;
        self.pending.retain(|fault| {
            let outside = fault.page < first || fault.page.0 >= end;
            if !outside {
                table.clear(fault.page, Flag::Pending);
                actions.push(Action::Wake { page: fault.page });
            }
            outside
        });
        self.starved &= !self.pending.is_empty();
    }

    fn zap_page(&mut self, page: PageId, actions: &mut Vec<Action>) {
        let state = self.table.state(page);
        if state == PageState::Doomed {
            return;
        }
        self.counters.zapped += 1;
        if self.table.has(page, Flag::Prefetched) {
            self.counters.prefetch_wasted += 1;
        }
        self.end_probation(page);
        match state {
            PageState::Condemned => self.condemned.forget(),
            PageState::Standby => self.standby.forget(),
            PageState::Reading if self.table.has(page, Flag::Demanded) => {
                actions.push(Action::Wake { page });
            }
            _ => {}
        }
        let to = match state {
            PageState::Absent | PageState::Doomed | PageState::Leaving => {
                unreachable!("settled before")
            }
            PageState::Stored | PageState::Poisoned => PageState::Absent,
            PageState::Mapped => {
                self.free_frame(page);
                PageState::Absent
            }
            PageState::Shadowed | PageState::Condemned | PageState::Standby => {
                self.free_frame(page);
                if self.shadow {
                    self.drops.push(page);
                }
                PageState::Absent
            }
            PageState::Reading => PageState::Doomed,
            PageState::Scanning | PageState::Writing => {
                // In the shadow the frame stays in use until the request has ended.
                if !self.shadow {
                    self.free_frame(page);
                }
                PageState::Doomed
            }
            PageState::Overtaken => {
                self.frames -= 1;
                PageState::Doomed
            }
        };
        self.policy.removed(page);
        self.free_slot(page);
        self.table.reset_flags(page);
        self.set_state(page, to);
    }

    pub(super) fn relocate(
        &mut self,
        from: PageId,
        to: PageId,
        count: u32,
        actions: &mut Vec<Action>,
    ) {
        self.drop_stale(actions);
        self.propose_refused_again();
        let end = self.range_end(from, count);
        self.unpark(from, end, actions);
        let to_end = self.range_end(to, count);
        self.unpark(to, to_end, actions);
        let mut at = to.0;
        while let Some(page) = self.table.next_present(at, to_end) {
            // The page was zero-filled ahead since the zap.
            assert_eq!(
                self.table.state(page),
                PageState::Mapped,
                "{page:?} is in the way"
            );
            self.zap_page(page, actions);
            at = page.0 + 1;
        }
        let mut at = from.0;
        while let Some(page) = self.table.next_present(at, end) {
            self.relocate_page(page, PageId(to.0 + (page.0 - from.0)));
            at = page.0 + 1;
        }
        self.relocate_locks(from, to, end);
    }

    fn relocate_page(&mut self, from: PageId, to: PageId) {
        let state = self.table.state(from);
        assert!(
            !state.is_in_flight(),
            "page {} relocated while it is {state:?}",
            from.0
        );
        if self.table.has(from, Flag::Shared) {
            // The kernel does not move a shared page: the executor has copied it.
            self.frames += 1;
            self.unshare(from);
        }
        self.table.relocate(from, to);
        if self.table.has(to, Flag::Probation) {
            self.probation.forget();
            self.probation.push(to, &self.table);
        } else {
            self.policy.relocated(from, to);
        }
        if let Some(slot) = self.table.slot(to) {
            self.swap.reassign(slot, to);
        } else if let Some(handle) = self.table.handle(to) {
            self.pool.reassign(handle, to);
        }
        match state {
            PageState::Condemned => {
                self.condemned.forget();
                self.condemned.push(to, &self.table);
            }
            PageState::Standby => {
                self.standby.forget();
                self.standby.push(to, &self.table);
            }
            _ => {}
        }
    }

    pub(super) fn advise(
        &mut self,
        first: PageId,
        count: u32,
        advice: Advice,
        actions: &mut Vec<Action>,
    ) {
        let end = self.range_end(first, count);
        match advice {
            Advice::WillNeed => self.read_ahead(first, end, actions),
            Advice::Cold => self.for_ordered(first, end, |engine, page| {
                if !engine.table.has(page, Flag::Probation) {
                    engine.policy.cooled(page);
                }
            }),
            Advice::PageOut => {
                self.batch_moved = 0;
                self.batch_searching = false;
                self.flush = true;
                self.for_ordered(first, end, |engine, page| {
                    if engine.table.has(page, Flag::Locked) {
                        return;
                    }
                    engine.end_probation(page);
                    engine.policy.removed(page);
                    if let Condemned::NoFrame = engine.condemn(page, actions) {
                        engine.policy.inserted(page, None);
                    }
                });
                self.emit_moves(actions);
            }
            Advice::Lock => self.lock_range(first, end),
            Advice::Unlock => self.unlock_range(first, end),
        }
    }

    fn for_ordered(&mut self, first: PageId, end: u32, mut f: impl FnMut(&mut Self, PageId)) {
        let mut at = first.0;
        while let Some(page) = self.table.next_present(at, end) {
            if self.table.state(page).is_ordered() {
                f(self, page);
            }
            at = page.0 + 1;
        }
    }

    /// Reads the stored pages of the range while frames can be spared.
    fn read_ahead(&mut self, first: PageId, end: u32, actions: &mut Vec<Action>) {
        let mut room = self.room();
        let mut at = first.0;
        while room > 0
            && let Some(page) = self.table.next_present(at, end)
        {
            if self.table.state(page) == PageState::Stored {
                room -= 1;
                self.candidates.push(Candidate {
                    page,
                    place: Place::Region,
                    store: false,
                    kind: Kind::Advice,
                });
                if self.candidates.len() == WILL_NEED_BATCH {
                    self.bring_in_candidates(None, actions);
                }
            }
            at = page.0 + 1;
        }
        self.bring_in_candidates(None, actions);
    }
}
