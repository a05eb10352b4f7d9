//! Values of a persistent heap: as they lie in it, as Python has them, and in between, owned by neither.
//!
//! Python's code runs only while no update of the heap is open: an object is first turned into a [`Plain`], then stored.

use crate::shared::Shared;
use gordon::{Bytes, Handle, Map, Persist, Text, Tx, Var, Vector};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// Containers within containers that one assignment may bring.
const DEPTH: usize = 100;

/// A list in the heap.
pub(crate) type List<'t> = Var<'t, Vector<'t, Value<'t>>>;
/// A dict in the heap.
pub(crate) type Dict<'t> = Var<'t, Map<'t, Key<'t>, Value<'t>>>;

/// A key, in the order in which a dict has its keys.
#[derive(Clone, Copy, Persist, PartialEq, Eq, PartialOrd, Ord)]
#[persist(untagged)]
pub(crate) enum Key<'t> {
    Number(i64),
    Text(Text<'t>),
    Bytes(Bytes<'t>),
}

/// A value.
#[derive(Clone, Copy, Persist)]
#[persist(untagged)]
pub(crate) enum Value<'t> {
    None,
    Bool(bool),
    Number(i64),
    /// A number of any length, in decimal digits.
    Digits(Text<'t>),
    Float(f64),
    Text(Text<'t>),
    Bytes(Bytes<'t>),
    /// Numbers of a type (numpy's name) and a shape, which do not change.
    Array {
        kind: Text<'t>,
        shape: Text<'t>,
        data: Bytes<'t>,
    },
    List(List<'t>),
    Dict(Dict<'t>),
}

/// A list or a dict that Python refers to.
pub(crate) enum Container {
    List(Handle<List<'static>>),
    Dict(Handle<Dict<'static>>),
}

/// A key that is in no heap.
pub(crate) enum PlainKey {
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A value that is in no heap.
pub(crate) enum Plain {
    None,
    Bool(bool),
    Number(i64),
    Digits(String),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Array(Array),
    List(Vec<Self>),
    Dict(Vec<(PlainKey, Self)>),
    /// One that is in the heap already.
    There(Py<Node>),
}

/// An array, as Python's part of the package makes it of numpy's and turns it back into one.
#[pyclass(frozen, get_all, from_py_object, module = "flashvm._native")]
#[derive(Clone)]
pub(crate) struct Array {
    kind: String,
    shape: String,
    data: Vec<u8>,
}

#[pymethods]
impl Array {
    #[new]
    fn new(kind: String, shape: String, data: Vec<u8>) -> Self {
        Self { kind, shape, data }
    }

    /// The bytes of its numbers.
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }
}

/// A list or a dict of a heap.
#[pyclass(frozen, module = "flashvm._native")]
pub(crate) struct Node {
    pub(crate) heap: Shared,
    pub(crate) container: Container,
}

impl PlainKey {
    pub(crate) fn of(key: &Bound<'_, PyAny>) -> PyResult<Self> {
        if key.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(
                "a key that is a bool: use str, int or bytes",
            ));
        }
        if let Ok(text) = key.cast::<PyString>() {
            return Ok(Self::Text(text.to_str()?.to_owned()));
        }
        if key.is_instance_of::<PyInt>() {
            let number = key.extract();
            return number.map(Self::Number).map_err(|_| {
                PyValueError::new_err(format!(
                    "key {key}: numbers of keys have 64 bits: use a str"
                ))
            });
        }
        if let Ok(bytes) = key.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes().to_owned()));
        }
        let kind = key.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a key of type {kind}: use str, int or bytes"
        )))
    }

    pub(crate) fn store<'t>(&self, tx: &Tx<'t>) -> Key<'t> {
        match self {
            Self::Number(number) => Key::Number(*number),
            Self::Text(text) => Key::Text(tx.text(text)),
            Self::Bytes(bytes) => Key::Bytes(tx.bytes(bytes)),
        }
    }

    pub(crate) fn load(key: Key<'_>) -> Self {
        match key {
            Key::Number(number) => Self::Number(number),
            Key::Text(text) => Self::Text(text.as_str().to_owned()),
            Key::Bytes(bytes) => Self::Bytes(bytes.as_slice().to_owned()),
        }
    }

    pub(crate) fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            Self::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
            Self::Bytes(bytes) => PyBytes::new(py, bytes).into_any().unbind(),
        })
    }
}

