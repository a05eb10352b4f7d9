//! The root and its types: what a program reads as the root must be what was stored.
//!
//! The root object points to a *typed root*: a mutable object with the value that the program has set, the catalogue of its
//! types ([`Catalogue::encode`], as bytes), and the schema of its type. Both are ordinary objects: commits, collections and
//! recovery treat them as the program's. In heaps of earlier versions the root object points to the value itself; the next
//! [`Tx::set_root`] makes a typed root.

use super::tx::{Tx, View};
use super::{ROOT_POINTER, state::State};
use crate::error::{Error, Result};
use crate::object::{Header, Kind};
use crate::persist::schema_of;
use crate::pointer::{Addressed, Pointer};
use crate::region::{Region, WORD};
use crate::types::{Catalogue, Comparison, Describer, TypeNumber};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What stands in the root for the schema of its target.
const TYPED: u64 = schema_of("root with types");
/// A typed root: target, catalogue, schema.
const TYPED_ROOT: Header = Header::record(true, 2, 1, TYPED);

/// The root, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Root {
    NotSet,
    /// Of an earlier version.
    Untyped {
        target: u64,
        schema: u64,
    },
    Typed {
        at: u64,
        target: u64,
        catalogue: u64,
        schema: u64,
    },
}

/// The type with which the program has used the root, once it was found equal to the stored one: the address of its
/// `describe`, or 0. The code of two types is at one address only if it is the same.
#[derive(Debug, Default)]
pub(crate) struct KnownRoot(AtomicUsize);

impl KnownRoot {
    fn of<'t, P: Pointer<'t>>() -> usize {
        let describe: fn(&mut Describer) -> TypeNumber = P::describe;
        describe as usize
    }

    fn is<'t, P: Pointer<'t>>(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::of::<P>()
    }

    fn set<'t, P: Pointer<'t>>(&self) {
        self.0.store(Self::of::<P>(), Ordering::Relaxed);
    }

    /// The stored type may be another one.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The string at `address`.
fn text(region: &Region, address: u64) -> Result<&str> {
    let bytes = region.bytes(address + WORD, Header(region.load(address)).length());
    std::str::from_utf8(bytes).map_err(|_| Error::corrupted("the heap's types are not UTF-8"))
}

impl State {
    pub(super) fn root_object(&self) -> Root {
        let word = |object: u64, at: u64| self.region.load(object + (1 + at) * WORD);
        let (pointer, schema) = (
            word(self.root(), ROOT_POINTER - 1),
            word(self.root(), ROOT_POINTER),
        );
        match pointer {
            0 => Root::NotSet,
            at if schema == TYPED => Root::Typed {
                at,
                target: word(at, 0),
                catalogue: word(at, 1),
                schema: word(at, 2),
            },
            target => Root::Untyped { target, schema },
        }
    }

    /// The types of the heap, if it knows them.
    pub(super) fn catalogue(&self) -> Result<Option<Catalogue>> {
        match self.root_object() {
            Root::NotSet | Root::Untyped { .. } => Ok(None),
            Root::Typed { catalogue, .. } => {
                let decoded = Catalogue::decode(text(&self.region, catalogue)?);
                decoded
                    .map(Some)
                    .map_err(|why| Error::corrupted(format!("the heap's types: {why}")))
            }
        }
    }

    /// The root's target and its types.
    ///
    /// # Errors
    /// There is none, or the heap does not know its types.
    pub(super) fn typed_root(&self) -> Result<(u64, Catalogue)> {
        match (self.root_object(), self.catalogue()?) {
            (Root::Typed { target, .. }, Some(types)) => Ok((target, types)),
            (Root::NotSet, _) => Err(Error::NoRoot),
            _ => Err(Error::NoTypes),
        }
    }

    /// Bytes of the root object, the typed root and the catalogue.
    pub(super) fn own_bytes(&self) -> u64 {
        let bytes = |object: u64| Header(self.region.load(object)).words() * WORD;
        let typed = match self.root_object() {
            Root::Typed { at, catalogue, .. } => bytes(at) + bytes(catalogue),
            Root::NotSet | Root::Untyped { .. } => 0,
        };
        bytes(self.root()) + typed
    }

    /// Checks a recovered root. Every pointer is that of an object already.
    pub(super) fn check_root(&self) -> Result<()> {
        let word = |at| self.region.load(self.root() + (1 + at) * WORD);
        let pointer = word(ROOT_POINTER - 1);
        if pointer == 0 || word(ROOT_POINTER) != TYPED {
            return Ok(());
        }
        let wrong = |what: &str| Err(Error::corrupted(format!("the typed root {what}")));
        if self.region.load(pointer) != TYPED_ROOT.0 {
            return wrong("is another object");
        }
        let Root::Typed {
            target,
            catalogue,
            schema,
            ..
        } = self.root_object()
        else {
            unreachable!("just tested");
        };
        if target == 0 || catalogue == 0 {
            return wrong("lacks its value or its types");
        }
        let header = Header(self.region.load(catalogue));
        let is_string = match header.kind() {
            Kind::Bytes => header.is_mutable(),
            // In heaps of earlier versions.
            kind => kind == Kind::Text,
        };
        if !is_string {
            return wrong("has types that are no string");
        }
        match self.catalogue()? {
            Some(types) if types.get(Catalogue::ROOT).schema == schema => Ok(()),
            _ => wrong("is not of its types"),
        }
    }

