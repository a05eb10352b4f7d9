//! What the pager tells a report ([`crate::control`]): each fault with its kind, first stores, and pages that leave.

use super::{Locked, Pager};
use crate::control::{Interrupted, Sight};
use flashvm_core::{Access, Action, Event, Nanos};

/// The engine's counts of faults by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultKinds {
    flash: u64,
    pool: u64,
    soft: u64,
    zero: u64,
}

impl FaultKinds {
    pub(super) fn of(locked: &Locked) -> Self {
        let counters = locked.engine.counters();
        Self {
            flash: counters.faults_major,
            pool: counters.faults_pool,
            soft: counters.faults_soft,
            zero: counters.faults_zero,
        }
    }

    /// The kind of the fault that was handled between two counts.
    fn kind(self, after: Self) -> Sight {
        if after.flash > self.flash {
            Sight::FromFlash
        } else if after.pool > self.pool {
            Sight::FromPool
        } else if after.soft > self.soft {
            Sight::Soft
        } else if after.zero > self.zero {
            Sight::Zero
        } else {
            Sight::Waited
        }
    }
}

impl Pager {
    /// Notes what an event, which the engine has just handled, and its actions mean for pages. `before`: the engine's
    /// counts before it.
    pub(super) fn keep_journal(
        &self,
        locked: &Locked,
        before: FaultKinds,
        event: &Event,
        actions: &[Action],
    ) {
        match *event {
            Event::Fault { page, access, .. } => {
                let store = access == Access::Write;
                self.process
                    .see(before.kind(FaultKinds::of(locked)), store, page, 1);
            }
            Event::WriteProtectFault { page } => self.process.see(Sight::FirstStore, true, page, 1),
            _ => {}
        }
        for action in actions {
            // The shadow also drops its copy of a page that is mapped again.
            if let Action::Drop { first, count } = *action
                && !locked.engine.page_state(first).is_mapped()
            {
                self.process.see(Sight::Left, false, first, count);
            }
        }
    }

    /// Counts a major fault for the samples of stacks.
    pub(super) fn count_major(&self, now: Nanos, at: Option<Interrupted>) {
        if let Some(at) = at {
            self.process.sample_stack(now, at);
        }
    }
}
