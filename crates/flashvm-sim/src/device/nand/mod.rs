//! `nand` and `raw-nand`: flash chips with channels and times of their own, behind a translation
//! layer that is the device's (`nand`) or the host's (`raw-nand`).
//!
//! Pages of 4 KiB; a block is striped over the channels, so that a stream uses all of them.
//! Cleaning happens in front of the write that needs it, and everybody waits for the channels
//! that it occupies.
//!
//! - `geometry`: sizes, and which of them are possible;
//! - `ftl`: the translation layer, without any time; `blocks`: its greedy victim in O(1);
//! - `simulate`: a translation layer alone, until it has settled;
//! - `device`: the translation layer in time; `options`: what a model file may say.

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
