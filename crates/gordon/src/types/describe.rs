//! Descriptions in the making, by derived code and by the implementations of this crate.

use super::{Catalogue, PLAIN, Reference, Shape, Type, TypeNumber};
use crate::persist::{Persist, Store};
use std::any::type_name;
use std::collections::HashMap;
use std::marker::PhantomData;

/// Collects the types that one type can reach: see [`Persist::describe`].
#[derive(Debug, Default)]
pub struct Describer {
    types: Vec<Type>,
    /// By schema and name in the program: two definitions with the same text may stand in two modules.
    seen: HashMap<(u64, &'static str), TypeNumber>,
}

/// The name of a struct or an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The module, which is shown and not compared.
    pub(crate) module: String,
    pub(crate) name: String,
    /// Earlier names. Like all that is only needed to migrate to this definition, they are not stored.
    pub(crate) was: Vec<String>,
    /// Fields of earlier definitions that may be lost.
    pub(crate) dropped: Vec<String>,
    pub(crate) parameters: Vec<TypeNumber>,
}

/// A field of a struct or a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(crate) name: String,
    pub(crate) was: Vec<String>,
    /// The value of the field in objects that were written without it.
    pub(crate) fill: Option<Fill>,
    pub(crate) of: TypeNumber,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    pub(crate) name: String,
    pub(crate) was: Vec<String>,
    pub(crate) fields: Vec<Field>,
}

/// The bytes of a value without references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill(pub(crate) Vec<u8>);

/// A name as it is in a program, without what would end it in the stored form.
pub(super) fn clean(name: &str) -> String {
    let name = name.trim_start_matches("r#");
    let good = |c: char| {
        if c.is_alphanumeric() || c == '_' || c == ':' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(good).collect()
}

fn all(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| clean(name)).collect()
}

impl Name {
    pub(super) fn new(module: &str, name: &str, parameters: Vec<TypeNumber>) -> Self {
        Self {
            module: clean(module),
            name: clean(name),
            was: Vec::new(),
            dropped: Vec::new(),
            parameters,
        }
    }

    /// Whether a definition of that name may be this one's predecessor.
    pub(crate) fn is_or_was(&self, other: &str) -> bool {
        self.name == other || self.was.iter().any(|was| was == other)
    }
}

impl Field {
    /// A field: its name, its earlier names, its value where it is missing, its type.
    #[must_use]
    pub fn new(name: &str, was: &[&str], fill: Option<Fill>, of: TypeNumber) -> Self {
        Self {
            name: clean(name),
            was: all(was),
            fill,
            of,
        }
    }

    /// Whether it is one of a tuple struct.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.name.starts_with(|c: char| c.is_ascii_digit())
    }

    pub(crate) fn is_or_was(&self, other: &str) -> bool {
        self.name == other || self.was.iter().any(|was| was == other)
    }
}

impl Variant {
    /// A variant: its name, its earlier names, its fields.
    #[must_use]
    pub fn new(name: &str, was: &[&str], fields: Vec<Field>) -> Self {
        Self {
            name: clean(name),
            was: all(was),
            fields,
        }
    }

    pub(crate) fn is_or_was(&self, other: &str) -> bool {
        self.name == other || self.was.iter().any(|was| was == other)
    }
}

impl Fill {
    /// The bytes of `value`.
    ///
    /// # Panics
    /// It has references.
    pub fn of<'t, T: Persist<'t>>(value: &T) -> Self {
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
        Self(raw)
    }
}

impl Describer {
    /// Adds `T`, unless it is there; `shape` describes its parts.
    pub(crate) fn add<'t, T: Persist<'t>>(
        &mut self,
        shape: impl FnOnce(&mut Self) -> Shape,
    ) -> TypeNumber {
        let key = (T::SCHEMA, type_name::<T>());
        if let Some(&number) = self.seen.get(&key) {
            return number;
        }
        let number = TypeNumber(self.types.len());
        self.seen.insert(key, number);
        // Its number comes before those of its parts, which may lead back to it.
        self.types.push(Type {
            schema: T::SCHEMA,
            shape: Shape::Unit,
        });
        self.types[number.0].shape = shape(self);
        number
    }

    pub(crate) fn plain<'t, T: Persist<'t>>(&mut self, name: &str) -> TypeNumber {
        let found = PLAIN.iter().find(|(known, _)| *known == name);
        let plain = found.expect("a plain type").1;
        self.add::<T>(|_| Shape::Plain(plain))
    }

    pub(crate) fn reference<'t, T: Persist<'t>>(
        &mut self,
        reference: impl FnOnce(&mut Self) -> Reference,
    ) -> TypeNumber {
        self.add::<T>(|types| Shape::Reference(reference(types)))
    }

    /// Adds a struct.
    #[doc(hidden)]
    pub fn structure<'t, T: Persist<'t>>(
        &mut self,
        module: &str,
        name: &str,
        [was, dropped]: [&[&str]; 2],
        parameters: impl FnOnce(&mut Self) -> Vec<TypeNumber>,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> TypeNumber {
        self.add::<T>(|types| {
            let mut name = Name::new(module, name, parameters(types));
            (name.was, name.dropped) = (all(was), all(dropped));
            Shape::Struct(name, fields(types))
        })
    }

    /// Adds an enum.
    #[doc(hidden)]
    pub fn enumeration<'t, T: Persist<'t>>(
        &mut self,
        module: &str,
        name: &str,
        [was, dropped]: [&[&str]; 2],
        untagged: bool,
        parameters: impl FnOnce(&mut Self) -> Vec<TypeNumber>,
        variants: impl FnOnce(&mut Self) -> Vec<Variant>,
    ) -> TypeNumber {
        self.add::<T>(|types| {
            let mut name = Name::new(module, name, parameters(types));
            (name.was, name.dropped) = (all(was), all(dropped));
            Shape::Enum {
                name,
                untagged,
                variants: variants(types),
            }
        })
    }
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
        Self::new(types.types).unwrap_or_else(|why| panic!("{}: {why}", type_name::<P>()))
    }
}
