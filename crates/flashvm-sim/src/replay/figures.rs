//! The results of a replay.

use crate::device::Wear;
use flashvm_core::{Counters, Nanos};

/// The results of a replay.
#[derive(Clone, Debug)]
pub struct Figures {
    /// When the last program ended.
    pub elapsed: Nanos,
    /// When each program ended.
    pub ended: Vec<Nanos>,
    /// Faults of each program.
    pub faults: Vec<u64>,
    /// References of all programs.
    pub references: u64,
    /// What the engine counted.
    pub counters: Counters,
    /// The wear of the device.
    pub wear: Option<Wear>,
    /// Mean length of the runs of reads, and of writes, sent to the device, in pages: a request of Linux 2.6.28's swap has
    /// one page.
    pub read_run: f64,
    /// See `read_run`.
    pub write_run: f64,
}

/// Runs of requests of one direction.
#[derive(Default)]
pub(super) struct Runs {
    writing: bool,
    /// Pages of the run that is under way.
    length: u64,
    /// Pages in, and number of, ended runs of reads and of writes.
    sums: [(u64, u64); 2],
}

impl Runs {
    pub(super) fn note(&mut self, write: bool, pages: u32) {
        if write != self.writing && self.length > 0 {
            let sum = &mut self.sums[usize::from(self.writing)];
            *sum = (sum.0 + self.length, sum.1 + 1);
            self.length = 0;
        }
        self.writing = write;
        self.length += u64::from(pages);
    }

    pub(super) fn mean(&self, write: bool) -> f64 {
        let (pages, runs) = self.sums[usize::from(write)];
        pages as f64 / runs.max(1) as f64
    }
}
