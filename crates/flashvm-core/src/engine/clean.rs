//! Cleaning: scans pages in the shadow for zeros, and writes the others in batches. Clean pages are scanned only to be
//! compressed; otherwise they stand by.
//!
//! Nobody can store to a page in the shadow, so the scanned contents are the written contents. A
//! page that is touched during its scan or write is copied back; the write counts only if nobody has
//! stored to the copy (see `PageState::Overtaken`).

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action, Sizes};
use crate::ids::{IoId, PageId, RUN_PAGES_MAX, SlotId};
use crate::io::IoKind;
use crate::page::{Flag, PageState};
use crate::sampling::WRITES_SAVED_FROM;
use crate::settings::CongestionWait;

/// Cleaning requests in flight while frames are not short: the maximum / LEISURE_SHARE.
const LEISURE_SHARE: u32 = 16;

impl<C: ClusterSource> Engine<C> {
    /// Cleans whole runs while requests may be issued; a partial run only if nothing else is being cleaned and none comes
    /// to it, a fault waits, or the program asked for the pages to be written.
    pub(super) fn start_cleaning(&mut self, actions: &mut Vec<Action>) {
        self.flush_pool(actions);
        self.return_sparse(actions);
        if self.swap.is_full() {
            self.spare_homeless();
        }
        while self.condemned.len() > 0 && self.is_run_due() {
            if self.cleaning_requests >= self.requests_allowed() {
                if self.cleaning_requests >= self.settings.write_requests_max {
                    let at = self.now.plus(self.settings.congestion_cleaner);
                    self.cleaner_retry.get_or_insert(at);
                }
                break;
            }
            self.clean_run(actions);
            if self.swap.is_full() {
                break;
            }
        }
    }

    fn is_run_due(&self) -> bool {
        if self.condemned.len() >= self.whole_run() || self.starved || self.flush {
            return true;
        }
        self.cleaning_requests == 0
            && (!self.collects_runs() || self.headed_for() >= self.mark_high())
    }

    /// Whether several batches are collected before the cleaner writes.
    pub(super) fn collects_runs(&self) -> bool {
        self.settings.write_run > self.settings.preclean
    }

    /// Dirty pages that make a run: a whole erase block while writes have to be saved.
    fn whole_run(&self) -> u32 {
        let run = self.settings.preclean.max(self.settings.write_run);
        if self.write_limit_used < WRITES_SAVED_FROM {
            run
        } else {
            run.max(self.settings.erase_block_pages)
        }
    }

    /// Cleans a run of condemned pages, so that writes follow writes: a flash drive loses time between reads and writes
    /// (FlashVM, 5.2.1).
    pub(super) fn clean_run(&mut self, actions: &mut Vec<Action>) {
        let run = self.settings.preclean.max(self.settings.write_run);
        for _ in 0..run.div_ceil(self.settings.preclean) {
            if self.condemned.len() == 0 {
                break;
            }
            self.clean_batch(actions);
            if self.swap.is_full() {
                break;
            }
        }
    }

    /// Cleaning requests that may be in flight: all when frames are short; fewer while the reserve
    /// lasts, so that reads do not queue behind bursts of writes; one if the executor delays
    /// writes.
    pub(super) fn requests_allowed(&self) -> u32 {
        let most = self.settings.write_requests_max;
        if self.write_limit_used >= 100 {
            1
        } else if self.is_pressed() {
            most
        } else {
            most.div_ceil(LEISURE_SHARE)
        }
    }

    /// The cleaner has waited its timeout for a request to end: issues another batch, up to twice
    /// the maximum of requests.
    pub(super) fn clean_once_more(&mut self, actions: &mut Vec<Action>) {
        let most = self.settings.write_requests_max.saturating_mul(2);
        if self.condemned.len() > 0 && self.cleaning_requests < most && !self.swap.is_full() {
            self.clean_batch(actions);
            if (self.settings.write_requests_max..most).contains(&self.cleaning_requests) {
                self.cleaner_retry = Some(self.now.plus(self.settings.congestion_cleaner));
            }
        }
    }

