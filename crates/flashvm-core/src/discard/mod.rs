//! Garbage collection on flash: which free clusters are discarded, when, and in commands of what
//! size (FlashVM, 4.3).
//!
//! A strategy is one file and one line in `registry`. It is told when a cluster becomes free and
//! when the swap map searches for one; it decides the fate of the cluster, and when the held
//! clusters are due. The swap map does the accounting: a cluster that is held or being discarded is
//! leased to no other process, and one that is being discarded is not written to. The accounting
//! takes at most five bytes a cluster, and nothing a slot.

mod auto;
mod dummy;
mod interval;
mod merged;
mod native;
mod registry;

pub use registry::{Discard, DiscardInfo, DiscardKind};

use crate::ids::Nanos;

/// Longest command that Linux's block layer passes on: 256 sectors (4.3), in pages.
pub const NATIVE_COMMAND_PAGES: u32 = (128 << 10) / 4096;

/// The fate of a cluster that became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Left to be overwritten: a dummy discard.
    Overwritten,
    /// Held until it is discarded, or needed because no other cluster is free.
    Held,
}

/// A discard of held clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Slots to discard now, at least one; rounded up to whole clusters.
    pub slots: u32,
    /// Most slots in one command.
    pub slots_per_command: u32,
}

/// A discard strategy. One command is in flight at a time: discards are untagged on ATA devices.
pub trait DiscardStrategy: Send {
    /// The swap map searched for a free cluster.
    fn scanned(&mut self, now: Nanos) {
        let _ = now;
    }

    /// A cluster became free at `now`.
    fn freed(&mut self, now: Nanos) -> Fate;

    /// What to discard now of the `held` slots, if anything.
    fn due(&mut self, held: u32) -> Option<Due>;

    /// A command ended `took` after it was sent.
    fn ended(&mut self, took: Nanos) {
        let _ = took;
    }
}
