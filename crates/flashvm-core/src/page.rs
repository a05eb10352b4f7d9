//! The page table: the state of each managed page, and the legal transitions.
//!
//! Flat columns, zero-initialised so that the untouched part of a huge span takes no RAM. So zero
//! means `Absent`, no flags, no slot. Each chunk of pages has a count of present pages, and each stretch of chunks a
//! count of those with present pages: range operations skip what is untouched.

use crate::ids::{PageId, SlotId};
use crate::pool::Handle;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageState {
    /// Nowhere: never touched, or zapped. Reads as zeros.
    Absent,
    /// Only in its slot on flash, or only compressed, as an object of the pool.
    Stored,
    /// Its contents are lost: every touch fails until the program zaps the page.
    Poisoned,
    /// Being read from flash; its frame is accounted.
    Reading,
    /// In the region.
    Mapped,
    /// In the shadow with its reference bit cleared, or prefetched and not touched yet; still in
    /// the policy's order.
    Shadowed,
    /// Proposed for eviction; its move into the shadow may still be refused.
    Leaving,
    /// In the shadow, waiting to be cleaned; or clean, waiting to be compressed.
    Condemned,
    /// In the shadow, being scanned for zeros, or compressed.
    Scanning,
    /// In the shadow, being written.
    Writing,
    /// In the shadow, clean: its frame can be freed at once.
    Standby,
    /// Mapped again while its shadow copy is still being scanned or written.
    Overtaken,
    /// Zapped by the program while a request on it was in flight.
    Doomed,
}

impl PageState {
    const ALL: [Self; 13] = [
        Self::Absent,
        Self::Stored,
        Self::Poisoned,
        Self::Reading,
        Self::Mapped,
        Self::Shadowed,
        Self::Leaving,
        Self::Condemned,
        Self::Scanning,
        Self::Writing,
        Self::Standby,
        Self::Overtaken,
        Self::Doomed,
    ];

    /// Whether `self -> to` is a legal transition.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        use PageState::*;
        match self {
            Absent => matches!(to, Mapped),
            Stored => matches!(to, Reading | Mapped | Absent),
            Poisoned => matches!(to, Absent),
            Reading => matches!(to, Mapped | Shadowed | Stored | Poisoned | Doomed),
            Mapped => matches!(to, Shadowed | Leaving | Absent),
            Shadowed => matches!(to, Mapped | Leaving | Absent),
            Leaving => matches!(to, Mapped | Condemned | Standby | Absent),
            Condemned => matches!(
                to,
                Mapped | Scanning | Writing | Shadowed | Standby | Absent
            ),
            Scanning => {
                matches!(
                    to,
                    Writing | Standby | Stored | Shadowed | Overtaken | Doomed
                )
            }
            Writing => matches!(to, Standby | Condemned | Overtaken | Doomed),
            Standby => matches!(to, Mapped | Shadowed | Stored | Absent),
            Overtaken => matches!(to, Mapped | Doomed),
            Doomed => matches!(to, Absent),
        }
    }

    /// Whether the page is in the region: the program accesses it without a fault.
    #[must_use]
    pub fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped | Self::Overtaken)
    }

    /// Whether the page is only in the shadow, once the actions so far are carried out.
    #[must_use]
    pub fn is_in_shadow(self) -> bool {
        matches!(
            self,
            Self::Shadowed
                | Self::Leaving
                | Self::Condemned
                | Self::Scanning
                | Self::Writing
                | Self::Standby
        )
    }

    /// Whether the page holds a frame, with no request on it in flight.
    #[must_use]
    pub fn is_resident(self) -> bool {
        matches!(
            self,
            Self::Mapped | Self::Shadowed | Self::Leaving | Self::Condemned | Self::Standby
        )
    }

    /// Whether the page is leaving or on standby.
    #[must_use]
    pub fn is_leaving(self) -> bool {
        matches!(
            self,
            Self::Leaving | Self::Condemned | Self::Scanning | Self::Writing | Self::Standby
        )
    }

    /// Whether a request on this page is in flight.
    #[must_use]
    pub fn is_in_flight(self) -> bool {
        matches!(
            self,
            Self::Reading | Self::Scanning | Self::Writing | Self::Overtaken | Self::Doomed
        )
    }

    /// Whether the page is in the policy's order.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::Mapped | Self::Shadowed | Self::Overtaken)
    }
}

