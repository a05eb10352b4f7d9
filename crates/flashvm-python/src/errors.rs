//! Which exception an error becomes: a bad value is a `ValueError`, a failed system call an `OSError`.

use flashvm_sim::sweep::SweepError;
use flashvm_sim::trace::TraceError;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;
use std::io;

/// A bad value. Its line names the value and the remedy, with Python's words for options.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string().replace("--format", "format"))
}

/// An error of a trace.
pub(crate) fn trace(error: &TraceError) -> PyErr {
    match error {
        TraceError::Open { path, source } => {
            let remedy = "name a trace that can be read";
            system(source, remedy, Some(path.display().to_string()))
        }
        TraceError::Read { source, .. } if source.raw_os_error().is_some() => {
            system(source, &error.to_string(), None)
        }
        _ => value(error),
    }
}

/// An error of a sweep.
pub(crate) fn sweep(error: &SweepError) -> PyErr {
    match error {
        SweepError::Trace(error) => trace(error),
        SweepError::Spool(source) => system(source, &error.to_string(), None),
        _ => value(error),
    }
}

/// `OSError`, or the subclass that Python has for the error number.
fn system(source: &io::Error, text: &str, file: Option<String>) -> PyErr {
    match source.raw_os_error() {
        Some(number) if file.is_some() => {
            let reason = source.to_string();
            let reason = reason.split(" (os error").next().unwrap_or_default();
            PyOSError::new_err((number, format!("{reason}: {text}"), file))
        }
        Some(number) => PyOSError::new_err((number, text.to_owned())),
        None => {
            let file = file.map_or(String::new(), |file| format!("{file}: "));
            io::Error::new(source.kind(), format!("{file}{source}: {text}")).into()
        }
    }
}
