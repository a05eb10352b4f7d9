//! Objects and blocks: their names, sizes and places.

use crate::ids::{PAGE_SIZE, SlotId};

/// Bytes of a block, in RAM and on flash.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Slots of a block on flash.
pub const BLOCK_SLOTS: u32 = (BLOCK_BYTES / PAGE_SIZE) as u32;
/// Objects begin at multiples of this, in bytes.
pub(super) const GRAIN: u32 = 16;
/// Least bytes that an object takes: [`BLOCK_BYTES`] / 64 objects have indices of 10 bits.
pub const OBJECT_MIN: u32 = 64;
const INDEX_BITS: u32 = 10;
/// The other bits of a handle name the block: at most 4 Mi blocks, 256 GiB.
pub(super) const BLOCKS_MAX: usize = 1 << (u32::BITS - INDEX_BITS);
/// Largest object in bytes: a page that shrinks less is not worth its decompression.
pub const OBJECT_MAX: u32 = 3072;

/// A block of the pool.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct BlockId(pub u32);

/// The compressed contents of a page: `bytes` bytes at `offset` in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Object {
    /// Its block.
    pub block: BlockId,
    /// Byte offset in the block.
    pub offset: u32,
    /// Length in bytes, without padding.
    pub bytes: u32,
}

impl Object {
    /// The slots of its block that hold it: the index of the first, and their number.
    #[must_use]
    pub fn slots(&self) -> (u32, u32) {
        let page = PAGE_SIZE as u32;
        let first = self.offset / page;
        (first, (self.offset + self.bytes - 1) / page - first + 1)
    }
}

/// Names an object in the page table: block and index in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u32);

impl Handle {
    pub(super) fn new(block: BlockId, index: usize) -> Self {
        Self(block.0 << INDEX_BITS | index as u32)
    }

    pub(crate) fn block(self) -> BlockId {
        BlockId(self.0 >> INDEX_BITS)
    }

    pub(super) fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

/// Where the compressed contents of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedAt {
    /// In RAM.
    Pool(Object),
    /// On flash, from the start of this slot on.
    Flash(SlotId, Object),
}

/// Bytes that an object of `bytes` takes in its block.
pub(super) fn padded(bytes: u32) -> u32 {
    bytes.max(OBJECT_MIN).next_multiple_of(GRAIN)
}

/// Frames that the first `end` bytes of a block take.
pub(super) fn frames_to(end: u32) -> u32 {
    end.div_ceil(PAGE_SIZE as u32)
}
