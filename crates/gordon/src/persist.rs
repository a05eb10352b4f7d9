//! Storable types: [`Persist`], its implementations for plain values, and the cursors that read and
//! write a value's words.
//!
//! A value is stored as its pointers, one word each, followed by its other bytes without padding. A
//! read checks the object's header against the type, so a wrong implementation of the trait gives
//! wrong values, never wrong memory: it can be implemented without `unsafe`.

use crate::brand::Brand;
use crate::types::{Catalogue, Describer, Fill, Key, Shape, TypeNumber};
use std::any::type_name;
use std::marker::PhantomData;

/// A type whose values can be stored in a [`Heap`](crate::Heap): derive it.
///
/// `'t` is the update or view in which the value was read; its references into the heap are valid
/// for `'t`. A type with references has one lifetime parameter, which is `'t`.
///
/// ```
/// use gordon::{Persist, Ref, Text};
///
/// #[derive(Clone, Copy, Persist)]
/// struct Flight<'t> {
///     number: u16,
///     carrier: Text<'t>,
///     next: Option<Ref<'t, Flight<'t>>>,
/// }
/// ```
pub trait Persist<'t>: Copy {
    /// The same type in another update.
    type At<'a>: Persist<'a>;
    /// Pointers that a value holds.
    const POINTERS: usize;
    /// Other bytes that a value holds.
    const BYTES: usize;
    /// Distinguishes type definitions.
    const SCHEMA: u64;
    /// Whether the first pointer of a value is never null, so that a null one can mean `None`.
    const NEVER_NULL: bool = false;

    /// Adds the type, and all that it can reach, to a description; returns its number there. A heap stores that of its
    /// root. An implementation by hand describes the type that it stores in its place: `u64::describe(types)`.
    fn describe(types: &mut Describer) -> TypeNumber;
    /// Reads a value.
    fn load(from: &mut Load<'t, '_>) -> Self;
    /// Writes this value.
    fn store(&self, to: &mut Store<'t, '_>);
}

/// Words of the bytes of `T`.
pub(crate) const fn raw_words<'t, T: Persist<'t>>() -> usize {
    T::BYTES.div_ceil(8)
}

/// A value's words, to be read in order.
#[derive(Debug)]
pub struct Load<'t, 'w> {
    pub(crate) pointers: &'w [u64],
    pub(crate) raw: &'w [u8],
    pub(crate) brand: PhantomData<Brand<'t>>,
}

impl<'t, 'w> Load<'t, 'w> {
    /// The next `N` bytes.
    ///
    /// # Panics
    /// More is read than the type holds.
    #[inline(always)]
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self
            .raw
            .split_first_chunk()
            .expect("bytes that the type has");
        self.raw = rest;
        *bytes
    }

    #[inline(always)]
    pub(crate) fn pointer(&mut self) -> u64 {
        let (&pointer, rest) = self
            .pointers
            .split_first()
            .expect("pointers that the type has");
        self.pointers = rest;
        pointer
    }

    /// Splits off the words of a part: `pointers` pointers and `bytes` other bytes.
    ///
    /// # Panics
    /// More is read than the type holds.
    #[inline(always)]
    #[must_use]
    pub fn part(&mut self, pointers: usize, bytes: usize) -> Self {
        let (these, pointers) = self.pointers.split_at(pointers);
        let (this, raw) = self.raw.split_at(bytes);
        (self.pointers, self.raw) = (pointers, raw);
        Self {
            pointers: these,
            raw: this,
            brand: PhantomData,
        }
    }
}

/// A value's words, to be written in order; they are zero before.
#[derive(Debug)]
pub struct Store<'t, 'w> {
    pub(crate) pointers: &'w mut [u64],
    pub(crate) raw: &'w mut [u8],
    pub(crate) brand: PhantomData<Brand<'t>>,
}

