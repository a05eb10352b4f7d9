//! The synchronous path: a faulting thread does the work of the pager's threads if they are not up, or if its fault
//! finds no free frame (FlashVM, 4.1.2). It waits for each of its requests.

use super::{Locked, Pager, Read};
use crate::flash::modelled::wait_until;
use crate::flash::{Part, Store, offset};
use crate::space::{Backend, PageBuffer, Space, runs};
use flashvm_core::pool::{BLOCK_BYTES, BlockId};
use flashvm_core::{Action, Event, IoId, PAGE_SIZE, PageId, PageState, SlotId};
use rustix_futex_sync::MutexGuard;

/// Requests that a fault executes before it checks whether it still waits.
const REQUESTS: u32 = 4;
/// Most pages of [`copied_together`].
const TOGETHER_MAX: usize = 16;

/// How many pages that adjoin are copied together on their way out: several, where each copy is a system call.
pub(super) fn copied_together(space: &Space) -> usize {
    match space.has_shadow() && !space.writes_in_place() {
        true => TOGETHER_MAX,
        false => 1,
    }
}

impl Pager {
    /// Reclaims, and executes queued requests: all of them if the pager's threads are not up, else [`REQUESTS`].
    pub(super) fn work<'a>(&'a self, mut locked: MutexGuard<'a, Locked>) -> MutexGuard<'a, Locked> {
        let synchronous = locked.is_synchronous();
        if locked.engine.wants_reclaim() {
            self.apply(&mut locked, Event::Reclaim);
        }
        if !synchronous && self.writes_wait() {
            // The cleaner holds writes back; a clean page may become free sooner.
            return locked;
        }
        for _ in 0..if synchronous { u32::MAX } else { REQUESTS } {
            if synchronous && let Some(read) = locked.to_read.pop_front() {
                locked = self.read_synchronously(locked, read);
            } else if let Some(action) = locked.to_clean.pop_front() {
                locked = self.clean_synchronously(locked, action);
            } else {
                break;
            }
        }
        locked
    }

    fn read_synchronously<'a>(
        &'a self,
        mut locked: MutexGuard<'a, Locked>,
        action: Action,
    ) -> MutexGuard<'a, Locked> {
        let Action::Read {
            io, slot, count, ..
        } = action
        else {
            unreachable!("only reads are queued here")
        };
        let Some(buffer) = self.buffers(&mut locked).take(count) else {
            locked.to_read.push_front(action);
            return locked;
        };
        let read = Read {
            slot,
            count,
            buffer,
        };
        locked.reads.insert(io, read);
        drop(locked);
        let to = Part {
            address: buffer,
            len: count as usize * PAGE_SIZE,
        };
        // SAFETY: `take` has lent the buffer to this read alone, until `give` below.
        let failed = unsafe { self.store.read(offset(slot), to) }.bits();
        let mut locked = self.lock();
        self.apply(&mut locked, Event::ReadDone { io, failed });
        locked.reads.remove(&io);
        if let Some(buffers) = &mut locked.buffers {
            buffers.give(buffer, count);
        }
        locked
    }

    fn clean_synchronously<'a>(
        &'a self,
        locked: MutexGuard<'a, Locked>,
        action: Action,
    ) -> MutexGuard<'a, Locked> {
        let pages = match action {
            Action::Scan { io, .. } | Action::Write { io, .. } => {
                locked.engine.io_pages(io).to_vec()
            }
            _ => Vec::new(),
        };
        drop(locked);
        match action {
            Action::Scan { io, compress, .. } => self.scan(io, &pages, compress),
            Action::Write { io, slot, .. } => {
                let failed = self.write_synchronously(slot, &pages);
                self.apply(&mut self.lock(), Event::WriteDone { io, failed });
            }
            Action::WriteBlock { io, slot, block } => {
                let failed = self.write_block_synchronously(slot, block);
                self.apply(&mut self.lock(), Event::WriteDone { io, failed });
            }
            Action::ReadBlock { io, slot, block } => self.read_block(io, slot, block),
            _ => self.discard_slots(),
        }
        self.lock()
    }

    /// Reads a block of the pool back to its place, and tells the engine.
    pub(super) fn read_block(&self, io: IoId, slot: SlotId, block: BlockId) {
        let to = Part {
            address: self.pool.expect("a pool, as --compress is on").block(block),
            len: BLOCK_BYTES,
        };
        // SAFETY: the block lies in the pool, as `block` has checked. Nobody uses its memory before the engine hears
        // that this read has ended.
        let failed = unsafe { self.store.read(offset(slot), to) }.bits();
        self.apply(&mut self.lock(), Event::ReadDone { io, failed });
    }

    /// Writes a block of the pool. Returns a bit mask of the slots that failed.
    fn write_block_synchronously(&self, slot: SlotId, block: BlockId) -> u64 {
        wait_until(self.write_may_begin(BLOCK_BYTES as u64));
        let part = Part {
            address: self.pool.expect("a pool, as --compress is on").block(block),
            len: BLOCK_BYTES,
        };
        // SAFETY: the block lies in the pool, as `block` has checked. Its bytes do not change before the engine hears
        // that this write has ended.
        unsafe { self.store.write(offset(slot), &[part]) }.bits()
    }

    /// Copies the first pages, those that adjoin but at most [`copied_together`], on their way out. Returns how many, and
    /// whether they have been copied: not if the program has zapped one; then the engine ignores the result of the request
    /// on it.
    ///
    /// Without a shadow a page is copied from the region, where the program can change it, with the engine locked, so that
    /// nobody zaps the page during the copy: to read an absent page of an unregistered range, the kernel maps a page that
    /// the engine does not know of.
    ///
    /// # Safety
    /// A request on the pages is not answered yet: until then they stay where they are. If they are written in place
    /// ([`Backend::writes_in_place`]), nobody stores to them.
    ///
    /// # Panics
    /// Without pages.
    pub(super) unsafe fn copy_leaving(&self, pages: &[PageId], into: &mut [u8]) -> (u32, bool) {
        let most = copied_together(&self.space).min(into.len() / PAGE_SIZE);
        let run = runs(pages.iter().copied().take(most))
            .next()
            .expect("pages");
        let locked = (!self.space.has_shadow()).then(|| self.lock());
        if locked
            .as_ref()
            .is_some_and(|locked| locked.engine.page_state(run.first) == PageState::Doomed)
        {
            return (1, false);
        }
        // SAFETY: the caller guarantees what `copy_out` demands.
        let copied = unsafe { self.space.copy_out(run, &mut into[..run.bytes()]) };
        copied.unwrap_or_else(|stop| {
            let at = self.address(run.first);
            self.die(&format!("the page at {at:#x} cannot be read: {stop:?}"))
        });
        (run.count, true)
    }

    /// Writes pages. Returns a bit mask of those that failed.
    fn write_synchronously(&self, slot: SlotId, pages: &[PageId]) -> u64 {
        wait_until(self.write_may_begin((pages.len() * PAGE_SIZE) as u64));
        let mut copy = PageBuffer::new();
        (0..).zip(pages).fold(0, |failed, (index, &page)| {
            let slot = slot.plus(index);
            // SAFETY: this write is not answered yet.
            unsafe { self.copy_leaving(&[page], &mut copy.0) };
            let page = Part {
                address: copy.0.as_ptr() as usize,
                len: PAGE_SIZE,
            };
            // SAFETY: `copy` is a local page, and nothing changes it before `write` returns.
            let written = unsafe { self.store.write(offset(slot), &[page]) };
            failed | u64::from(!written.is_none()) << index
        })
    }
}
