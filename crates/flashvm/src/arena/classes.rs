//! Size classes: which sizes share freed objects, and how far apart objects lie. The scheme is that of `include/flashvm_arena.h`.

use crate::pages::PAGE;
use crate::{Error, Result};
use std::alloc::Layout;

/// The smallest object, and the step between small classes.
const STEP: usize = 16;
/// The largest object that is rounded to a step; above it sizes are powers of two.
const SMALL: usize = 1024;
/// Least and most bytes of a chunk.
const CHUNK_MIN: usize = 4 * PAGE;
const CHUNK_MAX: usize = 1 << 30;

/// Where an object of some layout goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Into a chunk: the number of its class, and the rounded size.
    Chunk { class: usize, bytes: usize },
    /// Into a mapping of its own, of so many bytes.
    Alone { bytes: usize },
}

/// The classes of an arena with chunks of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    chunk_bytes: usize,
}

impl Classes {
    /// Chunks of `chunk_bytes`: a power of two from 16 KiB to 1 GiB.
    pub(super) fn new(chunk_bytes: usize) -> Result<Self> {
        if !chunk_bytes.is_power_of_two() || !(CHUNK_MIN..=CHUNK_MAX).contains(&chunk_bytes) {
            return Err(Error::Invalid(format!(
                "chunks of {chunk_bytes} bytes: choose a power of two from {CHUNK_MIN} to {CHUNK_MAX}"
            )));
        }
        Ok(Self { chunk_bytes })
    }

    pub(super) fn chunk_bytes(self) -> usize {
        self.chunk_bytes
    }

    /// The largest object in a chunk: a chunk that ends early wastes a quarter at most.
    fn largest(self) -> usize {
        self.chunk_bytes / 4
    }

    pub(super) fn count(self) -> usize {
        SMALL / STEP + (self.largest() / SMALL).ilog2() as usize
    }

    /// The place of an object of some bytes.
    pub(super) fn place(self, layout: Layout) -> Result<Place> {
        let (size, align) = (layout.size(), layout.align());
        if align > PAGE {
            return Err(Error::Invalid(format!(
                "an object aligned to {align} bytes: managed memory is aligned to {PAGE}"
            )));
        }
        // A class whose size is a power of two is aligned to it, up to a page.
        let size = match align {
            0..=STEP => size,
            _ => size.max(align).checked_next_power_of_two().unwrap_or(size),
        };
        if size > self.largest() {
            let bytes = crate::pages::whole_pages(layout.size())?;
            return Ok(Place::Alone { bytes });
        }
        if size <= SMALL {
            let bytes = size.max(1).next_multiple_of(STEP);
            let class = bytes / STEP - 1;
            return Ok(Place::Chunk { class, bytes });
        }
        let bytes = size.next_power_of_two();
        let class = SMALL / STEP - 1 + (bytes / SMALL).ilog2() as usize;
        Ok(Place::Chunk { class, bytes })
    }
}

/// The alignment of objects of a class, by its rounded size.
pub(super) fn alignment(bytes: usize) -> usize {
    if bytes.is_power_of_two() {
        bytes.min(PAGE)
    } else {
        STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    #[test]
    fn sizes_have_the_classes_of_the_header() {
        let classes = Classes::new(1 << 20).expect("classes");
        for (size, align, class, bytes) in [
            (1, 1, 0, 16),
            (16, 16, 0, 16),
            (17, 8, 1, 32),
            (24, 64, 3, 64),
            (1024, 8, 63, 1024),
            (1025, 8, 64, 2048),
            (1000, 4096, 65, 4096),
            (1 << 18, 8, 71, 1 << 18),
        ] {
            let place = classes.place(layout(size, align)).expect("a place");
            assert_eq!(place, Place::Chunk { class, bytes }, "{size}, {align}");
        }
        let large = classes.place(layout((1 << 18) + 1, 8)).expect("a place");
        let bytes = (1 << 18) + PAGE;
        assert_eq!(large, Place::Alone { bytes });
        assert_eq!(classes.count(), 72);
    }

    #[test]
    fn bad_chunks_and_alignments_are_named() {
        for bytes in [0, 1, 12 << 10, 1 << 13, (1 << 20) + 1, 1 << 31] {
            let error = Classes::new(bytes).expect_err("no size of chunks");
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        let classes = Classes::new(1 << 20).expect("classes");
        let error = classes.place(layout(1, 8192)).expect_err("too much");
        assert!(error.to_string().contains("8192"), "{error}");
    }

    /// Every class has one size, in every kind of chunk.
    #[test]
    fn a_class_is_a_size() {
        for power in 14..=30 {
            let classes = Classes::new(1 << power).expect("classes");
            let mut sizes = BTreeMap::new();
            let steps =
                (1..=SMALL).chain((11..30).flat_map(|power| [(1 << power) - 1, 1 << power]));
            for size in steps {
                if let Place::Chunk { class, bytes } = classes.place(layout(size, 1)).expect("it") {
                    assert_eq!(*sizes.entry(class).or_insert(bytes), bytes);
                }
            }
            let numbers: Vec<_> = sizes.keys().copied().collect();
            assert_eq!(numbers, Vec::from_iter(0..classes.count()), "2^{power}");
            assert!(sizes.values().is_sorted());
        }
    }

    proptest! {
        #[test]
        fn a_place_holds_the_object(size in 0_usize..1 << 22, align in 0_u32..13, power in 14_u32..24) {
            let classes = Classes::new(1 << power).expect("classes");
            let layout = layout(size, 1 << align);
            match classes.place(layout).expect("a place") {
                Place::Chunk { class, bytes } => {
                    prop_assert!(class < classes.count());
                    prop_assert!(bytes >= size && alignment(bytes) >= layout.align());
                    prop_assert!(bytes <= (1 << power) / 4 && bytes.is_multiple_of(STEP));
                }
                Place::Alone { bytes } => {
                    prop_assert!(bytes >= size && bytes < size + PAGE);
                    prop_assert!(size.max(1 << align).next_power_of_two() > (1 << power) / 4);
                }
            }
        }
    }
}
