//! Where huge pages come from: 2 MiB of the pager's own that the kernel fills with one, to be moved into the region.
//!
//! The kernel gives no huge page to a fault in registered memory, but moves one there whole.

use crate::sys::map;
use crate::sys::uffd::Uffd;
use flashvm_core::{HUGE_PAGES, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};

/// Bytes of a huge page.
const BYTES: usize = HUGE_PAGES as usize * PAGE_SIZE;

/// Memory for one huge page. It is empty between two moves, and so in a forked child.
#[derive(Debug)]
pub(super) struct Nest {
    start: usize,
}

impl Nest {
    /// Reserves the addresses.
    pub(super) fn new() -> Result<Self, Errno> {
        let start = map::reserve(BYTES, BYTES)?;
        // SAFETY: the range has just been reserved, and nobody else knows of it.
        unsafe {
            map::map_fixed(start, BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
            // Refused by a kernel without huge pages: the move takes small ones.
            let _ = rustix::mm::madvise(start as *mut _, BYTES, Advice::LinuxHugepage);
        }
        map::keep_from_dumps(start, BYTES);
        Ok(Self { start })
    }

    /// Moves a page of zeros to `target`, huge if the kernel has one. Returns the bytes moved. The caller has the engine
    /// locked: one move at a time.
    ///
    /// # Safety
    /// No Rust code may refer to the target.
    pub(super) unsafe fn move_to(
        &self,
        region: &Uffd,
        target: usize,
    ) -> (usize, Result<(), Errno>) {
        let at = self.start as *mut _;
        // SAFETY: the range is the pager's own, and no Rust code refers to it.
        if let Err(e) = unsafe { rustix::mm::madvise(at, BYTES, Advice::LinuxPopulateWrite) } {
            return (0, Err(e));
        }
        // SAFETY: as above, and the caller guarantees the target.
        let moved = unsafe { region.relocate(target, self.start, BYTES) };
        if moved.1.is_err() {
            // SAFETY: as above. What did not move takes no memory.
            let _ = unsafe { map::drop_pages(self.start, BYTES) };
        }
        moved
    }
}
