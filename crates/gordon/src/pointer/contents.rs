//! Comparison, hashing and printing of references: strings and bytes by their contents, mutable
//! objects by their addresses.

use super::{Array, ByteArray, Bytes, Ref, Slice, Text, Var};
use crate::persist::Persist;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

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

/// Mutable objects may form cycles: their contents are not printed.
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
