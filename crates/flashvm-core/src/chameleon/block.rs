//! A block of the log: 256 KiB, written as a whole (paper, 3.3).
//!
//! A block has a header of eight sectors, then pages, each at a multiple of 512 bytes. For each
//! page the header has a back-pointer: the number of the virtual page. A page is live while the
//! SVMP table says that it lies here. All numbers are little-endian.
//!
//! ```text
//! 0     magic "fvm-log1"
//! 8     number of back-pointers, 4 bytes
//! 64    back-pointers, 8 bytes each: virtual page 4, sector 2, shape 1, zero 1
//! 4096  pages
//! ```

use super::shape::{SECTOR_BYTES, Shape};
use super::table::{PAGES_MAX, Svmp};
use serde::{Deserialize, Serialize};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Sectors of a block.
pub const BLOCK_SECTORS: u32 = (BLOCK_BYTES / SECTOR_BYTES) as u32;

/// Sectors of a header.
const HEADER_SECTORS: u32 = 8;

/// Sectors of a block that can hold pages.
pub const DATA_SECTORS: u32 = BLOCK_SECTORS - HEADER_SECTORS;

const MAGIC: &[u8; 8] = b"fvm-log1";
const POINTERS_AT: usize = 64;
const POINTER_BYTES: usize = 8;

/// A page in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackPointer {
    /// The virtual page.
    pub page: Svmp,
    /// Where it lies in the block.
    pub sector: u32,
    /// Its shape, and so its size.
    pub shape: Shape,
}

impl BackPointer {
    /// Bytes of the block that hold the page.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.sector as usize * SECTOR_BYTES;
        start..start + self.shape.size()
    }
}

/// The layout of a block that is being filled.
#[derive(Clone, Debug)]
pub struct BlockLayout {
    pointers: Vec<BackPointer>,
    next: u32,
}

impl Default for BlockLayout {
    fn default() -> Self {
        Self {
            pointers: Vec::with_capacity(DATA_SECTORS as usize),
            next: HEADER_SECTORS,
        }
    }
}

impl BlockLayout {
    /// Sectors that are still free.
    #[must_use]
    pub fn room(&self) -> u32 {
        BLOCK_SECTORS - self.next
    }

    /// Appends a page if there is room for it, and returns its sector.
    pub fn push(&mut self, page: Svmp, shape: Shape) -> Option<u32> {
        if shape.sectors() > self.room() {
            return None;
        }
        let sector = self.next;
        self.pointers.push(BackPointer {
            page,
            sector,
            shape,
        });
        self.next += shape.sectors();
        Some(sector)
    }

    /// The pages in the block.
    #[must_use]
    pub fn pointers(&self) -> &[BackPointer] {
        &self.pointers
    }

    /// Bytes of the block to write: whole 4 KiB pages, for devices with larger sectors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.next as usize * SECTOR_BYTES).next_multiple_of(crate::PAGE_SIZE)
    }
}

/// Writes the header of a block that holds these pages.
pub fn write_header(bytes: &mut [u8], pointers: &[BackPointer]) {
    bytes[..POINTERS_AT].fill(0);
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&(pointers.len() as u32).to_le_bytes());
    for (at, pointer) in pointers.iter().enumerate() {
        let at = POINTERS_AT + at * POINTER_BYTES;
        bytes[at..at + 4].copy_from_slice(&pointer.page.0.to_le_bytes());
        bytes[at + 4..at + 6].copy_from_slice(&(pointer.sector as u16).to_le_bytes());
        bytes[at + 6..at + 8].copy_from_slice(&[pointer.shape.number(), 0]);
    }
}

/// The back-pointers of a block as it was read; `None` if these bytes are not a block. A damaged
/// header may name any pages of the table, but their ranges in the block are in order and do not
/// overlap.
#[must_use]
pub fn back_pointers(bytes: &[u8]) -> Option<Vec<BackPointer>> {
    if bytes.len() != BLOCK_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    let count = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
    if count > DATA_SECTORS {
        return None;
    }
    let mut next = HEADER_SECTORS;
    let entries = bytes[POINTERS_AT..].chunks_exact(POINTER_BYTES);
    entries
        .take(count as usize)
        .map(|entry| {
            let [a, b, c, d, e, f, number, _] = *entry else {
                return None;
            };
            let shape = Shape::from_number(number)?;
            let page = u32::from_le_bytes([a, b, c, d]);
            let sector = u32::from(u16::from_le_bytes([e, f]));
            let follows = sector == next;
            next += shape.sectors();
            let good = page < PAGES_MAX && follows && next <= BLOCK_SECTORS;
            good.then_some(BackPointer {
                page: Svmp(page),
                sector,
                shape,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(numbers in prop::collection::vec(1u8..=15, 0..600)) {
            let mut bytes = vec![0xee; BLOCK_BYTES];
            let mut layout = BlockLayout::default();
            let mut inside = Vec::new();
            for (count, number) in (0u32..).zip(numbers) {
                let shape = Shape::from_number(number).unwrap();
                let contents = vec![count as u8; shape.size()];
                let fits = shape.sectors() <= layout.room();
                let sector = layout.push(Svmp(count), shape);
                prop_assert_eq!(sector.is_some(), fits);
                if let Some(sector) = sector {
                    let pointer = BackPointer { page: Svmp(count), sector, shape };
                    bytes[pointer.range()].copy_from_slice(&contents);
                    inside.push((pointer, contents));
                }
            }
            let (len, pointers) = (layout.bytes(), layout.pointers());
            write_header(&mut bytes, pointers);
            prop_assert!(len.is_multiple_of(crate::PAGE_SIZE) && len <= BLOCK_BYTES);
            prop_assert!(pointers.iter().eq(inside.iter().map(|(pointer, _)| pointer)));
            bytes[len..].fill(0xdd);
            prop_assert_eq!(back_pointers(&bytes), Some(pointers.to_vec()));
            for (pointer, contents) in inside {
                prop_assert_eq!(&bytes[pointer.range()], &contents[..]);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(
            changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..50),
            count in 0u32..600,
        ) {
            let mut bytes = vec![0; BLOCK_BYTES];
            bytes[..8].copy_from_slice(MAGIC);
            bytes[8..12].copy_from_slice(&count.to_le_bytes());
            for (at, value) in changes {
                bytes[at] = value;
            }
            let mut end = HEADER_SECTORS as usize * SECTOR_BYTES;
            for pointer in back_pointers(&bytes).unwrap_or_default() {
                prop_assert!(pointer.range().start == end && pointer.range().end <= BLOCK_BYTES);
                prop_assert!(pointer.page.0 < PAGES_MAX);
                end = pointer.range().end;
            }
        }
    }

    /// A page number beyond every table; a back-pointer that overwrites the next one.
    #[test]
    fn damage_that_looks_like_pages() {
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut layout = BlockLayout::default();
        for page in 0..3 {
            layout.push(Svmp(page), Shape::ALL[14]);
        }
        write_header(&mut bytes, layout.pointers());
        let second = POINTERS_AT + POINTER_BYTES..POINTERS_AT + 2 * POINTER_BYTES;
        let mut beyond = bytes.clone();
        beyond[second.clone()][3] = 0xff;
        assert_eq!(back_pointers(&beyond), None);
        let mut twice = bytes.clone();
        twice.copy_within(POINTERS_AT..POINTERS_AT + POINTER_BYTES, second.start);
        assert_eq!(back_pointers(&twice), None);
        assert!(back_pointers(&bytes).is_some());
    }
}
