//! Reads and writes of small pages, with the engine unlocked.

use super::{Chameleon, Owner};
use crate::flash::{Part, Store, checksum};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{BLOCK_BYTES, FrameId, Location, Shape, Task};

/// Buffer for a page together with the sectors of 4 KiB that contain it.
#[repr(align(4096))]
struct Around([u8; 2 * PAGE_SIZE]);

impl Chameleon {
    /// Reads the page of a fault into its range. Returns the checksum of the data, or `None` if the read failed.
    pub(super) fn read_page(
        &self,
        owner: &dyn Owner,
        task: &mut Task,
        at: Location,
        frame: FrameId,
        shape: Shape,
    ) -> Option<u64> {
        let (store, to) = (owner.store(), self.range(frame, shape));
        // The transfer is rounded out to whole sectors.
        let unit = self.sector_bytes as u64;
        let start = at.offset() / unit * unit;
        let skip = (at.offset() - start) as usize;
        let len = (skip + shape.size()).next_multiple_of(self.sector_bytes);
        let queue = owner.demand_queue();
        if queue.is_none() {
            // The read blocks, so the reclaim work for this page comes first.
            self.meanwhile(owner, task);
        }
        let failed = match queue {
            Some(mut queue) => {
                let meanwhile = || self.meanwhile(owner, task);
                let failed = queue.read_unchecked(store, start, len, meanwhile);
                // SAFETY: the queue's buffer is this thread's own and long enough; the range belongs
                // to a page marked as being read, which no other thread touches.
                unsafe { map::copy(queue.buffer() + skip, to, shape.size()) };
                failed
            }
            None if len == shape.size() => {
                // SAFETY: the range belongs to a page marked as being read: no other thread touches it.
                unsafe { store.read(start, Part { address: to, len }) }
            }
            None => {
                let mut around = Around([0; 2 * PAGE_SIZE]);
                let address = around.0.as_mut_ptr() as usize;
                // SAFETY: `around` is this call's own; the range belongs to a page marked as being read, which
                // no other thread touches.
                unsafe {
                    let failed = store.read(start, Part { address, len });
                    map::copy(address + skip, to, shape.size());
                    failed
                }
            }
        };
        // SAFETY: the page is still marked as being read: no other thread stores to its range.
        let arrived = || checksum(unsafe { map::bytes(to, shape.size()) });
        failed.is_none().then(arrived)
    }

    /// Reads a block into the second buffer. Returns whether the whole block was read.
    pub(super) fn read_block(&self, owner: &dyn Owner, block: u32) -> bool {
        let to = Part {
            address: self.buffers + BLOCK_BYTES,
            len: BLOCK_BYTES,
        };
        // SAFETY: only the current round uses the buffers, and this request belongs to it.
        let failed = unsafe {
            let store = owner.store();
            store.read(Location::new(block, 0).offset(), to)
        };
        failed.is_none()
    }

    /// Writes a part of the first buffer. Returns whether the whole part was written.
    pub(super) fn write(&self, owner: &dyn Owner, at: Location, from: u32, bytes: u32) -> bool {
        let part = Part {
            address: self.buffers + from as usize,
            len: bytes as usize,
        };
        // SAFETY: only the current round uses the buffers, and this write belongs to it.
        let failed = unsafe { owner.store().write(at.offset(), &[part]) };
        failed.is_none()
    }
}
