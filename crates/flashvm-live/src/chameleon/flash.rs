//! Reads and writes of small pages, with the engine unlocked.

use super::{Chameleon, Owner};
use crate::flash::{Part, Store, checksum};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::engine::READ_BYTES_MAX;
use flashvm_core::chameleon::{BLOCK_BYTES, Location, Shape, Task};

/// Bytes of the sectors that hold the pages of one read, at most.
const AROUND: usize = READ_BYTES_MAX + PAGE_SIZE;

/// Buffer for a read without a queue.
#[repr(align(4096))]
struct Around([u8; AROUND]);

impl Chameleon {
    /// Reads the page of a fault and its neighbours into their ranges. Returns the checksum of the page's own data, or
    /// `None` if the read failed.
    ///
    /// # Safety
    /// The engine has just returned [`flashvm_core::chameleon::Action::Read`] with this place and shape for `task`, and hears of the outcome
    /// after this call: until then the pages are marked as being read, and nobody else touches their ranges.
    pub(super) unsafe fn read_pages(
        &self,
        owner: &dyn Owner,
        task: &mut Task,
        at: Location,
        shape: Shape,
    ) -> Option<u64> {
        let store = owner.store();
        let frames = task.read_frames().expect("the engine asked for a read");
        let first = self.places.range(frames.all()[0], shape);
        let bytes = frames.all().len() * first.len;
        // The transfer is rounded out to whole sectors.
        let unit = self.sector_bytes as u64;
        let start = at.offset() / unit * unit;
        let skip = (at.offset() - start) as usize;
        let len = (skip + bytes).next_multiple_of(self.sector_bytes);
        // SAFETY: the buffer holds `len` bytes, the pages from `skip` on. Nobody else touches it, or the ranges, as the caller
        // guarantees.
        let scatter = |buffer: usize| unsafe {
            for (at, &frame) in frames.all().iter().enumerate() {
                let to = self.places.range(frame, shape);
                map::copy(buffer + skip + at * to.len, to.address, to.len);
            }
        };
        let queue = owner.demand_queue();
        if queue.is_none() {
            // The read blocks, so the reclaim work for these pages comes first.
            self.meanwhile(owner, task);
        }
        let failed = match queue {
            Some(mut queue) => {
                let meanwhile = || self.meanwhile(owner, task);
                let failed = queue.read_unchecked(store, start, len, meanwhile);
                scatter(queue.buffer());
                failed
            }
            None if len == first.len => {
                // SAFETY: nobody else touches the page's range until the read has ended, as the caller guarantees.
                unsafe { store.read(start, first) }
            }
            None => {
                let mut around = Around([0; AROUND]);
                let address = around.0.as_mut_ptr() as usize;
                assert!(len <= size_of::<Around>(), "{len} bytes around pages");
                // SAFETY: `around` is this call's own, and `len` bytes fit.
                let failed = unsafe { store.read(start, Part { address, len }) };
                scatter(address);
                failed
            }
        };
        // SAFETY: the range lies in the mapping of the frames. The page is still marked as being read, as the caller
        // guarantees, so nobody stores to it.
        let arrived = || checksum(unsafe { map::bytes(first.address, first.len) });
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
