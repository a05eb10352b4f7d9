//! A heap that Python's objects share, and which exception an error of it becomes.

use gordon::{Error, Tx};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A heap that its nodes share; `None` once it is closed.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Option<gordon::Heap>>>);

impl Shared {
    pub(crate) fn new(heap: gordon::Heap) -> Self {
        Self(Arc::new(Mutex::new(Some(heap))))
    }

    /// Takes the heap; whoever uses it from now on finds none.
    pub(crate) fn take(&self) -> Option<gordon::Heap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Uses the heap; Python's other threads run meanwhile.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&gordon::Heap) -> gordon::Result<R> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            let heap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            heap.as_ref().map(work)
        });
        match result {
            None => Err(own_error(
                py,
                "the heap is closed: open it again".to_owned(),
            )),
            Some(result) => result.map_err(|error| exception(py, &error)),
        }
    }

    /// Changes the heap, or reads what needs a handle.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&Tx<'_>) -> R + Send,
    ) -> PyResult<R> {
        self.with(py, |heap| heap.run(|tx| Ok(change(tx))))
    }
}

/// `flashvm.Error`.
fn own_error(py: Python<'_>, text: String) -> PyErr {
    let class = py
        .import("flashvm._errors")
        .and_then(|module| module.getattr("Error"))
        .and_then(|class| class.call1((text,)));
    class.map_or_else(|error| error, PyErr::from_value)
}

pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        },
        Error::Full { .. } | Error::WornOut { .. } => PyMemoryError::new_err(text),
        Error::TooSmall { .. }
        | Error::TooLarge { .. }
        | Error::SegmentSize { .. }
        | Error::Growth { .. } => PyValueError::new_err(text),
        _ => own_error(py, text),
    }
}
