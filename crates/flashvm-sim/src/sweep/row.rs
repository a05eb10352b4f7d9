//! A row of a sweep's results, as `flashvm sim --json` and the Python package give it.

use super::{Figures, Job};
use serde::Serialize;

/// The result of a policy with a number of frames.
#[derive(Clone, Debug, Serialize)]
pub struct Row<'a> {
    /// The trace's name.
    pub trace: &'a str,
    /// The policy with its parameters.
    pub policy: String,
    /// Frames.
    pub frames: u32,
    /// References simulated.
    pub requests: u64,
    /// References to pages that were not in memory.
    pub misses: u64,
    /// References to pages in memory that the policy observed. A live pager takes a soft fault or a first-store
    /// fault for each of those under [`Observation::Live`](super::Observation::Live).
    pub observed: u64,
    /// Pages read.
    pub page_reads: u64,
    /// Pages written.
    pub page_writes: u64,
    /// The device's time, in microseconds.
    pub io_time_us: f64,
    /// Wall time of the simulation, in seconds.
    pub wall_s: f64,
    /// References a second of `wall_s`.
    pub requests_per_s: f64,
}

impl<'a> Row<'a> {
    /// The row of a job over the trace of this name.
    #[must_use]
    pub fn new(trace: &'a str, job: &Job, figures: &Figures) -> Self {
        let (counts, wall_s) = (figures.counts, figures.wall.as_secs_f64());
        Self {
            trace,
            policy: job.policy.to_string(),
            frames: job.frames,
            requests: figures.requests,
            misses: counts.misses,
            observed: counts.observed,
            page_reads: counts.page_reads,
            page_writes: counts.page_writes,
            io_time_us: counts.io_time.0 as f64 / 1e3,
            wall_s,
            requests_per_s: figures.requests as f64 / wall_s,
        }
    }

    /// The row as a JSON object, without a line break.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }
}
