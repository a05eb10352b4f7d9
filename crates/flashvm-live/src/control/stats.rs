//! Counters and gauges of one process in the control region, and their snapshots and sums for the summary.
//!
//! The process writes; the supervisor reads, even after the process has been killed. So they are
//! atomics, in no order relative to each other.

use super::histogram::{Histogram, LatencyHistogram};
use crate::space::Delivery;
use flashvm_core::{Counters, Gauges};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// One table of counters defines the shared atomics, the snapshot and the sums. Its `engine` part is
/// copied from the engine's own counters.
macro_rules! counters {
    (
        engine { $($(#[$engine_doc:meta])* $engine:ident,)* }
        pager { $($(#[$pager_doc:meta])* $pager:ident,)* }
        gauges { $($gauge:ident,)* }
    ) => {
        /// The counters of one process, in the control region.
        #[repr(C)]
        pub struct ProcessStats {
            $($(#[$engine_doc])* pub $engine: AtomicU64,)*
            $($(#[$pager_doc])* pub $pager: AtomicU64,)*
            $($gauge: AtomicU64,)*
            /// How faults are delivered, as a code of [`Deliveries`].
            deliveries: AtomicU64,
            /// Fault latencies.
            pub latency: LatencyHistogram,
        }

        impl ProcessStats {
            /// Publishes the engine's counters and gauges.
            pub fn publish(&self, counters: &Counters, gauges: Gauges) {
                $(self.$engine.store(counters.$engine, Ordering::Relaxed);)*
                $(self.$gauge.store(gauges.$gauge, Ordering::Relaxed);)*
            }

            /// The engine's gauges when it last published.
            #[must_use]
            pub fn gauges(&self) -> Gauges {
                Gauges {
                    $($gauge: self.$gauge.load(Ordering::Relaxed),)*
                }
            }

            /// An immutable copy. Allocates.
            #[must_use]
            pub fn snapshot(&self) -> StatsSnapshot {
                StatsSnapshot {
                    $($engine: self.$engine.load(Ordering::Relaxed),)*
                    $($pager: self.$pager.load(Ordering::Relaxed),)*
                    gauges: self.gauges(),
                    deliveries: Deliveries::of_code(self.deliveries.load(Ordering::Relaxed)),
                    latency: self.latency.snapshot(),
                }
            }

            pub(super) fn clear(&self) {
                self.publish(&Counters::default(), Gauges::default());
                $(self.$pager.store(0, Ordering::Relaxed);)*
                self.deliveries.store(0, Ordering::Relaxed);
                self.latency.clear();
            }
        }

        /// The counters of a process, or the sums over several.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct StatsSnapshot {
            $($(#[$engine_doc])* pub $engine: u64,)*
            $($(#[$pager_doc])* pub $pager: u64,)*
            /// The engine's gauges when it last published.
            pub gauges: Gauges,
            /// How faults are delivered.
            pub deliveries: Deliveries,
            /// Fault latencies.
            pub latency: Histogram,
        }

        impl StatsSnapshot {
            /// Adds the counters of another process. Gauges are not added: those of ended processes
            /// were true at different times.
            pub fn add(&mut self, other: &Self) {
                $(self.$engine += other.$engine;)*
                $(self.$pager += other.$pager;)*
                self.deliveries = self.deliveries.and(other.deliveries);
                self.latency.add(&other.latency);
            }

            /// The counters since `before`, an earlier snapshot of the same process. Gauges and maxima stay.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                let mut since = Self {
                    $($engine: self.$engine.saturating_sub(before.$engine),)*
                    $($pager: self.$pager.saturating_sub(before.$pager),)*
                    gauges: self.gauges,
                    deliveries: self.deliveries,
                    latency: self.latency.since(&before.latency),
                };
                since.resident_pages_max = self.resident_pages_max;
                since.overlays_max = self.overlays_max;
                since.svmp_table_bytes = self.svmp_table_bytes;
                since.svmp_frames = self.svmp_frames;
                since.svmp_frame_bytes = self.svmp_frame_bytes;
                since
            }
        }
    };
}

counters! {
    engine {
        /// All faults except write-protect faults.
        faults_total,
        /// Faults that issued a read from flash.
        faults_major,
        /// Faults on a page that was already being read.
        faults_waited,
        /// Faults on pages that were still in the shadow.
        faults_soft,
        /// Faults on compressed pages in RAM.
        faults_pool,
        /// Faults served with a frame of zeros.
        faults_zero,
        /// Of these, faults that filled a huge page (2 MiB).
        huge_pages,
        /// First stores to write-protected pages.
        faults_write_protect,
        /// Faults that had to wait for a frame.
        faults_stalled,
        /// Slots read from flash without error; a block of the pool that is read back counts whole.
        pages_in,
        /// Slots written to flash without error, those of the pool's blocks included.
        pages_out,
        /// Dirty pages that held only zeros and were not written.
        zero_pages_skipped,
        /// Pages that left without a write, since a comparison found them unchanged.
        pages_unchanged,
        /// Pages of zeros restored without a read.
        zero_pages_not_read,
        /// Dirty pages skipped in the search for victims.
        sampled,
        /// Successful discard commands.
        discard_commands,
        /// Slots that these commands discarded.
        discard_pages,
        /// Time that these commands took, summed, in nanoseconds.
        discard_ns,
        /// Free clusters that were left to be overwritten.
        discards_elided,
        /// Discard commands that were refused.
        discards_refused,
        /// Frames freed from pages without a store since they came in.
        evicted_clean,
        /// Frames freed from pages with a store since they came in.
        evicted_dirty,
        /// Pages brought in ahead of a fault, or kept when they were about to leave.
        prefetch_issued,
        /// Prefetched pages that came from the pool.
        prefetch_pool,
        /// Prefetched pages that were used.
        prefetch_used,
        /// Prefetched pages that left RAM without a known use.
        prefetch_wasted,
        /// Pages that were compressed into the pool.
        pool_pages,
        /// Compressed bytes of the pages in `pool_pages`.
        pool_bytes,
        /// Scanned pages that did not go to the pool: not compressed, too large, or without room there.
        pool_refused,
        /// Blocks of the pool that were written to flash.
        pool_blocks_out,
        /// Pages that could not be read, or whose checksum differed.
        read_errors,
        /// Pages whose write failed and was retried in another slot.
        write_errors,
        /// Slots out of use after a failed write.
        slots_bad,
        /// Pages that could not be moved, because they were pinned or shared.
        refused,
        /// Pages zapped by the program.
        zapped,
    }
    pager {
        /// Largest number of frames in use, read buffers and shared frames included.
        resident_pages_max,
        /// Bytes read from the store.
        bytes_read,
        /// Bytes written to the store.
        bytes_written,
        /// Delay of writes by the write limit, in nanoseconds.
        writes_held_back_ns,
        /// Overruns of the budget by this process: it used more frames than granted, or was granted
        /// its minimum beyond the budget.
        budget_overruns,
        /// Moves of pages that the kernel carried out and reported as failed (Linux 6.18).
        moves_misreported,
        /// Faults on small pages.
        svmp_faults,
        /// Faults on small pages that needed a read.
        svmp_major,
        /// Faults on small pages that were unmapped but still in their frame.
        svmp_soft,
        /// Small pages of zeros that got a range of a frame.
        svmp_fresh,
        /// Small pages read from flash.
        svmp_pages_in,
        /// Bytes of the pages in `svmp_pages_in`.
        svmp_bytes_in,
        /// Small pages whose contents on flash were damaged.
        svmp_read_errors,
        /// Small pages evicted without a write.
        svmp_evicted_clean,
        /// Small pages evicted after a write.
        svmp_evicted_dirty,
        /// Changed small pages that held only zeros and were not written.
        svmp_zero_pages,
        /// Changed small pages written to the log.
        log_pages,
        /// Bytes of the pages in `log_pages`.
        log_bytes_changed,
        /// Bytes written to the log, including headers and the pages moved by the cleaner.
        log_bytes_written,
        /// Bytes read by the log's cleaner.
        log_bytes_cleaned,
        /// Writes to the log that failed.
        log_write_errors,
        /// Allocations refused because budget and store had no room for them.
        allocations_refused,
        /// Forks refused because budget and store had no room for a copy of the process.
        forks_refused,
        /// Pages, small ones included, whose contents are lost: a touch raises SIGBUS.
        pages_lost,
        /// Locked pages that were unlocked because the process's share of the budget became too small for them.
        locks_lost,
        /// Most anonymous pages in RAM beyond the frames that count for the budget, as the supervisor saw them.
        uncounted_pages_max,
        /// Touches of pages in RAM that had been hidden to save mappings.
        pages_shown_again,
        /// Largest number of mappings of overlays.
        overlays_max,
        /// Bytes of the table of small pages.
        svmp_table_bytes,
        /// Frames that have held small pages.
        svmp_frames,
        /// Bytes that are kept of these frames: owners, checksums, free ranges, FIFOs.
        svmp_frame_bytes,
    }
    gauges {
        slots_used,
        pool_frames,
        pool_pages_held,
        pool_share_frames,
        read_time_ns,
        locked_pages,
    }
}

impl ProcessStats {
    /// Sets how faults are delivered.
    pub fn set_delivery(&self, delivery: Delivery) {
        let deliveries = Deliveries::from(delivery);
        self.deliveries.store(deliveries as u64, Ordering::Relaxed);
    }

    /// Copies from `parent` how faults are delivered.
    pub(super) fn inherit_delivery(&self, parent: &Self) {
        let code = parent.deliveries.load(Ordering::Relaxed);
        self.deliveries.store(code, Ordering::Relaxed);
    }
}

/// How the faults of some processes are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Deliveries {
    /// No process, or none whose pager has started.
    #[default]
    None,
    /// All inline.
    Inline,
    /// All by a handler thread.
    Handler,
    /// All by hidden pages, inline.
    Protect,
    /// Not all the same way.
    Mixed,
}

impl Deliveries {
    const ALL: [Self; 5] = [
        Self::None,
        Self::Inline,
        Self::Handler,
        Self::Protect,
        Self::Mixed,
    ];

    fn of_code(code: u64) -> Self {
        let known = Self::ALL.into_iter().find(|&known| known as u64 == code);
        known.unwrap_or_default()
    }

    /// How the faults of both groups of processes together are delivered.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        match (self, others) {
            (Self::None, some) | (some, Self::None) => some,
            (one, two) if one == two => one,
            _ => Self::Mixed,
        }
    }
}

impl From<Delivery> for Deliveries {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Inline => Self::Inline,
            Delivery::Handler => Self::Handler,
            Delivery::Protect => Self::Protect,
        }
    }
}

impl fmt::Display for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Inline => "inline",
            Self::Handler => "handler",
            Self::Protect => "protect",
            Self::Mixed => "mixed",
        })
    }
}
