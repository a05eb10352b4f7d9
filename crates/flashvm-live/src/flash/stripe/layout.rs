//! Which side of a stripe has which bytes. Decides, and does nothing.
//!
//! Units of [`UNIT`] bytes go to the sides in turn: unit u is unit u / n of side u mod n. A run of units so uses all sides,
//! and what lies together in the store lies together on each side.

use super::super::store::REQUEST_PAGES_MAX;
use flashvm_core::PAGE_SIZE;

/// Bytes of a unit: those of the longest request, so a request lies on two sides at most, in one piece on each.
pub const UNIT: u64 = (REQUEST_PAGES_MAX * PAGE_SIZE) as u64;

/// A part of a request that lies on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flash) struct Piece {
    /// The index of the side.
    pub(in crate::flash) side: usize,
    /// The offset there.
    pub(in crate::flash) at: u64,
    /// Where the piece begins in the request.
    pub(in crate::flash) from: usize,
    /// Its bytes.
    pub(in crate::flash) len: usize,
}

/// The pieces of a request of at most [`UNIT`] bytes at `at`, in a stripe over `sides` sides.
pub(super) fn pieces(at: u64, len: usize, sides: usize) -> impl Iterator<Item = Piece> {
    units(at, len).map(move |(unit, within, from, len)| Piece {
        side: (unit % sides as u64) as usize,
        at: unit / sides as u64 * UNIT + within,
        from,
        len,
    })
}

/// The units of a request: each with its number, the offset within it, the offset within the request, and bytes.
pub(in crate::flash) fn units(
    at: u64,
    len: usize,
) -> impl Iterator<Item = (u64, u64, usize, usize)> {
    let head = ((UNIT - at % UNIT) as usize).min(len);
    let tail = len - head;
    let first = (at / UNIT, at % UNIT, 0, head);
    let second = (at / UNIT + 1, 0, head, tail);
    [first, second].into_iter().filter(|unit| unit.3 > 0)
}

/// The bytes of side `side` before the store's offset `at`.
pub(super) fn before(side: usize, at: u64, sides: usize) -> u64 {
    let (row, rest) = (at / (UNIT * sides as u64), at % (UNIT * sides as u64));
    row * UNIT + rest.saturating_sub(side as u64 * UNIT).min(UNIT)
}

/// The range of every side in which space is needed for `len` bytes of the store from `offset` on: offset and bytes.
pub(super) fn share(offset: u64, len: u64, sides: usize) -> (u64, u64) {
    let row = UNIT * sides as u64;
    let (first, end) = (offset / row, (offset + len).div_ceil(row));
    (first * UNIT, (end - first) * UNIT)
}

/// The size of a stripe over `sides` sides of `each` bytes or more.
#[must_use]
pub fn striped(each: u64, sides: usize) -> u64 {
    each / UNIT * UNIT * sides as u64
}

/// The bytes that each of `sides` sides needs for a stripe of `bytes` bytes.
#[must_use]
pub fn each_of(bytes: u64, sides: usize) -> u64 {
    share(0, bytes, sides).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const PAGE: u64 = PAGE_SIZE as u64;

    /// Where a page lies, found by dealing out one unit after the other.
    fn dealt(pages: u64, sides: usize) -> HashMap<u64, (usize, u64)> {
        let per_unit = UNIT / PAGE;
        let mut next = vec![0; sides];
        let mut places = HashMap::new();
        for page in 0..pages {
            let side = (page / per_unit) as usize % sides;
            places.insert(page, (side, next[side]));
            next[side] += PAGE;
        }
        places
    }

    proptest! {
        #[test]
        fn each_byte_has_one_place(
            sides in 2_usize..=8, page in 0_u64..4000, pages in 1_usize..=REQUEST_PAGES_MAX,
        ) {
            let places = dealt(page + pages as u64, sides);
            let len = pages * PAGE_SIZE;
            let pieces: Vec<_> = pieces(page * PAGE, len, sides).collect();
            prop_assert!(pieces.len() <= 2);
            let mut done = 0;
            for piece in pieces {
                prop_assert_eq!(piece.from, done);
                done += piece.len;
                for within in (0..piece.len).step_by(PAGE_SIZE) {
                    let page = page + ((piece.from + within) / PAGE_SIZE) as u64;
                    prop_assert_eq!(places[&page], (piece.side, piece.at + within as u64));
                }
            }
            prop_assert_eq!(done, len);
        }

        /// Ranges of each side are those of its pages, and sizes hold them.
        #[test]
        fn ranges_hold_their_pages(sides in 2_usize..=8, from in 0_u64..2000, count in 1_u64..2000) {
            let end = from + count;
            let places = dealt(end, sides);
            for side in 0..sides {
                let of_side = |pages: std::ops::Range<u64>| {
                    pages.filter(|page| places[page].0 == side).count() as u64 * PAGE
                };
                prop_assert_eq!(before(side, from * PAGE, sides), of_side(0..from));
                prop_assert_eq!(before(side, end * PAGE, sides), of_side(0..end));
            }
            let (at, len) = share(from * PAGE, count * PAGE, sides);
            for page in from..end {
                let place = places[&page].1;
                prop_assert!(at <= place && place + PAGE <= at + len);
            }
            let each = each_of(end * PAGE, sides);
            prop_assert!(striped(each, sides) >= end * PAGE);
            prop_assert!(striped(each - PAGE, sides) < end * PAGE);
        }
    }
}
