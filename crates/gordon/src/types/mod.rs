//! Descriptions of types. A heap stores that of its root, with all types that the root can reach, so that a program with
//! other definitions is told what differs, and so that `export` needs no program.
//!
//! [`Persist::describe`](crate::Persist::describe) adds a type to a [`Describer`]; a finished [`Catalogue`] is checked:
//! every number is that of a type, and no value contains itself. Numbers end the recursion: a type that is being
//! described has its number already.

mod describe;
mod difference;
mod text;
mod value;

pub use describe::Describer;
pub(crate) use describe::Name;
pub use describe::{Field, Fill, Key, Variant};
pub(crate) use difference::{Comparison, Pair, fields_of, variants_of};
pub(crate) use value::{Number, Parts, Value};

use crate::object::{Header, Kind};
use std::fmt;

/// The number of a type in a [`Catalogue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeNumber(pub(crate) usize);

/// Most parts of a value, such as fields and elements, those of its parts included.
const MOST_PARTS: u64 = 1 << 24;
/// Most types around a type: values in values, parameters of parameters.
const DEEPEST: u32 = 200;
/// Most bytes of the name of a type.
const LONGEST: usize = 1 << 16;

/// A number, a truth value or a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// Without a sign, of so many bytes.
    Natural(u8),
    /// With a sign, of so many bytes.
    Integer(u8),
    /// Of so many bytes.
    Float(u8),
    Bool,
    Char,
    Usize,
    Isize,
}

/// Names of plain types, and what they are.
pub(crate) const PLAIN: [(&str, Plain); 16] = [
    ("u8", Plain::Natural(1)),
    ("u16", Plain::Natural(2)),
    ("u32", Plain::Natural(4)),
    ("u64", Plain::Natural(8)),
    ("u128", Plain::Natural(16)),
    ("i8", Plain::Integer(1)),
    ("i16", Plain::Integer(2)),
    ("i32", Plain::Integer(4)),
    ("i64", Plain::Integer(8)),
    ("i128", Plain::Integer(16)),
    ("f32", Plain::Float(4)),
    ("f64", Plain::Float(8)),
    ("bool", Plain::Bool),
    ("char", Plain::Char),
    ("usize", Plain::Usize),
    ("isize", Plain::Isize),
];

impl Plain {
    fn bytes(self) -> u64 {
        match self {
            Self::Natural(bytes) | Self::Integer(bytes) | Self::Float(bytes) => bytes.into(),
            Self::Bool => 1,
            Self::Char => 4,
            Self::Usize | Self::Isize => 8,
        }
    }

    fn name(self) -> &'static str {
        let found = PLAIN.iter().find(|(_, plain)| *plain == self);
        found.expect("every plain type has a name").0
    }
}

/// The kinds of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Ref(TypeNumber),
    Slice(TypeNumber),
    Var(TypeNumber),
    Array(TypeNumber),
    Text,
    Bytes,
    ByteArray,
}

impl Reference {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ref(_) => "Ref",
            Self::Slice(_) => "Slice",
            Self::Var(_) => "Var",
            Self::Array(_) => "Array",
            Self::Text => "Text",
            Self::Bytes => "Bytes",
            Self::ByteArray => "ByteArray",
        }
    }

    /// The type of the values in the object.
    pub(crate) fn target(self) -> Option<TypeNumber> {
        match self {
            Self::Ref(of) | Self::Slice(of) | Self::Var(of) | Self::Array(of) => Some(of),
            Self::Text | Self::Bytes | Self::ByteArray => None,
        }
    }
}

/// What a value consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing: `()`.
    Unit,
    Plain(Plain),
    Reference(Reference),
    Option(TypeNumber),
    /// `[T; N]`.
    Fixed(TypeNumber, u64),
    Tuple(Vec<TypeNumber>),
    Struct(Name, Vec<Field>),
    Enum {
        name: Name,
        /// Whether it is exported without the names of variants.
        untagged: bool,
        variants: Vec<Variant>,
    },
}

/// A described type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    /// [`Persist::SCHEMA`](crate::Persist::SCHEMA), which headers of objects have.
    pub(crate) schema: u64,
    pub(crate) shape: Shape,
}

/// The words of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) pointers: u64,
    pub(crate) bytes: u64,
    parts: u64,
}

impl Size {
    /// Words of a value in an object.
    pub(crate) fn words(self) -> u64 {
        self.pointers + self.bytes.div_ceil(8)
    }

    fn and(self, other: Self) -> Self {
        Self {
            pointers: self.pointers.saturating_add(other.pointers),
            bytes: self.bytes.saturating_add(other.bytes),
            parts: self.parts.saturating_add(other.parts),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            pointers: self.pointers.max(other.pointers),
            bytes: self.bytes.max(other.bytes),
            parts: self.parts.saturating_add(other.parts),
        }
    }

    fn times(self, count: u64) -> Self {
        Self {
            pointers: self.pointers.saturating_mul(count),
            bytes: self.bytes.saturating_mul(count),
            parts: self.parts.saturating_mul(count),
        }
    }
}