    fn root_as<'t, P: Pointer<'t>>(&self) -> Result<Option<P>> {
        let (target, schema) = match self.root_object() {
            Root::NotSet => return Ok(None),
            Root::Untyped { target, schema } => (target, schema),
            Root::Typed { target, schema, .. } => {
                if !self.known_root.is::<P>() {
                    self.compare_root::<P>()?;
                    self.known_root.set::<P>();
                }
                (target, schema)
            }
        };
        if schema != P::SCHEMA {
            return Err(Error::RootType(
                "the heap does not know its types: open it with the definitions that wrote it"
                    .to_owned(),
            ));
        }
        Ok(Some(P::at_address(target)))
    }

    /// An error with all differences, unless the stored types are those of `P`.
    fn compare_root<'t, P: Pointer<'t>>(&self) -> Result<()> {
        let stored = self.catalogue()?.expect("a typed root has types");
        let program = Catalogue::of::<P>();
        let compared = Comparison::of(&stored, &program);
        if compared.is_equal() {
            return Ok(());
        }
        Err(Error::RootType(format!(
            "{}: read it with the old definition, or let `Tx::migrate` convert it",
            compared.text()
        )))
    }
}

impl<'t> View<'t> {
    /// The persistent root, if it has been set.
    ///
    /// # Errors
    /// It is a value of another type: the error names what differs, down to the fields of all types that the root can reach.
    pub fn root<P: Pointer<'t>>(&self) -> Result<Option<P>> {
        self.state.root_as()
    }

    /// The types of the heap. `None`: it has no root, or an earlier version of this crate has set it.
    ///
    /// # Errors
    /// They are damaged.
    pub fn types(&self) -> Result<Option<Catalogue>> {
        self.state.catalogue()
    }
}

impl<'t> Tx<'t> {
    /// The persistent root, if it has been set: everything reachable from it survives.
    ///
    /// # Errors
    /// As for [`View::root`].
    pub fn root<P: Pointer<'t>>(&self) -> Result<Option<P>> {
        self.state.borrow().root_as()
    }

    /// Makes `target` the persistent root. An ordinary change: stable after the next commit, and
    /// undone by an abort. Its type, with all that it can reach, becomes that of the heap.
    ///
    /// # Panics
    /// A value of the type has more than 2^24 parts, such as fields and elements.
    pub fn set_root<P: Pointer<'t>>(&self, target: P) {
        let is_known = {
            let state = self.state.borrow();
            state.known_root.is::<P>() || state.compare_root_if_typed::<P>()
        };
        let stored = self.state.borrow().root_object();
        match stored {
            Root::Typed { at, .. } if is_known => self.mutate(at, 0, &[target.address()], 1),
            stored => {
                let types = Catalogue::of::<P>().encode();
                self.set_typed(stored, target.address(), &types, P::SCHEMA);
            }
        }
        self.state.borrow().known_root.set::<P>();
    }

    /// Sets the root to an object of other types.
    pub(super) fn set_typed(&self, stored: Root, target: u64, types: &str, schema: u64) {
        // Mutable, though it never changes: as the only immutable object of a heap it would be copied by each collection, to a
        // segment of its own.
        let catalogue = self.byte_array(types.as_bytes()).address();
        let words = [target, catalogue, schema];
        match stored {
            Root::Typed { at, .. } => self.mutate(at, 0, &words, 2),
            Root::NotSet | Root::Untyped { .. } => {
                let at = self.allocate(TYPED_ROOT, |to| to.copy_from_slice(&words));
                let root = self.state.borrow().root();
                self.mutate(root, ROOT_POINTER - 1, &[at, TYPED], 1);
            }
        }
        self.state.borrow().known_root.forget();
    }
}

