//! The figures of a process under their JSON names, the same in `--stats` and `flashvm top --json`.

use super::{PAGE, svmp_zero_faults, write_amplification};
use flashvm_core::{PolicySpec, Preset};
use flashvm_live::control::{Deliveries, Histogram, StatsSnapshot};
use serde::Serialize;

/// The figures of one process, or their sums.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    fault_mode: Deliveries,
    preset: Preset,
    policy: PolicySpec,
    small_pages: SmallPages,
    faults: Faults,
    compressed: Compressed,
    pages_in: u64,
    pages_out: u64,
    bytes_read: u64,
    bytes_written: u64,
    zero_pages_skipped: u64,
    pages_unchanged: u64,
    huge_pages: u64,
    zero_pages_not_read: u64,
    sampled: u64,
    writes_held_back_s: f64,
    evicted: Evicted,
    prefetch: Prefetch,
    resident_pages_max: u64,
    fault_latency_us: FaultLatency,
    discard: Discards,
    pages_shown_again: u64,
    locks_lost: u64,
    uncounted_pages_max: u64,
    overlays_max: u64,
    refused: Refusals,
    pages_lost: u64,
    read_errors: u64,
    write_errors: u64,
    slots_bad: u64,
    budget_overruns: u64,
    moves_misreported: u64,
    moves_refused: u64,
    pages_zapped: u64,
}

/// Allocations and forks for which budget and store had no room: ENOMEM.
#[derive(Debug, Serialize)]
struct Refusals {
    allocations: u64,
    forks: u64,
}

#[derive(Debug, Serialize)]
struct Faults {
    total: u64,
    major: u64,
    soft: u64,
    zero: u64,
    write_protect: u64,
    waited: u64,
    stalled: u64,
}

#[derive(Debug, Serialize)]
struct Evicted {
    clean: u64,
    dirty: u64,
}

/// The pool of compressed pages.
#[derive(Debug, Serialize)]
struct Compressed {
    pages: u64,
    bytes: u64,
    refused: u64,
    faults: u64,
    blocks_out: u64,
}

/// The heap of small pages, and its log.
#[derive(Debug, Serialize)]
struct SmallPages {
    faults: u64,
    major: u64,
    soft: u64,
    fresh: u64,
    pages_in: u64,
    bytes_in: u64,
    pages_out: u64,
    bytes_out: u64,
    evicted: Evicted,
    zero_pages_skipped: u64,
    log_bytes_written: u64,
    log_bytes_cleaned: u64,
    write_amplification: f64,
    table_bytes: u64,
    frames: u64,
    frame_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Prefetch {
    issued: u64,
    pool: u64,
    used: u64,
    wasted: u64,
}

#[derive(Debug, Serialize)]
struct FaultLatency {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Discard commands, and clusters that were overwritten instead.
#[derive(Debug, Serialize)]
struct Discards {
    commands: u64,
    bytes: u64,
    time_us: u64,
    elided: u64,
    refused: u64,
}

/// The figures of these counters.
pub(crate) fn figures(stats: &StatsSnapshot, preset: Preset, policy: PolicySpec) -> Figures {
    Figures {
        fault_mode: stats.deliveries,
        preset,
        policy,
        faults: Faults {
            total: stats.faults_total + stats.svmp_faults,
            major: stats.faults_major + stats.svmp_major,
            soft: stats.faults_soft + stats.svmp_soft,
            zero: stats.faults_zero + svmp_zero_faults(stats),
            write_protect: stats.faults_write_protect,
            waited: stats.faults_waited,
            stalled: stats.faults_stalled,
        },
        compressed: Compressed {
            pages: stats.pool_pages,
            bytes: stats.pool_bytes,
            refused: stats.pool_refused,
            faults: stats.faults_pool,
            blocks_out: stats.pool_blocks_out,
        },
        pages_in: stats.pages_in,
        pages_out: stats.pages_out,
        bytes_read: bytes_read(stats),
        bytes_written: bytes_written(stats),
        zero_pages_skipped: stats.zero_pages_skipped,
        pages_unchanged: stats.pages_unchanged,
        huge_pages: stats.huge_pages,
        zero_pages_not_read: stats.zero_pages_not_read,
        sampled: stats.sampled,
        writes_held_back_s: stats.writes_held_back_ns as f64 / 1e9,
        evicted: Evicted {
            clean: stats.evicted_clean,
            dirty: stats.evicted_dirty,
        },
        prefetch: Prefetch {
            issued: stats.prefetch_issued,
            pool: stats.prefetch_pool,
            used: stats.prefetch_used,
            wasted: stats.prefetch_wasted,
        },
        resident_pages_max: stats.resident_pages_max,
        fault_latency_us: latencies(&stats.latency),
        discard: Discards {
            commands: stats.discard_commands,
            bytes: stats.discard_pages * PAGE,
            time_us: stats.discard_ns / 1000,
            elided: stats.discards_elided,
            refused: stats.discards_refused,
        },
        pages_shown_again: stats.pages_shown_again,
        locks_lost: stats.locks_lost,
        uncounted_pages_max: stats.uncounted_pages_max,
        overlays_max: stats.overlays_max,
        small_pages: small_pages(stats),
        refused: Refusals {
            allocations: stats.allocations_refused,
            forks: stats.forks_refused,
        },
        pages_lost: stats.pages_lost,
        read_errors: stats.read_errors + stats.svmp_read_errors,
        write_errors: stats.write_errors + stats.log_write_errors,
        slots_bad: stats.slots_bad,
        budget_overruns: stats.budget_overruns,
        moves_misreported: stats.moves_misreported,
        moves_refused: stats.refused,
        pages_zapped: stats.zapped,
    }
}

/// Bytes read from the store: for pages of 4 KiB, for small pages, and by the log's cleaner.
pub(crate) fn bytes_read(stats: &StatsSnapshot) -> u64 {
    stats.bytes_read + stats.svmp_bytes_in + stats.log_bytes_cleaned
}

/// Bytes written to the store, for pages of 4 KiB and by the log of small pages.
pub(crate) fn bytes_written(stats: &StatsSnapshot) -> u64 {
    stats.bytes_written + stats.log_bytes_written
}

fn small_pages(stats: &StatsSnapshot) -> SmallPages {
    SmallPages {
        faults: stats.svmp_faults,
        major: stats.svmp_major,
        soft: stats.svmp_soft,
        fresh: stats.svmp_fresh,
        pages_in: stats.svmp_pages_in,
        bytes_in: stats.svmp_bytes_in,
        pages_out: stats.log_pages,
        bytes_out: stats.log_bytes_changed,
        evicted: Evicted {
            clean: stats.svmp_evicted_clean,
            dirty: stats.svmp_evicted_dirty,
        },
        zero_pages_skipped: stats.svmp_zero_pages,
        log_bytes_written: stats.log_bytes_written,
        log_bytes_cleaned: stats.log_bytes_cleaned,
        write_amplification: write_amplification(stats),
        table_bytes: stats.svmp_table_bytes,
        frames: stats.svmp_frames,
        frame_bytes: stats.svmp_frame_bytes,
    }
}

fn latencies(histogram: &Histogram) -> FaultLatency {
    let us = |ns: u64| ns as f64 / 1e3;
    FaultLatency {
        p50: us(histogram.quantile(0.5)),
        p99: us(histogram.quantile(0.99)),
        p999: us(histogram.quantile(0.999)),
        max: us(histogram.max()),
    }
}
