//! Size classes: the powers of two from 16 bytes to a page.
//!
//! An object of more than half the smallest page has a page of its size to itself; smaller objects
//! share a smallest page. With powers of two, shifts find the class of a request and the place of
//! an object, without a division.

/// Bytes of addresses of each page, whatever its size.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a sector: the unit of a range's offset in its page, and the alignment of every page.
pub(crate) const SECTOR: usize = 512;
/// Bytes of the smallest object.
const SMALLEST: usize = 16;
/// Most objects of a divided page: the bits of a `u32`.
const OBJECTS_MAX: usize = 32;
/// Number of classes: powers of two from the smallest object to a page.
pub(crate) const CLASSES: usize = 9;

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// All classes, the smallest objects first.
    pub(crate) const ALL: [Self; CLASSES] = {
        let mut all = [Self(0); CLASSES];
        let mut number = 0;
        while number < CLASSES {
            all[number] = Self(number as u8);
            number += 1;
        }
        all
    };

    /// The class of requests for this many bytes, at most a page.
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

/// The sizes of objects and pages, given the smallest page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classes {
    smallest_page: usize,
    /// Log2 of the bytes of the smallest object: the smallest page / [`OBJECTS_MAX`].
    smallest_shift: u32,
}

impl Classes {
    /// # Panics
    /// If the smallest page is not a power of two from a sector to a page.
    pub(crate) fn new(smallest_page: usize) -> Self {
        assert!(
            smallest_page.is_power_of_two() && (SECTOR..=PAGE).contains(&smallest_page),
            "pages of {smallest_page} bytes"
        );
        Self {
            smallest_page,
            smallest_shift: (smallest_page / OBJECTS_MAX).ilog2(),
        }
    }

    /// Log2 of the bytes of an object.
    #[inline]
    pub(crate) fn object_shift(self, class: Class) -> u32 {
        (u32::from(class.0) + SMALLEST.ilog2()).max(self.smallest_shift)
    }

    /// Bytes of an object.
    #[inline]
    pub(crate) fn object_bytes(self, class: Class) -> usize {
        1 << self.object_shift(class)
    }

    /// Bytes of a page.
    #[inline]
    pub(crate) fn page_bytes(self, class: Class) -> usize {
        (SMALLEST << class.0).max(self.smallest_page)
    }

    /// Whether a page has several objects.
    #[inline]
    pub(crate) fn is_divided(self, class: Class) -> bool {
        self.object_bytes(class) < self.page_bytes(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_the_next_power_of_two() {
        let classes = Classes::new(512);
        for bytes in 0..=PAGE {
            let class = Class::of(bytes);
            let object = classes.object_bytes(class);
            assert_eq!(object, bytes.max(SMALLEST).next_power_of_two(), "{bytes}");
            assert_eq!(class, Class::ALL[class.number()]);
        }
    }

    #[test]
    fn objects_of_more_than_half_the_smallest_page_have_their_own() {
        for (smallest, divided) in [(512, 5), (1024, 6), (4096, 8)] {
            let classes = Classes::new(smallest);
            for class in Class::ALL {
                let (object, page) = (classes.object_bytes(class), classes.page_bytes(class));
                assert_eq!(classes.is_divided(class), class.number() < divided);
                assert_eq!(page, object.max(smallest));
                assert!(page / object <= OBJECTS_MAX, "{object} bytes in {page}");
            }
        }
    }
}
