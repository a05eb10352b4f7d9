//! References into the heap: plain addresses, with the type of what is there and the brand of the
//! update or view in which they are good.
//!
//! | type | SML | can be changed |
//! | --- | --- | --- |
//! | [`Ref`] | record, tuple, datatype | no |
//! | [`Slice`] | vector | no |
//! | [`Text`], [`Bytes`] | string | no |
//! | [`Var`] | `ref` | yes |
//! | [`Array`] | `array` | yes |
//! | [`ByteArray`] | `bytearray` | yes |
//!
//! Safety: a pointer with a brand `'t` is made in two ways only: by an allocation in the update
//! `'t`, or out of a pointer slot of the same heap (`Load<'t>`, root, handles). Slots hold null or
//! the address of an object of this heap: they are filled from pointers alone, and recovery has
//! checked every one. While `'t` lasts no collection runs and no other thread writes ([`crate::brand`]).
//! So the address is that of an object's header, and its payload is as long as the header says. What
//! the header says is compared with the type before the payload is read. Immutable objects are
//! never written after their allocation, so slices of them are good for all of `'t`. Of mutable ones
//! a slice exists only inside the `load` of a value, which can reach no `Tx`.
#![allow(unsafe_code, reason = "reading objects in place")]

use crate::brand::Brand;
use crate::heap::Tx;
use crate::object::{Header, Kind};
use crate::persist::{Load, Persist, Store, mix_schema, raw_words, schema_of};
use crate::region::WORD;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::Deref;

#[inline(always)]
fn at(address: u64) -> *const u64 {
    std::ptr::with_exposed_provenance(address as usize)
}

/// The address in a reference of brand `'t`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address<'t> {
    address: NonZeroU64,
    brand: PhantomData<Brand<'t>>,
}

impl<'t> Address<'t> {
    /// For an address that the caller got from this heap in `'t`.
    #[inline(always)]
    fn new(address: u64) -> Self {
        let address = NonZeroU64::new(address).expect("a reference that is not null");
        Self {
            address,
            brand: PhantomData,
        }
    }

    #[inline(always)]
    fn get(self) -> u64 {
        self.address.get()
    }

    #[inline(always)]
    fn header(self) -> Header {
        // SAFETY: a branded address is that of an object's header, mapped and aligned (module
        // docs); headers do not change while `'t` lasts.
        Header(unsafe { at(self.get()).read() })
    }

    /// Reads a `T` from the payload, `offset` words in.
    ///
    /// # Safety
    /// The payload has the words of a `T` there: its pointers first, which are slots of the object.
    #[inline(always)]
    unsafe fn load<T: Persist<'t>>(self, offset: u64) -> T {
        let from = at(self.get() + (1 + offset) * WORD);
        // SAFETY: the caller vouches for these words; nobody writes them meanwhile (module docs).
        let pointers = unsafe { std::slice::from_raw_parts(from, T::POINTERS) };
        // SAFETY: the same; the bytes lie behind the pointers, in the same object.
        let raw = unsafe { std::slice::from_raw_parts(from.add(T::POINTERS).cast(), T::BYTES) };
        T::load(&mut Load {
            pointers,
            raw,
            brand: PhantomData,
        })
    }

    /// The bytes of an immutable byte array or string.
    ///
    /// # Safety
    /// The object is one.
    #[inline(always)]
    unsafe fn bytes(self) -> &'t [u8] {
        let from = at(self.get() + WORD).cast::<u8>();
        // SAFETY: that long is the payload, and it is never written again (module docs).
        unsafe { std::slice::from_raw_parts(from, self.header().length() as usize) }
    }

    #[inline(always)]
    fn expect(self, header: Header, what: &str) {
        if self.header() != header {
            self.mismatch(what);
        }
    }

    /// The number of elements of an array of `T`s that is like `header` in all but that.
    #[inline(always)]
    fn elements<T>(self, header: Header) -> usize {
        let found = self.header();
        if found.0 as u32 != header.0 as u32 {
            self.mismatch(std::any::type_name::<T>());
        }
        found.count() as usize
    }

    /// One of them, if there is such a one.
    #[inline(always)]
    fn element<T: Persist<'t>>(self, header: Header, index: usize) -> Option<T> {
        // SAFETY: inside an array of so many elements of the pointers and words of a T.
        (index < self.elements::<T>(header))
            .then(|| unsafe { self.load((index * Layout::<T>::WORDS) as u64) })
    }

    #[cold]
    fn mismatch(self, what: &str) -> ! {
        panic!(
            "the object at {:#x} is no {what}: the heap was written with another definition",
            self.get()
        )
    }
}

