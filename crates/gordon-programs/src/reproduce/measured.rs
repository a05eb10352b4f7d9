//! The measured systems, and the cost of a run on one of them.

use gordon::flash::{BLOCKS, BankCounters, Model};
use gordon::{Collector, Heap, Limits, Options, Result, sidney};
use std::time::{Duration, Instant};

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) operations: u64,
    wall: Duration,
    pub(super) bank: BankCounters,
    /// Longest operation in modelled time.
    pub(super) longest_ns: u64,
    pub(super) segment: u64,
}

impl Run {
    fn seconds(&self) -> f64 {
        self.wall.as_secs_f64() + self.bank.modelled_ns as f64 / 1e9
    }

    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds()
    }

    /// Average time of an operation, in ms.
    pub(super) fn latency_ms(&self) -> f64 {
        self.seconds() * 1e3 / self.operations as f64
    }

    /// KiB of segments that were erased, a second.
    pub(super) fn erased_kib_per_s(&self) -> f64 {
        (self.bank.erases * self.segment) as f64 / 1024.0 / self.seconds()
    }
}

fn since(now: BankCounters, before: BankCounters) -> BankCounters {
    BankCounters {
        writes: now.writes - before.writes,
        bytes_written: now.bytes_written - before.bytes_written,
        erases: now.erases - before.erases,
        erased_bytes_written: now.erased_bytes_written - before.erased_bytes_written,
        syncs: now.syncs - before.syncs,
        modelled_ns: now.modelled_ns - before.modelled_ns,
    }
}

/// The measured system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// On a bank of one row of chips.
    Gordon(Model),
    /// With its log on such a bank, or on a disk of that size, and its data segment in a file
    /// system.
    Sidney(Model),
}

/// The paper's disks, in bytes a second: the raw one with the log, and the file system with the
/// data segment (section 7.3).
pub(super) const RAW_DISK: u64 = 6_000_000;
const FILE_SYSTEM: u64 = 2_000_000;

impl System {
    fn model(self) -> Model {
        match self {
            Self::Gordon(model) | Self::Sidney(model) => model,
        }
    }

    fn heap(self, limits: Limits) -> Result<Heap> {
        match self {
            Self::Gordon(model) => {
                let options = Options {
                    limits,
                    collector: Collector::AtCommit,
                    ..Options::default()
                };
                Heap::emulated(model, BLOCKS, options)
            }
            Self::Sidney(log) => {
                sidney::emulated(log, Model::disk(log.ways, FILE_SYSTEM), BLOCKS, limits)
            }
        }
    }
}

/// Runs `operation` repeatedly.
pub(super) fn run(
    system: System,
    limits: Limits,
    count: u64,
    prepare: impl FnOnce(&Heap) -> Result<()>,
    mut operation: impl FnMut(&Heap, u64) -> Result<()>,
) -> Result<Run> {
    let heap = system.heap(limits)?;
    prepare(&heap)?;
    let before = heap.bank_counters();
    let begun = Instant::now();
    let mut longest_ns = 0;
    let mut now = before.modelled_ns;
    for number in 0..count {
        operation(&heap, number)?;
        let then = heap.bank_counters().modelled_ns;
        longest_ns = longest_ns.max(then - now);
        now = then;
    }
    Ok(Run {
        operations: count,
        wall: begun.elapsed(),
        bank: since(heap.bank_counters(), before),
        longest_ns,
        segment: system.model().segment_bytes(),
    })
}
