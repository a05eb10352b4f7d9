//! fork: when it may happen, and what both processes do after it.
//!
//! Overlays are shared mappings, and the parent's other threads run on beside a fork. So before it all is
//! unmapped, in one call: nobody can store to any page, and whoever touches one waits. The executor copies
//! the frames in use for the child. Parent and child then take their pages back by soft faults. Blocks that
//! hold pages of both are written by neither; both give up the empty ones.

use super::{Action, Counters, Engine, Host, Outcome};
use crate::ClusterSource;

impl<C: ClusterSource> Engine<C> {
    /// Lets everything under way end, then unmaps all pages.
    pub(super) fn prepare_fork(&mut self, host: &mut impl Host, frozen: &mut bool) -> Action {
        *frozen = true;
        self.frozen = true;
        if self.round.is_some() || self.reads > 0 {
            return Action::Await;
        }
        self.unmap_all(host);
        Action::Done(Outcome::Quiet)
    }

    /// In the parent: goes on.
    pub(super) fn resume(&mut self, forked: bool) -> Action {
        if forked {
            self.flash.forked(&mut self.clusters);
        }
        self.frozen = false;
        self.announce();
        Action::Done(Outcome::Over)
    }

    /// In the child: goes on, as a process of its own with other clusters. It has no other thread.
    ///
    /// # Panics
    /// If something is under way.
    pub fn become_child(&mut self, clusters: C) {
        assert!(
            self.frozen && self.round.is_none() && self.reads == 0,
            "something is under way in a fork"
        );
        self.clusters = clusters;
        self.flash.forked(&mut self.clusters);
        self.flash.reset_counters();
        self.counters = Counters::default();
        self.mappings.most_seen = 0;
        self.pins.clear();
        self.frozen = false;
        self.waiters = 0;
        self.announced = false;
    }
}
