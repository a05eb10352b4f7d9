//! The engine's host in a live process: kernel mappings, the heap's frames, the page pager.
//!
//! The methods of [`Host`] are safe to call for the engine only, so [`LiveHost::new`] is unsafe. `Places` checks
//! each number that becomes an address.

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

/// The host of one request.
pub(super) struct LiveHost<'a> {
    heap: &'a Chameleon,
    owner: &'a dyn Owner,
}

impl<'a> LiveHost<'a> {
    /// The host of a request to `heap`.
    ///
    /// # Safety
    /// Only this heap's engine calls the methods of [`Host`], in [`flashvm_core::chameleon::Engine::handle`] with the
    /// engine locked. So they are called as the trait demands: with ranges whose pages are unmapped, and with
    /// the block buffers only during the round that fills them.
    pub(super) unsafe fn new(heap: &'a Chameleon, owner: &'a dyn Owner) -> Self {
        Self { heap, owner }
    }

    /// The process around the heap.
    pub(super) fn owner(&self) -> &'a dyn Owner {
        self.owner
    }

    fn contents(&self, frame: FrameId, shape: Shape) -> &[u8] {
        let range = self.heap.places.range(frame, shape);
        // SAFETY: the range lies in the mapping of the frames. Its page is unmapped, so no thread of the program stores
        // to it; the engine is locked, so no thread of the pager does.
        unsafe { map::bytes(range.address, range.len) }
    }

    /// The block that the cleaner has read.
    fn block(&self) -> &[u8] {
        let block = self.heap.places.cleaned(0, BLOCK_BYTES);
        // SAFETY: the buffer is mapped. Only the current round stores to it, and it is past its read.
        unsafe { map::bytes(block.address, block.len) }
    }
}

impl Host for LiveHost<'_> {
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused> {
        let places = &self.heap.places;
        let pages = places.pages(first, count);
        let offset = places.file_offset(frame, count);
        // SAFETY: the pages lie in the hole, and the frames in the heap's file. From here on the frames' ranges are these
        // pages', and Rust code looks at them only while the pages are unmapped.
        match unsafe { map::overlay(pages.address, pages.len, &self.heap.frames_file, offset) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(Refused),
            Err(Errno::EXIST) => self.owner.die(&format!(
                "another mapping exists at {:#x}, in the heap of small pages",
                pages.address
            )),
            Err(error) => self.owner.die(&format!(
                "cannot map a page at {:#x}: {error}",
                pages.address
            )),
        }
    }

    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused> {
        let pages = self.heap.places.pages(first, count);
        // SAFETY: the pages lie in the hole. Only the program refers to them: its next touch is a fault.
        match unsafe { map::unmap(pages.address, pages.len) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(Refused),
            Err(error) => self.owner.die(&format!(
                "cannot unmap the page at {:#x}: {error}",
                pages.address
            )),
        }
    }

    fn fill_zeros(&mut self, frame: FrameId, shape: Shape) {
        let range = self.heap.places.range(frame, shape);
        // SAFETY: the range lies in the mapping of the frames. Its page is unmapped and the engine is locked, so nobody
        // else touches it.
        unsafe { map::fill_zeros(range.address, range.len) };
    }

    fn is_zero(&mut self, frame: FrameId, shape: Shape) -> bool {
        crate::space::is_zero(self.contents(frame, shape))
    }

    fn checksum(&mut self, frame: FrameId, shape: Shape) -> u64 {
        checksum(self.contents(frame, shape))
    }

    fn drop_frame(&mut self, frame: FrameId) {
        let offset = self.heap.places.file_offset(frame, 1);
        // SAFETY: no page is in the frame, and no slice of it outlives a call of this host.
        let punched = unsafe { map::punch(&self.heap.frames_file, offset, PAGE_SIZE as u64) };
        // Where the kernel refuses, the frame takes memory until it is used again.
        let _ = punched;
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        back_pointers(self.block())
    }

    fn block_checksum(&mut self, page: &BackPointer) -> u64 {
        checksum(&self.block()[page.range()])
    }

    fn keep(&mut self, page: &BackPointer, sector: u32) {
        let (range, places) = (page.range(), &self.heap.places);
        let from = places.cleaned(range.start, range.len());
        let to = places.filled(sector as usize * SECTOR_BYTES, range.len());
        // SAFETY: the parts are mapped, of one length and in different buffers, which only the current round uses.
        unsafe { map::copy(from.address, to.address, to.len) };
    }

    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64 {
        let places = &self.heap.places;
        let from = places.range(frame, shape);
        let to = places.filled(to as usize, from.len);
        // SAFETY: both parts are mapped and of one length. The page stays unmapped while the engine is locked, so nobody
        // stores to its range; only the current round uses the buffer.
        let copied = unsafe {
            map::copy(from.address, to.address, to.len);
            map::bytes(to.address, to.len)
        };
        checksum(copied)
    }

    fn write_header(&mut self, pointers: &[BackPointer]) {
        let block = self.heap.places.filled(0, BLOCK_BYTES);
        // SAFETY: the buffer is mapped, and only the current round uses it: nobody else until the slice is gone.
        write_header(
            unsafe { map::bytes_mut(block.address, block.len) },
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
            self.heap.places.address(page) + shape.offset()
        ));
    }

    fn fail(&self, why: Failure) -> ! {
        match why {
            Failure::GivenTwice(page) => self.owner.die(&format!(
                "free(): the page at {:#x} was freed twice",
                self.heap.places.address(page)
            )),
            why => self.owner.die(&why.to_string()),
        }
    }
}
