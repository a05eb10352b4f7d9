//! What the heap of small pages asks of the pager, beside frames.

use super::Pager;
use crate::chameleon::Chameleon;
use crate::control::{ChameleonSettings, Process, ProcessStats};
use crate::flash::FlashStore;
use crate::flash::demand::DemandQueue;
use flashvm_core::PAGE_SIZE;

impl Pager {
    /// The heap of small pages, if there is one.
    #[inline]
    pub(crate) fn chameleon(&self) -> Option<&Chameleon> {
        self.chameleon.as_ref()
    }

    /// Where the addresses of small pages begin, how many bytes they are, and what was asked of them.
    #[must_use]
    pub fn small_pages(&self) -> Option<(usize, usize, ChameleonSettings)> {
        self.chameleon.as_ref().map(|heap| {
            let (base, bytes) = heap.addresses();
            (base, bytes, heap.settings())
        })
    }

    /// Bytes of RAM that all processes of the run may use together.
    #[must_use]
    pub fn budget_bytes(&self) -> usize {
        self.control.budget_frames() as usize * PAGE_SIZE
    }

    /// Bytes of the largest file that the pager writes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn store(&self) -> &FlashStore {
        &self.store
    }

    /// A queue for a read of the calling thread's. If none is free the handler is called to open one more.
    pub(crate) fn demand_queue(&self) -> Option<DemandQueue<'_>> {
        let queue = self.demand.take();
        if queue.is_none() && self.demand.has_room() {
            self.workers.handler.ring();
        }
        queue
    }

    pub(crate) fn stats(&self) -> &'static ProcessStats {
        self.process.stats()
    }

    /// Clusters of the store, and those that nobody has.
    pub(crate) fn store_clusters(&self) -> (u32, u32) {
        self.control.clusters()
    }

    /// This process in the run.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn commit_pages(&self, pages: u64) -> bool {
        self.process.commit_patiently(pages)
    }

    pub(crate) fn uncommit_pages(&self, pages: u64) {
        self.process.uncommit(pages);
    }
}
