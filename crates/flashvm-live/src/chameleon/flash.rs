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
    ///
    /// # Safety
    /// The engine has just returned [`flashvm_core::chameleon::Action::Read`] with these arguments for `task`, and hears of the outcome after
    /// this call: until then the page is marked as being read, and nobody else touches its range.
    pub(super) unsafe fn read_page(
        &self,
        owner: &dyn Owner,
        task: &mut Task,
        at: Location,
        frame: FrameId,
        shape: Shape,
    ) -> Option<u64> {
        let (store, to) = (owner.store(), self.places.range(frame, shape));
        // The transfer is rounded out to whole sectors.
        let unit = self.sector_bytes as u64;
        let start = at.offset() / unit * unit;
        let skip = (at.offset() - start) as usize;
        let len = (skip + to.len).next_multiple_of(self.sector_bytes);
        let queue = owner.demand_queue();
        if queue.is_none() {
            // The read blocks, so the reclaim work for this page comes first.
            self.meanwhile(owner, task);
        }
        let failed = match queue {
            Some(mut queue) => {
                let meanwhile = || self.meanwhile(owner, task);
                let failed = queue.read_unchecked(store, start, len, meanwhile);
                // SAFETY: the queue's buffer is this thread's own, and holds `len` bytes, at least `skip` more than the
                // page has. Nobody else touches the page's range, as the caller guarantees.
                unsafe { map::copy(queue.buffer() + skip, to.address, to.len) };
                failed
            }
            None if len == to.len => {
                // SAFETY: nobody else touches the page's range until the read has ended, as the caller guarantees.
                unsafe { store.read(start, to) }
            }
            None => {
                let mut around = Around([0; 2 * PAGE_SIZE]);
                let address = around.0.as_mut_ptr() as usize;
                assert!(len <= size_of::<Around>(), "{len} bytes around a page");
                // SAFETY: `around` is this call's own, and `len` bytes fit; they hold the page from `skip` on. Nobody else
                // touches the page's range, as the caller guarantees.
                unsafe {
                    let failed = store.read(start, Part { address, len });
                    map::copy(address + skip, to.address, to.len);
                    failed
                }
            }
        };
        // SAFETY: the range lies in the mapping of the frames. The page is still marked as being read, as the caller
        // guarantees, so nobody stores to it.
        let arrived = || checksum(unsafe { map::bytes(to.address, to.len) });
        failed.is_none().then(arrived)
    }

    /// Reads a block into the second buffer. Returns whether the whole block was read.
    ///
    /// # Safety
    /// The engine has just returned [`flashvm_core::chameleon::Action::ReadBlock`], and hears of the outcome after this call: until then the
    /// buffers are this round's.
    pub(super) unsafe fn read_block(&self, owner: &dyn Owner, block: u32) -> bool {
        let to = self.places.cleaned(0, BLOCK_BYTES);
        let at = Location::new(block, 0).offset();
        // SAFETY: the buffer is mapped, and nobody but this round uses it, as the caller guarantees.
        let failed = unsafe { owner.store().read(at, to) };
        failed.is_none()
    }

    /// Writes a part of the first buffer. Returns whether the whole part was written.
    ///
    /// # Safety
    /// The engine has just returned [`flashvm_core::chameleon::Action::Write`], and hears of the outcome after this call: until then the buffers
    /// are this round's.
    pub(super) unsafe fn write(
        &self,
        owner: &dyn Owner,
        at: Location,
        from: u32,
        bytes: u32,
    ) -> bool {
        let part = self.places.filled(from as usize, bytes as usize);
        // SAFETY: the part is mapped, and nobody but this round uses the buffer, as the caller guarantees.
        let failed = unsafe { owner.store().write(at.offset(), &[part]) };
        failed.is_none()
    }
}