impl<'t, 'w> Store<'t, 'w> {
    /// Writes the next `N` bytes.
    ///
    /// # Panics
    /// More is written than the type holds.
    #[inline(always)]
    pub fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let raw = std::mem::take(&mut self.raw);
        let (to, rest) = raw
            .split_first_chunk_mut()
            .expect("bytes that the type has");
        *to = bytes;
        self.raw = rest;
    }

    #[inline(always)]
    pub(crate) fn pointer(&mut self, pointer: u64) {
        let pointers = std::mem::take(&mut self.pointers);
        let (to, rest) = pointers
            .split_first_mut()
            .expect("pointers that the type has");
        *to = pointer;
        self.pointers = rest;
    }

    /// Splits off the words of a part: `pointers` pointers and `bytes` other bytes.
    ///
    /// # Panics
    /// More is written than the type holds.
    #[inline(always)]
    #[must_use]
    pub fn part(&mut self, pointers: usize, bytes: usize) -> Self {
        let (these, pointers) = std::mem::take(&mut self.pointers).split_at_mut(pointers);
        let (this, raw) = std::mem::take(&mut self.raw).split_at_mut(bytes);
        (self.pointers, self.raw) = (pointers, raw);
        Self {
            pointers: these,
            raw: this,
            brand: PhantomData,
        }
    }
}

