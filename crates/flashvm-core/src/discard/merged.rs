//! `merged`: gathers free clusters over many scans, wherever they lie, and discards them with one
//! command that takes a list of ranges (4.3.2).

use super::{DiscardStrategy, Due, Fate};
use crate::ids::Nanos;

pub(super) struct Merged {
    batch: u32,
}

impl Merged {
    /// Gathers `batch` slots.
    pub(super) fn new(batch: u32) -> Self {
        Self { batch }
    }
}

impl DiscardStrategy for Merged {
    fn freed(&mut self, _now: Nanos) -> Fate {
        Fate::Held
    }

    fn due(&mut self, held: u32) -> Option<Due> {
        (held >= self.batch).then_some(Due {
            slots: self.batch,
            slots_per_command: self.batch,
        })
    }
}