impl Plain {
    /// Reads a value of Python's.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::within(value, DEPTH)
    }

    fn within(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Self> {
        if depth == 0 {
            return Err(PyValueError::new_err(format!(
                "containers within containers, {DEPTH} deep or in a circle: store the inner ones first"
            )));
        }
        if value.is_none() {
            return Ok(Self::None);
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(Self::Bool(truth.is_true()));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(text.to_str()?.to_owned()));
        }
        if value.is_instance_of::<PyInt>() {
            return Ok(match value.extract() {
                Ok(number) => Self::Number(number),
                Err(_) => Self::Digits(value.str()?.to_str()?.to_owned()),
            });
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Ok(Self::Float(number.value()));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes().to_owned()));
        }
        if let Ok(array) = value.cast::<Array>() {
            return Ok(Self::Array(array.get().clone()));
        }
        if let Ok(node) = value.cast::<Node>() {
            return Ok(Self::There(node.clone().unbind()));
        }
        if let Ok(list) = value.cast::<PyList>() {
            let items = list.iter().map(|item| Self::within(&item, depth - 1));
            return items.collect::<PyResult<_>>().map(Self::List);
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            let items = dict
                .iter()
                .map(|(key, value)| Ok((PlainKey::of(&key)?, Self::within(&value, depth - 1)?)));
            return items.collect::<PyResult<_>>().map(Self::Dict);
        }
        let kind = value.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a value of type {kind}: a heap has None, bool, int, float, str, bytes, list, dict and arrays of numbers"
        )))
    }

    /// Puts a value into the heap.
    pub(crate) fn store<'t>(&self, tx: &Tx<'t>) -> Value<'t> {
        match self {
            Self::None => Value::None,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Number(number) => Value::Number(*number),
            Self::Digits(digits) => Value::Digits(tx.text(digits)),
            Self::Float(number) => Value::Float(*number),
            Self::Text(text) => Value::Text(tx.text(text)),
            Self::Bytes(bytes) => Value::Bytes(tx.bytes(bytes)),
            Self::Array(array) => Value::Array {
                kind: tx.text(&array.kind),
                shape: tx.text(&array.shape),
                data: tx.bytes(&array.data),
            },
            Self::List(items) => {
                let list = items
                    .iter()
                    .fold(Vector::new(tx), |list, item| list.push(tx, item.store(tx)));
                Value::List(tx.var(list))
            }
            Self::Dict(items) => {
                let dict = items.iter().fold(Map::new(), |dict, (key, value)| {
                    dict.insert(tx, key.store(tx), value.store(tx))
                });
                Value::Dict(tx.var(dict))
            }
            Self::There(node) => match &node.get().container {
                Container::List(list) => Value::List(tx.get(list)),
                Container::Dict(dict) => Value::Dict(tx.get(dict)),
            },
        }
    }

    /// Whether all containers that are in a heap are in this one.
    pub(crate) fn is_of(&self, heap: &Shared) -> bool {
        match self {
            Self::There(node) => node.get().heap.is_same(heap),
            Self::List(items) => items.iter().all(|item| item.is_of(heap)),
            Self::Dict(items) => items.iter().all(|(_, item)| item.is_of(heap)),
            _ => true,
        }
    }
}

/// A value on its way to Python.
pub(crate) enum Found {
    Plain(Plain),
    Container(Container),
}

impl Found {
    pub(crate) fn load<'t>(tx: &Tx<'t>, value: Value<'t>) -> Self {
        Self::Plain(match value {
            Value::None => Plain::None,
            Value::Bool(truth) => Plain::Bool(truth),
            Value::Number(number) => Plain::Number(number),
            Value::Digits(digits) => Plain::Digits(digits.as_str().to_owned()),
            Value::Float(number) => Plain::Float(number),
            Value::Text(text) => Plain::Text(text.as_str().to_owned()),
            Value::Bytes(bytes) => Plain::Bytes(bytes.as_slice().to_owned()),
            Value::Array { kind, shape, data } => Plain::Array(Array {
                kind: kind.as_str().to_owned(),
                shape: shape.as_str().to_owned(),
                data: data.as_slice().to_owned(),
            }),
            Value::List(list) => return Self::Container(Container::List(tx.hold(list))),
            Value::Dict(dict) => return Self::Container(Container::Dict(tx.hold(dict))),
        })
    }

    pub(crate) fn into_python(self, py: Python<'_>, heap: &Shared) -> PyResult<Py<PyAny>> {
        let plain = match self {
            Self::Plain(plain) => plain,
            Self::Container(container) => {
                let heap = heap.clone();
                return Ok(Py::new(py, Node { heap, container })?.into_any());
            }
        };
        Ok(match plain {
            Plain::None => py.None(),
            Plain::Bool(truth) => PyBool::new(py, truth).to_owned().into_any().unbind(),
            Plain::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            Plain::Digits(digits) => py.get_type::<PyInt>().call1((digits,))?.unbind(),
            Plain::Float(number) => PyFloat::new(py, number).into_any().unbind(),
            Plain::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
            Plain::Bytes(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
            Plain::Array(array) => Py::new(py, array)?.into_any(),
            Plain::List(_) | Plain::Dict(_) | Plain::There(_) => {
                unreachable!("containers are found as such")
            }
        })
    }
}