impl State {
    /// Whether the root is typed, and of the type `P`.
    fn compare_root_if_typed<'t, P: Pointer<'t>>(&self) -> bool {
        matches!(self.root_object(), Root::Typed { .. }) && self.compare_root::<P>().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Model;
    use crate::heap::{Heap, Options};
    use crate::{Text, Var};

    fn heap() -> Heap {
        Heap::emulated(Model::intel(1).fast(), 16, Options::default()).expect("a heap")
    }

    /// Sets the root as earlier versions did.
    fn set_untyped<'t, P: Pointer<'t>>(tx: &Tx<'t>, target: P) {
        let root = tx.state.borrow().root();
        tx.mutate(root, ROOT_POINTER - 1, &[target.address(), P::SCHEMA], 1);
    }

    #[test]
    fn a_heap_of_an_earlier_version_gets_types() {
        let heap = heap();
        heap.update(|tx| {
            set_untyped(tx, tx.var((5_u64, tx.text("five"))));
            Ok(())
        })
        .expect("a commit");
        type Now<'t> = Var<'t, (u64, Text<'t>)>;
        heap.view(|view| {
            assert_eq!(view.root::<Now<'_>>()?.expect("set").read().0, 5);
            let error = view
                .root::<Var<'_, u64>>()
                .map(|_| ())
                .expect_err("another");
            assert!(
                error.to_string().contains("does not know its types"),
                "{error}"
            );
            assert!(view.types()?.is_none());
            for error in [
                view.export(&mut std::io::sink()).expect_err("no types"),
                view.export_root(&mut std::io::sink())
                    .expect_err("no types"),
                view.statistics().map(|_| ()).expect_err("no types"),
            ] {
                assert!(matches!(error, Error::NoTypes), "{error}");
            }
            Ok(())
        })
        .expect("a view");
        heap.report().expect("good");
        let other = heap.update(|tx| tx.migrate::<Var<'_, u64>>());
        assert!(matches!(other, Err(Error::RootType(_))));
        assert!(heap.update(|tx| tx.migrate::<Now<'_>>()).expect("types"));
        assert!(
            !heap
                .update(|tx| tx.migrate::<Now<'_>>())
                .expect("they are there")
        );
        heap.collect().expect("a collection");
        heap.view(|view| {
            assert_eq!(&*view.root::<Now<'_>>()?.expect("set").read().1, "five");
            assert_eq!(view.types()?, Some(Catalogue::of::<Now<'_>>()));
            view.export(&mut std::io::sink())
        })
        .expect("a view");
        heap.report().expect("good");
    }

    /// A root that the same program sets again and again costs one word of the log.
    #[test]
    fn the_types_are_stored_once() {
        let heap = heap();
        let set = |number: u64| {
            heap.update(|tx| {
                tx.set_root(tx.alloc(number));
                Ok(())
            })
            .expect("a commit");
            let counters = heap.counters();
            (counters.immutable_bytes, counters.log_bytes)
        };
        let first = set(1);
        let second = set(2);
        let third = set(3);
        let immutable = [first.0, second.0, third.0];
        assert_eq!(
            immutable,
            [16, 32, 48],
            "a number each: the types are in mutable space"
        );
        assert_eq!(second.1 - first.1, third.1 - second.1);
        assert!(first.1 > 2 * (second.1 - first.1));
    }

    /// Each collection erases the segments that it has emptied: one of immutable space would be nearly empty.
    #[test]
    fn a_heap_of_mutable_objects_erases_its_log_alone() {
        // A thread of its own would begin collections whenever it gets to run.
        let options = Options {
            collector: crate::Collector::AtCommit,
            ..Options::default()
        };
        let heap = Heap::emulated(Model::intel(1).fast(), 16, options).expect("a heap");
        for number in 0..20_000 {
            heap.update(|tx| {
                match tx.root::<crate::ByteArray<'_>>()? {
                    Some(bytes) => bytes.write(tx, 0, &[number as u8; 500]),
                    None => tx.set_root(tx.byte_array(&[0; 500])),
                }
                Ok(())
            })
            .expect("a commit");
        }
        let bank = heap.bank_counters();
        let erased = bank.erases * Model::intel(1).segment_bytes();
        assert!(
            bank.erases > 20 && bank.erased_bytes_written * 10 > erased * 8,
            "{bank:?}"
        );
    }

    #[test]
    fn a_damaged_typed_root_is_found() {
        type Damage = dyn Fn(&Tx<'_>, u64);
        let damage: [(&str, &Damage); 5] = [
            ("lacks", &|tx, at| tx.mutate(at, 0, &[0], 1)),
            ("lacks", &|tx, at| tx.mutate(at, 1, &[0], 1)),
            ("no string", &|tx, at| {
                tx.mutate(at, 1, &[tx.bytes(&[1]).address()], 1)
            }),
            ("the heap's types", &|tx, at| {
                tx.mutate(at, 1, &[tx.text("types").address()], 1)
            }),
            ("not of its types", &|tx, at| tx.mutate(at, 2, &[7], 0)),
        ];
        for (what, damage) in damage {
            let heap = heap();
            heap.update(|tx| {
                tx.set_root(tx.alloc(1_u64));
                Ok(())
            })
            .expect("a commit");
            heap.update(|tx| {
                let Root::Typed { at, .. } = tx.state.borrow().root_object() else {
                    panic!("a typed root");
                };
                damage(tx, at);
                Ok(())
            })
            .expect("a commit");
            let error = heap.report().expect_err("damage").to_string();
            assert!(error.contains(what), "{error} does not say {what}");
        }
        let heap = heap();
        heap.update(|tx| {
            let root = tx.state.borrow().root();
            tx.mutate(root, ROOT_POINTER - 1, &[tx.var(1_u64).address(), TYPED], 1);
            Ok(())
        })
        .expect("a commit");
        assert!(
            heap.report()
                .expect_err("damage")
                .to_string()
                .contains("another object")
        );
    }
}
