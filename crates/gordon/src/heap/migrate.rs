//! Migration: a root of earlier definitions becomes one of the program's, in one update. The catalogue says how stored
//! values lie, so the program does not need the old definitions.
//!
//! Fields and variants follow their names. What has changed, and what refers to it, is copied; the rest is shared. An object
//! gets one copy, however many refer to it, and circles stay circles: a copy has its place before its contents.

use super::root::Root;
use super::tx::Tx;
use super::walk::Objects;
use crate::error::{Error, Result};
use crate::object::{Header, Kind};
use crate::pointer::Pointer;
use crate::region::WORD;
use crate::types::{Catalogue, Comparison, Field, Number, Pair, Parts, Shape, TypeNumber, Value};
use crate::types::{fields_of, variants_of};
use std::collections::{HashMap, VecDeque};

struct Migration<'a, 'tx, 't> {
    tx: &'tx Tx<'t>,
    old: &'a Catalogue,
    new: &'a Catalogue,
    compared: &'a Comparison<'a>,
    /// Copies by the address of the original, and the type of their references.
    copies: HashMap<(u64, TypeNumber), u64>,
    /// Copies without contents: the types of both references, the addresses of both objects.
    empty: VecDeque<(Pair, u64, u64)>,
}

/// The words of a value that is to be written.
struct Place<'w> {
    pointers: &'w mut [u64],
    raw: &'w mut [u8],
}

impl<'w> Place<'w> {
    fn take(&mut self, types: &Catalogue, of: TypeNumber) -> Place<'w> {
        let size = types.size(of);
        let (pointers, rest) =
            std::mem::take(&mut self.pointers).split_at_mut(size.pointers as usize);
        self.pointers = rest;
        let (raw, rest) = std::mem::take(&mut self.raw).split_at_mut(size.bytes as usize);
        self.raw = rest;
        Place { pointers, raw }
    }
}

impl<'t> Tx<'t> {
    /// Converts the root, with all that it can reach, to the type `P`, if it was stored with other definitions; returns
    /// whether it has. An ordinary change: stable after the next commit, and undone by an abort.
    ///
    /// Fields and variants follow their names, numbers become wider ones, and `T` becomes `Some(T)`, without further words.
    /// Attributes say the rest: `#[persist(was = "...")]` on what has a new name, `#[persist(default)]` on a new field,
    /// `#[persist(dropped = "...")]` on a type that has lost one. Whatever else differs can be converted by hand: keep the
    /// old definition in a module, read the root as that type, and set the new one in the same update.
    ///
    /// A heap of an earlier version of this crate, which stored no types, gets those of `P` if its root is one.
    ///
    /// ```
    /// use gordon::{Heap, Options, Persist, Ref, Text};
    /// # let model = gordon::flash::Model::intel(4);
    /// # let heap = gordon::Heap::emulated(model, 8, gordon::Options::default())?;
    ///
    /// mod before {
    ///     use gordon::{Persist, Ref, Text};
    ///
    ///     #[derive(Clone, Copy, Persist)]
    ///     pub struct Note<'t> {
    ///         pub text: Text<'t>,
    ///         pub older: Option<Ref<'t, Note<'t>>>,
    ///     }
    /// }
    ///
    /// #[derive(Clone, Copy, Persist)]
    /// struct Note<'t> {
    ///     #[persist(was = "text")]
    ///     body: Text<'t>,
    ///     older: Option<Ref<'t, Note<'t>>>,
    ///     #[persist(default)]
    ///     pinned: bool,
    /// }
    ///
    /// heap.update(|tx| {
    ///     tx.set_root(tx.alloc(before::Note { text: tx.text("old"), older: None }));
    ///     Ok(())
    /// })?;
    ///
    /// let error = heap.view(|view| view.root::<Ref<Note>>().map(|_| ())).unwrap_err();
    /// assert!(error.to_string().contains("field `pinned: bool` of `Note` was added"));
    /// heap.update(|tx| tx.migrate::<Ref<Note>>())?;
    /// heap.view(|view| {
    ///     let note = view.root::<Ref<Note>>()?.unwrap().read();
    ///     assert_eq!((&*note.body, note.pinned), ("old", false));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), gordon::Error>(())
    /// ```
    ///
    /// # Errors
    /// Something differs for which there is no conversion, or a stored value is a variant that was removed: the error names
    /// it, and nothing has changed.
    ///
    /// # Panics
    /// The copies are more than the bank could hold, or memory runs out.
    pub fn migrate<P: Pointer<'t>>(&self) -> Result<bool> {
        let stored = self.state.borrow().root_object();
        let target = match stored {
            Root::NotSet => return Ok(false),
            Root::Untyped { target, .. } => {
                self.root::<P>()?;
                self.set_root(P::at_address(target));
                return Ok(true);
            }
            Root::Typed { target, .. } => target,
        };
        let old = self
            .state
            .borrow()
            .catalogue()?
            .expect("a typed root has types");
        let new = Catalogue::of::<P>();
        let compared = Comparison::of(&old, &new);
        if compared.is_equal() {
            return Ok(false);
        }
        if let Some(lacks) = compared.lacks() {
            return Err(Error::Migration(lacks));
        }
        let mut migration = Migration {
            tx: self,
            old: &old,
            new: &new,
            compared: &compared,
            copies: HashMap::new(),
            empty: VecDeque::new(),
        };
        let copy = migration.copy((Catalogue::ROOT, Catalogue::ROOT), target)?;
        while let Some((pair, from, to)) = migration.empty.pop_front() {
            migration.fill(pair, from, to)?;
        }
        self.set_typed(stored, copy, &new.encode(), P::SCHEMA);
        Ok(true)
    }
}

impl Migration<'_, '_, '_> {
    /// The copy of the object at `address`; that itself if it is as it was.
    fn copy(&mut self, pair: Pair, address: u64) -> Result<u64> {
        if self.compared.is_same(pair) {
            return Ok(address);
        }
        if let Some(copy) = self.copies.get(&(address, pair.1)) {
            return Ok(*copy);
        }
        let original = {
            let state = self.tx.state.borrow();
            let objects = Objects {
                region: &state.region,
                types: self.old,
            };
            objects.open(pair.0, address)?;
            Header(state.region.load(address))
        };
        let header = self
            .new
            .header(self.new.reference(pair.1).expect("a reference"));
        let header = match header.kind() {
            Kind::Array => Header(header.0 | original.count() << 32),
            Kind::Record | Kind::Bytes | Kind::Text => header,
        };
        let copy = self.tx.allocate(header, |to| to.fill(0));
        self.copies.insert((address, pair.1), copy);
        self.empty.push_back((pair, address, copy));
        Ok(copy)
    }

    /// Writes the values of the object at `from` into its copy.
    fn fill(&mut self, pair: Pair, from: u64, to: u64) -> Result<()> {
        let target =
            |types: &Catalogue, of| types.reference(of).and_then(|reference| reference.target());
        let (Some(o), Some(n)) = (target(self.old, pair.0), target(self.new, pair.1)) else {
            unreachable!("strings and byte arrays do not change");
        };
        let (count, words) = {
            let state = self.tx.state.borrow();
            let header = Header(state.region.load(from));
            let count = match header.kind() {
                Kind::Array => header.count(),
                Kind::Record | Kind::Bytes | Kind::Text => 1,
            };
            (
                count,
                state.region.words(from + WORD, header.payload()).to_vec(),
            )
        };
        let (old_words, new_words) = (self.old.size(o).words(), self.new.size(n).words());
        let pointers = self.new.size(n).pointers as usize;
        let bytes = self.new.size(n).bytes as usize;
        let mut new = vec![0; new_words as usize];
        for index in 0..count {
            let value = &words[(index * old_words) as usize..][..old_words as usize];
            new.fill(0);
            let (pointers, rest) = new.split_at_mut(pointers);
            let raw = &mut bytemuck::cast_slice_mut(rest)[..bytes];
            let value = Value::new(self.old, o, value);
            self.convert((o, n), value, Place { pointers, raw })?;
            let mut state = self.tx.state.borrow_mut();
            let at = to + (1 + index * new_words) * WORD;
            state.region.words_mut(at, new_words).copy_from_slice(&new);
        }
        Ok(())
    }

    fn convert(&mut self, pair: Pair, value: Value<'_>, mut to: Place<'_>) -> Result<()> {
        let (old, new) = (self.old, self.new);
        let (o, n) = pair;
        if self.compared.is_same(pair) {
            to.pointers.copy_from_slice(value.pointers);
            to.raw.copy_from_slice(value.raw);
            return Ok(());
        }
        match (old.shape(o), new.shape(n)) {
            (Shape::Plain(from), Shape::Plain(plain)) => {
                Number::read(*from, value.raw).write(*plain, to.raw);
                Ok(())
            }
            (Shape::Reference(_), Shape::Reference(_)) => {
                to.pointers[0] = self.copy(pair, value.pointers[0])?;
                Ok(())
            }
            (Shape::Option(from), Shape::Option(of)) => match value.some(old, *from) {
                Some(some) => self.some((*from, *of), some, to),
                None => Ok(()),
            },
            (_, Shape::Option(of)) => self.some((o, *of), value, to),
            (Shape::Fixed(from, count), Shape::Fixed(of, _)) => {
                let mut parts = value.parts(old);
                (0..*count).try_for_each(|_| {
                    self.convert((*from, *of), parts.take(*from), to.take(new, *of))
                })
            }
            (Shape::Tuple(from), Shape::Tuple(of)) => {
                let mut parts = value.parts(old);
                let mut pairs = from.iter().zip(of);
                pairs.try_for_each(|(from, of)| {
                    self.convert((*from, *of), parts.take(*from), to.take(new, *of))
                })
            }
            (Shape::Struct(_, from), Shape::Struct(_, of)) => {
                self.fields(from, of, value.parts(old), to)
            }
            (
                Shape::Enum {
                    name,
                    variants: from,
                    ..
                },
                Shape::Enum { variants: of, .. },
            ) => {
                let (tag, variant) = value.variant(old, from);
                let (variant, parts) = variant.ok_or_else(|| {
                    Error::corrupted(format!("{} has no variant {tag}", old.name(o)))
                })?;
                let places = variants_of(from, of);
                let place = places.iter().position(|place| *place == Some(tag.into()));
                let place = place.ok_or_else(|| {
                    Error::Migration(format!(
                        "a value is `{}::{}`, a variant that the program does not have",
                        name.name, variant.name
                    ))
                })?;
                let (first, raw) = to.raw.split_first_mut().expect("the number of a variant");
                *first = place as u8;
                let pointers = to.pointers;
                self.fields(
                    &variant.fields,
                    &of[place].fields,
                    parts,
                    Place { pointers, raw },
                )
            }
            _ => unreachable!("a pair without a conversion was refused"),
        }
    }

    /// Writes the value as what an option holds.
    fn some(&mut self, pair: Pair, value: Value<'_>, to: Place<'_>) -> Result<()> {
        if self.new.is_never_null(pair.1) {
            return self.convert(pair, value, to);
        }
        let (is_some, raw) = to.raw.split_first_mut().expect("the byte of an option");
        *is_some = 1;
        let pointers = to.pointers;
        self.convert(pair, value, Place { pointers, raw })
    }

    fn fields(
        &mut self,
        old: &[Field],
        new: &[Field],
        from: Parts<'_>,
        mut to: Place<'_>,
    ) -> Result<()> {
        let values = from.all(old.iter().map(|field| field.of));
        for (field, place) in new.iter().zip(fields_of(old, new)) {
            let to = to.take(self.new, field.of);
            match (place, &field.fill) {
                (Some(place), _) => self.convert((old[place].of, field.of), values[place], to)?,
                (None, Some(fill)) => to.raw.copy_from_slice(&fill.0),
                (None, None) => unreachable!("a new field without a default was refused"),
            }
        }
        Ok(())
    }
}
