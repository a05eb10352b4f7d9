//! Observation of a sample of the pages ([`crate::shards`]), for `flashvm size`.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Action, Event};
use crate::ids::PageId;
use crate::page::{Flag, PageState};
use crate::shards::Seen;

impl<C: ClusterSource> Engine<C> {
    /// What the last event did to pages of the sample. Empty unless [`crate::Settings::shards`] is set.
    pub fn take_seen(&mut self) -> impl Iterator<Item = Seen> {
        let shards = self.shards.as_mut();
        shards
            .map(|shards| shards.take_seen())
            .into_iter()
            .flatten()
    }

    /// The sample has 2^-bits of all pages. `None` unless [`crate::Settings::shards`] is set.
    #[must_use]
    pub fn shard_bits(&self) -> Option<u32> {
        self.shards.as_ref().map(|shards| shards.bits())
    }

    /// Tells the sample of a page's new state.
    pub(super) fn note_state(&mut self, page: PageId, to: PageState) {
        let Some(shards) = &mut self.shards else {
            return;
        };
        if !shards.holds(page) {
            return;
        }
        let from = self.table.state(page);
        let has_contents = |state| !matches!(state, PageState::Absent | PageState::Doomed);
        match (has_contents(from), has_contents(to)) {
            (false, true) => shards.came(),
            (true, false) => shards.gone(page),
            _ => {}
        }
        if to.is_mapped() && !from.is_mapped() {
            shards.touch(page);
        }
    }

    /// Takes pages of the sample back into the shadow. The policy does not hear of it: it keeps them in its order, and
    /// their next touch is one more touch.
    pub(super) fn take_back(&mut self, event: &Event, actions: &mut Vec<Action>) {
        let maps = matches!(event, Event::Fault { .. } | Event::ReadDone { .. });
        let Some(mut shards) = self.shards.take_if(|_| maps) else {
            return;
        };
        shards.limit_rate(self.now);
        for _ in 0..shards.excess() {
            let Some(page) = shards.pop_oldest() else {
                break;
            };
            match self.table.state(page) {
                PageState::Mapped if !self.table.has(page, Flag::Shared) => {
                    self.set_state(page, PageState::Shadowed);
                    self.moves.push(page);
                }
                PageState::Mapped | PageState::Overtaken => shards.keep(page),
                _ => {}
            }
        }
        self.shards = Some(shards);
        self.emit_moves(actions);
    }
}
