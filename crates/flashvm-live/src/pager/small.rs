//! The heap of small pages, and what it asks of the pager.

use super::Pager;
use super::workers::By;
use crate::chameleon::{Chameleon, Owner};
use crate::control::{ChameleonSettings, Process, ProcessStats};
use crate::flash::demand::DemandQueue;
use crate::flash::{Layer, UncheckedStore};
use flashvm_core::PAGE_SIZE;

impl Pager {
    /// The heap of small pages, if there is one.
    #[inline]
    pub(crate) fn chameleon(&self) -> Option<&Chameleon> {
        self.chameleon.as_ref()
    }

    /// First address and bytes of small pages, and their settings.
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

    pub(crate) fn stats(&self) -> &'static ProcessStats {
        self.process.stats()
    }

    /// This process in the run.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

impl Owner for Pager {
    fn store(&self) -> &UncheckedStore {
        self.store.below()
    }

    /// If no queue is free, calls the handler to open one more.
    fn demand_queue(&self) -> Option<DemandQueue<'_>> {
        let queue = self.demand.take();
        if queue.is_none() && self.demand.has_room() {
            self.workers.handler.ring();
        }
        queue
    }

    fn stats(&self) -> &'static ProcessStats {
        self.process.stats()
    }

    fn store_clusters(&self) -> (u32, u32) {
        self.control.clusters()
    }

    fn take_frames(&self, more: u32) -> u32 {
        let mut locked = self.lock();
        let (usage, budget) = (locked.usage(), &self.process);
        budget.grow(locked.grant.wanted_for_small(budget, &usage, more));
        let got = locked.grant.take_for_small(budget, &usage, more);
        self.hand_over(&mut locked, By::Program);
        if locked.is_synchronous() {
            // No other thread reclaims.
            drop(self.work(locked));
        }
        got
    }

    fn give_frames(&self, frames: u32) {
        let mut locked = self.lock();
        locked.grant.give_from_small(frames);
        self.hand_over(&mut locked, By::Program);
    }

    fn commit(&self, pages: u64) -> bool {
        self.process.commit_patiently(pages)
    }

    fn uncommit(&self, pages: u64) {
        self.process.uncommit(pages);
    }

    fn die(&self, reason: &str) -> ! {
        Self::die(self, reason)
    }
}
