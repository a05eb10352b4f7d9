//! Page replacement: which page goes next.
//!
//! A policy orders the pages that are in RAM and proposes; the engine disposes (a page may be
//! pinned, or have a request in flight). It learns what a pager can learn: a page was inserted,
//! touched after its reference bit was cleared, dirtied, removed. Clearing a reference bit costs
//! something real: the live pager moves the page into the shadow, where a touch faults. That is
//! why a policy does not clear bits in silence but proposes [`Proposal::Unreference`].
//!
//! The simulator drives the same policies over traces, where they can be shown every reference.
//! What each of them is stands in its file and, in a paragraph each, in `docs/policies.md`; their
//! names and parameters stand in [`PolicyKind::ALL`].
//!
//! A policy that remembers pages that have left RAM (CAR's B1 and B2, CRAW's ghost areas) puts a page
//! there as it proposes it. Until its frame is used the page may come back: then it is
//! [`Policy::touched`] while it is remembered, which no page is that is out of RAM.

use crate::event::Access;
use crate::ids::{Nanos, PageId};
use std::sync::Arc;

mod adaptive;
mod arc;
mod blocks;
mod bplru;
mod car;
mod cfclock;
mod cflru;
mod clc;
mod clock;
mod craw;
mod fab;
mod fifo;
mod list;
mod lists;
mod lru;
mod lru_wsr;
mod nru;
mod opt;
mod parameters;
mod registry;
mod s3_fifo;
mod sieve;
#[cfg(test)]
mod testing;
mod two_list;
mod wage;
mod window;

pub use blocks::BLOCK_PAGES;
pub use parameters::{Parameter, PolicyError, PolicySpec, Values};
pub use registry::{PolicyInfo, PolicyKind};

/// What a policy asks the engine to do next in order to free a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Clear the reference bit of this page; it stays in RAM, and its next touch is reported.
    Unreference(PageId),
    /// Evict this page. It has left the policy's order. If it has to stay, the engine answers with
    /// `touched`, or `inserted` by nobody; a page that is not heard of again is gone.
    Evict(PageId),
}

/// What an access to flash costs, as a policy weighs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading a page.
    pub read: Nanos,
    /// Writing a page.
    pub write: Nanos,
}

impl Costs {
    /// Large-block SLC NAND (CRAW paper, Table 1): 25 us to read, 200 us to program 2 KiB.
    pub const NAND: Self = Self {
        read: Nanos(50_000),
        write: Nanos(400_000),
    };
}

/// What a policy is made for.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Pages that may ever be in RAM: `0..pages`.
    pub pages: u32,
    /// Where each page lies on flash, in pages, if that is not its own number: pages of a block of
    /// [`BLOCK_PAGES`] are neighbours there.
    pub places: Option<Arc<[u32]>>,
    /// What the device costs.
    pub costs: Costs,
}

impl Ground {
    /// Pages that lie where their numbers say, on NAND.
    #[must_use]
    pub fn of_pages(pages: u32) -> Self {
        Self {
            pages,
            places: None,
            costs: Costs::NAND,
        }
    }
}

/// A page replacement policy over index-linked pages.
pub trait Policy: Send {
    /// So many frames may be used from now on. Comes first of all, and again when that changes.
    fn resized(&mut self, frames: u32) {
        let _ = frames;
    }

    /// The page of the reference that is reported next is referenced again by number `next_use` of
    /// the trace; `u64::MAX` if it is not. Comes before every reference, to policies that are
    /// offline.
    fn foresee(&mut self, next_use: u64) {
        let _ = next_use;
    }

    /// A page that is not in RAM is about to come in by a fault: a frame may have to be freed for it.
    /// `inserted` follows, unless it cannot be read; may be said more than once.
    fn wanted(&mut self, page: PageId, access: Access) {
        let _ = (page, access);
    }

    /// A page came into RAM: by a fault (`Some(access)`, which counts as its first reference),
    /// or by prefetch (`None`: not referenced yet). Also ends a proposed eviction that the engine
    /// passes over (`None`).
    fn inserted(&mut self, page: PageId, by: Option<Access>);

    /// A page was referenced after its bit had been cleared (or, in replay with full sight, at
    /// every reference). Also ends a proposed eviction that the program overtook.
    fn touched(&mut self, page: PageId, access: Access);

    /// A clean page became dirty.
    fn dirtied(&mut self, page: PageId) {
        let _ = page;
    }

    /// A dirty page became clean: its contents are on flash. A page is clean before it is gone.
    fn cleaned(&mut self, page: PageId) {
        let _ = page;
    }

    /// The program gave a page up, in RAM or not, or has it put on flash by itself: nothing known
    /// of it holds any more.
    fn removed(&mut self, page: PageId);

    /// A page is not wanted soon (`MADV_COLD`): make it an early victim.
    fn cooled(&mut self, page: PageId) {
        let _ = page;
    }

    /// What to do next to free a frame. `None`: nothing can be evicted at all. Every call makes
    /// progress: a finite number of `Unreference` lies between two `Evict`.
    fn propose(&mut self) -> Option<Proposal>;

    /// Whether the page that was just proposed leaves together with the next that will be.
    fn leaves_with_next(&self) -> bool {
        false
    }

    /// Whether a flash block of which dirty pages leave is to be written whole: its pages that are
    /// not in RAM are read before (BPLRU's page padding).
    fn pads_blocks(&self) -> bool {
        false
    }

    /// The sizes that the parts of memory are to have, by the paper's names for them, in pages; for
    /// pictures.
    fn desired_sizes(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// A page changed its address (`mremap`) and keeps its place in the order, and in what is
    /// remembered.
    fn relocated(&mut self, from: PageId, to: PageId);
}
