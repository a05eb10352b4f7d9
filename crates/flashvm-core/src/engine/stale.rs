//! Stale copies: what soft faults leave in the shadow.
//!
//! A soft fault copies its page back into the region ([`EngineConfig::copies_back`](crate::EngineConfig::copies_back)).
//! A move would interrupt the other processors that run the process, once a page. The copies left in the shadow are
//! dropped together, with one interrupt. Until then each holds a frame. They are dropped before pages move into the
//! shadow, when a frame is needed, when the program changes its mappings, and at a fork.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::Action;
use crate::ids::PageId;
use crate::page::Flag;

/// Most stale copies: `limit / STALE_SHARE`, clamped to `1..=STALE_MAX`.
const STALE_SHARE: u32 = 128;
pub(super) const STALE_MAX: u32 = 64;

impl<C: ClusterSource> Engine<C> {
    /// Whether this mapped page has a stale copy in the shadow.
    #[must_use]
    pub fn is_stale(&self, page: PageId) -> bool {
        self.stale.contains(&page)
    }

    /// The pages with stale copies in the shadow.
    #[must_use]
    pub fn stale_copies(&self) -> &[PageId] {
        &self.stale
    }

    /// Takes a frame for the copy of a page that returns to the region. `false`: it has to be moved.
    pub(super) fn leaves_copy(&mut self, page: PageId, actions: &mut Vec<Action>) -> bool {
        if !self.copies_back || self.table.has(page, Flag::Shared) {
            return false;
        }
        let most = (self.limit / STALE_SHARE).clamp(1, STALE_MAX);
        if self.stale.len() >= most as usize || self.charged() >= self.limit {
            self.drop_stale(actions);
        }
        let room = self.charged() < self.limit;
        if room {
            self.frames += 1;
            self.stale.push(page);
        }
        room
    }

    /// Drops all stale copies.
    pub(super) fn drop_stale(&mut self, actions: &mut Vec<Action>) {
        if !self.stale.is_empty() {
            self.collect_stale();
            self.emit_drops(actions);
        }
    }

    /// Puts all stale copies among the pages that the next call of `emit_drops` drops.
    pub(super) fn collect_stale(&mut self) {
        self.frames -= self.stale.len() as u32;
        self.drops.append(&mut self.stale);
    }
}
