//! Descriptions in the making, by derived code and by the implementations of this crate.

use super::{Catalogue, PLAIN, Reference, Shape, Type, TypeNumber};
use std::collections::HashMap;

/// The schema of a type, and its name in the program: two definitions with the same text may stand in two modules.
pub type Key = (u64, &'static str);

/// Collects the types that one type can reach: see [`Persist::describe`].
#[derive(Debug, Default)]
pub struct Describer {
    types: Vec<Type>,
    seen: HashMap<Key, TypeNumber>,
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

impl Describer {
    /// Adds a type, unless it is there; `shape` describes its parts.
    pub(crate) fn add(&mut self, key: Key, shape: impl FnOnce(&mut Self) -> Shape) -> TypeNumber {
        if let Some(&number) = self.seen.get(&key) {
            return number;
        }
        let number = TypeNumber(self.types.len());
        self.seen.insert(key, number);
        // Its number comes before those of its parts, which may lead back to it.
        self.types.push(Type {
            schema: key.0,
            shape: Shape::Unit,
        });
        self.types[number.0].shape = shape(self);
        number
    }

    pub(crate) fn plain(&mut self, key: Key, name: &str) -> TypeNumber {
        let found = PLAIN.iter().find(|(known, _)| *known == name);
        let plain = found.expect("a plain type").1;
        self.add(key, |_| Shape::Plain(plain))
    }

    pub(crate) fn reference(
        &mut self,
        key: Key,
        reference: impl FnOnce(&mut Self) -> Reference,
    ) -> TypeNumber {
        self.add(key, |types| Shape::Reference(reference(types)))
    }

    /// The types, of which the first is that of the root; `Err` has what is wrong.
    pub(crate) fn finish(self) -> Result<Catalogue, String> {
        Catalogue::new(self.types)
    }

    /// Adds a struct.
    #[doc(hidden)]
    pub fn structure(
        &mut self,
        key: Key,
        [module, name]: [&str; 2],
        [was, dropped]: [&[&str]; 2],
        parameters: impl FnOnce(&mut Self) -> Vec<TypeNumber>,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> TypeNumber {
        self.add(key, |types| {
            let mut name = Name::new(module, name, parameters(types));
            (name.was, name.dropped) = (all(was), all(dropped));
            Shape::Struct(name, fields(types))
        })
    }

    /// Adds an enum.
    #[doc(hidden)]
    pub fn enumeration(
        &mut self,
        key: Key,
        [module, name]: [&str; 2],
        [was, dropped]: [&[&str]; 2],
        untagged: bool,
        parameters: impl FnOnce(&mut Self) -> Vec<TypeNumber>,
        variants: impl FnOnce(&mut Self) -> Vec<Variant>,
    ) -> TypeNumber {
        self.add(key, |types| {
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