/// One bit a page, beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Flag {
    /// In RAM, and the copy on flash (if any) is out of date.
    Dirty = 1,
    /// Mapped write-protected.
    Protected = 1 << 1,
    /// Read by prefetch, and not known to have been used.
    Prefetched = 1 << 2,
    /// Became dirty at least once since it came into RAM.
    WasDirtied = 1 << 3,
    /// Being read, and a thread waits for it.
    Demanded = 1 << 4,
    /// Being read, and to be mapped writable: the waiting thread is about to store, or a storing
    /// stream is expected to.
    ToStore = 1 << 5,
    /// Being read, and to be put into the shadow.
    ToShadow = 1 << 6,
    /// A fault on it waits in the engine.
    Pending = 1 << 7,
    /// Shares its frame with another process since a fork. With a shadow, a page that is cleaned or waits for that
    /// never does.
    Shared = 1 << 8,
    /// Brought in by a prefetcher, not known to have been used, and not in the policy's order.
    Probation = 1 << 9,
    /// Its copy is an object of the pool, in RAM or on flash, instead of a slot.
    Packed = 1 << 10,
    /// Its contents were compressed and did not shrink. Until it is stored to, they are not compressed again.
    Incompressible = 1 << 11,
    /// Locked by the program: not to leave RAM.
    Locked = 1 << 12,
    /// Being read; a store is expected, but will be known by comparison alone: the page keeps its slot.
    StoreExpected = 1 << 13,
}

const CHUNK_SHIFT: u32 = 10;
const STRETCH_SHIFT: u32 = 2 * CHUNK_SHIFT;

/// The columns.
pub(crate) struct PageTable {
    states: Vec<u8>,
    flags: Vec<u16>,
    /// Slot + 1, or, with [`Flag::Packed`], the pool's handle; 0 is none.
    slots: Vec<u32>,
    /// When the page left RAM, or came in on probation, by the clock of evictions.
    left: Vec<u16>,
    /// Pages that are not absent, by chunk of `1 << CHUNK_SHIFT` pages.
    present: Vec<u16>,
    /// Chunks with such a page, by stretch of `1 << STRETCH_SHIFT` pages.
    touched: Vec<u16>,
    /// Pages that are [`PageState::Stored`].
    stored: u32,
}

