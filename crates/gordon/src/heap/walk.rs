//! Objects found by the types of the heap: the walk over all that the root can reach, and statistics of it.

use super::state::State;
use super::tx::View;
use crate::error::{Error, Result};
use crate::object::Header;
use crate::region::{Region, WORD};
use crate::types::{Catalogue, Reference, Shape, TypeNumber, Value};
use std::collections::{HashMap, VecDeque};

/// The objects of a heap, with its types.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) region: &'a Region,
    pub(super) types: &'a Catalogue,
}

/// An object that is what a reference to it says.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    types: &'a Catalogue,
    pub(super) reference: Reference,
    header: Header,
    payload: &'a [u64],
}

impl<'a> Objects<'a> {
    /// The object at `address`, to which a reference of the type `of` points.
    ///
    /// # Errors
    /// It is another one.
    pub(super) fn open(self, of: TypeNumber, address: u64) -> Result<Object<'a>> {
        let reference = self.types.reference(of).expect("a type of references");
        let what = || {
            format!(
                "the object at {address:#x} is no {}, as the heap's types say",
                self.types.name(of)
            )
        };
        if address == 0 {
            return Err(Error::corrupted(what()));
        }
        let header = Header(self.region.load(address));
        if !self.types.fits(reference, header) {
            return Err(Error::corrupted(what()));
        }
        Ok(Object {
            types: self.types,
            reference,
            header,
            payload: self.region.words(address + WORD, header.payload()),
        })
    }

    /// Calls `visit` for every reference in a value.
    pub(super) fn references(
        self,
        value: Value<'_>,
        visit: &mut dyn FnMut(TypeNumber, u64) -> Result<()>,
    ) -> Result<()> {
        if value.pointers.is_empty() {
            return Ok(());
        }
        let types = self.types;
        match types.shape(value.of) {
            Shape::Unit | Shape::Plain(_) => Ok(()),
            Shape::Reference(_) => visit(value.of, value.pointers[0]),
            Shape::Option(of) => match value.some(types, *of) {
                Some(some) => self.references(some, visit),
                None => Ok(()),
            },
            Shape::Fixed(of, count) => {
                let mut parts = value.parts(types);
                (0..*count).try_for_each(|_| self.references(parts.take(*of), visit))
            }
            Shape::Tuple(of) => {
                let mut parts = value.parts(types);
                of.iter()
                    .try_for_each(|of| self.references(parts.take(*of), visit))
            }
            Shape::Struct(_, fields) => {
                let mut parts = value.parts(types);
                fields
                    .iter()
                    .try_for_each(|field| self.references(parts.take(field.of), visit))
            }
            Shape::Enum { variants, .. } => {
                let (tag, variant) = value.variant(types, variants);
                let (variant, mut parts) = variant.ok_or_else(|| self.no_variant(value.of, tag))?;
                let mut fields = variant.fields.iter();
                fields.try_for_each(|field| self.references(parts.take(field.of), visit))
            }
        }
    }

    /// The error for a variant that an enum does not have.
    pub(super) fn no_variant(self, of: TypeNumber, tag: u8) -> Error {
        Error::corrupted(format!("{} has no variant {tag}", self.types.name(of)))
    }

    /// Calls `visit` once for every object that `target` can reach, nearest first.
    pub(super) fn walk(
        self,
        target: u64,
        mut visit: impl FnMut(TypeNumber, Object<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut reached = Reached::default();
        reached.id(Catalogue::ROOT, target);
        while let Some((of, address)) = reached.next() {
            let object = self.open(of, address)?;
            visit(of, object)?;
            for value in object.values() {
                self.references(value, &mut |of, address| {
                    reached.id(of, address);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// Objects that a walk has reached: each gets a number, and its turn.
#[derive(Default)]
pub(super) struct Reached {
    ids: HashMap<u64, u64>,
    queue: VecDeque<(TypeNumber, u64)>,
}

impl Reached {
    /// The number of the object at `address`.
    pub(super) fn id(&mut self, of: TypeNumber, address: u64) -> u64 {
        let next = self.ids.len() as u64;
        *self.ids.entry(address).or_insert_with(|| {
            self.queue.push_back((of, address));
            next
        })
    }

    /// The next object to visit. They come in the order of their numbers.
    pub(super) fn next(&mut self) -> Option<(TypeNumber, u64)> {
        self.queue.pop_front()
    }
}

impl<'a> Object<'a> {
    /// Bytes with the header.
    pub(super) fn bytes_in_heap(&self) -> u64 {
        self.header.words() * WORD
    }

    /// Whether it is a sequence.
    pub(super) fn is_sequence(&self) -> bool {
        matches!(self.reference, Reference::Slice(_) | Reference::Array(_))
    }

    /// Its value or elements; none of a string or byte array.
    pub(super) fn values(self) -> impl Iterator<Item = Value<'a>> {
        let of = self.reference.target();
        let words = self.header.element_words() as usize;
        let count = match of {
            None => 0,
            Some(_) if self.is_sequence() => self.header.count() as usize,
            Some(_) => 1,
        };
        (0..count).map(move |index| {
            let of = of.expect("an object with values");
            Value::new(self.types, of, &self.payload[index * words..][..words])
        })
    }

    /// The contents of a string or byte array.
    pub(super) fn contents(&self) -> &'a [u8] {
        &bytemuck::cast_slice(self.payload)[..self.header.length() as usize]
    }
}

/// The reachable objects of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStatistics {
    /// The type of references to them, such as `Ref<Note>` or `Text`.
    pub name: String,
    /// Their number.
    pub objects: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
}

/// What a heap holds, by type: see [`View::statistics`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Reachable objects by type, most bytes first.
    pub types: Vec<TypeStatistics>,
    /// Bytes of the root object and the description of the types.
    pub own_bytes: u64,
    /// Bytes of persistent space that nothing can reach: a collection frees them.
    pub garbage_bytes: u64,
}

impl State {
    pub(super) fn statistics(&self) -> Result<Statistics> {
        let (target, types) = self.typed_root()?;
        let objects = Objects {
            region: &self.region,
            types: &types,
        };
        let mut found: HashMap<TypeNumber, (u64, u64)> = HashMap::new();
        objects.walk(target, |of, object| {
            let (count, bytes) = found.entry(of).or_default();
            *count += 1;
            *bytes += object.bytes_in_heap();
            Ok(())
        })?;
        let own_bytes = self.own_bytes();
        let used = self.immutable.used(&self.region) + self.mutable.used(&self.region);
        let reachable: u64 = found.values().map(|(_, bytes)| bytes).sum();
        let by_type = found
            .into_iter()
            .map(|(of, (objects, bytes))| TypeStatistics {
                name: types.name(of).to_owned(),
                objects,
                bytes,
            });
        let mut by_type: Vec<_> = by_type.collect();
        by_type.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        Ok(Statistics {
            types: by_type,
            own_bytes,
            garbage_bytes: used.saturating_sub(reachable + own_bytes),
        })
    }
}

impl View<'_> {
    /// Counts the objects that the root can reach, by type, and what nothing can reach.
    ///
    /// # Errors
    /// There is no root, or the heap does not know its types, or an object is of another type than these say.
    pub fn statistics(&self) -> Result<Statistics> {
        self.state.statistics()
    }
}
