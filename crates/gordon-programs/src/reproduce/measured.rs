//! The measured systems, and the cost of a run on one of them.

use gordon::flash::{BLOCKS, BankCounters, Model};
use gordon::{Collector, Heap, Limits, Options, Result, sidney};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time that the processor has spent on this thread: all of a heap's work is done by the thread that commits.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

/// How many times as long as here the program's own work takes: 1 for today's processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowdown(pub(super) f64);

impl Slowdown {
    pub(super) const NONE: Self = Self(1.0);

    /// Its name in a table.
    pub(super) fn name(self) -> String {
        if self == Self::NONE {
            "today's".to_owned()
        } else {
            format!("{:.0} times slower", self.0)
        }
    }
}

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) operations: u64,
    processor: Duration,
    slowdown: Slowdown,
    pub(super) bank: BankCounters,
    /// Completed collections of persistent space.
    pub(super) collections: u64,
    /// Bytes that commits wrote: immutable data, log records.
    immutable_bytes: u64,
    log_bytes: u64,
    /// Longest operation: time of the bank and of the processor.
    pub(super) longest_ns: f64,
    /// The same, summed over the operations that completed a collection.
    collecting_ns: f64,
    pub(super) segment: u64,
}

impl Run {
    fn seconds(&self) -> f64 {
        self.processor.as_secs_f64() * self.slowdown.0 + self.bank.modelled_ns as f64 / 1e9
    }

    /// The processor's time of an operation, in ns, on today's.
    pub(super) fn processor_ns(&self) -> f64 {
        self.processor.as_nanos() as f64 / self.operations as f64
    }

    /// Mean time of an operation that completed a collection.
    pub(super) fn collection_ns(&self) -> f64 {
        self.collecting_ns / self.collections as f64
    }

    /// Bytes written in an operation: immutable data of commits, their log records, the rest (the mini-log; copies and logs
    /// of collections).
    pub(super) fn bytes_by_part(&self) -> [f64; 3] {
        let commits = self.immutable_bytes + self.log_bytes;
        let rest = self.bank.bytes_written - commits;
        [self.immutable_bytes, self.log_bytes, rest]
            .map(|bytes| bytes as f64 / self.operations as f64)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds()
    }

    /// Average time of an operation, in ms.
    pub(super) fn latency_ms(&self) -> f64 {
        self.seconds() * 1e3 / self.operations as f64
    }

    /// KiB of segments that an operation erases.
    pub(super) fn erased_kib(&self) -> f64 {
        (self.bank.erases * self.segment) as f64 / 1024.0 / self.operations as f64
    }

    /// KiB of segments that were erased, a second.
    pub(super) fn erased_kib_per_s(&self) -> f64 {
        self.erased_kib() * self.per_second()
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
    /// On a bank of one row of chips; commits run slices of collections.
    Gordon(Model),
    /// The same; as in the paper the commit that reaches a limit runs the whole collection.
    Stopping(Model),
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
            Self::Gordon(model) | Self::Stopping(model) | Self::Sidney(model) => model,
        }
    }

    fn heap(self, limits: Limits) -> Result<Heap> {
        let emulated = |model, collector| {
            let options = Options {
                limits,
                collector,
                ..Options::default()
            };
            Heap::emulated(model, BLOCKS, options)
        };
        match self {
            Self::Gordon(model) => emulated(model, Collector::AtCommit),
            Self::Stopping(model) => emulated(model, Collector::Stop),
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
    slowdown: Slowdown,
    count: u64,
    prepare: impl FnOnce(&Heap) -> Result<()>,
    mut operation: impl FnMut(&Heap, u64) -> Result<()>,
) -> Result<Run> {
    let heap = system.heap(limits)?;
    prepare(&heap)?;
    let (before, heap_before) = (heap.bank_counters(), heap.counters());
    let begun = processor_time();
    let (mut longest_ns, mut collecting_ns) = (0.0_f64, 0.0);
    let mut collections = heap_before.persistent;
    let (mut modelled, mut spent) = (before.modelled_ns, begun);
    for number in 0..count {
        operation(&heap, number)?;
        let (modelled_then, spent_then) = (heap.bank_counters().modelled_ns, processor_time());
        let processor = (spent_then - spent).as_nanos() as f64 * slowdown.0;
        let took = (modelled_then - modelled) as f64 + processor;
        longest_ns = longest_ns.max(took);
        let collections_then = heap.counters().persistent;
        if collections_then > collections {
            collecting_ns += took;
        }
        collections = collections_then;
        (modelled, spent) = (modelled_then, spent_then);
    }
    let heap_after = heap.counters();
    Ok(Run {
        operations: count,
        processor: spent - begun,
        slowdown,
        bank: since(heap.bank_counters(), before),
        collections: heap_after.persistent - heap_before.persistent,
        immutable_bytes: heap_after.immutable_bytes - heap_before.immutable_bytes,
        log_bytes: heap_after.log_bytes - heap_before.log_bytes,
        longest_ns,
        collecting_ns,
        segment: system.model().segment_bytes(),
    })
}
