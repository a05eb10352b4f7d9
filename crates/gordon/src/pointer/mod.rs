//! References into the heap: plain addresses, with the type of the target and the brand of the
//! update or view in which they are valid.
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
//! Safety: a pointer with a brand `'t` comes from an allocation in the update `'t`, or from a
//! pointer slot of the same heap (`Load<'t>`, root, handles), and from nowhere else. A slot holds
//! null or the address of an object of this heap: slots are filled from pointers alone, and
//! recovery has checked every one. While `'t` lasts no collection runs and no other thread writes
//! ([`crate::brand`]). So the address is that of an object's header, and its payload has the length
//! in the header. The header is compared with the type before the payload is read. Immutable
//! objects are never written after their allocation, so slices of them are valid for all of `'t`. A
//! slice of a mutable object exists only inside the `load` of a value, which can reach no `Tx`.
#![allow(unsafe_code, reason = "reading objects in place")]

mod access;
mod contents;

use crate::brand::Brand;
use crate::object::Header;
use crate::persist::{Load, Persist, Store, key_of, mix_schema, raw_words, schema_of};
use crate::region::WORD;
use crate::types::{Describer, Reference, TypeNumber};
use std::marker::PhantomData;
use std::num::NonZeroU64;

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
        // SAFETY: the caller guarantees these words; nobody writes them while `'t` lasts, except
        // through a `Tx`, which `T::load` cannot reach (module docs).
        let pointers = unsafe { std::slice::from_raw_parts(from, T::POINTERS) };
        // SAFETY: nobody writes them while `'t` lasts; the bytes follow the pointers in the same object.
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
        // SAFETY: the caller guarantees the kind, so the payload has the header's length in bytes;
        // it is never written again (module docs).
        unsafe { std::slice::from_raw_parts(from, self.header().length() as usize) }
    }

    /// Panics unless the object has this header.
    #[inline(always)]
    pub(crate) fn expect(self, header: Header, what: &str) {
        if self.header() != header {
            self.mismatch(what);
        }
    }

    /// The number of elements of an array of `T`s whose header equals `header` except for that
    /// number.
    #[inline(always)]
    fn elements<T>(self, header: Header) -> usize {
        let found = self.header();
        if found.0 as u32 != header.0 as u32 {
            self.mismatch(std::any::type_name::<T>());
        }
        found.count() as usize
    }

    /// The element at `index`, if there is one.
    #[inline(always)]
    fn element<T: Persist<'t>>(self, header: Header, index: usize) -> Option<T> {
        // SAFETY: `elements` has found the header of an array of Ts, and `index` is below its
        // count.
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

/// Crate-private operations on references.
pub(crate) trait Addressed<'t>: Sized {
    /// The address, with its brand.
    fn branded(self) -> Address<'t>;
    /// The address.
    fn address(self) -> u64 {
        self.branded().get()
    }
    /// A reference to the object at `address`, which this heap holds during `'t`.
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

            fn describe(types: &mut Describer) -> TypeNumber {
                types.reference(key_of::<Self>(), |_types| Reference::$name $(($param::describe(_types)))?)
            }

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
            fn branded(self) -> Address<'t> {
                self.address
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
pub(crate) struct Layout<T>(PhantomData<T>);

impl<'t, T: Persist<'t>> Layout<T> {
    pub(crate) const WORDS: usize = T::POINTERS + raw_words::<T>();
    pub(crate) const REF: Header = Header::record(false, T::POINTERS, raw_words::<T>(), T::SCHEMA);
    pub(crate) const VAR: Header = Header::record(true, T::POINTERS, raw_words::<T>(), T::SCHEMA);
    pub(crate) const SLICE: Header = Header::array(false, T::POINTERS, raw_words::<T>(), 0);
    pub(crate) const ARRAY: Header = Header::array(true, T::POINTERS, raw_words::<T>(), 0);
}