/// A hash of `text`, for schemas (FNV-1a).
#[must_use]
pub const fn schema_of(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// The schema of a type that depends on another one.
#[must_use]
pub const fn mix_schema(outer: u64, inner: u64) -> u64 {
    (outer.rotate_left(17) ^ inner).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What tells `T` from all other types of the program.
#[must_use]
pub fn key_of<'t, T: Persist<'t>>() -> Key {
    (T::SCHEMA, type_name::<T>())
}

/// The bytes of `value`, for fields that are missing in stored objects.
///
/// # Panics
/// It has references.
pub fn fill_of<'t, T: Persist<'t>>(value: &T) -> Fill {
    let mut pointers = vec![0; T::POINTERS];
    let mut raw = vec![0; T::BYTES];
    value.store(&mut Store {
        pointers: &mut pointers,
        raw: &mut raw,
        brand: PhantomData,
    });
    assert!(
        pointers.iter().all(|pointer| *pointer == 0),
        "a default of {} has references into a heap",
        type_name::<T>()
    );
    Fill(raw)
}

impl Catalogue {
    /// The type `P` and all that it can reach.
    ///
    /// # Panics
    /// A value has more than 2^24 parts, such as fields and elements.
    #[must_use]
    pub fn of<'t, P: Persist<'t>>() -> Self {
        let mut types = Describer::default();
        P::describe(&mut types);
        types
            .finish()
            .unwrap_or_else(|why| panic!("{}: {why}", type_name::<P>()))
    }
}

/// The larger of two sizes.
#[must_use]
pub const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Ends the reading of an enum whose stored variant the type does not have.
///
/// # Panics
/// Always.
#[cold]
pub fn unknown_variant(name: &str, variant: u8) -> ! {
    panic!("{name} has no variant {variant}: the heap was written with another definition")
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl<'t> Persist<'t> for $type {
            type At<'a> = Self;
            const POINTERS: usize = 0;
            const BYTES: usize = size_of::<Self>();
            const SCHEMA: u64 = schema_of(stringify!($type));

            fn describe(types: &mut Describer) -> TypeNumber {
                types.plain(key_of::<Self>(), stringify!($type))
            }

            #[inline(always)]
            fn load(from: &mut Load<'t, '_>) -> Self {
                Self::from_le_bytes(from.bytes())
            }

            #[inline(always)]
            fn store(&self, to: &mut Store<'t, '_>) {
                to.bytes(self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

macro_rules! through {
    ($($type:ty as $other:ty: $load:expr, $store:expr;)*) => {$(
        impl<'t> Persist<'t> for $type {
            type At<'a> = Self;
            const POINTERS: usize = 0;
            const BYTES: usize = size_of::<$other>();
            const SCHEMA: u64 = schema_of(stringify!($type));

            fn describe(types: &mut Describer) -> TypeNumber {
                types.plain(key_of::<Self>(), stringify!($type))
            }

            #[inline(always)]
            fn load(from: &mut Load<'t, '_>) -> Self {
                $load(<$other>::load(from))
            }

            #[inline(always)]
            fn store(&self, to: &mut Store<'t, '_>) {
                $store(*self).store(to);
            }
        }
    )*};
}

through! {
    bool as u8: |byte| byte != 0, u8::from;
    char as u32: |code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), u32::from;
    usize as u64: |n: u64| n as usize, |n: usize| n as u64;
    isize as i64: |n: i64| n as isize, |n: isize| n as i64;
}

impl<'t, T: Persist<'t>> Persist<'t> for Option<T> {
    type At<'a> = Option<T::At<'a>>;
    const POINTERS: usize = T::POINTERS;
    const BYTES: usize = T::BYTES + if T::NEVER_NULL { 0 } else { 1 };
    const SCHEMA: u64 = mix_schema(schema_of("Option"), T::SCHEMA);

    fn describe(types: &mut Describer) -> TypeNumber {
        types.add(key_of::<Self>(), |types| Shape::Option(T::describe(types)))
    }

    #[inline(always)]
    fn load(from: &mut Load<'t, '_>) -> Self {
        let mut part = from.part(Self::POINTERS, Self::BYTES);
        let some = if T::NEVER_NULL {
            part.pointers[0] != 0
        } else {
            bool::load(&mut part)
        };
        some.then(|| T::load(&mut part))
    }

    #[inline(always)]
    fn store(&self, to: &mut Store<'t, '_>) {
        let mut part = to.part(Self::POINTERS, Self::BYTES);
        if !T::NEVER_NULL {
            self.is_some().store(&mut part);
        }
        if let Some(value) = self {
            value.store(&mut part);
        }
    }
}

impl<'t, T: Persist<'t>, const N: usize> Persist<'t> for [T; N] {
    type At<'a> = [T::At<'a>; N];
    const POINTERS: usize = T::POINTERS * N;
    const BYTES: usize = T::BYTES * N;
    const SCHEMA: u64 = mix_schema(mix_schema(schema_of("array"), N as u64), T::SCHEMA);

    fn describe(types: &mut Describer) -> TypeNumber {
        types.add(key_of::<Self>(), |types| {
            Shape::Fixed(T::describe(types), N as u64)
        })
    }

    #[inline(always)]
    fn load(from: &mut Load<'t, '_>) -> Self {
        std::array::from_fn(|_| T::load(from))
    }

    #[inline(always)]
    fn store(&self, to: &mut Store<'t, '_>) {
        for value in self {
            value.store(to);
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident),*))*) => {$(
        impl<'t, $($name: Persist<'t>),*> Persist<'t> for ($($name,)*) {
            type At<'a> = ($($name::At<'a>,)*);
            const POINTERS: usize = 0 $(+ $name::POINTERS)*;
            const BYTES: usize = 0 $(+ $name::BYTES)*;
            const SCHEMA: u64 = {
                let schema = schema_of("tuple");
                $(let schema = mix_schema(schema, $name::SCHEMA);)*
                schema
            };

            fn describe(types: &mut Describer) -> TypeNumber {
                types.add(key_of::<Self>(), |types| Shape::Tuple(vec![$($name::describe(types)),*]))
            }

            #[inline(always)]
            fn load(from: &mut Load<'t, '_>) -> Self {
                ($($name::load(from),)*)
            }

            #[inline(always)]
            #[allow(non_snake_case, reason = "fields are named as their types")]
            fn store(&self, to: &mut Store<'t, '_>) {
                let ($($name,)*) = self;
                $($name.store(to);)*
            }
        }
    )*};
}

impl<'t> Persist<'t> for () {
    type At<'a> = Self;
    const POINTERS: usize = 0;
    const BYTES: usize = 0;
    const SCHEMA: u64 = schema_of("()");

    fn describe(types: &mut Describer) -> TypeNumber {
        types.add(key_of::<Self>(), |_| Shape::Unit)
    }

    #[inline(always)]
    fn load(_: &mut Load<'t, '_>) -> Self {}

    #[inline(always)]
    fn store(&self, _: &mut Store<'t, '_>) {}
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }
