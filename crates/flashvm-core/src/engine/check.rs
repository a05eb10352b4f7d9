//! Checks all invariants: for tests, since it visits every present page.
//!
//! Uses no hash tables: those of std take their seed from thread-local storage, which may be
//! managed memory when a live pager checks.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::ComparedWith;
use crate::ids::PageId;
use crate::io::IoKind;
use crate::page::{Flag, PageState};
use crate::pool::BLOCK_SLOTS;
use std::collections::{BTreeMap, BTreeSet};

impl<C: ClusterSource> Engine<C> {
    /// Checks all invariants between pages, slots, frames and requests.
    ///
    /// # Panics
    /// If an invariant does not hold: a bug in the engine.
    pub fn check(&self) {
        self.swap.check();
        let flights = self.flights();
        let mut slots = BTreeMap::new();
        let (mut frames, mut shared, mut leaving) = (0, 0, 0);
        let (mut standby, mut condemned, mut probation) = (0, 0, 0);
        let mut objects = 0;
        for page in self.present_pages() {
            let state = self.table.state(page);
            let flight = flights.get(&page).copied();
            match state {
                PageState::Reading => {
                    let reads = [Some(IoKind::Read), Some(IoKind::ReadPacked)];
                    assert!(reads.contains(&flight), "{page:?}");
                }
                PageState::Scanning => assert_eq!(flight, Some(IoKind::Scan), "{page:?}"),
                PageState::Writing => assert_eq!(flight, Some(IoKind::Write), "{page:?}"),
                PageState::Doomed => assert!(flight.is_some(), "{page:?}"),
                PageState::Overtaken => {
                    assert!(
                        matches!(flight, Some(IoKind::Scan | IoKind::Write)),
                        "{page:?}"
                    );
                }
                _ => assert_eq!(flight, None, "{page:?} is {state:?}"),
            }
            let shares = u32::from(self.table.has(page, Flag::Shared));
            let to_write = matches!(
                state,
                PageState::Condemned | PageState::Scanning | PageState::Writing
            );
            assert!(
                shares == 0 || !to_write || !self.shadow,
                "{page:?} is {state:?} and shared: its write would copy it"
            );
            frames += self.frames_of(state, flight) - shares;
            shared += shares;
            leaving += shares * u32::from(state.is_leaving());
            standby += u32::from(state == PageState::Standby);
            condemned += u32::from(state == PageState::Condemned);
            if self.table.has(page, Flag::Locked) {
                let range = self.locked_range().expect("a page is locked");
                assert!((range.first.0..range.first.0 + range.count).contains(&page.0));
            }
            if self.table.has(page, Flag::Probation) {
                probation += 1;
                let unproven = matches!(
                    state,
                    PageState::Reading | PageState::Mapped | PageState::Shadowed
                );
                assert!(unproven, "{page:?} is {state:?} on probation");
            }
            self.check_contents(page, state);
            if let Some(handle) = self.table.handle(page) {
                assert_eq!(self.pool.owner(handle), Some(page), "{handle:?}");
                objects += 1;
            }
            if let Some(slot) = self.table.slot(page) {
                assert_eq!(self.swap.owner(slot), Some(page), "{slot:?}");
                assert_eq!(slots.insert(slot, page), None, "{slot:?} used twice");
            }
        }
        for io in self.ios.iter().filter(|io| io.kind == Some(IoKind::Write)) {
            for (index, &page) in (0..).zip(io.pages()) {
                let slot = io.slot.plus(index);
                assert_eq!(slots.insert(slot, page), None, "{slot:?} used twice");
            }
        }
        let locked = self.locked_in(PageId(0), self.table.pages());
        assert_eq!(locked, self.locked_pages(), "locked pages miscounted");
        self.pool.check();
        assert_eq!(objects, self.pool.objects_everywhere(), "objects lost");
        let packed = self.pool.blocks_on_flash() * BLOCK_SLOTS;
        let used = self.swap.slots_used() - packed;
        assert_eq!(slots.len(), used as usize, "slots lost");
        for &page in &self.stale {
            let state = self.table.state(page);
            assert!(
                state == PageState::Mapped,
                "{page:?} is {state:?} and has a stale copy"
            );
        }
        let stale = self.stale.len() as u32;
        assert_eq!(frames + stale, self.frames, "frames miscounted");
        assert_eq!(shared, self.shared, "shared pages miscounted");
        assert_eq!(
            leaving, self.shared_leaving,
            "leaving shared pages miscounted"
        );
        assert_eq!(standby, self.standby.len(), "standby miscounted");
        assert_eq!(condemned, self.condemned.len(), "condemned miscounted");
        assert_eq!(probation, self.probation.len(), "probation miscounted");
        let waiting: BTreeSet<PageId> = self.pending.iter().map(|fault| fault.page).collect();
        assert_eq!(waiting.len(), self.pending.len(), "a page waits twice");
        for &page in &waiting {
            assert!(
                self.table.has(page, Flag::Pending),
                "{page:?} waits unmarked"
            );
        }
    }

