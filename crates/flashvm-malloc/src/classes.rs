//! Size classes: the powers of two from 16 bytes to a page.
//!
//! A block of more than half the smallest page has a page of its size to itself; smaller blocks share a smallest page.
//! With powers of two a shift finds the class of a request and the place of a block, without a division.

/// Bytes of addresses that each page takes, whatever its size.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a sector: where the range of a page may begin, and the alignment that every page has.
pub(crate) const SECTOR: usize = 512;
/// Bytes of the smallest block.
const SMALLEST: usize = 16;
/// Blocks of a divided page, at most: bits of a word.
const BLOCKS_MAX: usize = 32;
/// Powers of two from the smallest block to a page.
pub(crate) const CLASSES: usize = 9;

/// Blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// All classes, the smallest blocks first.
    pub(crate) const ALL: [Self; CLASSES] = {
        let mut all = [Self(0); CLASSES];
        let mut number = 0;
        while number < CLASSES {
            all[number] = Self(number as u8);
            number += 1;
        }
        all
    };

    /// The class of requests for so many bytes, at most a page.
    #[inline]
    pub(crate) fn of(bytes: usize) -> Self {
        debug_assert!(bytes <= PAGE, "larger requests have no class");
        Self((bytes.max(SMALLEST) - 1).ilog2() as u8 + 1 - SMALLEST.ilog2() as u8)
    }

    #[inline]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// How large blocks and pages are, given the smallest page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classes {
    smallest_page: usize,
    /// Bytes of the smallest block, as a power of two: the smallest page divided by [`BLOCKS_MAX`].
    smallest_shift: u32,
}

impl Classes {
    /// # Panics
    /// If the smallest page is no power of two from a sector to a page.
    pub(crate) fn new(smallest_page: usize) -> Self {
        assert!(
            smallest_page.is_power_of_two() && (SECTOR..=PAGE).contains(&smallest_page),
            "pages of {smallest_page} bytes"
        );
        Self {
            smallest_page,
            smallest_shift: (smallest_page / BLOCKS_MAX).ilog2(),
        }
    }

    /// Bytes of a block, as a power of two.
    #[inline]
    pub(crate) fn block_shift(self, class: Class) -> u32 {
        (u32::from(class.0) + SMALLEST.ilog2()).max(self.smallest_shift)
    }

    /// Bytes of a block.
    #[inline]
    pub(crate) fn block_bytes(self, class: Class) -> usize {
        1 << self.block_shift(class)
    }

    /// Bytes of a page.
    #[inline]
    pub(crate) fn page_bytes(self, class: Class) -> usize {
        (SMALLEST << class.0).max(self.smallest_page)
    }

    /// Whether a page has several blocks.
    #[inline]
    pub(crate) fn is_divided(self, class: Class) -> bool {
        self.block_bytes(class) < self.page_bytes(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_next_power_of_two() {
        let classes = Classes::new(512);
        for bytes in 0..=PAGE {
            let class = Class::of(bytes);
            let block = classes.block_bytes(class);
            assert_eq!(block, bytes.max(SMALLEST).next_power_of_two(), "{bytes}");
            assert_eq!(class, Class::ALL[class.number()]);
        }
    }

    #[test]
    fn blocks_of_more_than_half_the_smallest_page_have_their_own() {
        for (smallest, divided) in [(512, 5), (1024, 6), (4096, 8)] {
            let classes = Classes::new(smallest);
            for class in Class::ALL {
                let (block, page) = (classes.block_bytes(class), classes.page_bytes(class));
                assert_eq!(classes.is_divided(class), class.number() < divided);
                assert_eq!(page, block.max(smallest));
                assert!(page / block <= BLOCKS_MAX, "{block} bytes in {page}");
            }
        }
    }
}
