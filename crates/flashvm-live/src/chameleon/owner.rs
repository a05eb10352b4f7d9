//! Services that the heap of small pages needs from its process; the page pager implements them.

use crate::control::ProcessStats;
use crate::flash::UncheckedStore;
use crate::flash::demand::DemandQueue;

/// The process around a heap.
pub(crate) trait Owner {
    /// The store below the checksum layer: the engine keeps the checksums of small pages itself.
    fn store(&self) -> &UncheckedStore;

    /// A queue for one read by the calling thread, if one is free.
    fn demand_queue(&self) -> Option<DemandQueue<'_>>;

    /// The counters of the process.
    fn stats(&self) -> &'static ProcessStats;

    /// Numbers of all clusters of the store and of the free ones.
    fn store_clusters(&self) -> (u32, u32);

    /// Takes up to `more` free frames and returns how many. Starts to reclaim the missing ones for the next call.
    fn take_frames(&self, more: u32) -> u32;

    /// Returns `frames` frames to the page pager.
    fn give_frames(&self, frames: u32);

    /// Commits memory to the program. Returns whether `pages` pages have room.
    fn commit(&self, pages: u64) -> bool;

    /// Revokes a commitment of `pages` pages.
    fn uncommit(&self, pages: u64);

    /// Ends the process.
    fn die(&self, reason: &str) -> !;
}
