//! What the engine needs at once of its surroundings: memory, checksums of what lies in it, frames and room.

use super::super::{BackPointer, FrameId, Shape, Svmp};

/// The kernel allows no more mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why the process cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The allocator gave this page back twice.
    #[error("free(): {0:?} was given back twice")]
    GivenTwice(Svmp),
    /// A fault has waited for a range for too long.
    #[error(
        "no room for a page, and nothing that could go: give it more --ram or a larger --flash-size"
    )]
    NoRoom,
    /// A round has waited for a block for too long.
    #[error(
        "the flash store is full of live pages: give it a larger --flash-size, or room on its disk"
    )]
    FlashFull,
    /// Not even one page can be mapped.
    #[error("the kernel allows no more mappings: raise vm.max_map_count")]
    NoMappings,
}

/// The surroundings of an engine. All calls are made with the engine locked.
///
/// A range of a frame is named by frame and shape. It is read and written only while its page is unmapped,
/// so that the program does not store to it.
pub trait Host {
    /// Maps pages one after the other at their addresses, out of frames one after the other. Nothing is mapped
    /// there.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused>;

    /// Unmaps what is mapped of these pages: from here on every touch is a fault.
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

    /// A frame has left the pool: its memory is given up.
    fn drop_frame(&mut self, frame: FrameId);

    /// What lies in the block that was read for cleaning; `None` if it is no block.
    fn block_pointers(&mut self) -> Option<Vec<BackPointer>>;

    /// The checksum of a page of that block.
    fn block_checksum(&mut self, page: &BackPointer) -> u64;

    /// Copies a page of that block to a sector of the first buffer.
    fn keep(&mut self, page: &BackPointer, sector: u32);

    /// Copies a range to the first buffer, so many bytes from its start. The checksum of what was copied.
    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64;

    /// Writes the header of the block in the first buffer.
    fn write_header(&mut self, pointers: &[BackPointer]);

    /// Frames that the engine may keep: the page pager needs the others.
    fn frames_target(&mut self) -> u32;

    /// Asks for so many frames more. How many there are.
    fn borrow_frames(&mut self, more: u32) -> u32;

    /// Gives frames back.
    fn return_frames(&mut self, frames: u32);

    /// Asks budget and store for room for so many 4 KiB pages. Whether they have it.
    fn commit(&mut self, pages: u64) -> bool;

    /// Gives such room back.
    fn uncommit(&mut self, pages: u64);

    /// Blocks of the store, and those that nobody has.
    fn store_blocks(&mut self) -> (u32, u32);

    /// Has the writer begin [`super::Request::WriteBehind`], again if it is at it.
    fn call_writer(&mut self);

    /// A page's contents are lost: tells the user.
    fn tell_lost(&mut self, page: Svmp, shape: Shape);

    /// Ends the process.
    fn fail(&self, why: Failure) -> !;
}
