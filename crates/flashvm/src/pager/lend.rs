//! Frames of the process' grant that Chameleon's heap has, and other things that it needs of the pager.
//!
//! Heap and page pager can each have half of the process' frames, and beyond that what the other does not
//! use. When the page pager is short, the heap is told how many it may keep, and gives back the others.
//! When the heap has less than its half, it claims frames; the page pager reclaims them, and the heap gets
//! them when it asks again. Only free frames change hands.

use super::{Locked, Pager};
use crate::chameleon::Chameleon;
use crate::control::{ChameleonSettings, Process, ProcessStats};
use crate::flash::FlashStore;
use crate::flash::demand::DemandQueue;
use flashvm_core::PAGE_SIZE;
use std::sync::atomic::Ordering;

/// Frames beyond those in use that the page pager keeps.
const SPARE: u32 = 32;

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
            self.wake_handler();
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

    /// Lends the heap up to so many free frames more. Returns how many. What is lacking is reclaimed.
    pub(crate) fn lend_frames(&self, more: u32) -> u32 {
        let mut locked = self.lock();
        let buffers = self.buffers_reserved(&locked);
        let in_use = self.frames_in_use(&locked);
        let share = self.process.limit();
        let wanted = (in_use + more + SPARE).min(share);
        let granted = self.process.grow(wanted.max(self.process.granted()));
        let most = Self::heap_share(&locked, granted.min(share).saturating_sub(buffers));
        let due = most.saturating_sub(locked.lent).min(more);
        let got = granted.saturating_sub(in_use).min(due);
        locked.lent += got;
        locked.claimed = due - got;
        self.hand_over(&mut locked, false);
        if self.is_synchronous() {
            // Nobody else reclaims what is claimed.
            drop(self.work(locked));
        }
        got
    }

    /// The heap has given frames back.
    pub(crate) fn take_back_frames(&self, frames: u32) {
        let mut locked = self.lock();
        locked.lent -= frames;
        locked.claimed = 0;
        self.hand_over(&mut locked, false);
    }

    /// Of so many frames, those that the heap may have.
    fn heap_share(locked: &Locked, frames: u32) -> u32 {
        let left = frames.saturating_sub(locked.engine.frames_in_use() + SPARE);
        left.max(frames / 2)
    }

    /// Tells the heap how many frames it may keep, as the process may have so many.
    pub(super) fn tell_heap(&self, locked: &Locked, frames: u32) {
        if let Some(heap) = &self.chameleon {
            let target = Self::heap_share(locked, frames);
            let before = heap.target.swap(target, Ordering::Relaxed);
            if locked.lent > target && before != target {
                heap.call_writer();
            }
        }
    }
}
