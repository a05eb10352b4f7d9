//! The engine's page states against the model memory.

use super::Simulator;
use super::executor::FlightKind;
use flashvm_core::{PageId, PageState};

impl Simulator {
    /// Compares the engine with the model.
    pub(super) fn check(&mut self) {
        self.engine.check();
        let reading: usize = self
            .flights
            .values()
            .filter(|flight| flight.kind == FlightKind::Read)
            .map(|flight| flight.pages.len())
            .sum();
        let frames = self.engine.frames_in_use();
        assert_eq!(self.memory.frames() + reading, frames as usize, "frames");
        let limit = self.engine.frames_limit();
        assert!(
            frames <= limit.max(self.frames_excused),
            "{frames} frames of {limit}"
        );
        self.frames_excused = self.frames_excused.min(frames);
        for page in (0..self.config.pages).map(PageId) {
            let state = self.engine.page_state(page);
            let mapped = self.memory.mapped(page);
            if self.config.shadow {
                assert_eq!(mapped.is_some(), state.is_mapped(), "{page:?} is {state:?}");
            }
            if let Some(mapped) = mapped
                && state.is_mapped()
            {
                let protected = self.engine.is_protected(page);
                assert_eq!(mapped.protected, protected, "{page:?} is {state:?}");
            }
            if state == PageState::Stored {
                self.check_stored(page);
            }
        }
    }

    /// What is only on flash is what was last stored; without any store it is zeros.
    fn check_stored(&self, page: PageId) {
        let truth = self.truth.get(&page).copied().unwrap_or(0);
        let slot = self.engine.slot_of(page).expect("stored pages have a slot");
        let version = self.store.slot(slot).unwrap_or(0);
        let is_zero = self.engine.is_zero_slot(slot);
        let version = if is_zero { 0 } else { version };
        assert_eq!(version, truth, "{page:?} in {slot:?} is stale or lost");
    }
}
