//! What the heap of small pages asks of the process that it is in: the page pager answers.

use crate::control::ProcessStats;
use crate::flash::FlashStore;
use crate::flash::demand::DemandQueue;

/// The process around a heap.
pub(crate) trait Owner {
    /// The store.
    fn store(&self) -> &FlashStore;

    /// A queue for a read of the calling thread's, if one is free.
    fn demand_queue(&self) -> Option<DemandQueue<'_>>;

    /// The counters of the process.
    fn stats(&self) -> &'static ProcessStats;

    /// Clusters of the store, and those that nobody has.
    fn store_clusters(&self) -> (u32, u32);

    /// Takes up to so many free frames more. Returns how many; what is lacking is reclaimed, for the next time.
    fn take_frames(&self, more: u32) -> u32;

    /// Gives so many frames back.
    fn give_frames(&self, frames: u32);

    /// Promises memory to the program. Whether there is room for so many pages.
    fn commit(&self, pages: u64) -> bool;

    /// Takes a promise back.
    fn uncommit(&self, pages: u64);

    /// Ends the process.
    fn die(&self, reason: &str) -> !;
}
