//! What a touch finds: a page in its frame, one that is all zeros, one that is on flash (paper, 3.5,
//! Figure 4).

use super::{Chameleon, Core, now};
use crate::flash::FlashStore;
use crate::flash::io::read_now;
use crate::pager::{Pager, Resolution};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{Check, FrameId, Location, Place, SECTOR_BYTES, Shape, Svmp};
use rustix_futex_sync::MutexGuard;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Tries of a read before the page counts as lost.
const READ_TRIES: u32 = 3;
/// Pages of zeros that are shown at once, where frames are free: the rest of their run.
const FRESH_RUN: u32 = 64;

/// The smallest read that the store takes.
pub(super) fn sector_bytes(store: RawFd, buffer: usize) -> usize {
    if read_now(store, 0, buffer, SECTOR_BYTES as u32) {
        SECTOR_BYTES
    } else {
        PAGE_SIZE
    }
}

impl Chameleon {
    /// Resolves a fault of the calling thread's, which runs on a stack that is not managed memory, with
    /// all signals blocked but the synchronous ones.
    pub(crate) fn fault(&self, pager: &Pager, address: usize) -> Resolution {
        let Some(page) = self.page_at(address) else {
            return Resolution::NotOurs;
        };
        let since = now();
        let mut core = self.lock();
        let mut counted = false;
        let resolution = loop {
            let (shape, place) = core.table.get(page);
            if !counted && place != Place::Absent {
                counted = true;
                core.counters.faults += 1;
            }
            match place {
                Place::Absent => break Resolution::NotOurs,
                Place::Lost => break Resolution::Lost,
                // Another thread was here first.
                Place::Mapped(..) => break Resolution::Resolved,
                Place::Lifted(frame, _) | Place::Condemned(frame, _) => {
                    core.counters.rescued += 1;
                    // Shown first: what is lifted to make room for it must not use up its reference.
                    self.show(&mut core, pager, page, 1);
                    if matches!(place, Place::Condemned(..)) {
                        // It was a victim, and is in no FIFO any more.
                        core.clocks.keep(frame, shape);
                    } else {
                        core.clocks.reference(frame, shape);
                    }
                    break Resolution::Resolved;
                }
                Place::Reading(..) => core = self.await_change(core),
                Place::Fresh => match self.take_range(&mut core, pager, page, shape) {
                    Some(frame) => {
                        self.show_fresh(&mut core, pager, page, shape, frame);
                        self.take_steps_ahead(&mut core, pager, shape);
                        break Resolution::Resolved;
                    }
                    None => core = self.make_room(core, pager, shape),
                },
                Place::OnFlash(location, check) => {
                    match self.take_range(&mut core, pager, page, shape) {
                        Some(frame) => {
                            let resolution;
                            (core, resolution) =
                                self.page_in(core, pager, page, shape, frame, (location, check));
                            break resolution;
                        }
                        None => core = self.make_room(core, pager, shape),
                    }
                }
            }
        };
        self.publish(&core, pager);
        self.call_writer_if_due(&core);
        drop(core);
        if resolution == Resolution::Resolved {
            pager.stats().latency.record(now().since(since).0);
        }
        resolution
    }

    /// A free range for a page: beside the frame of a neighbour, so that both are one mapping, or any.
    fn take_range(
        &self,
        core: &mut Core,
        pager: &Pager,
        page: Svmp,
        shape: Shape,
    ) -> Option<FrameId> {
        let beside = |core: &Core, page: Option<u32>, step: i64| {
            let place = core.table.get(Svmp(page?)).1;
            let Place::Mapped(frame, _) = place else {
                return None;
            };
            u32::try_from(i64::from(frame.0) + step).ok().map(FrameId)
        };
        let neighbours = [
            beside(core, page.0.checked_sub(1), 1),
            beside(
                core,
                Some(page.0 + 1).filter(|next| self.is_inside(*next)),
                -1,
            ),
        ];
        let neighbour = neighbours
            .into_iter()
            .flatten()
            .find(|&frame| core.frames.take_beside(frame, shape));
        let frame = match neighbour.or_else(|| core.frames.take(shape)) {
            Some(frame) => frame,
            None => {
                self.borrow(core, pager);
                core.frames.take(shape)?
            }
        };
        core.frames.set_owner(frame, shape, page.0);
        Some(frame)
    }

    fn is_inside(&self, page: u32) -> bool {
        (page as usize) < super::hole::BYTES / PAGE_SIZE
    }

    /// Shows a page of zeros, and the rest of its run as long as frames beside it are free.
    fn show_fresh(&self, core: &mut Core, pager: &Pager, page: Svmp, shape: Shape, frame: FrameId) {
        let run_end = (page.0 / FRESH_RUN + 1) * FRESH_RUN;
        let mut count = 1;
        self.fill_fresh(core, page, shape, frame);
        // Only where nobody has to give way for it.
        while page.0 + count < run_end && core.frames.available(shape) > FRESH_RUN {
            let (next, beside) = (Svmp(page.0 + count), FrameId(frame.0 + count));
            if core.table.get(next) != (shape, Place::Fresh) || !core.frames.take_at(beside, shape)
            {
                break;
            }
            core.frames.set_owner(beside, shape, next.0);
            self.fill_fresh(core, next, shape, beside);
            count += 1;
        }
        self.show(core, pager, page, count);
        for at in 0..count {
            core.clocks.keep(FrameId(frame.0 + at), shape);
        }
    }

