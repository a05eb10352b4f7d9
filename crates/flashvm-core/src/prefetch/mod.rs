//! Prefetching: selects pages to bring in with the page that a thread waits for.
//!
//! A prefetcher proposes candidates, best first. The engine takes the candidates that are not
//! resident, as long as there are frames, and joins those with contiguous slots into single reads.
//! Pages of a stream that are about to leave stay.

use crate::event::{Access, Place};
use crate::ids::{PageId, SlotId};

mod contiguous;
mod modern;
mod native;
mod recorded;
mod stride;
#[cfg(test)]
mod testing;

pub(crate) use recorded::Recorded;
pub use registry::{PrefetcherInfo, PrefetcherKind};

mod registry;

/// Where the contents of a page are, as far as a prefetcher needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In RAM or on its way there.
    Resident,
    /// In RAM, in the shadow, and about to leave.
    Leaving,
    /// Compressed in RAM: no read.
    Pool,
    /// On flash in this slot. Compressed pages share slots.
    Flash(SlotId),
    /// A page of zeros, kept as a flag of its slot: no I/O.
    Zero,
    /// Nowhere: never touched, or zapped. Reads as zeros if it is managed.
    Absent,
    /// Beyond the last page of the region.
    Outside,
}

/// State of a slot, as far as a prefetcher needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotView {
    /// Free.
    Free,
    /// Bad: a write to it failed.
    Bad,
    /// In use by this page (which may be resident as well).
    Page(PageId),
    /// Beyond the end of the store, or in a cluster of another process.
    Outside,
}

/// The state that a prefetcher may inspect.
pub trait View {
    /// Where a page is.
    fn page(&self, page: PageId) -> Whereabouts;
    /// What is in a slot.
    fn slot(&self, slot: SlotId) -> SlotView;
    /// Number of pages that a prefetcher may bring in now without evicting pages in use.
    fn room(&self) -> u32;
    /// Whether enough frames are free that no eviction is near.
    fn at_ease(&self) -> bool;
}

/// The fault that triggers prefetching.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// The page that was touched.
    pub page: PageId,
    /// Load or store.
    pub access: Access,
    /// Where it was found.
    pub from: Whereabouts,
    /// The page had been prefetched into the shadow: no I/O was needed.
    pub hit: bool,
}

/// A page to bring in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The page.
    pub page: PageId,
    /// Into the region (trusted: no fault when it is touched) or into the shadow (its first
    /// touch is reported, as `Demand::hit`).
    pub place: Place,
    /// A store is expected: in the region the page is mapped writable and counts as dirty at once,
    /// which saves the fault that would report the store.
    pub store: bool,
    /// Why its use is expected.
    pub kind: Kind,
}

/// Why a page is brought in ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A neighbour on flash or in the address space (FlashVM, 4.1.3).
    Neighbour,
    /// At the stride of the last faults (FlashVM, 4.1.3).
    Stride,
    /// The next page of a stream.
    Stream,
    /// A neighbour of a fault outside of streams.
    Guess,
    /// Next in the order of an earlier run.
    Recorded,
    /// The program has announced its use (`MADV_WILLNEED`).
    Advice,
}

impl Kind {
    /// Whether the page stays out of the policy's order until its use is seen.
    #[must_use]
    pub fn on_probation(self) -> bool {
        matches!(self, Self::Stream | Self::Guess | Self::Recorded)
    }
}

/// Pages that a stream has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The earliest of them in the stream's direction.
    pub first: PageId,
    /// Distance in pages; negative for a stream that runs downwards.
    pub stride: i32,
    /// Their number.
    pub count: u32,
}

/// A prefetcher.
pub trait Prefetcher: Send {
    /// Appends candidates for this demand to `out`, best first. Candidates that are resident or
    /// outside are skipped by the engine; those that are `Absent` or `Zero` are zero-filled, and those of a stream that
    /// are `Leaving` stay.
    fn demand(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>);

    /// The pages that the stream of the last `demand` is now known to have passed.
    fn passed(&mut self) -> Option<Passed> {
        None
    }

    /// Called after the `demand` of a load from a page on flash: whether to map the page writable
    /// and count it as dirty at once, because a store to it is expected.
    fn expects_store(&mut self, page: PageId) -> bool {
        let _ = page;
        false
    }

    /// Reports a store to a write-protected page.
    fn stored(&mut self, page: PageId) {
        let _ = page;
    }

    /// Reports the eviction of a prefetched page without a use.
    fn wasted(&mut self, page: PageId) {
        let _ = page;
    }
}
