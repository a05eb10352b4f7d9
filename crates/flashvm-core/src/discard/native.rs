//! `native`: Linux 2.6.28 as the paper describes it (4.3). Every free cluster of 1 MiB is discarded
//! on its own, and the block layer splits the discard into commands of 128 KiB.

use super::{DiscardStrategy, Due, Fate, NATIVE_COMMAND_PAGES};
use crate::ids::Nanos;

pub(super) struct Native;

impl DiscardStrategy for Native {
    fn freed(&mut self, _now: Nanos) -> Fate {
        Fate::Held
    }

    fn due(&mut self, held: u32) -> Option<Due> {
        (held > 0).then_some(Due {
            slots: 1,
            slots_per_command: NATIVE_COMMAND_PAGES,
        })
    }
}