    fn fill_fresh(&self, core: &mut Core, page: Svmp, shape: Shape, frame: FrameId) {
        // SAFETY: the range belongs to this page, which is not shown yet; the lock is held.
        unsafe { map::fill_zeros(self.range(frame, shape), shape.size()) };
        core.counters.fresh += 1;
        core.table.set(page, shape, Place::Lifted(frame, None));
    }

    /// Brings a page in from flash, into its range.
    fn page_in<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        pager: &Pager,
        page: Svmp,
        shape: Shape,
        frame: FrameId,
        (mut location, check): (Location, Check),
    ) -> (MutexGuard<'a, Core>, Resolution) {
        core.table
            .set(page, shape, Place::Reading(frame, Some(location)));
        core.frames.set_check(frame, shape, check.into());
        core.counters.major += 1;
        core.reads += 1;
        let mut checksum = None;
        for _ in 0..READ_TRIES {
            loop {
                drop(core);
                checksum = self.read(pager, location, shape, frame, check);
                core = self.core.lock();
                // The cleaner may have moved it, and somebody may have written where it was.
                let there = core.table.get(page).1.location();
                let there = there.expect("a page that is being read is on flash");
                if checksum.is_some() || there == location {
                    break;
                }
                location = there;
            }
            if checksum.is_some() {
                break;
            }
        }
        core.reads -= 1;
        let location = core.table.get(page).1.location();
        let resolution = match checksum {
            Some(checksum) => {
                core.counters.read_pages += 1;
                core.counters.read_bytes += shape.size() as u64;
                core.frames.set_check(frame, shape, checksum);
                core.table.set(page, shape, Place::Lifted(frame, location));
                self.show(&mut core, pager, page, 1);
                core.clocks.keep(frame, shape);
                Resolution::Resolved
            }
            None => {
                core.counters.read_errors += 1;
                pager.stats().pages_lost.fetch_add(1, Ordering::Relaxed);
                core.frames.release(frame, shape);
                core.table.set(page, shape, Place::Lost);
                crate::sys::message::eprint_line(&format!(
                    "flashvm: process {}: {} bytes at {:#x} are lost: flash returned other data \
                     than was written, or none",
                    std::process::id(),
                    shape.size(),
                    self.address(page) + shape.offset()
                ));
                Resolution::Lost
            }
        };
        self.announce_change(&core);
        (core, resolution)
    }

    /// Reads a page into its range. Its checksum, if it is what was written.
    fn read(
        &self,
        pager: &Pager,
        location: Location,
        shape: Shape,
        frame: FrameId,
        check: Check,
    ) -> Option<u64> {
        let (store, to) = (pager.store(), self.range(frame, shape));
        // Devices with larger sectors read what lies around the page as well.
        let unit = self.sector_bytes as u64;
        let start = location.offset() / unit * unit;
        let skip = (location.offset() - start) as usize;
        let len = (skip + shape.size()).next_multiple_of(self.sector_bytes);
        let queue = pager.demand_queue();
        if queue.is_none() {
            // The thread will sleep: what its page takes is made up for first.
            self.make_room_ahead(pager, shape);
        }
        let arrived = match queue {
            Some(mut queue) => {
                let meanwhile = || self.make_room_ahead(pager, shape);
                let arrived = queue.read(store.file(), start, len as u32, meanwhile);
                // SAFETY: the queue's buffer is this thread's and longer than that; the range belongs
                // to a page that is being read, which nobody else touches.
                unsafe { map::copy(queue.buffer() + skip, to, shape.size()) };
                arrived
            }
            None if skip == 0 && len == shape.size() => {
                read_now(store.file(), start, to, len as u32)
            }
            None => {
                let mut around = Around([0; 2 * PAGE_SIZE]);
                let at = around.0.as_mut_ptr() as usize;
                let arrived = read_now(store.file(), start, at, len as u32);
                // SAFETY: as above; the buffer lies on this stack.
                unsafe { map::copy(at + skip, to, shape.size()) };
                arrived
            }
        };
        if store.flip_read() {
            // SAFETY: the range is this page's.
            unsafe { *(to as *mut u8) ^= 1 };
        }
        // SAFETY: as above.
        let checksum = FlashStore::checksum(unsafe { map::bytes(to, shape.size()) });
        (arrived && !store.fail_read() && Check::of(checksum) == check).then_some(checksum)
    }
}

/// A page and what lies around it on a device with sectors of 4 KiB.
#[repr(align(4096))]
struct Around([u8; 2 * PAGE_SIZE]);