/// The types of a heap: that of its root, and all those that it can reach. `Display` writes their definitions, as Rust
/// does.
///
/// ```
/// use gordon::{Catalogue, Persist, Ref, Text};
///
/// #[derive(Clone, Copy, Persist)]
/// struct Note<'t> {
///     text: Text<'t>,
///     older: Option<Ref<'t, Note<'t>>>,
/// }
///
/// let types = Catalogue::of::<Ref<Note>>();
/// assert_eq!(types.to_string(), "struct Note { text: Text, older: Option<Ref<Note>> }");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    types: Vec<Type>,
    sizes: Vec<Size>,
    names: Vec<String>,
}

impl Catalogue {
    /// The type of the root.
    pub(crate) const ROOT: TypeNumber = TypeNumber(0);

    /// Checks the descriptions; `Err` has what is wrong.
    fn new(types: Vec<Type>) -> Result<Self, String> {
        if types.is_empty() {
            return Err("no types".to_owned());
        }
        let all = || (0..types.len()).map(TypeNumber);
        let (mut sizes, mut names) = (Known::none(types.len()), Known::none(types.len()));
        let sizes = all().map(|number| size(&types, &mut sizes, number, 0));
        let sizes = sizes.collect::<Result<_, _>>()?;
        let names = all().map(|number| name(&types, &mut names, number, 0));
        let names = names.collect::<Result<_, _>>()?;
        Ok(Self {
            types,
            sizes,
            names,
        })
    }

    pub(crate) fn get(&self, number: TypeNumber) -> &Type {
        &self.types[number.0]
    }

    pub(crate) fn shape(&self, number: TypeNumber) -> &Shape {
        &self.types[number.0].shape
    }

    pub(crate) fn size(&self, number: TypeNumber) -> Size {
        self.sizes[number.0]
    }

    /// The kind of reference that a type is.
    pub(crate) fn reference(&self, number: TypeNumber) -> Option<Reference> {
        match self.shape(number) {
            Shape::Reference(reference) => Some(*reference),
            _ => None,
        }
    }

    /// Whether the first pointer of a value is never null.
    pub(crate) fn is_never_null(&self, number: TypeNumber) -> bool {
        self.reference(number).is_some()
    }

    /// The header of an object with values of this type; that of a sequence has no count.
    pub(crate) fn header(&self, reference: Reference) -> Header {
        let Some(of) = reference.target() else {
            return match reference {
                Reference::Text => Header::text(0),
                other => Header::bytes(other == Reference::ByteArray, 0),
            };
        };
        let (size, schema) = (self.size(of), self.get(of).schema);
        let (pointers, words) = (size.pointers as usize, size.bytes.div_ceil(8) as usize);
        match reference {
            Reference::Ref(_) => Header::record(false, pointers, words, schema),
            Reference::Var(_) => Header::record(true, pointers, words, schema),
            Reference::Slice(_) => Header::array(false, pointers, words, 0),
            _ => Header::array(true, pointers, words, 0),
        }
    }

    /// Whether `found` is the header of an object of this kind.
    pub(crate) fn fits(&self, reference: Reference, found: Header) -> bool {
        let expected = self.header(reference);
        match expected.kind() {
            Kind::Record => found == expected,
            Kind::Array => found.0 as u32 == expected.0 as u32,
            Kind::Bytes | Kind::Text => found.0 as u8 == expected.0 as u8,
        }
    }

    /// The name of a type, as in a program: `Option<Ref<Note>>`.
    pub(crate) fn name(&self, number: TypeNumber) -> &str {
        &self.names[number.0]
    }

    /// The definition of a struct or an enum.
    pub(crate) fn definition(&self, number: TypeNumber) -> String {
        match self.shape(number) {
            Shape::Struct(_, fields) => {
                let end = if fields.is_empty() { ";" } else { "" };
                format!("struct {}{}{end}", self.name(number), self.fields(fields))
            }
            Shape::Enum { variants, .. } => {
                let variant = |v: &Variant| format!("{}{}", v.name, self.fields(&v.fields));
                let variants: Vec<_> = variants.iter().map(variant).collect();
                format!("enum {} {{ {} }}", self.name(number), variants.join(", "))
            }
            _ => self.name(number).to_owned(),
        }
    }

