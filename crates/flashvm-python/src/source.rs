//! References for a sweep, from a trace file or from an array.
//!
//! Arrays come in chunks of bytes, which Python's buffer protocol copies from any memory layout. A chunk is small,
//! so memory does not grow with the array. The interpreter's lock is held only while the next chunk is fetched.

use crate::errors;
use crate::signals::Signals;
use flashvm_sim::sweep::{self, SweepError};
use flashvm_sim::trace::{self, Format, Granularity, Kind, Reference, TraceError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyIterator;
use std::path::PathBuf;

/// References between two looks at the clock.
const LOOK: u64 = 1 << 14;

/// All references of a trace, as a sweep needs them.
#[pyclass(frozen, module = "flashvm._native")]
pub(crate) struct References {
    /// Their source, for results.
    pub(crate) name: String,
    pub(crate) inner: sweep::References,
}

#[pymethods]
impl References {
    fn __len__(&self) -> usize {
        self.inner.len() as usize
    }

    /// The path of the file, or `array`.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Distinct pages.
    #[getter]
    fn pages(&self) -> u32 {
        self.inner.pages()
    }

    /// Distinct pages that are written.
    #[getter]
    fn pages_written(&self) -> u32 {
        self.inner.pages_written()
    }
}

/// Reads a trace file to its end.
#[pyfunction]
pub(crate) fn read_file(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
) -> PyResult<References> {
    let format = format.map(str::parse::<Format>).transpose();
    let format = format.map_err(errors::value)?;
    let references = py.detach(|| {
        let trace = trace::open(&path, format).map_err(|e| errors::trace(&e))?;
        let granularity = trace.granularity();
        let (mut signals, mut taken, mut failed) = (Signals::new(), 0_u64, None);
        let trace = trace.map_while(|reference| {
            taken += 1;
            if taken % LOOK == 0
                && let Err(error) = signals.check()
            {
                failed = Some(error);
                return None;
            }
            Some(reference)
        });
        let references = sweep::References::read(granularity, trace);
        finish(references, failed)
    })?;
    Ok(References {
        name: path.display().to_string(),
        inner: references,
    })
}

/// Reads chunks of an array: pairs of addresses and write flags. A flag is a byte, not 0 for a write; `None` instead
/// of flags: all references are reads.
#[pyfunction]
pub(crate) fn read_chunks(
    py: Python<'_>,
    chunks: Py<PyIterator>,
    item_bytes: usize,
    signed: bool,
    pages: bool,
) -> PyResult<References> {
    let granularity = match pages {
        true => Granularity::Pages,
        false => Granularity::Bytes,
    };
    let mut items = Items {
        chunks,
        item_bytes,
        signed,
        bytes: u32::from(!pages),
        signals: Signals::new(),
        chunk: None,
        at: 0,
        before: 0,
    };
    let references = py.detach(|| {
        let mut failed = None;
        let references = std::iter::from_fn(|| match items.next() {
            Ok(reference) => reference.map(Ok::<_, TraceError>),
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        let references = sweep::References::read(granularity, references);
        finish(references, failed)
    })?;
    Ok(References {
        name: "array".to_owned(),
        inner: references,
    })
}

/// The result of a reading; `failed` is the exception that ended it early, which the reader does not know of.
fn finish(
    references: Result<sweep::References, SweepError>,
    failed: Option<PyErr>,
) -> PyResult<sweep::References> {
    match (references, failed) {
        (_, Some(error)) => Err(error),
        (Err(error), None) => Err(errors::sweep(&error)),
        (Ok(references), None) => Ok(references),
    }
}

/// The items of an array.
struct Items {
    chunks: Py<PyIterator>,
    item_bytes: usize,
    signed: bool,
    /// Bytes of each reference.
    bytes: u32,
    signals: Signals,
    chunk: Option<(PyBackedBytes, Option<PyBackedBytes>)>,
    /// Index of the next item in the chunk.
    at: usize,
    /// Items of the chunks before.
    before: u64,
}

impl Items {
    #[inline]
    fn next(&mut self) -> PyResult<Option<Reference>> {
        loop {
            if let Some((items, writes)) = &self.chunk {
                let begin = self.at * self.item_bytes;
                if let Some(item) = items.get(begin..begin + self.item_bytes) {
                    let address = self.number(item)?;
                    let write = writes.as_ref().is_some_and(|writes| writes[self.at] != 0);
                    self.at += 1;
                    return Ok(Some(Reference {
                        address,
                        bytes: self.bytes,
                        kind: if write { Kind::Write } else { Kind::Read },
                    }));
                }
            }
            if !self.fetch()? {
                return Ok(None);
            }
        }
    }

    /// Takes the next chunk; `false` at the end.
    fn fetch(&mut self) -> PyResult<bool> {
        self.signals.check()?;
        self.before += std::mem::take(&mut self.at) as u64;
        self.chunk = Python::attach(|py| {
            let next = self.chunks.bind(py).clone().next();
            next.transpose()?.map(|pair| pair.extract()).transpose()
        })?;
        Ok(self.chunk.is_some())
    }

    #[inline]
    fn number(&self, item: &[u8]) -> PyResult<u64> {
        let mut bytes = [0; 8];
        bytes[..item.len()].copy_from_slice(item);
        let number = u64::from_le_bytes(bytes);
        let unused = u64::BITS - 8 * item.len() as u32;
        let extended = (number << unused) as i64 >> unused;
        match self.signed && extended < 0 {
            true => Err(self.negative(extended)),
            false => Ok(number),
        }
    }

    #[cold]
    fn negative(&self, number: i64) -> PyErr {
        let place = self.before + self.at as u64;
        errors::value(format!(
            "trace[{place}] is {number}: pages and addresses are 0 or more"
        ))
    }
}
