//! The engine's host in a live process: kernel mappings, the heap's frames, the page pager.

use super::{Chameleon, Owner};
use crate::flash::checksum;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::block::{back_pointers, write_header};
use flashvm_core::chameleon::{
    BLOCK_BYTES, BackPointer, Failure, FrameId, Host, Refused, SECTOR_BYTES, Shape, Svmp,
};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The host of one request. The engine is locked whenever its methods run.
pub(super) struct LiveHost<'a> {
    pub(super) heap: &'a Chameleon,
    pub(super) owner: &'a dyn Owner,
}

impl Chameleon {
    /// Address of a range of a frame.
    pub(super) fn range(&self, frame: FrameId, shape: Shape) -> usize {
        assert!(frame.0 < self.frames_most, "frame {}", frame.0);
        self.frames_at + frame.0 as usize * PAGE_SIZE + shape.offset()
    }
}

impl LiveHost<'_> {
    fn contents(&self, frame: FrameId, shape: Shape) -> &[u8] {
        // SAFETY: the page is unmapped, so no thread of the program stores to its range; the engine is locked.
        unsafe { map::bytes(self.heap.range(frame, shape), shape.size()) }
    }

    /// The block that the cleaner has read.
    fn block(&self) -> &[u8] {
        // SAFETY: only the current round uses the buffers, and this request belongs to it.
        unsafe { map::bytes(self.heap.buffers + BLOCK_BYTES, BLOCK_BYTES) }
    }
}

impl Host for LiveHost<'_> {
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused> {
        let (at, len) = (self.heap.address(first), count as usize * PAGE_SIZE);
        let offset = u64::from(frame.0) * PAGE_SIZE as u64;
        // SAFETY: the frame is this page's from here on. Rust code looks at its contents only while it is unmapped.
        match unsafe { map::overlay(at, len, &self.heap.frames_file, offset) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(Refused),
            Err(Errno::EXIST) => self.owner.die(&format!(
                "another mapping exists at {at:#x}, in the heap of small pages"
            )),
            Err(error) => self
                .owner
                .die(&format!("cannot map a page at {at:#x}: {error}")),
        }
    }

    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused> {
        let at = self.heap.address(first);
        // SAFETY: pages of the hole, to which only the program refers: its next touch is a fault.
        match unsafe { map::unmap(at, count as usize * PAGE_SIZE) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(Refused),
            Err(error) => self
                .owner
                .die(&format!("cannot unmap the page at {at:#x}: {error}")),
        }
    }

    fn fill_zeros(&mut self, frame: FrameId, shape: Shape) {
        // SAFETY: the range belongs to an unmapped page; the engine is locked.
        unsafe { map::fill_zeros(self.heap.range(frame, shape), shape.size()) };
    }

    fn is_zero(&mut self, frame: FrameId, shape: Shape) -> bool {
        crate::space::is_zero(self.contents(frame, shape))
    }

    fn checksum(&mut self, frame: FrameId, shape: Shape) -> u64 {
        checksum(self.contents(frame, shape))
    }

    fn drop_frame(&mut self, frame: FrameId) {
        // SAFETY: no page is in the frame, and no slice of it outlives a call of this host.
        unsafe { map::punch(&self.heap.frames_file, frame.0) };
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        back_pointers(self.block())
    }

    fn block_checksum(&mut self, page: &BackPointer) -> u64 {
        checksum(&self.block()[page.range()])
    }

    fn keep(&mut self, page: &BackPointer, sector: u32) {
        let range = page.range();
        let (source, target) = (self.heap.buffers + BLOCK_BYTES, self.heap.buffers);
        let to = target + sector as usize * SECTOR_BYTES;
        assert!(range.end <= BLOCK_BYTES && to + range.len() <= target + BLOCK_BYTES);
        // SAFETY: the two places are in different buffers, which only the current round uses.
        unsafe { map::copy(source + range.start, to, range.len()) };
    }

    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64 {
        assert!(to as usize + shape.size() <= BLOCK_BYTES);
        let (from, to) = (
            self.heap.range(frame, shape),
            self.heap.buffers + to as usize,
        );
        // SAFETY: the page stays unmapped while the engine is locked; only the current round uses the buffer,
        // and the page ends within it.
        let copied = unsafe {
            map::copy(from, to, shape.size());
            map::bytes(to, shape.size())
        };
        checksum(copied)
    }

    fn write_header(&mut self, pointers: &[BackPointer]) {
        // SAFETY: only the current round uses the buffers.
        write_header(
            unsafe { map::bytes_mut(self.heap.buffers, BLOCK_BYTES) },
            pointers,
        );
    }

    fn frames_target(&mut self) -> u32 {
        self.heap.target.load(Ordering::Relaxed)
    }

    fn borrow_frames(&mut self, more: u32) -> u32 {
        self.owner.take_frames(more)
    }

    fn return_frames(&mut self, frames: u32) {
        self.owner.give_frames(frames);
    }

    fn commit(&mut self, pages: u64) -> bool {
        self.owner.commit(pages)
    }

    fn uncommit(&mut self, pages: u64) {
        self.owner.uncommit(pages);
    }

    fn store_blocks(&mut self) -> (u32, u32) {
        self.owner.store_clusters()
    }

    fn call_writer(&mut self) {
        self.heap.call_writer();
    }

    fn tell_lost(&mut self, page: Svmp, shape: Shape) {
        let lost = &self.owner.stats().pages_lost;
        lost.fetch_add(1, Ordering::Relaxed);
        crate::sys::message::eprint_line(&format!(
            "flashvm: process {}: {} bytes at {:#x} are lost: flash returned other data \
             than was written, or none",
            std::process::id(),
            shape.size(),
            self.heap.address(page) + shape.offset()
        ));
    }

    fn fail(&self, why: Failure) -> ! {
        match why {
            Failure::GivenTwice(page) => self.owner.die(&format!(
                "free(): the page at {:#x} was freed twice",
                self.heap.address(page)
            )),
            why => self.owner.die(&why.to_string()),
        }
    }
}
