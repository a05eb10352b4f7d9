//! The persistent heap (Gordon) for Python: a root that is a dict. `python/src/flashvm/heap.py` makes mappings and sequences of
//! the nodes here.

use crate::shared::{Shared, exception};
use crate::value::{Container, Dict, Found, Node, Plain, PlainKey};
use gordon::{Map, Options, Tx, Vector};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A heap in a file.
#[pyclass(frozen, module = "flashvm._native")]
pub(crate) struct Heap(Shared);

#[pymethods]
impl Heap {
    /// Opens the heap in a file; with a size, makes it first.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, size: Option<u64>) -> PyResult<Self> {
        let opened = py.detach(|| {
            let heap = match size {
                Some(size) => gordon::Heap::create(&path, size, Options::default())?,
                None => gordon::Heap::open(&path, Options::default())?,
            };
            heap.update(|tx| {
                // Of an earlier version of the package, perhaps.
                tx.migrate::<Dict<'_>>()?;
                if tx.root::<Dict<'_>>()?.is_none() {
                    let empty: Dict<'_> = tx.var(Map::new());
                    tx.set_root(empty);
                }
                Ok(())
            })?;
            Ok(heap)
        });
        let heap = opened.map_err(|error| exception(py, &error))?;
        Ok(Self(Shared::new(heap)))
    }

    /// The root.
    fn root(&self, py: Python<'_>) -> PyResult<Node> {
        let container = self.0.with(py, |heap| {
            heap.run(|tx| {
                let root = tx.root::<Dict<'_>>()?.expect("set when it was opened");
                Ok(Container::Dict(tx.hold(root)))
            })
        })?;
        let heap = self.0.clone();
        Ok(Node { heap, container })
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, gordon::Heap::commit)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, gordon::Heap::abort)
    }

    /// Bytes in use, garbage included.
    fn used_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let report = self.0.with(py, gordon::Heap::report)?;
        Ok(report.immutable_bytes + report.mutable_bytes)
    }

    /// Copies the heap as of its last commit to a new file.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.0.with(py, |heap| heap.backup(&path))
    }

    /// Makes the file larger; returns the bytes that the heap has then.
    fn grow(&self, py: Python<'_>, size: u64) -> PyResult<u64> {
        self.0.with(py, |heap| heap.grow(size))
    }

    /// Ends the use of the file. Uncommitted changes are lost.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| self.0.take().map_or(Ok(()), gordon::Heap::close));
        closed.map_err(|error| exception(py, &error))
    }
}

/// Refuses lists and dicts of another heap.
fn check(heap: &Shared, value: &Plain) -> PyResult<()> {
    if value.is_of(heap) {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "a list or dict of another heap: make a copy, such as list(value) or dict(value)",
    ))
}

fn wrong() -> PyErr {
    PyTypeError::new_err("a list where a dict is expected, or a dict where a list is")
}

#[pymethods]
impl Node {
    /// Whether it is a dict.
    #[getter]
    fn is_dict(&self) -> bool {
        matches!(self.container, Container::Dict(_))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.heap.run(py, |tx| match &self.container {
            Container::List(list) => tx.get(list).read().len(),
            Container::Dict(dict) => tx.get(dict).read().len(),
        })
    }

    /// Whether both are the same object of the heap.
    fn is_same(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if !self.heap.is_same(&other.heap) {
            return Ok(false);
        }
        self.heap
            .run(py, |tx| match (&self.container, &other.container) {
                (Container::List(one), Container::List(two)) => tx.get(one).is_same(tx.get(two)),
                (Container::Dict(one), Container::Dict(two)) => tx.get(one).is_same(tx.get(two)),
                _ => false,
            })
    }

