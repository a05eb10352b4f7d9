//! Reads and writes of small pages, with the engine unlocked.

use super::{Chameleon, Owner};
use crate::flash::{Part, Store, checksum};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{BLOCK_BYTES, FrameId, Location, Shape, Task};

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
        let failed = match queue {
            Some(mut queue) => {
                let meanwhile = || self.meanwhile(owner, task);
                let failed = queue.read_unchecked(store, start, len, meanwhile);
                // SAFETY: the queue's buffer is this thread's and longer than that; the range belongs
                // to a page that is being read, which nobody else touches.
                unsafe { map::copy(queue.buffer() + skip, to, shape.size()) };
                failed
            }
            None if len == shape.size() => {
                // SAFETY: as above.
                unsafe { store.read(start, Part { address: to, len }) }
            }
            None => {
                let mut around = Around([0; 2 * PAGE_SIZE]);
                let address = around.0.as_mut_ptr() as usize;
                // SAFETY: as above; the buffer lies on this stack.
                unsafe {
                    let failed = store.read(start, Part { address, len });
                    map::copy(address + skip, to, shape.size());
                    failed
                }
            }
        };
        // SAFETY: as above.
        let arrived = || checksum(unsafe { map::bytes(to, shape.size()) });
        failed.is_none().then(arrived)
    }

    /// Reads a block into the second buffer. Whether all of it came.
    pub(super) fn read_block(&self, owner: &dyn Owner, block: u32) -> bool {
        let to = Part {
            address: self.buffers + BLOCK_BYTES,
            len: BLOCK_BYTES,
        };
        // SAFETY: the round that is under way alone uses the buffers: that of this request.
        let failed = unsafe {
            let store = owner.store();
            store.read(Location::new(block, 0).offset(), to)
        };
        failed.is_none()
    }

    /// Writes a part of the first buffer. Whether all of it is there.
    pub(super) fn write(&self, owner: &dyn Owner, at: Location, from: u32, bytes: u32) -> bool {
        let part = Part {
            address: self.buffers + from as usize,
            len: bytes as usize,
        };
        // SAFETY: as for `read_block`.
        let failed = unsafe { owner.store().write(at.offset(), &[part]) };
        failed.is_none()
    }
}
