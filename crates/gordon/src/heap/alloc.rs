//! `alloc`: new objects, in new space.

use super::Tx;
use crate::object::Header;
use crate::persist::Persist;
use crate::pointer::{
    Addressed, Array, ByteArray, Bytes, Layout, Ref, Slice, Text, Var, with_words,
};

impl<'t> Tx<'t> {
    /// `alloc`: a new immutable value.
    ///
    /// # Panics
    /// The update allocates more than the bank could hold, or memory runs out. This holds for every
    /// allocation.
    pub fn alloc<T: Persist<'t>>(&self, value: T) -> Ref<'t, T> {
        let address = with_words(&value, |words| {
            self.allocate(Layout::<T>::REF, |to| to.copy_from_slice(words))
        });
        Ref::at_address(address)
    }

    /// A new value that can be replaced.
    pub fn var<T: Persist<'t>>(&self, value: T) -> Var<'t, T> {
        let address = with_words(&value, |words| {
            self.allocate(Layout::<T>::VAR, |to| to.copy_from_slice(words))
        });
        Var::at_address(address)
    }

    /// A new immutable sequence.
    ///
    /// # Panics
    /// It has 2^32 elements or more.
    pub fn slice<T: Persist<'t>>(&self, values: &[T]) -> Slice<'t, T> {
        Slice::at_address(self.sequence(Layout::<T>::SLICE, values))
    }

    /// A new sequence whose elements can be replaced.
    ///
    /// # Panics
    /// It has 2^32 elements or more.
    pub fn array<T: Persist<'t>>(&self, values: &[T]) -> Array<'t, T> {
        Array::at_address(self.sequence(Layout::<T>::ARRAY, values))
    }

    fn sequence<T: Persist<'t>>(&self, layout: Header, values: &[T]) -> u64 {
        let count = u32::try_from(values.len()).expect("fewer than 2^32 elements");
        let header = Header(layout.0 | u64::from(count) << 32);
        if Layout::<T>::WORDS == 0 {
            assert!(
                values.is_empty(),
                "elements of no size cannot be stored in sequences"
            );
        }
        // All words first: if storing a value panics, no half-filled object stays behind for a
        // collection to scan.
        let mut words = Vec::with_capacity(Layout::<T>::WORDS * values.len());
        for value in values {
            with_words(value, |value| words.extend_from_slice(value));
        }
        self.allocate(header, |to| to.copy_from_slice(&words))
    }

    /// A new string.
    pub fn text(&self, text: &str) -> Text<'t> {
        Text::at_address(self.blob(Header::text(text.len() as u64), text.as_bytes()))
    }

    /// A new immutable byte array.
    pub fn bytes(&self, bytes: &[u8]) -> Bytes<'t> {
        Bytes::at_address(self.blob(Header::bytes(false, bytes.len() as u64), bytes))
    }

    /// A new byte array that can be changed.
    pub fn byte_array(&self, bytes: &[u8]) -> ByteArray<'t> {
        ByteArray::at_address(self.blob(Header::bytes(true, bytes.len() as u64), bytes))
    }

    fn blob(&self, header: Header, bytes: &[u8]) -> u64 {
        self.allocate(header, |to| {
            let (whole, rest) = bytes.as_chunks::<8>();
            for (to, word) in to.iter_mut().zip(whole) {
                *to = u64::from_ne_bytes(*word);
            }
            if !rest.is_empty() {
                let mut word = [0; 8];
                word[..rest.len()].copy_from_slice(rest);
                to[whole.len()] = u64::from_ne_bytes(word);
            }
        })
    }
}
