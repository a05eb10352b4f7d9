//! What the pager tells a report ([`crate::control`]): the kind of each fault, and which code had it or asked for memory.

use super::{Locked, Pager};
use crate::control::{Interrupted, Sight};
use flashvm_core::{Nanos, PAGE_SIZE};

/// Less memory is not worth a sample of the code that asks for it.
const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The engine's counts of faults by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultKinds {
    flash: u64,
    pool: u64,
    soft: u64,
    zero: u64,
    ahead: u64,
}

impl FaultKinds {
    pub(super) fn of(locked: &Locked) -> Self {
        let counters = locked.engine.counters();
        Self {
            flash: counters.faults_major,
            pool: counters.faults_pool,
            soft: counters.faults_soft,
            zero: counters.faults_zero,
            ahead: counters.prefetch_used,
        }
    }

    /// The kind of the fault that was handled between two counts.
    pub(super) fn kind(self, after: Self) -> Sight {
        if after.flash > self.flash {
            Sight::FromFlash
        } else if after.pool > self.pool {
            Sight::FromPool
        } else if after.soft > self.soft && after.ahead > self.ahead {
            Sight::Ahead
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
    /// Notes which code has asked for the memory from `start` to `end`, if it is much.
    pub(crate) fn note_memory(&self, at: Interrupted, start: usize, end: usize) {
        let bytes = end.saturating_sub(start);
        if bytes < MEMORY_BYTES_MIN || !self.settings.report {
            return;
        }
        let pages = u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX);
        if let Some(first) = self.page_at(start) {
            self.process.sample_memory(at, first, pages);
        }
    }

    /// Counts a major fault for the samples of stacks.
    pub(super) fn count_major(&self, now: Nanos, at: Option<Interrupted>) {
        if let Some(at) = at {
            self.process.sample_stack(now, at);
        }
    }
}
