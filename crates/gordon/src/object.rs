//! Objects: a header word, then the payload. The header distinguishes mutable from immutable
//! objects (section 5.2) and locates the pointers, so that collectors and `check` need no types.
//!
//! ```text
//! bit 0        1: a header; a forwarding address, which may stand in its place in DRAM, is even
//! bit 1        mutable
//! bits 2-3     kind: record, array, bytes, text
//! bits 4-7     0101: neither zeros nor erased flash
//! record       8-15 pointers, 16-31 other words, 32-63 schema
//! array        8-15 pointers, 16-31 other words of an element, 32-63 elements
//! bytes, text  8-63 length in bytes
//! ```

use crate::region::WORD;

/// The contents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Record,
    Array,
    Bytes,
    Text,
}

/// The first word of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) u64);

/// Most bytes of a byte array or string.
pub(crate) const MOST_BYTES: u64 = 1 << 40;

impl Header {
    pub(crate) const fn record(mutable: bool, pointers: usize, words: usize, schema: u64) -> Self {
        assert!(pointers < 256, "a record holds at most 255 pointers");
        assert!(
            words < 65536,
            "a record holds at most 512 KiB beside its pointers"
        );
        let schema = (schema ^ (schema >> 32)) << 32;
        Self(Self::common(mutable, 0) | ((pointers as u64) << 8) | ((words as u64) << 16) | schema)
    }

    pub(crate) const fn array(mutable: bool, pointers: usize, words: usize, count: u32) -> Self {
        assert!(pointers < 256, "an element holds at most 255 pointers");
        assert!(
            words < 65536,
            "an element holds at most 512 KiB beside its pointers"
        );
        let count = (count as u64) << 32;
        Self(Self::common(mutable, 1) | ((pointers as u64) << 8) | ((words as u64) << 16) | count)
    }

    pub(crate) const fn bytes(mutable: bool, length: u64) -> Self {
        Self(Self::common(mutable, 2) | (length << 8))
    }

    pub(crate) const fn text(length: u64) -> Self {
        Self(Self::common(false, 3) | (length << 8))
    }

    const fn common(mutable: bool, kind: u64) -> u64 {
        0x51 | ((mutable as u64) << 1) | (kind << 2)
    }

    /// Whether `word` is a header: zero, erased flash and forwarding addresses are not.
    pub(crate) fn is_valid(word: u64) -> bool {
        let header = Self(word);
        let sane = match header.kind() {
            Kind::Record => true,
            Kind::Array => header.element_words() > 0 || header.count() == 0,
            Kind::Bytes => header.length() <= MOST_BYTES,
            Kind::Text => header.length() <= MOST_BYTES && !header.is_mutable(),
        };
        word & 0xF1 == 0x51 && sane
    }

    pub(crate) fn is_mutable(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 >> 2 & 3 {
            0 => Kind::Record,
            1 => Kind::Array,
            2 => Kind::Bytes,
            _ => Kind::Text,
        }
    }

    /// Bytes of a byte array or string.
    pub(crate) const fn length(self) -> u64 {
        self.0 >> 8
    }

    /// Elements of an array.
    pub(crate) const fn count(self) -> u64 {
        self.0 >> 32
    }

    /// Pointers of a record or of each element: they come first.
    pub(crate) fn pointers(self) -> u64 {
        match self.kind() {
            Kind::Record | Kind::Array => self.0 >> 8 & 0xFF,
            Kind::Bytes | Kind::Text => 0,
        }
    }

    /// Words of a record or of each element.
    pub(crate) fn element_words(self) -> u64 {
        self.pointers() + (self.0 >> 16 & 0xFFFF)
    }

    /// Words after the header.
    pub(crate) fn payload(self) -> u64 {
        match self.kind() {
            Kind::Record => self.element_words(),
            Kind::Array => self.element_words() * self.count(),
            Kind::Bytes | Kind::Text => self.length().div_ceil(WORD),
        }
    }

    /// Words with the header.
    pub(crate) fn words(self) -> u64 {
        1 + self.payload()
    }

    /// Number of all pointers.
    pub(crate) fn pointer_count(self) -> u64 {
        match self.kind() {
            Kind::Record => self.pointers(),
            Kind::Array => self.pointers() * self.count(),
            Kind::Bytes | Kind::Text => 0,
        }
    }

    /// Words from the header to the pointer with this number.
    pub(crate) fn pointer_offset(self, number: u64) -> u64 {
        let pointers = self.pointers();
        1 + number / pointers * self.element_words() + number % pointers
    }

    /// Words from the header to each pointer.
    pub(crate) fn pointer_offsets(self) -> impl Iterator<Item = u64> {
        (0..self.pointer_count()).map(move |number| self.pointer_offset(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_tell_sizes_and_pointers() {
        let record = Header::record(true, 2, 3, 7);
        assert!(Header::is_valid(record.0) && record.is_mutable());
        assert_eq!((record.words(), record.kind()), (6, Kind::Record));
        assert_eq!(record.pointer_offsets().collect::<Vec<_>>(), [1, 2]);
        let array = Header::array(false, 1, 1, 3);
        assert_eq!((array.words(), array.is_mutable()), (7, false));
        assert_eq!(array.pointer_offsets().collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!(Header::bytes(true, 9).words(), 3);
        assert_eq!(Header::text(0).words(), 1);
        for word in [0, u64::MAX, 0x1000] {
            assert!(!Header::is_valid(word));
        }
    }
}
