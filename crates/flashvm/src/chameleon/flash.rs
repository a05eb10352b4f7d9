//! Reads and writes of small pages, with the engine unlocked.

use super::{Chameleon, Owner};
use crate::flash::FlashStore;
use crate::flash::io::{read_now, write_now};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{BLOCK_BYTES, FrameId, Location, SECTOR_BYTES, Shape, Task};
use std::os::fd::RawFd;

/// The smallest read that the store takes.
pub(super) fn sector_bytes(store: RawFd, buffer: usize) -> usize {
    if read_now(store, 0, buffer, SECTOR_BYTES as u32) {
        SECTOR_BYTES
    } else {
        PAGE_SIZE
    }
}

/// A page and what lies around it on a device with sectors of 4 KiB.
#[repr(align(4096))]
struct Around([u8; 2 * PAGE_SIZE]);

impl Chameleon {
    /// Reads the page of a fault into its range. The checksum of what arrived, if anything did.
    pub(super) fn read_page(
        &self,
        owner: &dyn Owner,
        task: &mut Task,
        at: Location,
        frame: FrameId,
        shape: Shape,
    ) -> Option<u64> {
        let (store, to) = (owner.store(), self.range(frame, shape));
        // Devices with larger sectors read what lies around the page as well.
        let unit = self.sector_bytes as u64;
        let start = at.offset() / unit * unit;
        let skip = (at.offset() - start) as usize;
        let len = (skip + shape.size()).next_multiple_of(self.sector_bytes);
        let queue = owner.demand_queue();
        if queue.is_none() {
            // The thread will sleep: what its page takes is made up for first.
            self.meanwhile(owner, task);
        }
        let arrived = match queue {
            Some(mut queue) => {
                let meanwhile = || self.meanwhile(owner, task);
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
                let buffer = around.0.as_mut_ptr() as usize;
                let arrived = read_now(store.file(), start, buffer, len as u32);
                // SAFETY: as above; the buffer lies on this stack.
                unsafe { map::copy(buffer + skip, to, shape.size()) };
                arrived
            }
        };
        if store.flip_read() {
            // SAFETY: the range is this page's.
            unsafe { *(to as *mut u8) ^= 1 };
        }
        // SAFETY: as above.
        let checksum = FlashStore::checksum(unsafe { map::bytes(to, shape.size()) });
        (arrived && !store.fail_read()).then_some(checksum)
    }

    /// Reads a block into the second buffer. Whether all of it came.
    pub(super) fn read_block(&self, owner: &dyn Owner, block: u32) -> bool {
        let (store, offset) = (owner.store(), Location::new(block, 0).offset());
        let to = self.buffers + BLOCK_BYTES;
        read_now(store.file(), offset, to, BLOCK_BYTES as u32) && !store.fail_read()
    }

    /// Writes a part of the first buffer. Whether all of it is there.
    pub(super) fn write(&self, owner: &dyn Owner, at: Location, from: u32, bytes: u32) -> bool {
        let (store, from) = (owner.store(), self.buffers + from as usize);
        !store.fail_write() && write_now(store.file(), at.offset(), from, bytes)
    }
}