impl PageTable {
    pub(crate) fn new(pages: u32) -> Self {
        let n = pages as usize;
        Self {
            states: vec![0; n],
            flags: vec![0; n],
            slots: vec![0; n],
            left: vec![0; n],
            present: vec![0; (n >> CHUNK_SHIFT) + 1],
            touched: vec![0; (n >> STRETCH_SHIFT) + 1],
            stored: 0,
        }
    }

    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.states.len()).expect("built from a u32")
    }

    pub(crate) fn state(&self, page: PageId) -> PageState {
        PageState::ALL[usize::from(self.states[page.0 as usize])]
    }

    /// Sets a page's state.
    ///
    /// # Panics
    /// If the transition is not legal: a bug in the engine.
    pub(crate) fn set_state(&mut self, page: PageId, to: PageState) {
        let from = self.state(page);
        assert!(
            from.may_become(to),
            "page {}: illegal transition {from:?} -> {to:?}",
            page.0
        );
        self.put_state(page, from, to);
    }

    fn put_state(&mut self, page: PageId, from: PageState, to: PageState) {
        let present = &mut self.present[(page.0 >> CHUNK_SHIFT) as usize];
        let touched = &mut self.touched[(page.0 >> STRETCH_SHIFT) as usize];
        match (from, to) {
            (PageState::Absent, PageState::Absent) => {}
            (PageState::Absent, _) => {
                *touched += u16::from(*present == 0);
                *present += 1;
            }
            (_, PageState::Absent) => {
                *present -= 1;
                *touched -= u16::from(*present == 0);
            }
            _ => {}
        }
        self.stored += u32::from(to == PageState::Stored);
        self.stored -= u32::from(from == PageState::Stored);
        self.states[page.0 as usize] = to as u8;
    }

    /// Pages that are [`PageState::Stored`].
    pub(crate) fn stored(&self) -> u32 {
        self.stored
    }

    pub(crate) fn has(&self, page: PageId, flag: Flag) -> bool {
        self.flags[page.0 as usize] & flag as u16 != 0
    }

    pub(crate) fn set(&mut self, page: PageId, flag: Flag) {
        self.flags[page.0 as usize] |= flag as u16;
    }

    pub(crate) fn put(&mut self, page: PageId, flag: Flag, on: bool) {
        if on {
            self.set(page, flag);
        } else {
            self.clear(page, flag);
        }
    }

    pub(crate) fn clear(&mut self, page: PageId, flag: Flag) {
        self.flags[page.0 as usize] &= !(flag as u16);
    }

    /// Clears a flag; returns whether it was set.
    pub(crate) fn take(&mut self, page: PageId, flag: Flag) -> bool {
        let had = self.has(page, flag);
        self.clear(page, flag);
        had
    }

    /// Clears the flags of a page's stay in RAM. `Pending`, `Packed`, `Incompressible` and `Locked` outlive that stay.
    pub(crate) fn reset_flags(&mut self, page: PageId) {
        let kept = Flag::Pending as u16
            | Flag::Packed as u16
            | Flag::Incompressible as u16
            | Flag::Locked as u16;
        self.flags[page.0 as usize] &= kept;
    }

    /// When the page left RAM, or came in on probation, by the clock of evictions.
    pub(crate) fn left(&self, page: PageId) -> u16 {
        self.left[page.0 as usize]
    }

    pub(crate) fn set_left(&mut self, page: PageId, left: u16) {
        self.left[page.0 as usize] = left;
    }

    pub(crate) fn slot(&self, page: PageId) -> Option<SlotId> {
        if self.has(page, Flag::Packed) {
            return None;
        }
        self.slots[page.0 as usize].checked_sub(1).map(SlotId)
    }

    /// The pool's object with the contents of a page.
    pub(crate) fn handle(&self, page: PageId) -> Option<Handle> {
        self.has(page, Flag::Packed)
            .then(|| Handle(self.slots[page.0 as usize]))
    }

    pub(crate) fn set_handle(&mut self, page: PageId, handle: Option<Handle>) {
        self.put(page, Flag::Packed, handle.is_some());
        self.slots[page.0 as usize] = handle.map_or(0, |handle| handle.0);
    }

    /// Whether a page has a slot or an object of the pool.
    pub(crate) fn has_place(&self, page: PageId) -> bool {
        self.slot(page).is_some() || self.has(page, Flag::Packed)
    }

    pub(crate) fn set_slot(&mut self, page: PageId, slot: Option<SlotId>) {
        self.slots[page.0 as usize] = slot.map_or(0, |s| s.0 + 1);
    }

    /// Moves all state of a page to another, absent one.
    pub(crate) fn relocate(&mut self, from: PageId, to: PageId) {
        let state = self.state(from);
        assert_eq!(
            self.state(to),
            PageState::Absent,
            "page {}: relocation onto a page that is not absent",
            to.0
        );
        self.put_state(to, PageState::Absent, state);
        self.put_state(from, state, PageState::Absent);
        let (f, t) = (from.0 as usize, to.0 as usize);
        self.flags[t] = self.flags[f];
        self.slots[t] = self.slots[f];
        self.left[t] = self.left[f];
        self.flags[f] = 0;
        self.slots[f] = 0;
    }

    /// The first page in `from..end` that is not absent; skips chunks and stretches without present pages.
    pub(crate) fn next_present(&self, from: u32, end: u32) -> Option<PageId> {
        let after = |at: u32, shift: u32| (at | ((1 << shift) - 1)).saturating_add(1);
        let mut at = from;
        while at < end {
            if self.touched[(at >> STRETCH_SHIFT) as usize] == 0 {
                at = after(at, STRETCH_SHIFT);
            } else if self.present[(at >> CHUNK_SHIFT) as usize] == 0 {
                at = after(at, CHUNK_SHIFT);
            } else if self.states[at as usize] == PageState::Absent as u8 {
                at += 1;
            } else {
                return Some(PageId(at));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn next_present_skips_chunks_and_finds_edges() {
        let mut table = PageTable::new(5000);
        assert_eq!(table.next_present(0, 5000), None);
        for page in [0, 1023, 1024, 4999] {
            table.set_state(PageId(page), PageState::Mapped);
        }
        assert_eq!(table.next_present(0, 5000), Some(PageId(0)));
        assert_eq!(table.next_present(1, 5000), Some(PageId(1023)));
        assert_eq!(table.next_present(1025, 5000), Some(PageId(4999)));
        assert_eq!(table.next_present(1025, 4999), None);
        table.set_state(PageId(4999), PageState::Absent);
        assert_eq!(table.next_present(1025, 5000), None);
    }

    proptest! {
        /// Pages come and go in three stretches; the table finds the next one like an ordered set.
        #[test]
        fn next_present_is_that_of_a_set(
            steps in prop::collection::vec((0..3_u32, 0..3_u32, 0..3_u32), 1..60),
            from in (0..3_u32, 0..3_u32, 0..3_u32),
        ) {
            let place = |(stretch, chunk, page): (u32, u32, u32)| {
                (stretch << STRETCH_SHIFT) + (chunk << CHUNK_SHIFT) + page * 511
            };
            let pages = 3 << STRETCH_SHIFT;
            let (mut table, mut model) = (PageTable::new(pages), BTreeSet::new());
            for page in steps.into_iter().map(place) {
                if model.remove(&page) {
                    table.set_state(PageId(page), PageState::Absent);
                } else {
                    model.insert(page);
                    table.set_state(PageId(page), PageState::Mapped);
                }
            }
            let from = place(from);
            let expected = model.range(from..).next().map(|&page| PageId(page));
            prop_assert_eq!(table.next_present(from, pages), expected);
            if let Some(PageId(page)) = expected {
                prop_assert_eq!(table.next_present(from, page), None);
            }
        }
    }

    #[test]
    #[should_panic(expected = "illegal transition Absent -> Writing")]
    fn illegal_transitions_panic_with_both_states() {
        PageTable::new(1).set_state(PageId(0), PageState::Writing);
    }

    #[test]
    fn states_are_their_own_index() {
        for (i, state) in PageState::ALL.iter().enumerate() {
            assert_eq!(*state as usize, i);
        }
    }
}
