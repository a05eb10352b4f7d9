//! `flashvm._native`: the compiled part of the Python package. It reads traces and runs replacement policies over
//! them. The public names, type checks and documentation are in `python/src/flashvm`.
//!
//! - `heap`: the persistent heap; `value`: what is in it; `shared`: how Python's objects share it;
//! - `source`: references, from a file or from chunks of an array;
//! - `sweep`: policies over references;
//! - `signals`: Ctrl-C during long work;
//! - `errors`: which exception an error becomes.
#![forbid(unsafe_code)]

mod errors;
mod heap;
mod shared;
mod signals;
mod source;
mod sweep;
mod value;

use flashvm_core::PolicyKind;
use flashvm_sim::ModelKind;
use flashvm_sim::trace::Format;
use pyo3::prelude::*;

type Named = Vec<(&'static str, &'static str)>;

/// Names of all policies, with a line of help each.
#[pyfunction]
fn policies() -> Named {
    PolicyKind::ALL.iter().map(|p| (p.name, p.help)).collect()
}

/// Names of all trace formats, with a line of help each.
#[pyfunction]
fn formats() -> Named {
    Format::ALL.iter().map(|f| (f.name, f.help)).collect()
}

/// Names of all device models, with a line of help each.
#[pyfunction]
fn device_models() -> Named {
    ModelKind::ALL.iter().map(|m| (m.name, m.help)).collect()
}

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::heap::Heap;
    #[pymodule_export]
    use super::source::{References, read_chunks, read_file};
    #[pymodule_export]
    use super::sweep::sweep;
    #[pymodule_export]
    use super::value::{Array, Node};
    #[pymodule_export]
    use super::{device_models, formats, policies};
}
