//! A persistent heap in flash.
//!
//! Any data becomes persistent by being reachable from the persistent root, without conversion;
//! `commit` makes all changes stable at once. After Moore, Hicks and Nettles, *General-Purpose
//! Persistence Using Flash Memory* (1997); section numbers in these pages are that paper's.
//!
//! - [`Heap`]: open, update, commit, abort; [`Persist`](trait@Persist): what may be stored, derived.
//! - [`Ref`], [`Var`], [`Array`], [`Slice`], [`Text`], [`Bytes`], [`ByteArray`]: references.
//! - [`Vector`], [`Map`]: sequences and ordered maps that share their unchanged parts.
//! - [`flash`]: banks, emulated or durable, and the interface to them (Table 2).
//! - [`sidney`]: the same heap over recoverable virtual memory, with which the paper compares
//!   Gordon.
#![deny(unsafe_code)]

// Derived code names the crate, here too.
extern crate self as gordon;

mod brand;
mod error;
pub mod flash;
mod heap;
mod map;
mod object;
mod persist;
mod pointer;
mod region;
mod types;
mod vector;
mod window;

pub use error::{Error, Result};
pub use gordon_derive::Persist;
pub use heap::sidney;
pub use heap::{
    Bandwidths, Census, Collector, Counters, Handle, Heap, Limits, Options, Report, Statistics, Tx,
    TypeStatistics, View, bandwidths,
};
pub use map::Map;
pub use persist::{Load, Persist, Store};
pub use pointer::{Array, ByteArray, Bytes, Pointer, Ref, Slice, Text, Var};
pub use types::{Catalogue, Describer, TypeNumber};
pub use vector::Vector;

/// For derived code.
#[doc(hidden)]
pub mod derive {
    pub use crate::persist::{fill_of, key_of, larger, mix_schema, schema_of, unknown_variant};
    pub use crate::types::{Field, Fill, Key, Variant};
}
