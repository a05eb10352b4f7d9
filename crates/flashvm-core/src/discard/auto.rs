//! `auto`: the paper's system. Dummy discards while t_s is small, otherwise merged ones (4.3.3).

use super::dummy::Dummy;
use super::merged::Merged;
use super::{DiscardStrategy, Due, Fate};
use crate::ids::Nanos;

pub(super) struct Auto {
    dummy: Dummy,
    merged: Merged,
}

impl Auto {
    /// Gathers `batch` slots when it merges.
    pub(super) fn new(batch: u32) -> Self {
        Self {
            dummy: Dummy::new(),
            merged: Merged::new(batch),
        }
    }
}

impl DiscardStrategy for Auto {
    fn scanned(&mut self, now: Nanos) {
        self.dummy.scanned(now);
    }

    fn freed(&mut self, now: Nanos) -> Fate {
        self.dummy.freed(now)
    }

    fn due(&mut self, held: u32) -> Option<Due> {
        self.merged.due(held)
    }

    fn ended(&mut self, took: Nanos) {
        self.dummy.ended(took);
    }
}
