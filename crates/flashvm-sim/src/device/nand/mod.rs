//! `nand` and `raw-nand`: flash chips with channels and latencies, behind a translation layer of
//! the device (`nand`) or of the host (`raw-nand`).
//!
//! Pages of 4 KiB; a block is striped over the channels, so that a stream uses all of them.
//! A write that needs cleaning cleans first; all requests wait for the channels that cleaning
//! occupies.
//!
//! - `geometry`: sizes, and which of them are possible;
//! - `ftl`: the translation layer, without time; `blocks`: its greedy victim in O(1);
//! - `simulate`: a translation layer alone, until it is in steady state;
//! - `device`: the translation layer with timing; `options`: the options of a model file.

mod blocks;
mod device;
mod ftl;
mod geometry;
mod options;
mod simulate;
mod trace;

pub use device::Nand;
pub use ftl::{Cleaning, Counts, Flash, Ftl, FtlStrategy, Levelling, WornOut};
pub use geometry::{Frontiers, Geometry, GeometryError};
pub use options::NandOptions;
pub use simulate::{Settled, TraceStep, Workload, simulate};
pub use trace::{TraceError, read_trace};
