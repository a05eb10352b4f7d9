//! Shapes: which range of a 4 KiB page a virtual page uses (paper, Table 2).
//!
//! The fifteen ranges are the nodes of a binary tree over the eight sectors of a frame, numbered as
//! in a heap: 1 is the whole frame, 2 and 3 its halves, 8 to 15 its sectors. Parent, buddy and
//! containment are then arithmetic.

use crate::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the smallest page, and of a flash sector.
pub const SECTOR_BYTES: usize = 512;

/// Sectors of a frame.
pub const SECTORS: u32 = 8;

/// The sizes that pages can have, in bytes.
pub const SIZES: [usize; 4] = [512, 1024, 2048, 4096];

/// The range of a 4 KiB page that a virtual page uses: S(size, offset) of the paper.
///
/// ```
/// use flashvm_core::chameleon::Shape;
///
/// let shape = Shape::new(512, 1536).unwrap();
/// assert_eq!((shape.size(), shape.offset()), (512, 1536));
/// // Offsets are multiples of the size.
/// assert_eq!(Shape::new(1024, 512), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape(u8);

impl Shape {
    /// All of a page: S(4 KiB, 0).
    pub const WHOLE: Self = Self(1);

    /// All shapes, larger ones first.
    pub const ALL: [Self; 15] = {
        let mut all = [Self::WHOLE; 15];
        let mut node = 1;
        while node <= 15 {
            all[node as usize - 1] = Self(node);
            node += 1;
        }
        all
    };

    /// The shape of `size` bytes at `offset`; `None` if there is none (paper, Table 2).
    #[must_use]
    pub fn new(size: usize, offset: usize) -> Option<Self> {
        let level = SIZES.iter().rev().position(|&allowed| allowed == size)?;
        (offset < PAGE_SIZE && offset.is_multiple_of(size))
            .then(|| Self((1 << level) + (offset / size) as u8))
    }

    /// The shape with this number, 1 to 15.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (1..=15).contains(&number).then_some(Self(number))
    }

    /// Its number in the tree, 1 to 15.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Bytes of the range.
    #[must_use]
    pub fn size(self) -> usize {
        PAGE_SIZE >> self.0.ilog2()
    }

    /// Start of the range in its page, in bytes.
    #[must_use]
    pub fn offset(self) -> usize {
        (self.0 as usize - (1 << self.0.ilog2())) * self.size()
    }

    /// Sectors of the range.
    #[must_use]
    pub fn sectors(self) -> u32 {
        SECTORS >> self.0.ilog2()
    }

    /// The first sector of the range in its frame.
    #[must_use]
    pub fn first_sector(self) -> u32 {
        (self.offset() / SECTOR_BYTES) as u32
    }

    /// How many shapes have this size.
    #[must_use]
    pub fn siblings(self) -> u8 {
        1 << self.0.ilog2()
    }

    /// The next shape of this size, the first after the last: the allocator's cycle (paper, 3.4).
    #[must_use]
    pub fn next(self) -> Self {
        let first = self.siblings();
        Self(first + (self.0 + 1 - first) % first)
    }

    /// The range that contains this one and its buddy; `None` for the whole page.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        (self.0 > 1).then_some(Self(self.0 / 2))
    }

    /// The other half of the parent; `None` for the whole page.
    #[must_use]
    pub fn buddy(self) -> Option<Self> {
        (self.0 > 1).then_some(Self(self.0 ^ 1))
    }

    /// This range and all that contain it, from small to large.
    pub fn and_holders(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |shape| shape.parent())
    }

    /// This shape's bit in a set of shapes.
    #[must_use]
    pub fn bit(self) -> u16 {
        1 << self.0
    }

    /// The set of ranges that overlap this one: itself, outer ranges, inner ranges.
    #[must_use]
    pub fn overlapping(self) -> u16 {
        OVERLAPPING[self.0 as usize]
    }
}

/// By shape, the set of shapes that overlap it.
const OVERLAPPING: [u16; 16] = {
    let mut sets = [0; 16];
    let mut one = 1;
    while one <= 15 {
        let mut other = 1;
        while other <= 15 {
            // One is an ancestor of the other.
            let (mut low, high) = if one > other {
                (one, other)
            } else {
                (other, one)
            };
            while low > high {
                low /= 2;
            }
            if low == high {
                sets[one] |= 1 << other;
            }
            other += 1;
        }
        one += 1;
    }
    sets
};

/// The shapes of a set.
pub(crate) fn shapes_of(mut set: u16) -> impl Iterator<Item = Shape> {
    std::iter::from_fn(move || {
        let number = set.trailing_zeros();
        (number < 16).then(|| {
            set &= set - 1;
            Shape(number as u8)
        })
    })
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S({}, {})", self.size(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_of_the_paper() {
        let mut all = Vec::new();
        for size in SIZES {
            for offset in (0..PAGE_SIZE).step_by(size) {
                let shape = Shape::new(size, offset).unwrap();
                assert_eq!((shape.size(), shape.offset()), (size, offset));
                all.push(shape);
            }
        }
        all.sort();
        assert_eq!(all, Shape::ALL);
        for (size, offset) in [
            (256, 0),
            (8192, 0),
            (1024, 512),
            (512, 4096),
            (3072, 0),
            (0, 0),
        ] {
            assert_eq!(Shape::new(size, offset), None, "{size} at {offset}");
        }
    }

    #[test]
    fn ranges_overlap_if_they_share_a_byte() {
        for one in Shape::ALL {
            for other in Shape::ALL {
                let apart = one.offset() + one.size() <= other.offset()
                    || other.offset() + other.size() <= one.offset();
                assert_eq!(
                    one.overlapping() & other.bit() == 0,
                    apart,
                    "{one:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn the_cycle_goes_through_all_offsets() {
        for size in SIZES {
            let first = Shape::new(size, 0).unwrap();
            let mut seen: Vec<_> = std::iter::successors(Some(first), |s| Some(s.next()))
                .take(first.siblings() as usize)
                .collect();
            assert_eq!(seen.last().unwrap().next(), first);
            seen.dedup();
            assert_eq!(seen.len(), PAGE_SIZE / size);
        }
    }
}