    /// The value of a key.
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Container::Dict(dict) = &self.container else {
            return Err(wrong());
        };
        let plain = PlainKey::of(key)?;
        let found = self.heap.run(py, |tx| {
            let value = tx.get(dict).read().get(&plain.store(tx))?;
            Some(Found::load(tx, value))
        })?;
        match found {
            Some(value) => value.into_python(py, &self.heap),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Container::Dict(dict) = &self.container else {
            return Err(wrong());
        };
        let (key, value) = (PlainKey::of(key)?, Plain::of(value)?);
        check(&self.heap, &value)?;
        self.heap.run(py, |tx| {
            let dict = tx.get(dict);
            let changed = dict.read().insert(tx, key.store(tx), value.store(tx));
            dict.write(tx, changed);
        })
    }

    /// Removes a key.
    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let Container::Dict(dict) = &self.container else {
            return Err(wrong());
        };
        let plain = PlainKey::of(key)?;
        let removed = self.heap.run(py, |tx| {
            let dict = tx.get(dict);
            let before = dict.read();
            let after = before.remove(tx, &plain.store(tx));
            dict.write(tx, after);
            after.len() < before.len()
        })?;
        match removed {
            true => Ok(()),
            false => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// All keys, in order.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let Container::Dict(dict) = &self.container else {
            return Err(wrong());
        };
        let keys = self.heap.run(py, |tx| {
            let keys = tx.get(dict).read().iter();
            keys.map(|(key, _)| PlainKey::load(key)).collect::<Vec<_>>()
        })?;
        keys.iter().map(|key| key.to_python(py)).collect()
    }

    /// An item.
    fn at(&self, py: Python<'_>, index: usize) -> PyResult<Py<PyAny>> {
        let Container::List(list) = &self.container else {
            return Err(wrong());
        };
        let found = self.heap.run(py, |tx| {
            let value = tx.get(list).read().get(index)?;
            Some(Found::load(tx, value))
        })?;
        let found = found.ok_or_else(|| PyIndexError::new_err("list index out of range"))?;
        found.into_python(py, &self.heap)
    }

    /// Sets an item.
    fn put(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Container::List(list) = &self.container else {
            return Err(wrong());
        };
        let value = Plain::of(value)?;
        check(&self.heap, &value)?;
        let there = self.heap.run(py, |tx| {
            let list = tx.get(list);
            let before = list.read();
            let there = index < before.len();
            if there {
                list.write(tx, before.set(tx, index, value.store(tx)));
            }
            there
        })?;
        there
            .then_some(())
            .ok_or_else(|| PyIndexError::new_err("list assignment index out of range"))
    }

    /// Inserts an item before `index`; those behind it are moved.
    fn insert(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Container::List(list) = &self.container else {
            return Err(wrong());
        };
        let value = Plain::of(value)?;
        check(&self.heap, &value)?;
        self.heap.run(py, |tx| {
            let list = tx.get(list);
            let (kept, moved) = split(tx, list.read(), index);
            let inserted = kept.push(tx, value.store(tx));
            list.write(
                tx,
                moved
                    .into_iter()
                    .rev()
                    .fold(inserted, |list, item| list.push(tx, item)),
            );
        })
    }

    /// Deletes an item; those behind it are moved.
    fn delete(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        let Container::List(list) = &self.container else {
            return Err(wrong());
        };
        let there = self.heap.run(py, |tx| {
            let list = tx.get(list);
            let before = list.read();
            let there = index < before.len();
            if there {
                let (kept, mut moved) = split(tx, before, index);
                moved.pop();
                list.write(
                    tx,
                    moved
                        .into_iter()
                        .rev()
                        .fold(kept, |list, item| list.push(tx, item)),
                );
            }
            there
        })?;
        there
            .then_some(())
            .ok_or_else(|| PyIndexError::new_err("list index out of range"))
    }
}

/// The list up to `index`, and the items behind it, the last one first.
fn split<'t>(
    tx: &Tx<'t>,
    mut list: Vector<'t, crate::value::Value<'t>>,
    index: usize,
) -> (
    Vector<'t, crate::value::Value<'t>>,
    Vec<crate::value::Value<'t>>,
) {
    let mut moved = Vec::new();
    while list.len() > index {
        let (shorter, item) = list.pop(tx).expect("it is longer than the index");
        (list, _) = (shorter, moved.push(item));
    }
    (list, moved)
}
