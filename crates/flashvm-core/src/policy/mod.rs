//! Page replacement: which page goes next.
//!
//! A policy orders the pages that are in RAM and proposes; the engine disposes (a page may be
//! pinned, or have a request in flight). It learns what a pager can learn: a page was inserted,
//! touched after its reference bit was cleared, dirtied, removed. Clearing a reference bit costs
//! something real: the live pager moves the page into the shadow, where a touch faults. That is
//! why a policy does not clear bits in silence but proposes [`Proposal::Unreference`].

use crate::event::Access;
use crate::ids::PageId;

mod clock;
mod fifo;
mod list;
mod two_list;

pub use registry::{PolicyInfo, PolicyKind};

mod registry;

/// What a policy asks the engine to do next in order to free a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Clear the reference bit of this page; it stays in RAM, and its next touch is reported.
    Unreference(PageId),
    /// Evict this page. It has left the policy's order; the engine answers with `removed` when
    /// it is gone, or with `inserted` or `touched` if it has to stay.
    Evict(PageId),
}

/// A page replacement policy over index-linked pages.
pub trait Policy: Send {
    /// A page came into RAM: by a fault (`Some(access)`, which counts as its first reference),
    /// or by prefetch (`None`: not referenced yet).
    fn inserted(&mut self, page: PageId, by: Option<Access>);

    /// A page was referenced after its bit had been cleared (or, in replay with full sight, at
    /// every reference). Also ends a proposed eviction that the program overtook.
    fn touched(&mut self, page: PageId, access: Access);

    /// A clean page became dirty.
    fn dirtied(&mut self, page: PageId) {
        let _ = page;
    }

    /// A dirty page became clean: its contents are on flash.
    fn cleaned(&mut self, page: PageId) {
        let _ = page;
    }

    /// A page left RAM, by eviction or because the program gave it up.
    fn removed(&mut self, page: PageId);

    /// A page is not wanted soon (`MADV_COLD`): make it an early victim.
    fn cooled(&mut self, page: PageId) {
        let _ = page;
    }

    /// What to do next to free a frame. `None`: nothing can be evicted at all. Every call makes
    /// progress: a finite number of `Unreference` lies between two `Evict`.
    fn propose(&mut self) -> Option<Proposal>;

    /// A page changed its address (`mremap`) and keeps its place in the order.
    fn relocated(&mut self, from: PageId, to: PageId);
}
