//! The engine's page states against the model memory.

use super::Simulator;
use super::executor::FlightKind;
use super::program::stays;
use flashvm_core::pool;
use flashvm_core::{PAGE_SIZE, PageId, PageState, Place, TRANSIT_PAGES_MAX};

impl Simulator {
    /// Compares the engine with the model.
    pub(super) fn check(&mut self) {
        self.engine.check();
        let (memory, engine) = (&self.memory, &self.engine);
        self.unreported
            .retain(|&page| memory.mapped(page).is_none() && engine.page_state(page).is_mapped());
        for &page in &self.kept {
            let state = self.engine.page_state(page);
            assert!(stays(state), "{page:?} is locked, and {state:?}");
        }
        if self.placement.is_parked() {
            // Memory lags behind the engine's decisions.
            return;
        }
        let reading: usize = self
            .flights
            .values()
            .filter(|flight| flight.kind == FlightKind::Read)
            .map(|flight| flight.pages.len())
            .sum();
        let blocks = self.flights.values();
        let returning = blocks.filter(|flight| flight.kind == FlightKind::ReadBlock);
        let returning = returning.map(|flight| self.store.image(flight.slot));
        let frames_of_pool = self.pool.frames()
            + returning
                .map(|image| crate::pool::frames(&image))
                .sum::<usize>();
        let frames = self.engine.frames_in_use();
        let shared = self.engine.pages_shared();
        let held = self.memory.frames() + frames_of_pool + self.unreported.len();
        assert_eq!(held + reading, (frames + shared) as usize, "frames");
        let limit = self.engine.frames_limit();
        let transit = if self.has_forked {
            TRANSIT_PAGES_MAX
        } else {
            0
        };
        assert!(
            frames <= limit.max(self.frames_excused) + transit,
            "{frames} frames of {limit}"
        );
        self.frames_excused = self.frames_excused.min(frames);
        for page in (0..self.config.pages).map(PageId) {
            let state = self.engine.page_state(page);
            let mapped = self.memory.mapped(page);
            if self.config.shadow {
                let there = mapped.is_some() || self.unreported.contains(&page);
                assert_eq!(there, state.is_mapped(), "{page:?} is {state:?}");
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
            // Only the region is checked: a page in the shadow counts as unshared since its eviction, as its write
            // gives it a frame of its own.
            assert!(
                self.engine.is_shared(page) || !self.memory.shares(Place::Region, page),
                "{page:?} is {state:?} in a frame that others share, and counted as its own"
            );
        }
    }

    /// A stored page has the contents of the program's last store; zeros if there was none.
    fn check_stored(&self, page: PageId) {
        let truth = self.truth.get(&page).copied().unwrap_or(0);
        if let Some(place) = self.engine.packed_at(page) {
            let version = match place {
                pool::PackedAt::Pool(object) => self.pool.get(object),
                pool::PackedAt::Flash(slot, object) => {
                    let skip = object.offset % PAGE_SIZE as u32;
                    let found = self.store.packed(slot, skip, object.bytes);
                    found.unwrap_or_else(|| panic!("{page:?} is not in {slot:?}"))
                }
            };
            assert_eq!(version, truth, "{page:?} is stale or lost");
            return;
        }
        let slot = self.engine.slot_of(page).expect("stored pages have a slot");
        let version = self.store.slot(slot).unwrap_or(0);
        let is_zero = self.engine.is_zero_slot(slot);
        let version = if is_zero { 0 } else { version };
        assert_eq!(version, truth, "{page:?} in {slot:?} is stale or lost");
    }
}
