//! The calls of the engine that are answered at once: memory, checksums, frames and room.

use super::super::{BackPointer, FrameId, Shape, Svmp};

/// The kernel allows no more mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why the process cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The allocator returned this page twice.
    #[error("free(): {0:?} was freed twice")]
    GivenTwice(Svmp),
    /// A fault has waited too long for a range.
    #[error(
        "no frame for a page, and no page that can be evicted: ask for more --ram or a larger --flash-size"
    )]
    NoRoom,
    /// A round has waited too long for a block.
    #[error(
        "the flash store is full of live pages: ask for a larger --flash-size, or make room on its disk"
    )]
    FlashFull,
    /// The kernel refuses to map even one page.
    #[error("the kernel allows no more mappings: raise vm.max_map_count")]
    NoMappings,
}

/// The executor's side of an engine. All methods are called with the engine locked.
///
/// A range of a frame is named by frame and shape. The engine reads and writes a range only while
/// its page is unmapped, so that the program cannot store to it.
pub trait Host {
    /// Maps contiguous pages at their addresses, from contiguous frames. Nothing is mapped there.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused>;

    /// Unmaps those of these pages that are mapped: every further touch is a fault.
    ///
    /// # Errors
    /// [`Refused`] if a mapping would have to be split; nothing has changed.
    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused>;

    /// Fills a range with zeros.
    fn fill_zeros(&mut self, frame: FrameId, shape: Shape);

    /// Whether a range holds zeros only.
    fn is_zero(&mut self, frame: FrameId, shape: Shape) -> bool;

    /// The checksum of a range.
    fn checksum(&mut self, frame: FrameId, shape: Shape) -> u64;

    /// A frame has left the heap: frees its memory.
    fn drop_frame(&mut self, frame: FrameId);

    /// The pages of the block that was read for cleaning; `None` if its bytes are not a block.
    fn block_pointers(&mut self) -> Option<Vec<BackPointer>>;

    /// The checksum of a page of that block.
    fn block_checksum(&mut self, page: &BackPointer) -> u64;

    /// Copies a page of that block to a sector of the first buffer.
    fn keep(&mut self, page: &BackPointer, sector: u32);

    /// Copies a range to the first buffer at byte `to`; returns the checksum of the copy.
    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64;

    /// Writes the header of the block in the first buffer.
    fn write_header(&mut self, pointers: &[BackPointer]);

    /// Frames that the engine may keep; the page pager needs the others.
    fn frames_target(&mut self) -> u32;

    /// Asks for `more` frames; returns how many were granted.
    fn borrow_frames(&mut self, more: u32) -> u32;

    /// Gives frames back.
    fn return_frames(&mut self, frames: u32);

    /// Asks budget and store for room for this many 4 KiB pages; returns whether they have it.
    fn commit(&mut self, pages: u64) -> bool;

    /// Returns room for this many 4 KiB pages.
    fn uncommit(&mut self, pages: u64);

    /// Blocks of the store, and blocks without an owner.
    fn store_blocks(&mut self) -> (u32, u32);

    /// Makes the writer begin [`super::Request::WriteBehind`], once more if it is already running one.
    fn call_writer(&mut self);

    /// A page's contents are lost: tells the user.
    fn tell_lost(&mut self, page: Svmp, shape: Shape);

    /// Ends the process.
    fn fail(&self, why: Failure) -> !;
}