/// Runs `f` on the words of `value`: pointers, then the other bytes.
pub(crate) fn with_words<'t, T: Persist<'t>, R>(value: &T, f: impl FnOnce(&[u64]) -> R) -> R {
    const SMALL: usize = 32;
    let words = T::POINTERS + raw_words::<T>();
    let mut small = [0; SMALL];
    let mut large;
    let buffer = if words <= SMALL {
        &mut small[..words]
    } else {
        large = vec![0; words];
        &mut large[..]
    };
    let (pointers, raw) = buffer.split_at_mut(T::POINTERS);
    let raw = &mut bytemuck::cast_slice_mut(raw)[..T::BYTES];
    value.store(&mut Store {
        pointers,
        raw,
        brand: PhantomData,
    });
    f(buffer)
}

/// A reference to an object of a heap. Sealed: the seven kinds are in this module.
#[expect(private_bounds, reason = "the supertrait seals the trait")]
pub trait Pointer<'t>: Persist<'t> + Addressed<'t> {}

/// What only this crate may do with references.
pub(crate) trait Addressed<'t>: Sized {
    /// The address.
    fn address(self) -> u64;
    /// A reference to the object at `address`: one that this heap holds at the time of `'t`.
    fn at_address(address: u64) -> Self;
}

macro_rules! pointers {
    ($($(#[$doc:meta])* $name:ident $(<$param:ident>)?, $schema:literal;)*) => {$(
        $(#[$doc])*
        pub struct $name<'t $(, $param)?> {
            address: Address<'t>,
            $(target: PhantomData<*const $param>,)?
        }

        impl<'t $(, $param)?> Clone for $name<'t $(, $param)?> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<'t $(, $param)?> Copy for $name<'t $(, $param)?> {}

        impl<'t $(, $param)?> $name<'t $(, $param)?> {
            /// Whether both are the same object.
            #[must_use]
            pub fn is_same(self, other: Self) -> bool {
                self.address == other.address
            }
        }

        impl<'t $(, $param: Persist<'t>)?> Persist<'t> for $name<'t $(, $param)?> {
            type At<'a> = $name<'a $(, $param::At<'a>)?>;
            const POINTERS: usize = 1;
            const BYTES: usize = 0;
            const SCHEMA: u64 = {
                let schema = schema_of($schema);
                $(let schema = mix_schema(schema, $param::SCHEMA);)?
                schema
            };
            const NEVER_NULL: bool = true;

            #[inline(always)]
            fn load(from: &mut Load<'t, '_>) -> Self {
                Self::at_address(from.pointer())
            }

            #[inline(always)]
            fn store(&self, to: &mut Store<'t, '_>) {
                to.pointer(self.address.get());
            }
        }

        impl<'t $(, $param: Persist<'t>)?> Pointer<'t> for $name<'t $(, $param)?> {}

        impl<'t $(, $param: Persist<'t>)?> Addressed<'t> for $name<'t $(, $param)?> {
            #[inline(always)]
            fn address(self) -> u64 {
                self.address.get()
            }

            #[inline(always)]
            fn at_address(address: u64) -> Self {
                Self { address: Address::new(address), $(target: PhantomData::<*const $param>,)? }
            }
        }
    )*};
}

