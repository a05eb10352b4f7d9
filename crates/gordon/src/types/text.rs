//! The stored form of a catalogue: a line for each type, the root's first. `docs/format.md` has it.
//!
//! ```text
//! gordon types 1
//! 9fb21c651e98df25 ref 1
//! 4c0e2a3f8d6b9a71 struct notes::Note - text:2 older:3
//! 8c2f0a6d5e7b1394 text
//! 1d5f3b7a9c0e2468 option 0
//! ```

use super::describe::{Field, Name, Variant, clean};
use super::{Catalogue, PLAIN, Reference, Shape, Type, TypeNumber};
use std::fmt::Write as _;

const FIRST: &str = "gordon types 1";

fn numbers(of: &[TypeNumber]) -> String {
    let of: Vec<_> = of.iter().map(|number| number.0.to_string()).collect();
    if of.is_empty() {
        "-".to_owned()
    } else {
        of.join(",")
    }
}

fn field(field: &Field) -> String {
    format!("{}:{}", field.name, field.of.0)
}

fn variant(variant: &Variant) -> String {
    let fields: Vec<_> = variant.fields.iter().map(field).collect();
    format!("{}({})", variant.name, fields.join(","))
}

fn name(name: &Name) -> String {
    format!(
        "{}::{} {}",
        name.module,
        name.name,
        numbers(&name.parameters)
    )
}

fn spaced(parts: impl Iterator<Item = String>) -> String {
    parts.map(|part| format!(" {part}")).collect()
}

impl Catalogue {
    /// The stored form.
    pub(crate) fn encode(&self) -> String {
        let mut text = FIRST.to_owned();
        for Type { schema, shape } in &self.types {
            let shape = match shape {
                Shape::Unit => "unit".to_owned(),
                Shape::Plain(plain) => plain.name().to_owned(),
                Shape::Reference(reference) => {
                    let kind = reference.name().to_lowercase();
                    match reference.target() {
                        Some(of) => format!("{kind} {}", of.0),
                        None => kind,
                    }
                }
                Shape::Option(of) => format!("option {}", of.0),
                Shape::Fixed(of, count) => format!("fixed {} {count}", of.0),
                Shape::Tuple(of) => format!("tuple {}", numbers(of)),
                Shape::Struct(of, fields) => {
                    format!("struct {}{}", name(of), spaced(fields.iter().map(field)))
                }
                Shape::Enum {
                    name: of,
                    untagged,
                    variants,
                } => {
                    let kind = if *untagged { "untagged" } else { "enum" };
                    format!(
                        "{kind} {}{}",
                        name(of),
                        spaced(variants.iter().map(variant))
                    )
                }
            };
            write!(text, "\n{schema:016x} {shape}").expect("a string takes everything");
        }
        text
    }

    /// Reads the stored form; `Err` has what is wrong.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        let mut lines = text.split('\n');
        match lines.next() {
            Some(FIRST) => {}
            first => return Err(format!("{:?} instead of {FIRST:?}", first.unwrap_or(""))),
        }
        let read = |line| read(line).ok_or_else(|| format!("the line {line:?}"));
        let types = Self::new(lines.map(read).collect::<Result<_, _>>()?)?;
        match types.reference(Self::ROOT) {
            Some(_) => Ok(types),
            None => Err("the root is no reference".to_owned()),
        }
    }
}

fn number(word: &str) -> Option<TypeNumber> {
    word.parse().ok().map(TypeNumber)
}

fn list(words: &str) -> Option<Vec<TypeNumber>> {
    match words {
        "-" => Some(Vec::new()),
        words => words.split(',').map(number).collect(),
    }
}

fn read_name(path: &str, parameters: &str) -> Option<Name> {
    let (module, name) = path.rsplit_once("::")?;
    (!name.is_empty()).then_some(())?;
    Some(Name::new(module, name, list(parameters)?))
}

fn read_field(word: &str) -> Option<Field> {
    let (name, of) = word.split_once(':')?;
    (!name.is_empty() && clean(name) == name)
        .then(|| number(of))?
        .map(|of| Field::new(name, &[], None, of))
}

fn read_variant(word: &str) -> Option<Variant> {
    let (name, fields) = word.strip_suffix(')')?.split_once('(')?;
    let fields = match fields {
        "" => Vec::new(),
        fields => fields.split(',').map(read_field).collect::<Option<_>>()?,
    };
    (!name.is_empty() && clean(name) == name).then(|| Variant::new(name, &[], fields))
}

