//! Values read by their description, as [`Load`](crate::Load) reads them by their type.

use super::describe::Variant;
use super::{Catalogue, Plain, TypeNumber};

/// A value in an object: its pointers and its other bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) of: TypeNumber,
    pub(crate) pointers: &'a [u64],
    pub(crate) raw: &'a [u8],
}

/// The parts of a value that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    types: &'a Catalogue,
    pointers: &'a [u64],
    raw: &'a [u8],
}

impl<'a> Value<'a> {
    /// The value in the first words of `words`.
    pub(crate) fn new(types: &Catalogue, of: TypeNumber, words: &'a [u64]) -> Self {
        let size = types.size(of);
        let (pointers, rest) = words.split_at(size.pointers as usize);
        let raw = &bytemuck::cast_slice(rest)[..size.bytes as usize];
        Self { of, pointers, raw }
    }

    /// The fields of a struct, the elements of an array or a tuple, in order.
    pub(crate) fn parts(self, types: &'a Catalogue) -> Parts<'a> {
        Parts {
            types,
            pointers: self.pointers,
            raw: self.raw,
        }
    }

    /// What is in an option.
    pub(crate) fn some(self, types: &'a Catalogue, of: TypeNumber) -> Option<Self> {
        let (is_some, raw) = if types.is_never_null(of) {
            (self.pointers[0] != 0, self.raw)
        } else {
            (self.raw[0] != 0, &self.raw[1..])
        };
        is_some.then_some(Self { of, raw, ..self })
    }

    /// The number of an enum's variant, the variant if there is one, and its fields.
    pub(crate) fn variant(
        self,
        types: &'a Catalogue,
        variants: &'a [Variant],
    ) -> (u8, Option<(&'a Variant, Parts<'a>)>) {
        let tag = self.raw[0];
        let parts = Parts {
            types,
            pointers: self.pointers,
            raw: &self.raw[1..],
        };
        (
            tag,
            variants
                .get(usize::from(tag))
                .map(|variant| (variant, parts)),
        )
    }
}

impl<'a> Parts<'a> {
    /// The next part.
    pub(crate) fn take(&mut self, of: TypeNumber) -> Value<'a> {
        let size = self.types.size(of);
        let (pointers, rest) = self.pointers.split_at(size.pointers as usize);
        self.pointers = rest;
        let (raw, rest) = self.raw.split_at(size.bytes as usize);
        self.raw = rest;
        Value { of, pointers, raw }
    }

    /// The parts of these types.
    pub(crate) fn all(mut self, of: impl Iterator<Item = TypeNumber>) -> Vec<Value<'a>> {
        of.map(|of| self.take(of)).collect()
    }
}

/// A plain value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Natural(u128),
    Integer(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    Char(char),
}

/// `raw`, filled up to 16 bytes.
fn wide(raw: &[u8], fill: u8) -> [u8; 16] {
    let mut bytes = [fill; 16];
    bytes[..raw.len()].copy_from_slice(raw);
    bytes
}

impl Number {
    pub(crate) fn read(plain: Plain, raw: &[u8]) -> Self {
        let sign = raw.last().map_or(0, |last| (last >> 7) * 0xFF);
        match plain {
            Plain::Natural(_) | Plain::Usize => Self::Natural(u128::from_le_bytes(wide(raw, 0))),
            Plain::Integer(_) | Plain::Isize => Self::Integer(i128::from_le_bytes(wide(raw, sign))),
            Plain::Float(4) => Self::F32(f32::from_le_bytes(raw.try_into().expect("its bytes"))),
            Plain::Float(_) => Self::F64(f64::from_le_bytes(raw.try_into().expect("its bytes"))),
            Plain::Bool => Self::Bool(raw[0] != 0),
            Plain::Char => {
                let code = u32::from_le_bytes(raw.try_into().expect("its bytes"));
                Self::Char(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
        }
    }

    /// Writes the number as `plain`, which has a place for every value of its type: see [`Plain::widens_to`].
    pub(crate) fn write(self, plain: Plain, to: &mut [u8]) {
        let from = match (self, plain) {
            (Self::F32(number), Plain::Float(8)) => wide(&f64::from(number).to_le_bytes(), 0),
            (Self::F32(number), _) => wide(&number.to_le_bytes(), 0),
            (Self::F64(number), _) => wide(&number.to_le_bytes(), 0),
            (Self::Natural(number), _) => number.to_le_bytes(),
            (Self::Integer(number), _) => number.to_le_bytes(),
            (Self::Bool(truth), _) => wide(&[truth.into()], 0),
            (Self::Char(character), _) => wide(&u32::from(character).to_le_bytes(), 0),
        };
        let bytes = to.len();
        to.copy_from_slice(&from[..bytes]);
    }
}

impl Plain {
    /// Whether every value of this type is one of `wider`.
    pub(crate) fn widens_to(self, wider: Self) -> bool {
        let known = |plain| match plain {
            Self::Usize => Self::Natural(8),
            Self::Isize => Self::Integer(8),
            other => other,
        };
        match (known(self), known(wider)) {
            (one, other) if one == other => true,
            (Self::Natural(from), Self::Natural(to) | Self::Integer(to))
            | (Self::Integer(from), Self::Integer(to))
            | (Self::Float(from), Self::Float(to)) => from < to,
            _ => false,
        }
    }
}
