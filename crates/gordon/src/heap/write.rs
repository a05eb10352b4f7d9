//! `write` and `set`: what an update changes in the objects of a heap.

use super::Tx;
use crate::persist::Persist;
use crate::pointer::{Addressed, Array, ByteArray, Layout, Var, with_words};

impl<'t, T: Persist<'t>> Var<'t, T> {
    /// Replaces the value.
    ///
    /// # Panics
    /// The object was written as another type.
    pub fn write(self, tx: &Tx<'t>, value: T) {
        self.branded()
            .expect(Layout::<T>::VAR, std::any::type_name::<T>());
        with_words(&value, |words| {
            tx.mutate(self.address(), 0, words, T::POINTERS)
        });
    }
}

impl<'t, T: Persist<'t>> Array<'t, T> {
    /// Replaces the element at `index`.
    ///
    /// # Panics
    /// There is no such element, or the object was written as another type.
    pub fn set(self, tx: &Tx<'t>, index: usize, value: T) {
        let length = self.len();
        assert!(index < length, "element {index} of an array of {length}");
        let start = (index * Layout::<T>::WORDS) as u64;
        with_words(&value, |words| {
            tx.mutate(self.address(), start, words, T::POINTERS)
        });
    }
}

impl<'t> ByteArray<'t> {
    /// Writes `from` into the array, from `offset` on.
    ///
    /// # Panics
    /// The range is not inside of the array.
    pub fn write(self, tx: &Tx<'t>, offset: usize, from: &[u8]) {
        let length = self.len();
        let inside = offset
            .checked_add(from.len())
            .is_some_and(|end| end <= length);
        assert!(
            inside,
            "{} bytes at {offset} of a byte array of {length}",
            from.len()
        );
        if from.is_empty() {
            return;
        }
        // A store replaces whole words: the first and the last keep their other bytes.
        let start = offset / 8;
        let end = (offset + from.len()).div_ceil(8);
        let mut bytes = vec![0; (end - start) * 8];
        let kept = bytes.len().min(length - start * 8);
        self.read(start * 8, &mut bytes[..kept]);
        bytes[offset - start * 8..][..from.len()].copy_from_slice(from);
        let words: Vec<_> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        tx.mutate(self.address(), start as u64, &words, 0);
    }
}
