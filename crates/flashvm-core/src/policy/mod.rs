//! Page replacement: which page to evict next.
//!
//! A policy orders the pages in RAM and proposes; the engine decides, since a page may be pinned or
//! have a request in flight. The policy learns what a pager can observe: a page was inserted,
//! touched after its reference bit was cleared, dirtied, removed. Clearing a reference bit is
//! expensive: the live pager moves the page into the shadow, where a touch faults. So a policy does
//! not clear bits itself but proposes [`Proposal::Unreference`].
//!
//! The simulator drives the same policies over traces, and can report every reference to them. Each
//! policy is described in its file and, shorter, in `docs/policies.md`; [`PolicyKind::ALL`] has
//! names and parameters.
//!
//! A policy with a history of evicted pages (CAR's B1 and B2, CRAW's ghost areas) puts a page there
//! when it proposes it. Until the frame is reused the page may return: then [`Policy::touched`]
//! reports a page of the history. A page that has left RAM is never reported that way.

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
mod observed;
mod opt;
mod parameters;
mod registry;
mod s3_fifo;
mod sieve;
mod tenure;
#[cfg(test)]
mod testing;
mod two_list;
mod wage;
mod window;

pub use blocks::BLOCK_PAGES;
pub use parameters::{Parameter, PolicyError, PolicySpec, Values};
pub use registry::{PolicyInfo, PolicyKind};

/// A policy's next step towards a free frame, for the engine to carry out or decline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Clear the reference bit of this page; the page stays in RAM, and its next touch is reported.
    Unreference(PageId),
    /// Evict this page, which has left the policy's order. If the page stays, the engine calls
    /// `touched` or `inserted(page, None)`; otherwise it was evicted.
    Evict(PageId),
}

/// Costs of flash accesses, as a policy weighs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading a page.
    pub read: Nanos,
    /// Writing a page.
    pub write: Nanos,
}

impl Costs {
    /// Large-block SLC NAND (CRAW paper, Table 1): 25 us to read, 200 us to program 2 KiB, half a
    /// page.
    pub const NAND: Self = Self {
        read: Nanos(50_000),
        write: Nanos(400_000),
    };
}

/// What a policy knows of memory and device.
#[derive(Clone, Debug)]
pub struct PolicyContext {
    /// The pages that may ever be in RAM: `0..pages`.
    pub pages: u32,
    /// The place of each page on flash, in pages; `None`: the page's number. A block is
    /// [`BLOCK_PAGES`] neighbouring places.
    pub places: Option<Arc<[u32]>>,
    /// Costs of the device.
    pub costs: Costs,
}

impl PolicyContext {
    /// Pages whose places are their numbers, on NAND.
    #[must_use]
    pub fn of_pages(pages: u32) -> Self {
        Self {
            pages,
            places: None,
            costs: Costs::NAND,
        }
    }
}

/// An area of a policy's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Its name, the paper's.
    pub name: &'static str,
    /// Its desired size, in pages.
    pub desired: f64,
    /// Its pages.
    pub pages: u32,
    /// Pages that have left RAM under its hand.
    pub evicted: u64,
}

/// A page replacement policy over index-linked pages.
pub trait Policy: Send {
    /// The number of frames from now on. Called first of all, and after every change.
    fn resized(&mut self, frames: u32) {
        let _ = frames;
    }

    /// The page of the next reported reference is referenced again at position `next_use` of the
    /// trace; `u64::MAX`: never. Called before every reference, for offline policies.
    fn foresee(&mut self, next_use: u64) {
        let _ = next_use;
    }

    /// A page out of RAM is about to come in by a fault, which costs `cost`: a frame may have to be freed for it.
    /// `inserted` follows, unless the read fails. A retried fault calls it again.
    fn wanted(&mut self, page: PageId, access: Access, cost: Nanos) {
        let _ = (page, access, cost);
    }

    /// A page came into RAM: by a fault (`Some(access)`, which counts as its first reference), or
    /// by prefetch (`None`: not referenced yet). Also ends a proposed eviction that the engine
    /// declines (`None`).
    fn inserted(&mut self, page: PageId, by: Option<Access>);

    /// A page was referenced after its bit had been cleared (in replay with full observation: at
    /// every reference); with [write bits](Self::has_write_bits), also at the first store after such a load. Also ends a
    /// proposed eviction that a touch overtook.
    fn touched(&mut self, page: PageId, access: Access);

    /// A clean page became dirty.
    fn dirtied(&mut self, page: PageId) {
        let _ = page;
    }

    /// A dirty page became clean: it has been written to flash. A page is clean before it leaves
    /// RAM.
    fn cleaned(&mut self, page: PageId) {
        let _ = page;
    }

    /// The program zapped a page, in RAM or not, or requested its eviction (`MADV_PAGEOUT`): the
    /// policy forgets the page.
    fn removed(&mut self, page: PageId);

    /// A page is not needed soon (`MADV_COLD`): make it an early victim.
    fn cooled(&mut self, page: PageId) {
        let _ = page;
    }

    /// The next step towards a free frame. `None`: no page can be evicted. Every call makes
    /// progress: there is a finite number of `Unreference` between two `Evict`.
    fn propose(&mut self) -> Option<Proposal>;

    /// Whether loads and stores are alike to this policy, and clean pages and dirty ones.
    fn ignores_stores(&self) -> bool {
        false
    }

    /// Whether each page has a write bit, which the policy clears and reads: it is told the first store after its hand has
    /// passed, to a dirty page too (CRAW, VI.B).
    fn has_write_bits(&self) -> bool {
        false
    }

    /// Whether the proposed page is evicted together with the next one.
    fn leaves_with_next(&self) -> bool {
        false
    }

    /// Whether a flash block with dirty victims is written whole: the executor first reads its
    /// pages that are not resident (BPLRU's page padding).
    fn pads_blocks(&self) -> bool {
        false
    }

    /// The areas of memory, if the policy has some; for charts and tables.
    fn areas(&self) -> Vec<Area> {
        Vec::new()
    }

    /// A page changed its address (`mremap`); it keeps its place in the order and in the history.
    fn relocated(&mut self, from: PageId, to: PageId);
}
