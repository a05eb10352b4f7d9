//! Probation: prefetched pages without an observed use.
//!
//! They are in RAM, but not in the policy's order, so they evict no page that was used. Their share is
//! `limit / SHARE`, clamped to `MIN.min(limit / 4)..=MAX`; the oldest leave when there are more, or after
//! `limit / STAY` evictions: a program that streams no more gets its frames back. A page whose
//! use is seen (a fault in the shadow, a store, a stream that passes it from checkpoint to checkpoint) joins the
//! policy's order.

use super::Engine;
use super::reclaim::Condemned;
use crate::clusters::ClusterSource;
use crate::event::Action;
use crate::ids::PageId;
use crate::page::{Flag, PageState};

const SHARE: u32 = 32;
const MIN: u32 = 32;
const MAX: u32 = 4096;
const STAY: u32 = 16;

impl<C: ClusterSource> Engine<C> {
    /// Number of pages on probation that may stay.
    fn probation_share(&self) -> u32 {
        (self.limit / SHARE).clamp(MIN.min(self.limit / 4), MAX)
    }

    /// Pages on probation beyond the share: for a moment at most as many as the share. Reclaim expels them while a
    /// thread waits for its own page.
    pub(super) fn probation_excess(&self) -> u32 {
        self.probation.len().saturating_sub(self.probation_share())
    }

    /// Whether the oldest page on probation has stayed too long.
    pub(super) fn probation_is_over(&mut self) -> bool {
        let most = self.share.ticks(self.limit / STAY);
        let oldest = self.probation.oldest(&self.table);
        oldest.is_some_and(|page| self.share.clock().wrapping_sub(self.table.left(page)) > most)
    }

    /// Pages that a prefetcher may bring in now: at most half of the share, so that a stream's last window is
    /// still here while it uses the one before.
    pub(super) fn prefetch_room(&self) -> u32 {
        let share = self.probation_share();
        let left = (2 * share).saturating_sub(self.probation.len());
        self.room().min(share / 2).min(left)
    }

    /// Puts a prefetched page on probation.
    pub(super) fn put_on_probation(&mut self, page: PageId) {
        self.table.set(page, Flag::Probation);
        self.table.set_left(page, self.share.clock());
        self.probation.push(page, &self.table);
    }

    /// Removes a page from probation. Returns whether it was on probation.
    pub(super) fn end_probation(&mut self, page: PageId) -> bool {
        let was = self.table.take(page, Flag::Probation);
        if was {
            self.probation.forget();
        }
        was
    }

    /// Handles an observed use: a page on probation joins the policy's order.
    pub(super) fn prove(&mut self, page: PageId) {
        if self.end_probation(page) {
            self.policy.inserted(page, None);
            if self.table.has(page, Flag::Dirty) {
                self.policy.dirtied(page);
            }
        }
    }

    /// Evicts pages on probation that are too many or have stayed too long, at most `most`. Returns how many.
    pub(super) fn expel_ahead(&mut self, most: u32, actions: &mut Vec<Action>) -> u32 {
        let mut expelled = self.expel(self.probation_excess().min(most), actions);
        while expelled < most && self.probation_is_over() && self.expel(1, actions) == 1 {
            expelled += 1;
        }
        expelled
    }

    /// Evicts the oldest pages on probation, at most `most`. Returns how many.
    pub(super) fn expel(&mut self, most: u32, actions: &mut Vec<Action>) -> u32 {
        let mut expelled = 0;
        while expelled < most
            && let Some(page) = self.probation.oldest(&self.table)
        {
            if self.table.state(page) == PageState::Reading {
                break;
            }
            self.end_probation(page);
            match self.condemn(page, actions) {
                Condemned::Leaves => expelled += 1,
                Condemned::Stays | Condemned::Locked => {}
                Condemned::NoFrame => self.policy.inserted(page, None),
            }
        }
        expelled
    }
}
