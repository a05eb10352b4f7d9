//! `read`: what each kind of reference gives access to.
//!
//! Safety: see the parent module.
#![allow(unsafe_code, reason = "reading objects in place")]

use super::{Array, ByteArray, Bytes, Layout, Ref, Slice, Text, Var, at};
use crate::object::Kind;
use crate::persist::Persist;
use crate::region::WORD;

impl<'t, T: Persist<'t>> Ref<'t, T> {
    /// Reads the value. Only the fields that are used are loaded.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    pub fn read(self) -> T {
        self.address
            .expect(Layout::<T>::REF, std::any::type_name::<T>());
        // SAFETY: `expect` has found the header of a record with the pointers and words of a T.
        unsafe { self.address.load(0) }
    }
}

impl<'t, T: Persist<'t>> Var<'t, T> {
    /// Reads the value as it is now.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    pub fn read(self) -> T {
        self.address
            .expect(Layout::<T>::VAR, std::any::type_name::<T>());
        // SAFETY: `expect` has found the header of a record with the pointers and words of a T.
        unsafe { self.address.load(0) }
    }
}

impl<'t, T: Persist<'t>> Slice<'t, T> {
    /// The number of elements.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a fixed length; emptiness is len() == 0"
    )]
    pub fn len(self) -> usize {
        self.address.elements::<T>(Layout::<T>::SLICE)
    }

    /// The element at `index`, if there is one.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    pub fn get(self, index: usize) -> Option<T> {
        self.address.element(Layout::<T>::SLICE, index)
    }

    /// All elements in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator {
        (0..self.len()).map(move |index| self.get(index).expect("an element in range"))
    }
}

impl<'t, T: Persist<'t>> Array<'t, T> {
    /// The number of elements.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a fixed length; emptiness is len() == 0"
    )]
    pub fn len(self) -> usize {
        self.address.elements::<T>(Layout::<T>::ARRAY)
    }

    /// The element at `index`, if there is one.
    ///
    /// # Panics
    /// The object was written as another type.
    #[inline(always)]
    #[must_use]
    pub fn get(self, index: usize) -> Option<T> {
        self.address.element(Layout::<T>::ARRAY, index)
    }
}

impl<'t> Text<'t> {
    /// The string.
    #[inline(always)]
    #[must_use]
    pub fn as_str(self) -> &'t str {
        if self.address.header().kind() != Kind::Text {
            self.address.mismatch("string");
        }
        // SAFETY: the header says that it is a string, as just tested; strings are never mutable.
        let bytes = unsafe { self.address.bytes() };
        // SAFETY: this process makes objects of this kind from `str` only, and recovery has checked
        // that all others are UTF-8.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }
}

impl<'t> Bytes<'t> {
    /// The bytes.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(self) -> &'t [u8] {
        let header = self.address.header();
        if header.kind() != Kind::Bytes || header.is_mutable() {
            self.address.mismatch("immutable byte array");
        }
        // SAFETY: an immutable byte array, as just tested.
        unsafe { self.address.bytes() }
    }
}

impl<'t> ByteArray<'t> {
    /// The number of bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a fixed length; emptiness is len() == 0"
    )]
    pub fn len(self) -> usize {
        let header = self.address.header();
        if header.kind() != Kind::Bytes || !header.is_mutable() {
            self.address.mismatch("byte array");
        }
        header.length() as usize
    }

    /// Copies bytes from `offset` on into `to`.
    ///
    /// # Panics
    /// The range is not inside of the array.
    pub fn read(self, offset: usize, to: &mut [u8]) {
        let length = self.len();
        let inside = offset
            .checked_add(to.len())
            .is_some_and(|end| end <= length);
        assert!(
            inside,
            "{} bytes at {offset} of a byte array of {length}",
            to.len()
        );
        let from = at(self.address.get() + WORD).cast::<u8>();
        // SAFETY: the bytes lie in the payload, as just tested. `to` does not overlap them: nobody
        // outside of this crate has a mutable slice of a heap.
        unsafe { std::ptr::copy_nonoverlapping(from.add(offset), to.as_mut_ptr(), to.len()) };
    }
}