    /// The store is full. Returns the pages that have to be written to the policy, so that it proposes clean ones; those
    /// that are compared may be clean.
    fn spare_homeless(&mut self) {
        for _ in 0..self.condemned.len() {
            let Some(page) = self.condemned.pop(&self.table) else {
                break;
            };
            if self.is_homeless(page) {
                self.spare(page);
            } else {
                self.condemned.push(page, &self.table);
            }
        }
    }

    /// Whether a page has to be written, and the store has no slot for it.
    pub(super) fn is_homeless(&self, page: PageId) -> bool {
        let written = self.table.has(page, Flag::Dirty) && self.compared_with(page).is_none();
        written && self.swap.is_full()
    }

    fn spare(&mut self, page: PageId) {
        if !self.table.has(page, Flag::Dirty) {
            self.stand_by(page);
            return;
        }
        self.set_state(page, PageState::Shadowed);
        self.policy.touched(page, Access::Read);
    }

    fn clean_batch(&mut self, actions: &mut Vec<Action>) {
        let compress = self.compresses_now();
        let mut batch = std::mem::take(&mut self.batch);
        for _ in 0..self.settings.preclean {
            let Some(page) = self.condemned.pop(&self.table) else {
                break;
            };
            if !compress && !self.table.has(page, Flag::Dirty) {
                self.stand_by(page);
                continue;
            }
            self.set_state(page, PageState::Scanning);
            batch.push(page);
        }
        // Neighbours in the address space become neighbours on flash.
        batch.sort_unstable();
        if self.settings.zero_sharing || compress || self.may_compare() {
            for piece in batch.chunks(RUN_PAGES_MAX as usize) {
                let io = self.ios.begin_scan(piece, compress);
                let count = self.request_begun(piece);
                actions.push(Action::Scan {
                    io,
                    count,
                    compress,
                });
            }
        } else {
            self.trial.left_out(batch.len() as u32);
            self.write_out(&batch, actions);
        }
        batch.clear();
        self.batch = batch;
    }

    fn request_begun(&mut self, pages: &[PageId]) -> u32 {
        let count = u32::try_from(pages.len()).expect("at most RUN_PAGES_MAX");
        self.cleaning_requests += 1;
        self.cleaning_pages += count;
        count
    }

    fn request_ended(&mut self, pages: &[PageId]) {
        self.cleaning_requests -= 1;
        self.cleaning_pages -= u32::try_from(pages.len()).expect("at most RUN_PAGES_MAX");
        let naps = self.settings.congestion_wait == CongestionWait::Whole;
        if self.cleaning_requests < self.settings.write_requests_max && !naps {
            self.cleaner_retry = None;
        }
    }

    /// Gives each page the next slot; one write covers contiguous slots.
    fn write_out(&mut self, pages: &[PageId], actions: &mut Vec<Action>) {
        let mut start = 0;
        let mut first = SlotId(0);
        for (i, &page) in pages.iter().enumerate() {
            let slot = self.swap.allocate(page, false, &mut self.clusters);
            let Some(slot) = slot else {
                self.write_run(first, &pages[start..i], actions);
                for &homeless in &pages[i..] {
                    self.spare(homeless);
                }
                return;
            };
            let length = u32::try_from(i - start).expect("a count of pages");
            if i > start && (slot != first.plus(length) || length == RUN_PAGES_MAX) {
                self.write_run(first, &pages[start..i], actions);
                start = i;
            }
            if i == start {
                first = slot;
            }
        }
        self.write_run(first, &pages[start..], actions);
    }

    fn write_run(&mut self, slot: SlotId, pages: &[PageId], actions: &mut Vec<Action>) {
        if pages.is_empty() {
            return;
        }
        for &page in pages {
            self.set_state(page, PageState::Writing);
        }
        let io = self.ios.begin(IoKind::Write, slot, pages);
        let count = self.request_begun(pages);
        self.counters.writes += 1;
        actions.push(Action::Write { io, slot, count });
    }