pointers! {
    /// A reference to an immutable value.
    Ref<T>, "Ref";
    /// A reference to an immutable sequence of values.
    Slice<T>, "Slice";
    /// A reference to a value that can be replaced.
    Var<T>, "Var";
    /// A reference to a sequence of fixed length, of values that can be replaced.
    Array<T>, "Array";
    /// A reference to an immutable string.
    Text, "Text";
    /// A reference to an immutable byte array.
    Bytes, "Bytes";
    /// A reference to a byte array of fixed length that can be changed.
    ByteArray, "ByteArray";
}

/// Headers of the objects that hold a `T`.
struct Layout<T>(PhantomData<T>);

impl<'t, T: Persist<'t>> Layout<T> {
    const WORDS: usize = T::POINTERS + raw_words::<T>();
    const REF: Header = Header::record(false, T::POINTERS, raw_words::<T>(), T::SCHEMA);
    const VAR: Header = Header::record(true, T::POINTERS, raw_words::<T>(), T::SCHEMA);
    const SLICE: Header = Header::array(false, T::POINTERS, raw_words::<T>(), 0);
    const ARRAY: Header = Header::array(true, T::POINTERS, raw_words::<T>(), 0);
}

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
        // SAFETY: a record with the pointers and words of a T, as the header says.
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
        // SAFETY: a record with the pointers and words of a T, as the header says.
        unsafe { self.address.load(0) }
    }

    /// Replaces the value.
    ///
    /// # Panics
    /// The object was written as another type.
    pub fn write(self, tx: &Tx<'t>, value: T) {
        self.address
            .expect(Layout::<T>::VAR, std::any::type_name::<T>());
        with_words(&value, |words| {
            tx.mutate(self.address.get(), 0, words, T::POINTERS)
        });
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

    /// Replaces the element at `index`.
    ///
    /// # Panics
    /// There is no such element, or the object was written as another type.
    pub fn set(self, tx: &Tx<'t>, index: usize, value: T) {
        let length = self.len();
        assert!(index < length, "element {index} of an array of {length}");
        let start = (index * Layout::<T>::WORDS) as u64;
        with_words(&value, |words| {
            tx.mutate(self.address.get(), start, words, T::POINTERS)
        });
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
        // SAFETY: a string, so immutable.
        let bytes = unsafe { self.address.bytes() };
        // SAFETY: objects of this kind are made from strings only, and recovery has checked theirs.
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
    /// They are not all in the array.
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
        // SAFETY: the bytes lie in the payload, as just tested; `to` is not in a heap, of which no
        // mutable slice is ever given out.
        unsafe { std::ptr::copy_nonoverlapping(from.add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Writes `from` into the array, from `offset` on.
    ///
    /// # Panics
    /// It does not fit.
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
        // Stores are of words: those at the ends keep the bytes that are not replaced.
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
        tx.mutate(self.address.get(), start as u64, &words, 0);
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

macro_rules! by_contents {
    ($($name:ident),*) => {$(
        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl Eq for $name<'_> {}

        impl PartialOrd for $name<'_> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name<'_> {
            fn cmp(&self, other: &Self) -> Ordering {
                (**self).cmp(&**other)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    )*};
}

by_contents!(Text, Bytes);

impl<'t, T: Persist<'t> + fmt::Debug> fmt::Debug for Ref<'t, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl<'t, T: Persist<'t> + fmt::Debug> fmt::Debug for Slice<'t, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Mutable objects may form cycles: their contents are not shown.
macro_rules! by_address {
    ($($name:ident $(<$param:ident>)?),*) => {$(
        impl<'t $(, $param)?> fmt::Debug for $name<'t $(, $param)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.address.get())
            }
        }
    )*};
}

by_address!(Var<T>, Array<T>, ByteArray);

impl<'t> Tx<'t> {
    /// `alloc`: a new immutable value.
    ///
    /// # Panics
    /// The update allocates more than the bank could hold; so do all allocations.
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
        // All words first: an object that is half filled would be seen by a collection.
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