    /// ` { a: u8 }`, `(u8)` or nothing.
    fn fields(&self, fields: &[Field]) -> String {
        let named = |f: &Field| format!("{}: {}", f.name, self.name(f.of));
        let list = |of: &dyn Fn(&Field) -> String| {
            let of: Vec<_> = fields.iter().map(of).collect();
            of.join(", ")
        };
        if fields.is_empty() {
            String::new()
        } else if fields.first().is_some_and(Field::is_unnamed) {
            format!("({})", list(&|field| self.name(field.of).to_owned()))
        } else {
            format!(" {{ {} }}", list(&named))
        }
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_defined = |number: &usize| {
            matches!(
                self.types[*number].shape,
                Shape::Struct(..) | Shape::Enum { .. }
            )
        };
        let defined = (0..self.types.len()).filter(is_defined);
        let lines: Vec<_> = defined
            .map(|number| self.definition(TypeNumber(number)))
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

/// How far the size or the name of each type is known.
struct Known<T>(Vec<Progress<T>>);

#[derive(Clone)]
enum Progress<T> {
    Not,
    Begun,
    Known(T),
}

impl<T: Clone> Known<T> {
    fn none(types: usize) -> Self {
        Self(vec![Progress::Not; types])
    }

    /// What is known; `None`: the caller finds it out.
    fn begin(&mut self, number: TypeNumber, depth: u32) -> Result<Option<T>, String> {
        match self.0.get(number.0) {
            None => return Err(format!("type {} is missing", number.0)),
            Some(Progress::Known(known)) => return Ok(Some(known.clone())),
            Some(Progress::Begun) => return Err(format!("type {} contains itself", number.0)),
            Some(Progress::Not) if depth > DEEPEST => {
                return Err(format!("type {} is {DEEPEST} types deep", number.0));
            }
            Some(Progress::Not) => self.0[number.0] = Progress::Begun,
        }
        Ok(None)
    }

    fn end(&mut self, number: TypeNumber, known: T) -> T {
        self.0[number.0] = Progress::Known(known.clone());
        known
    }
}

fn name(
    types: &[Type],
    known: &mut Known<String>,
    number: TypeNumber,
    depth: u32,
) -> Result<String, String> {
    if let Some(name) = known.begin(number, depth)? {
        return Ok(name);
    }
    let mut list = |of: &[TypeNumber]| {
        let of = of.iter().map(|of| name(types, known, *of, depth + 1));
        of.collect::<Result<Vec<_>, _>>()
            .map(|names| names.join(", "))
    };
    let found = match &types[number.0].shape {
        Shape::Unit => "()".to_owned(),
        Shape::Plain(plain) => plain.name().to_owned(),
        Shape::Reference(reference) => match reference.target() {
            Some(of) => format!("{}<{}>", reference.name(), list(&[of])?),
            None => reference.name().to_owned(),
        },
        Shape::Option(of) => format!("Option<{}>", list(&[*of])?),
        Shape::Fixed(of, count) => format!("[{}; {count}]", list(&[*of])?),
        Shape::Tuple(of) => format!("({})", list(of)?),
        Shape::Struct(name, _) | Shape::Enum { name, .. } => match &name.parameters[..] {
            [] => name.name.clone(),
            parameters => format!("{}<{}>", name.name, list(parameters)?),
        },
    };
    if found.len() > LONGEST {
        return Err(format!("the name of type {} is too long", number.0));
    }
    Ok(known.end(number, found))
}

fn size(
    types: &[Type],
    known: &mut Known<Size>,
    number: TypeNumber,
    depth: u32,
) -> Result<Size, String> {
    if let Some(size) = known.begin(number, depth)? {
        return Ok(size);
    }
    let flat = |pointers, bytes| Size {
        pointers,
        bytes,
        parts: 1,
    };
    let mut sum = |of: &mut dyn Iterator<Item = TypeNumber>| {
        let mut sum = flat(0, 0);
        for of in of {
            sum = sum.and(size(types, known, of, depth + 1)?);
        }
        Ok::<_, String>(sum)
    };
    let found = match &types[number.0].shape {
        Shape::Unit => flat(0, 0),
        Shape::Plain(plain) => flat(0, plain.bytes()),
        Shape::Reference(reference) => {
            if reference.target().is_some_and(|of| of.0 >= types.len()) {
                return Err(format!("the target of type {} is missing", number.0));
            }
            flat(1, 0)
        }
        Shape::Option(of) => {
            let some = sum(&mut std::iter::once(*of))?;
            match types[of.0].shape {
                Shape::Reference(_) => some,
                _ => some.and(flat(0, 1)),
            }
        }
        Shape::Fixed(of, count) => {
            let one = sum(&mut std::iter::once(*of))?;
            one.times(*count).and(flat(0, 0))
        }
        Shape::Tuple(of) => sum(&mut of.iter().copied())?,
        Shape::Struct(_, fields) => sum(&mut fields.iter().map(|field| field.of))?,
        Shape::Enum { variants, .. } => {
            if variants.is_empty() || variants.len() > 256 {
                return Err(format!("type {} has {} variants", number.0, variants.len()));
            }
            let mut largest = flat(0, 0);
            for variant in variants {
                let fields = sum(&mut variant.fields.iter().map(|field| field.of))?;
                largest = largest.or(fields);
            }
            largest.and(flat(0, 1))
        }
    };
    if found.parts > MOST_PARTS || found.pointers > 255 || found.bytes.div_ceil(8) > 65535 {
        return Err(format!("type {} is too large", number.0));
    }
    Ok(known.end(number, found))
}
