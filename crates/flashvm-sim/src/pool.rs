//! The model of the compressed pool: what lies at each place of each block.

use crate::memory::Version;
use flashvm_core::pool::{BLOCK_BYTES, BlockId, OBJECT_MIN, Object};
use flashvm_core::{PAGE_SIZE, Sizes};
use std::collections::{BTreeMap, HashMap};

/// The objects of a block by offset. Freed ones stay until another object fills their place, or the block is vacated.
pub(crate) type Image = BTreeMap<u32, Placed>;

/// An object at its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) bytes: u32,
    /// Bytes of the longest object that lay here: the place stays that long.
    room: u32,
    pub(crate) version: Version,
}

/// The pool's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(HashMap<BlockId, Image>);

impl Pool {
    /// Copies compressed contents to their place.
    pub(crate) fn keep(&mut self, object: Object, version: Version) {
        let end = object.offset + object.bytes;
        assert!(end as usize <= BLOCK_BYTES, "{object:?} is too long");
        let image = self.0.entry(object.block).or_default();
        let before = image.remove(&object.offset);
        if let Some((&at, &Placed { bytes, .. })) = image.range(..end).next_back() {
            assert!(
                at + bytes <= object.offset,
                "{object:?} lies over another object"
            );
        }
        let placed = Placed {
            bytes: object.bytes,
            room: before.map_or(0, |before| before.room).max(object.bytes),
            version,
        };
        image.insert(object.offset, placed);
    }

    /// The contents of an object.
    pub(crate) fn get(&self, object: Object) -> Version {
        let found = self
            .0
            .get(&object.block)
            .and_then(|image| image.get(&object.offset));
        let found = found.unwrap_or_else(|| panic!("{object:?} is not in the pool"));
        assert_eq!(found.bytes, object.bytes, "{object:?}");
        found.version
    }

    /// A block has been read back from flash.
    pub(crate) fn restore(&mut self, block: BlockId, image: Image) {
        let old = self.0.insert(block, image);
        assert_eq!(old, None, "{block:?} is there already");
    }

    /// Frees a block.
    pub(crate) fn vacate(&mut self, block: BlockId) {
        self.0.remove(&block);
    }

    /// A copy of a block's objects.
    pub(crate) fn image(&self, block: BlockId) -> Image {
        self.0.get(&block).cloned().unwrap_or_default()
    }

    /// Frames that its blocks reach into.
    pub(crate) fn frames(&self) -> usize {
        self.0.values().map(frames).sum()
    }
}

/// Frames that a block reaches into. Its last object takes at least [`OBJECT_MIN`] bytes.
pub(crate) fn frames(image: &Image) -> usize {
    let last = image.last_key_value();
    let end = last.map_or(0, |(at, placed)| at + placed.room.max(OBJECT_MIN));
    (end as usize).div_ceil(PAGE_SIZE)
}

/// The compressed length of a page with these contents, in bytes; 0 for the third of all contents that do not
/// shrink.
pub(crate) fn compressed(version: Version) -> u16 {
    let hash = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if hash.is_multiple_of(3) {
        0
    } else {
        // Every second one is short enough to be kept while its page is in RAM.
        let longest = if (hash / 3).is_multiple_of(2) {
            490
        } else {
            3100
        };
        20 + (hash / 6 % longest) as u16
    }
}

/// The compressed lengths of several pages; 0 for one that is not in RAM.
pub(crate) fn sizes(versions: &[Option<Version>]) -> Sizes {
    let mut sizes = Sizes::default();
    for (index, version) in versions.iter().enumerate() {
        sizes.set(index, version.map_or(0, compressed));
    }
    sizes
}
