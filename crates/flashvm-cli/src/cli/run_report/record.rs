//! The record of a run: all that its report shows, as one JSON object.

use super::allocations::Allocations;
use super::heat::{Cold, Heat};
use super::stacks::Stacks;
use super::timeline::Point;
use super::what_if::WhatIf;
use crate::cli::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The format that this version writes and reads.
pub(super) const FORMAT: u32 = 2;

/// What was run, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    pub(crate) command: String,
    pub(crate) end: String,
    pub(crate) seconds: f64,
    pub(crate) ram_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) mode: String,
    pub(crate) preset: String,
    pub(crate) policy: String,
    /// The version of flashvm.
    pub(crate) version: String,
}

/// Totals of the run that no curve shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) faults: u64,
    pub(crate) pages_in: u64,
    pub(crate) pages_out: u64,
    pub(crate) zero_pages_skipped: u64,
    pub(crate) pages_unchanged: u64,
    pub(crate) pool_pages: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) prefetch_issued: u64,
    pub(crate) prefetch_used: u64,
    pub(crate) prefetch_wasted: u64,
    pub(crate) resident_pages_max: u64,
}

/// Latencies of faults, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    /// Sum of all.
    pub(crate) sum: u64,
    /// Power of two, and faults that took at least that long and less than twice as long.
    pub(crate) octaves: Vec<(u32, u64)>,
}

/// The record of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) about: About,
    pub(crate) totals: Totals,
    pub(crate) latency: Latency,
    /// The last point is the end of the run.
    pub(crate) timeline: Vec<Point>,
    pub(crate) heat: Heat,
    pub(crate) cold: Cold,
    pub(crate) what_if: Vec<WhatIf>,
    pub(crate) stacks: Stacks,
    pub(crate) allocations: Allocations,
}

/// The format alone: records of any version have it.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl Record {
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record of numbers and texts is JSON")
    }

    /// Reads a record.
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &dyn std::fmt::Display| {
            let path = path.display();
            Refusal::new(format!("{path}: {why}"))
        };
        let bytes = std::fs::read(path)
            .map_err(|e| refuse(&format_args!("{e}: name a record of flashvm run --report")))?;
        let head: Head = serde_json::from_slice(&bytes).map_err(|_| {
            refuse(&"not a record: name a file that flashvm run --report FILE.json has written")
        })?;
        if head.format != FORMAT {
            return Err(refuse(&format_args!(
                "a record of format {}, and this version reads format {FORMAT}: use the flashvm that wrote it",
                head.format
            )));
        }
        serde_json::from_slice(&bytes)
            .map_err(|e| refuse(&format_args!("a damaged record: {e}: record the run again")))
    }
}
