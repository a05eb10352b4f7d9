//! The work of the pager's threads, done by a thread that faults: in a forked child that has no
//! such threads yet, and where a fault found no free frame (FlashVM, 4.1.2). Each request is made
//! and waited for.

use super::fork::PageBuffer;
use super::{Core, Pager, Read};
use crate::store::FlashStore;
use crate::sys::flash_io::{read_now, write_now};
use crate::sys::map;
use crate::sys::thread::on_pager_stack;
use flashvm_core::{Action, Event, PAGE_SIZE, PageId, SlotId};
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::Ordering;

/// Requests that a fault does before it looks whether it still has to wait.
const REQUESTS: u32 = 4;

impl Pager {
    /// Whether this thread has to do the work of the pager's threads: the handler is not up yet, or
    /// this is one of them, whose start in the C library has met managed memory.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire) || on_pager_stack()
    }

    /// Reclaims, and does some of what waits to be done.
    pub(super) fn work<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        let alone = self.is_alone();
        if core.engine.wants_reclaim() {
            self.apply(&mut core, Event::Reclaim);
        }
        for _ in 0..if alone { u32::MAX } else { REQUESTS } {
            if alone && let Some(read) = core.to_read.pop_front() {
                core = self.read_alone(core, read);
            } else if let Some(action) = core.to_clean.pop_front() {
                core = self.clean_alone(core, action);
            } else {
                break;
            }
        }
        core
    }

    fn read_alone<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        action: Action,
    ) -> MutexGuard<'a, Core> {
        let Action::Read {
            io, slot, count, ..
        } = action
        else {
            unreachable!("only reads are queued here")
        };
        let Some(buffer) = self.buffers(&mut core).take(count) else {
            core.to_read.push_front(action);
            return core;
        };
        let read = Read {
            slot,
            count,
            buffer,
        };
        core.reads.insert(io, read);
        drop(core);
        let len = count * PAGE_SIZE as u32;
        let whole = read_now(self.store.file(), FlashStore::offset(slot), buffer, len);
        let failed = self.failed_pages(&read, whole);
        let mut core = self.lock();
        self.apply(&mut core, Event::ReadDone { io, failed });
        core.reads.remove(&io);
        if let Some(buffers) = &mut core.buffers {
            buffers.give(buffer, count);
        }
        core
    }

    fn clean_alone<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        action: Action,
    ) -> MutexGuard<'a, Core> {
        let (Action::Scan { io, .. } | Action::Write { io, .. }) = action else {
            drop(core);
            self.discard_slots();
            return self.lock();
        };
        let pages = core.engine.io_pages(io).to_vec();
        drop(core);
        let event = match action {
            Action::Write { slot, .. } => Event::WriteDone {
                io,
                failed: self.write_alone(slot, &pages),
            },
            _ => Event::Scanned {
                io,
                zero: if self.can_move {
                    self.zero_pages(&pages)
                } else {
                    self.zero_copies(&pages)
                },
            },
        };
        let mut core = self.lock();
        self.apply(&mut core, event);
        core
    }

    /// Which of these pages in the shadow hold only zeros.
    pub(super) fn zero_pages(&self, pages: &[PageId]) -> u64 {
        (0..).zip(pages).fold(0, |zero, (index, &page)| {
            // SAFETY: the page is in the shadow and stays there until this scan is answered;
            // nobody writes to the shadow.
            let contents = unsafe { map::bytes(self.shadow_address(page), PAGE_SIZE) };
            zero | u64::from(super::cleaner::is_zero(contents)) << index
        })
    }

    /// The same for pages that stay in their region, where the program can change them: they are
    /// copied first.
    fn zero_copies(&self, pages: &[PageId]) -> u64 {
        let mut copy = PageBuffer([0; PAGE_SIZE]);
        (0..).zip(pages).fold(0, |zero, (index, &page)| {
            let copied = map::read_own(self.address(page), &mut copy.0);
            zero | u64::from(copied && super::cleaner::is_zero(&copy.0)) << index
        })
    }

    /// Writes pages; those that failed.
    fn write_alone(&self, slot: SlotId, pages: &[PageId]) -> u64 {
        let mut copy = PageBuffer([0; PAGE_SIZE]);
        (0..).zip(pages).fold(0, |failed, (index, &page)| {
            let slot = slot.plus(index);
            let address = if self.can_move {
                self.shadow_address(page)
            } else {
                // A page that cannot be read is gone, and its slot will be given up.
                let _ = map::read_own(self.address(page), &mut copy.0);
                copy.0.as_ptr() as usize
            };
            // SAFETY: the page stays in the shadow, and nobody writes to it there, until this
            // write is answered; or the copy is ours.
            let contents = unsafe { map::bytes(address, PAGE_SIZE) };
            self.store
                .set_checksum(slot, FlashStore::checksum(contents));
            let offset = FlashStore::offset(slot);
            let whole = write_now(self.store.file(), offset, address, PAGE_SIZE as u32)
                && !self.store.fail_write();
            failed | u64::from(!whole) << index
        })
    }
}
