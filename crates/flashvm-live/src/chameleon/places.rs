//! The addresses of the heap: pages of the hole, ranges of frames, parts of the block buffers.
//!
//! All numbers of the engine become addresses here, and each is checked: a wrong number is a panic, never an
//! address of other memory.

use super::hole;
use crate::flash::Part;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{BLOCK_BYTES, FrameId, Shape, Svmp};

/// Bytes of the two block buffers.
pub(super) const BUFFERS_BYTES: usize = 2 * BLOCK_BYTES;

/// Where the parts of a heap lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Start address of the hole.
    pub(super) hole: usize,
    /// Start address of the mapping of all frames, in order.
    pub(super) frames: usize,
    /// Frames that this mapping holds.
    pub(super) frames_most: u32,
    /// Start address of two block buffers: one to fill, one to clean.
    pub(super) buffers: usize,
}

impl Places {
    /// The page of the hole that contains an address.
    pub(super) fn page_at(&self, address: usize) -> Option<Svmp> {
        let offset = address.wrapping_sub(self.hole);
        (offset < hole::BYTES).then_some(Svmp((offset / PAGE_SIZE) as u32))
    }

    /// Neighbouring pages of the hole.
    pub(super) fn pages(&self, first: Svmp, count: u32) -> Part {
        let (at, len) = (first.0 as usize * PAGE_SIZE, count as usize * PAGE_SIZE);
        assert!(at + len <= hole::BYTES, "{count} pages from {first:?} on");
        Part {
            address: self.hole + at,
            len,
        }
    }

    /// The address of a page of the hole.
    pub(super) fn address(&self, page: Svmp) -> usize {
        self.pages(page, 1).address
    }

    /// Neighbouring frames.
    pub(super) fn frames(&self, first: FrameId, count: u32) -> Part {
        assert!(
            first.0 < self.frames_most && count <= self.frames_most - first.0,
            "{count} frames from {first:?} on"
        );
        Part {
            address: self.frames + first.0 as usize * PAGE_SIZE,
            len: count as usize * PAGE_SIZE,
        }
    }

    /// Where neighbouring frames begin in the heap's file.
    pub(super) fn file_offset(&self, first: FrameId, count: u32) -> u64 {
        (self.frames(first, count).address - self.frames) as u64
    }

    /// A range of a frame. A shape lies within its frame.
    pub(super) fn range(&self, frame: FrameId, shape: Shape) -> Part {
        Part {
            address: self.frames(frame, 1).address + shape.offset(),
            len: shape.size(),
        }
    }

    /// A part of the buffer that a round fills.
    pub(super) fn filled(&self, from: usize, len: usize) -> Part {
        within_block(self.buffers, from, len)
    }

    /// A part of the buffer that holds the block to clean.
    pub(super) fn cleaned(&self, from: usize, len: usize) -> Part {
        within_block(self.buffers + BLOCK_BYTES, from, len)
    }
}

fn within_block(buffer: usize, from: usize, len: usize) -> Part {
    assert!(
        from <= BLOCK_BYTES && len <= BLOCK_BYTES - from,
        "{len} bytes from byte {from} of a block on"
    );
    Part {
        address: buffer + from,
        len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::chameleon::table::PAGES_MAX;
    use std::panic::catch_unwind;

    const PLACES: Places = Places {
        hole: 1 << 40,
        frames: 1 << 30,
        frames_most: 10,
        buffers: 1 << 20,
    };

    fn part(address: usize, len: usize) -> Part {
        Part { address, len }
    }

    #[test]
    fn numbers_become_addresses_of_their_own_part() {
        let end = (1 << 40) + hole::BYTES;
        assert_eq!(PLACES.pages(Svmp(PAGES_MAX - 2), 2), part(end - 8192, 8192));
        assert_eq!(PLACES.page_at(end - 1), Some(Svmp(PAGES_MAX - 1)));
        assert_eq!(PLACES.page_at(end), None);
        assert_eq!(PLACES.page_at((1 << 40) - 1), None);
        assert_eq!(
            PLACES.frames(FrameId(8), 2),
            part((1 << 30) + 8 * 4096, 8192)
        );
        assert_eq!(PLACES.file_offset(FrameId(8), 2), 8 * 4096);
        let last = Shape::new(512, 3584).expect("a shape");
        assert_eq!(
            PLACES.range(FrameId(9), last),
            part((1 << 30) + 10 * 4096 - 512, 512)
        );
        assert_eq!(
            PLACES.filled(BLOCK_BYTES - 512, 512),
            part((1 << 20) + BLOCK_BYTES - 512, 512)
        );
        assert_eq!(
            PLACES.cleaned(0, BLOCK_BYTES),
            part((1 << 20) + BLOCK_BYTES, BLOCK_BYTES)
        );
    }

    #[test]
    fn numbers_beyond_their_part_panic() {
        let wrong: [fn() -> Part; 9] = [
            || PLACES.pages(Svmp(PAGES_MAX), 1),
            || PLACES.pages(Svmp(PAGES_MAX - 1), 2),
            || PLACES.pages(Svmp(u32::MAX), u32::MAX),
            || PLACES.frames(FrameId(10), 1),
            || PLACES.frames(FrameId(9), 2),
            || PLACES.frames(FrameId(1), u32::MAX),
            || PLACES.range(FrameId(10), Shape::WHOLE),
            || PLACES.filled(BLOCK_BYTES - 511, 512),
            || PLACES.cleaned(usize::MAX, 2),
        ];
        for (index, wrong) in wrong.into_iter().enumerate() {
            assert!(catch_unwind(wrong).is_err(), "case {index}");
        }
    }
}