fn read(line: &str) -> Option<Type> {
    let mut words = line.split(' ');
    let schema = words.next()?;
    let schema = u64::from_str_radix(schema, 16).ok()?;
    let kind = words.next()?;
    let shape = match kind {
        "unit" => Shape::Unit,
        "text" => Shape::Reference(Reference::Text),
        "bytes" => Shape::Reference(Reference::Bytes),
        "bytearray" => Shape::Reference(Reference::ByteArray),
        "ref" => Shape::Reference(Reference::Ref(number(words.next()?)?)),
        "slice" => Shape::Reference(Reference::Slice(number(words.next()?)?)),
        "var" => Shape::Reference(Reference::Var(number(words.next()?)?)),
        "array" => Shape::Reference(Reference::Array(number(words.next()?)?)),
        "option" => Shape::Option(number(words.next()?)?),
        "fixed" => Shape::Fixed(number(words.next()?)?, words.next()?.parse().ok()?),
        "tuple" => Shape::Tuple(list(words.next()?)?),
        "struct" => {
            let name = read_name(words.next()?, words.next()?)?;
            Shape::Struct(name, words.by_ref().map(read_field).collect::<Option<_>>()?)
        }
        "enum" | "untagged" => Shape::Enum {
            name: read_name(words.next()?, words.next()?)?,
            untagged: kind == "untagged",
            variants: words.by_ref().map(read_variant).collect::<Option<_>>()?,
        },
        plain => Shape::Plain(PLAIN.iter().find(|(name, _)| *name == plain)?.1),
    };
    words.next().is_none().then_some(Type { schema, shape })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Map, Ref, Slice, Text, Var, Vector};

    #[test]
    fn what_is_stored_is_read_again() {
        type Root<'t> = Ref<
            't,
            (
                [u8; 3],
                Map<'t, u32, Text<'t>>,
                Var<'t, Vector<'t, Option<Slice<'t, i128>>>>,
                (),
            ),
        >;
        let types = Catalogue::of::<Root<'_>>();
        let text = types.encode();
        assert_eq!(Catalogue::decode(&text).as_ref(), Ok(&types), "{text}");
    }

    proptest::proptest! {
        /// Any edit of a catalogue is refused, or gives one that can be shown and stored.
        #[test]
        fn edited_ones_are_refused_or_whole(edits in proptest::collection::vec((0..2000_usize, proptest::char::any(), 0..3_u8), 1..6)) {
            type Root<'t> = Ref<'t, (Map<'t, u32, Text<'t>>, Var<'t, Vector<'t, Option<[u8; 2]>>>)>;
            let mut text: Vec<char> = Catalogue::of::<Root<'_>>().encode().chars().collect();
            for (at, with, how) in edits {
                let at = at % text.len();
                // Digits lead to other types.
                let with = if how == 2 { char::from(b'0' + (with as u32 % 10) as u8) } else { with };
                if how == 1 {
                    text.remove(at);
                } else {
                    text[at] = with;
                }
            }
            let text: String = text.into_iter().collect();
            if let Ok(types) = Catalogue::decode(&text) {
                types.to_string();
                assert_eq!(Catalogue::decode(&types.encode()).as_ref(), Ok(&types));
            }
        }
    }

    /// Whatever is not a catalogue is refused: no panic, and no endless name or size.
    #[test]
    fn damaged_ones_are_refused() {
        let bad = [
            "",
            "gordon types 2",
            "gordon types 1",
            "gordon types 1\n",
            "gordon types 1\n0 u8",
            "gordon types 1\n0 ref 1",
            "gordon types 1\n0 ref 0",
            "gordon types 1\n0 ref 1\n0 option 1",
            "gordon types 1\n0 ref 1\n0 tuple 2,2\n0 tuple 1",
            "gordon types 1\n0 ref 1\n0 struct a::B 1 x:2\n0 u8",
            "gordon types 1\n0 ref 1\n0 struct a::B - x:3\n0 u8",
            "gordon types 1\n0 ref 1\n0 struct B - x:2\n0 u8",
            "gordon types 1\n0 ref 1\n0 struct a::B - x 2\n0 u8",
            "gordon types 1\n0 ref 1\n0 enum a::B -",
            "gordon types 1\n0 ref 1\n0 fixed 2 99999999\n0 unit",
            "gordon types 1\n0 ref 1\n0 fixed 2 18446744073709551615\n0 u128",
            "gordon types 1\n0 ref 1 1\n0 u8",
            "gordon types 1\nx ref 1\n0 u8",
        ];
        for text in bad {
            assert!(Catalogue::decode(text).is_err(), "{text:?}");
        }
        // Twice the name at every step, and twice the parts.
        for step in ["tuple", "struct a::B -"] {
            let mut text = "gordon types 1\n0 ref 1".to_owned();
            for at in 1..200 {
                let next = at + 1;
                let parts = match step {
                    "tuple" => format!("{next},{next}"),
                    _ => format!("x:{next} y:{next}"),
                };
                write!(text, "\n0 {step} {parts}").expect("a string");
            }
            assert!(Catalogue::decode(&(text + "\n0 unit")).is_err());
        }
        // A long chain of types.
        let mut text = "gordon types 1\n0 ref 1".to_owned();
        for at in 1..100_000 {
            write!(text, "\n0 option {}", at + 1).expect("a string");
        }
        assert!(Catalogue::decode(&(text + "\n0 unit")).is_err());
    }
}