    fn flights(&self) -> BTreeMap<PageId, IoKind> {
        let mut flights = BTreeMap::new();
        let (mut requests, mut pages) = (0, 0);
        for io in self.ios.iter() {
            let kind = io.kind.expect("only requests in flight are listed");
            for &page in io.pages() {
                assert_eq!(
                    flights.insert(page, kind),
                    None,
                    "{page:?} is in two requests"
                );
            }
            if matches!(kind, IoKind::Scan | IoKind::Write) {
                requests += 1;
                pages += io.pages().len();
            }
        }
        assert_eq!(requests, self.cleaning_requests);
        assert_eq!(pages, self.cleaning_pages as usize);
        flights
    }

    fn frames_of(&self, state: PageState, flight: Option<IoKind>) -> u32 {
        match state {
            PageState::Absent | PageState::Stored | PageState::Poisoned => 0,
            PageState::Overtaken if self.shadow => 2,
            PageState::Doomed => {
                let read = matches!(flight, Some(IoKind::Read | IoKind::ReadPacked));
                u32::from(self.shadow || read)
            }
            _ => 1,
        }
    }

    fn check_contents(&self, page: PageId, state: PageState) {
        let dirty = self.table.has(page, Flag::Dirty);
        let placed = self.table.has_place(page);
        let to_compare = self.compared_with(page);
        assert!(
            !dirty || !placed || (self.may_compare() && to_compare.is_some()),
            "{page:?} is dirty and has a place"
        );
        match to_compare {
            Some(ComparedWith::Slot(slot)) => assert!(
                !self.swap.is_zero(slot),
                "{page:?} cannot be compared with a slot of zeros"
            ),
            Some(ComparedWith::Object(_)) => assert!(
                self.has_object(page),
                "{page:?} cannot be compared with an object that leaves"
            ),
            None => {}
        }
        match state {
            PageState::Absent | PageState::Doomed | PageState::Poisoned => {
                assert!(!dirty && !placed, "{page:?} is {state:?} but has contents");
            }
            PageState::Stored | PageState::Reading => {
                assert!(!dirty && placed, "{page:?} is {state:?} without a place");
            }
            // A clean page is there to be compressed.
            PageState::Condemned | PageState::Scanning => {
                assert!(dirty || placed, "{page:?} is {state:?} without a copy");
            }
            PageState::Writing => assert!(dirty, "{page:?} is being written but clean"),
            PageState::Overtaken => {
                let protected = self.table.has(page, Flag::Protected);
                let clean = placed && protected;
                assert!(dirty || clean, "{page:?} is clean during its request");
            }
            PageState::Standby => assert!(!dirty, "{page:?} stands by but is dirty"),
            PageState::Mapped => {
                let protected = self.table.has(page, Flag::Protected);
                let private = dirty && !self.table.has(page, Flag::Shared);
                assert!(
                    private || protected,
                    "{page:?} is clean or shared, but can be stored to"
                );
            }
            PageState::Shadowed | PageState::Leaving => {}
        }
    }
}
