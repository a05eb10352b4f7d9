//! Garbage collection on flash: which free clusters the device is told of, when, and in how
//! large commands (FlashVM, 4.3).
//!
//! A strategy is one file and one line in `registry`. It is told when a cluster comes free and
//! when the swap map looks for one; it says what becomes of the cluster, and when what is held
//! is due. The swap map keeps the books: a cluster that is held for a discard, or is being
//! discarded, is not lent to anybody else, and one that is being discarded is not written to.
//! That takes five bytes a cluster at most, and nothing for its slots.

mod auto;
mod dummy;
mod interval;
mod merged;
mod native;
mod registry;

pub use registry::{Discard, DiscardInfo, DiscardKind};

use crate::ids::Nanos;

/// Longest command that Linux's block layer lets through: 256 sectors (4.3), in pages.
pub const NATIVE_COMMAND_PAGES: u32 = (128 << 10) / 4096;

/// What becomes of a cluster that has come free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is left to be overwritten: a dummy discard.
    Overwritten,
    /// It is held until it has been discarded, or is needed.
    Held,
}

/// How held clusters are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Slots that are discarded now, whole clusters, at least one.
    pub slots: u32,
    /// Most slots of one command.
    pub slots_per_command: u32,
}

/// A way to discard. Commands go out one after the other: they are untagged on ATA devices.
pub trait DiscardStrategy: Send {
    /// The swap map looked for a free cluster.
    fn scanned(&mut self, now: Nanos) {
        let _ = now;
    }

    /// A cluster has come free at `now`.
    fn freed(&mut self, now: Nanos) -> Fate;

    /// Whether something of the slots that are held is due.
    fn due(&mut self, held: u32) -> Option<Due>;

    /// A command has ended, `took` after it was sent.
    fn ended(&mut self, took: Nanos) {
        let _ = took;
    }
}
