//! A heap as JSON, from its types alone: lines, one for each object that the root can reach, or the root's value as one
//! nested value.
//!
//! Values have the form that serde gives them: structs are objects, newtypes their content, enums `"Variant"` or
//! `{"Variant": ...}`. Integers have all their digits; floats round-trip, and those that JSON lacks are `"NaN"`,
//! `"Infinity"` and `"-Infinity"`; bytes are `{"$bytes": "hexadecimal"}`. `None` is null; `Some` of a value that may itself be
//! null is `{"Some": ...}`.

mod collections;

use super::tx::View;
use super::walk::{Object, Objects, Reached};
use crate::error::{Error, Result};
use crate::types::{Catalogue, Field, Number, Parts, Reference, Shape, TypeNumber, Value};
use std::collections::HashSet;
use std::io::{self, Write};

/// Most levels of a nested value: parsers have limits too. An option, and the target of a reference, count as one each.
const DEEPEST: usize = 250;

/// What stands for a reference.
enum How {
    /// The number of the object, which has a line of its own.
    Lines(Reached),
    /// The object, unless it is one of those around it.
    Tree { around: HashSet<u64>, depth: usize },
}

struct Export<'a, 'w> {
    objects: Objects<'a>,
    how: How,
    out: &'w mut dyn Write,
}

fn failed(error: io::Error) -> Error {
    Error::io("writing the export", error)
}

impl View<'_> {
    /// Writes every object that the root can reach as a line of JSON, the root first: `{"id":0,"type":"Ref<Note>","value":...}`.
    /// A reference is `{"$ref":id}`; an object that several refer to has one line.
    ///
    /// ```
    /// # let model = gordon::flash::Model::intel(4);
    /// # let heap = gordon::Heap::emulated(model, 8, gordon::Options::default())?;
    /// heap.update(|tx| {
    ///     tx.set_root(tx.alloc((7_u8, tx.text("seven"))));
    ///     Ok(())
    /// })?;
    /// let mut lines = Vec::new();
    /// heap.view(|view| view.export(&mut lines))?;
    /// let lines = String::from_utf8(lines).unwrap();
    /// assert_eq!(
    ///     lines,
    ///     "{\"id\":0,\"type\":\"Ref<(u8, Text)>\",\"value\":[7,{\"$ref\":1}]}\n\
    ///      {\"id\":1,\"type\":\"Text\",\"value\":\"seven\"}\n"
    /// );
    /// # Ok::<(), gordon::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no root, or the heap does not know its types, or an object is of another type than these say; or `out` failed.
    pub fn export(&self, out: &mut dyn Write) -> Result<()> {
        let (target, types) = self.state.typed_root()?;
        let mut reached = Reached::default();
        reached.id(Catalogue::ROOT, target);
        let objects = Objects {
            region: &self.state.region,
            types: &types,
        };
        let how = How::Lines(reached);
        let mut export = Export { objects, how, out };
        let mut id = 0_u64;
        while let How::Lines(reached) = &mut export.how
            && let Some((of, address)) = reached.next()
        {
            write!(export.out, "{{\"id\":{id},\"type\":").map_err(failed)?;
            export.string(types.name(of))?;
            export.text(",\"value\":")?;
            export.object(objects.open(of, address)?)?;
            export.text("}\n")?;
            id += 1;
        }
        Ok(())
    }

    /// Writes the root's value as one nested JSON value. A [`Map`](crate::Map) is an object if all of its keys are strings,
    /// else a list of pairs; a [`Vector`](crate::Vector) is a list; enums with `#[persist(untagged)]` are without names of
    /// variants. An object to which several refer stands at each of these places.
    ///
    /// ```
    /// # let model = gordon::flash::Model::intel(4);
    /// # let heap = gordon::Heap::emulated(model, 8, gordon::Options::default())?;
    /// use gordon::Map;
    ///
    /// heap.update(|tx| {
    ///     tx.set_root(tx.var(Map::new().insert(tx, tx.text("ada"), Some(36_u8))));
    ///     Ok(())
    /// })?;
    /// let mut tree = Vec::new();
    /// heap.view(|view| view.export_root(&mut tree))?;
    /// assert_eq!(String::from_utf8(tree).unwrap(), "{\"ada\":36}\n");
    /// # Ok::<(), gordon::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`View::export`]; or the value contains itself, or has more than 250 levels.
    pub fn export_root(&self, out: &mut dyn Write) -> Result<()> {
        let (target, types) = self.state.typed_root()?;
        let objects = Objects {
            region: &self.state.region,
            types: &types,
        };
        let how = How::Tree {
            around: HashSet::new(),
            depth: 0,
        };
        let mut export = Export { objects, how, out };
        export.reference(Catalogue::ROOT, target)?;
        export.text("\n")
    }
}

