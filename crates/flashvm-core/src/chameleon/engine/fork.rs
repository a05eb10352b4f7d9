//! fork: when it may happen, and what parent and child do afterwards.
//!
//! Overlays are shared mappings, and the parent's other threads run on during a fork. So the engine
//! first unmaps all pages that are not pinned: nobody can store to a page, and a thread that touches one
//! waits. A pinned page stays for the call that the kernel works on; what the kernel stores meanwhile, the child may have
//! or not. The executor copies the used frames for the child. Then parent and child map their pages
//! again by soft faults. Neither process writes to blocks that hold pages; both release their empty
//! blocks.

use super::{Action, Counters, Engine, Host, Outcome};
use crate::ClusterSource;

impl<C: ClusterSource> Engine<C> {
    /// Waits for all requests in flight, then unmaps all pages but those on which the kernel works for a call.
    pub(super) fn prepare_fork(&mut self, host: &mut impl Host, frozen: &mut bool) -> Action {
        *frozen = true;
        self.frozen = true;
        if self.round.is_some() || self.reads > 0 {
            return Action::Await;
        }
        self.unmap_unpinned(host);
        Action::Done(Outcome::Quiet)
    }

    /// The parent continues.
    pub(super) fn resume(&mut self, forked: bool) -> Action {
        if forked {
            self.flash.forked(&mut self.clusters);
        }
        self.frozen = false;
        self.announce();
        Action::Done(Outcome::Over)
    }

    /// The child continues as a process of its own. It has no other thread.
    pub(super) fn become_child(&mut self, host: &mut impl Host) -> Action {
        assert!(
            self.frozen && self.round.is_none() && self.reads == 0,
            "a request is in flight during a fork"
        );
        self.flash.forked(&mut self.clusters);
        self.flash.reset_counters();
        self.counters = Counters::default();
        self.mappings.most_seen = 0;
        // The frames of pinned pages are still the parent's.
        self.pins.clear();
        self.unmap_unpinned(host);
        self.frozen = false;
        self.waiters = 0;
        self.announced = false;
        Action::Done(Outcome::Over)
    }
}