    /// A page of zeros gets a slot with the zero flag and is clean; a page that shrinks goes to the pool; any other is
    /// written.
    pub(super) fn scanned(
        &mut self,
        id: IoId,
        zero: u64,
        same: u64,
        sizes: &Sizes,
        actions: &mut Vec<Action>,
    ) {
        let io = self.ios.end(id, IoKind::Scan);
        self.request_ended(io.pages());
        self.judge(&io, zero, sizes);
        let mut to_write = std::mem::take(&mut self.batch);
        for (index, &page) in io.pages().iter().enumerate() {
            let is_zero = zero >> index & 1 != 0;
            let is_same = same >> index & 1 != 0;
            if self.table.state(page) == PageState::Scanning {
                self.compared(page, is_same);
            }
            let clean = !self.table.has(page, Flag::Dirty);
            match self.table.state(page) {
                PageState::Scanning if clean => {
                    let packed =
                        !is_zero && !self.renew_object(page) && self.pack(page, id, index, sizes);
                    if !packed {
                        self.stand_by(page);
                    }
                }
                PageState::Scanning if is_zero && self.settings.zero_sharing => {
                    // A full store has no slot for it; a page without a slot reads as zeros.
                    let slot = self.swap.allocate(page, true, &mut self.clusters);
                    self.table.set_slot(page, slot);
                    self.table.clear(page, Flag::Dirty);
                    self.policy.cleaned(page);
                    self.counters.zero_pages_skipped += 1;
                    self.stand_by(page);
                }
                // The scan has not compressed a page that was the same as its object; the object may be gone since.
                PageState::Scanning if !is_same && self.pack(page, id, index, sizes) => {}
                PageState::Scanning => to_write.push(page),
                _ => self.release_copy(page),
            }
        }
        self.emit_drops(actions);
        self.emit_keeps(actions);
        self.flush_pool(actions);
        self.write_out(&to_write, actions);
        to_write.clear();
        self.batch = to_write;
        self.serve_or_relieve(actions);
    }

    /// A request has ended on a page that was mapped or zapped during it: drops the shadow copy.
    fn release_copy(&mut self, page: PageId) {
        let to = match self.table.state(page) {
            PageState::Overtaken => PageState::Mapped,
            PageState::Doomed => PageState::Absent,
            state => panic!("page {} is {state:?} at the end of its request", page.0),
        };
        if self.shadow {
            self.drops.push(page);
            self.free_frame(page);
        }
        if to == PageState::Absent {
            self.table.reset_flags(page);
        }
        self.set_state(page, to);
    }

    pub(super) fn write_done(&mut self, id: IoId, failed: u64, actions: &mut Vec<Action>) {
        if self.ios.kind(id) == Some(IoKind::WriteBlock) {
            let io = self.ios.end(id, IoKind::WriteBlock);
            self.block_written(&io, failed, actions);
            return;
        }
        let io = self.ios.end(id, IoKind::Write);
        self.request_ended(io.pages());
        for (index, &page) in (0..).zip(io.pages()) {
            let slot = io.slot.plus(index);
            if failed >> index & 1 != 0 {
                self.write_failed(page, slot, actions);
            } else {
                self.counters.pages_out += 1;
                self.sampler.written(self.now);
                self.written(page, slot);
            }
        }
        self.emit_drops(actions);
        self.counters.slots_bad = u64::from(self.swap.slots_bad());
        self.serve_or_relieve(actions);
    }

    fn written(&mut self, page: PageId, slot: SlotId) {
        let state = self.table.state(page);
        let still_the_contents = match state {
            PageState::Writing => true,
            // Still write-protected: no store since the write began.
            PageState::Overtaken => self.table.has(page, Flag::Protected),
            _ => false,
        };
        if still_the_contents {
            self.table.set_slot(page, Some(slot));
            self.table.clear(page, Flag::Dirty);
            self.policy.cleaned(page);
        } else {
            self.swap.free(slot, &mut self.clusters);
        }
        if state == PageState::Writing {
            self.stand_by(page);
        } else {
            self.release_copy(page);
        }
    }

    fn write_failed(&mut self, page: PageId, slot: SlotId, actions: &mut Vec<Action>) {
        self.counters.write_errors += 1;
        self.swap.mark_bad(slot, &mut self.clusters);
        match self.table.state(page) {
            PageState::Writing => {
                self.set_state(page, PageState::Condemned);
                self.condemned.push(page, &self.table);
            }
            PageState::Overtaken => {
                if self.table.take(page, Flag::Protected) {
                    actions.push(Action::Unprotect { page });
                }
                self.release_copy(page);
            }
            _ => self.release_copy(page),
        }
    }
}