impl<'a> Export<'a, '_> {
    fn text(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes()).map_err(failed)
    }

    fn is_tree(&self) -> bool {
        matches!(self.how, How::Tree { .. })
    }

    fn string(&mut self, text: &str) -> Result<()> {
        let mut write = || -> io::Result<()> {
            self.out.write_all(b"\"")?;
            let mut done = 0;
            for (at, byte) in text.bytes().enumerate() {
                let short = match byte {
                    b'"' => "\\\"",
                    b'\\' => "\\\\",
                    b'\n' => "\\n",
                    b'\r' => "\\r",
                    b'\t' => "\\t",
                    0..0x20 => "",
                    _ => continue,
                };
                self.out.write_all(&text.as_bytes()[done..at])?;
                match short {
                    "" => write!(self.out, "\\u{byte:04x}")?,
                    short => self.out.write_all(short.as_bytes())?,
                }
                done = at + 1;
            }
            self.out.write_all(&text.as_bytes()[done..])?;
            self.out.write_all(b"\"")
        };
        write().map_err(failed)
    }

    fn number(&mut self, number: Number) -> Result<()> {
        let float = |number: f64, text: String| match number {
            n if n.is_nan() => "\"NaN\"".to_owned(),
            n if n.is_infinite() => format!("\"{}Infinity\"", if n < 0.0 { "-" } else { "" }),
            _ => text,
        };
        let text = match number {
            Number::Natural(number) => number.to_string(),
            Number::Integer(number) => number.to_string(),
            Number::F32(number) => float(number.into(), format!("{number:?}")),
            Number::F64(number) => float(number, format!("{number:?}")),
            Number::Bool(truth) => truth.to_string(),
            Number::Char(character) => return self.string(character.encode_utf8(&mut [0; 4])),
        };
        self.text(&text)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.text("{\"$bytes\":\"")?;
        for part in bytes.chunks(1 << 12) {
            let digits: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            self.text(&digits)?;
        }
        self.text("\"}")
    }

    fn reference(&mut self, of: TypeNumber, address: u64) -> Result<()> {
        let object = self.objects.open(of, address)?;
        let name = self.objects.types.name(of);
        match &mut self.how {
            How::Lines(reached) => {
                let id = reached.id(of, address);
                write!(self.out, "{{\"$ref\":{id}}}").map_err(failed)
            }
            How::Tree { around, .. } => {
                if !around.insert(address) {
                    return Err(Error::NotATree(format!("a {name} in it contains itself")));
                }
                self.object(object)?;
                if let How::Tree { around, .. } = &mut self.how {
                    around.remove(&address);
                }
                Ok(())
            }
        }
    }

    fn object(&mut self, object: Object<'a>) -> Result<()> {
        match object.reference {
            Reference::Text => {
                let text = std::str::from_utf8(object.contents());
                self.string(text.map_err(|_| Error::corrupted("a string that is not UTF-8"))?)
            }
            Reference::Bytes | Reference::ByteArray => self.bytes(object.contents()),
            Reference::Ref(_) | Reference::Var(_) => {
                object.values().try_for_each(|value| self.value(value))
            }
            Reference::Slice(_) | Reference::Array(_) => self.list(object.values()),
        }
    }

    fn list(&mut self, values: impl Iterator<Item = Value<'a>>) -> Result<()> {
        let mut separator = "[";
        for value in values {
            self.text(separator)?;
            separator = ",";
            self.value(value)?;
        }
        self.text(if separator == "[" { "[]" } else { "]" })
    }

    fn value(&mut self, value: Value<'a>) -> Result<()> {
        if let How::Tree { depth, .. } = &mut self.how {
            if *depth == DEEPEST {
                return Err(Error::NotATree(format!(
                    "it has more than {DEEPEST} levels"
                )));
            }
            *depth += 1;
        }
        let written = self.value_at_depth(value);
        if let How::Tree { depth, .. } = &mut self.how {
            *depth -= 1;
        }
        written
    }

    fn value_at_depth(&mut self, value: Value<'a>) -> Result<()> {
        let types = self.objects.types;
        match types.shape(value.of) {
            Shape::Unit => self.text("null"),
            Shape::Plain(plain) => self.number(Number::read(*plain, value.raw)),
            Shape::Reference(_) => self.reference(value.of, value.pointers[0]),
            Shape::Option(of) => match value.some(types, *of) {
                None => self.text("null"),
                Some(some) if self.may_be_null(*of, 0) => {
                    self.text("{\"Some\":")?;
                    self.value(some)?;
                    self.text("}")
                }
                Some(some) => self.value(some),
            },
            Shape::Fixed(of, count) => {
                let mut parts = value.parts(types);
                self.list((0..*count).map(|_| parts.take(*of)))
            }
            Shape::Tuple(of) => {
                let mut parts = value.parts(types);
                self.list(of.iter().map(|of| parts.take(*of)))
            }
            Shape::Struct(..) if self.is_tree() && self.is_collection(value)? => Ok(()),
            Shape::Struct(_, fields) => self.fields(fields, value.parts(types)),
            Shape::Enum {
                untagged, variants, ..
            } => {
                let (tag, variant) = value.variant(types, variants);
                let no_variant = || self.objects.no_variant(value.of, tag);
                let (variant, parts) = variant.ok_or_else(no_variant)?;
                if *untagged && self.is_tree() {
                    self.fields(&variant.fields, parts)
                } else if variant.fields.is_empty() {
                    self.string(&variant.name)
                } else {
                    self.text("{")?;
                    self.string(&variant.name)?;
                    self.text(":")?;
                    self.fields(&variant.fields, parts)?;
                    self.text("}")
                }
            }
        }
    }

    fn fields(&mut self, fields: &'a [Field], mut parts: Parts<'a>) -> Result<()> {
        match fields {
            [] => self.text("null"),
            [field] if field.is_unnamed() => self.value(parts.take(field.of)),
            [first, ..] if first.is_unnamed() => {
                self.list(fields.iter().map(|field| parts.take(field.of)))
            }
            fields => {
                let mut separator = "{";
                for field in fields {
                    self.text(separator)?;
                    separator = ",";
                    self.string(&field.name)?;
                    self.text(":")?;
                    self.value(parts.take(field.of))?;
                }
                self.text("}")
            }
        }
    }

    /// Whether a value of the type may be written as null.
    fn may_be_null(&self, of: TypeNumber, depth: usize) -> bool {
        let types = self.objects.types;
        let content = |fields: &[Field]| match fields {
            [] => true,
            [field] if field.is_unnamed() => self.may_be_null(field.of, depth + 1),
            _ => false,
        };
        match types.shape(of) {
            // A type of references around references.
            _ if depth > DEEPEST => true,
            Shape::Unit | Shape::Option(_) => true,
            Shape::Reference(Reference::Ref(of) | Reference::Var(of)) if self.is_tree() => {
                self.may_be_null(*of, depth + 1)
            }
            Shape::Struct(_, fields) => content(fields),
            Shape::Enum {
                untagged, variants, ..
            } => {
                *untagged
                    && self.is_tree()
                    && variants.iter().any(|variant| content(&variant.fields))
            }
            Shape::Plain(_) | Shape::Reference(_) | Shape::Fixed(..) | Shape::Tuple(_) => false,
        }
    }
}
