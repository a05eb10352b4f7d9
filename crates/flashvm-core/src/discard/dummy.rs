//! `dummy`: a free cluster that will soon be overwritten gets no command: the overwrite tells the
//! device the same, at no cost (4.3.3). Any other free cluster gets a command of its own.

use super::interval::ScanInterval;
use super::{DiscardStrategy, Due, Fate};
use crate::ids::Nanos;

pub(super) struct Dummy {
    interval: ScanInterval,
}

impl Dummy {
    pub(super) fn new() -> Self {
        Self {
            interval: ScanInterval::new(),
        }
    }
}

impl DiscardStrategy for Dummy {
    fn scanned(&mut self, now: Nanos) {
        self.interval.scanned(now);
    }

    fn freed(&mut self, now: Nanos) -> Fate {
        if self.interval.is_short(now) {
            Fate::Overwritten
        } else {
            Fate::Held
        }
    }

    fn due(&mut self, held: u32) -> Option<Due> {
        (held > 0).then_some(Due {
            slots: 1,
            slots_per_command: u32::MAX,
        })
    }

    fn ended(&mut self, took: Nanos) {
        self.interval.ended(took);
    }
}
