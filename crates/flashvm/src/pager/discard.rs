//! Carrying out discards. A device that refuses one is told of no more, and its user once.

use super::{Pager, eprint_line};
use flashvm_core::Event;

impl Pager {
    /// Carries out the discard that the engine has asked for: range after range, as the kernel
    /// has no list of them. Takes its time, with nothing locked.
    pub(super) fn discard_slots(&self) {
        let ranges = self.lock().engine.discard_ranges().to_vec();
        let failed = ranges
            .iter()
            .find_map(|&(first, count)| self.store.discard(first, count).err());
        if let Some(error) = failed {
            eprint_line(&format!(
                "flashvm: process {}: the flash store refuses discards ({error}): none are sent any more",
                std::process::id()
            ));
        }
        let mut core = self.lock();
        let refused = failed.is_some();
        self.apply(&mut core, Event::Discarded { refused });
    }
}
