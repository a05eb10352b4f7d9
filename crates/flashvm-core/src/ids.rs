//! Newtypes for pages, slots, clusters and requests, so that they cannot be confused.

use serde::{Deserialize, Serialize};

/// Bytes in a page, a frame and a slot.
pub const PAGE_SIZE: usize = 4096;

/// Most pages that one read or write request carries; request bitmasks are `u64`.
pub const RUN_PAGES_MAX: u32 = 64;

/// Pages of a huge page: 2 MiB of contiguous frames that one entry of the kernel's page table maps.
pub const HUGE_PAGES: u32 = 512;

/// A page of managed memory: its index in the managed address range, in pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct PageId(pub u32);

/// Contiguous pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first page.
    pub first: PageId,
    /// How many pages.
    pub count: u32,
}

/// A page-sized place on flash: its index in the store, in pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct SlotId(pub u32);

/// A cluster: contiguous slots that are allocated one after the other (FlashVM, 4.1.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct ClusterId(pub u32);

/// A request in flight between engine and executor: a read, a scan or a write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct IoId(pub u32);

/// A time that the executor reads from its clock, in nanoseconds from any fixed start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Nanos(pub u64);

impl PageId {
    /// The first page of the huge page around this one: the last multiple of [`HUGE_PAGES`].
    #[must_use]
    pub fn huge_start(self) -> Self {
        Self(self.0 / HUGE_PAGES * HUGE_PAGES)
    }

    /// The page `n` pages further on.
    #[must_use]
    pub fn plus(self, n: u32) -> Self {
        Self(self.0 + n)
    }
}

impl Run {
    /// `count` pages from `first` on.
    #[must_use]
    pub fn new(first: PageId, count: u32) -> Self {
        Self { first, count }
    }

    /// One page.
    #[must_use]
    pub fn one(page: PageId) -> Self {
        Self::new(page, 1)
    }

    /// The page after the last.
    #[must_use]
    pub fn end(self) -> PageId {
        self.first.plus(self.count)
    }

    /// Bytes of its pages.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.count as usize * PAGE_SIZE
    }

    /// Its pages, in ascending order.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (self.first.0..self.first.0 + self.count).map(PageId)
    }
}

impl SlotId {
    /// The slot `n` slots further on.
    #[must_use]
    pub fn plus(self, n: u32) -> Self {
        Self(self.0 + n)
    }
}

impl Nanos {
    /// This time and `n` nanoseconds.
    #[must_use]
    pub fn plus(self, n: Nanos) -> Self {
        Self(self.0.saturating_add(n.0))
    }

    /// Nanoseconds from `earlier` to this time; zero if `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}
