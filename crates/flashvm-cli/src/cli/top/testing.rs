//! A reading for tests: a run with two processes that compresses, and a quiet one.

use super::reading::{Reading, RunSnapshot, Snapshot};
use flashvm_core::{Gauges, Preset};
use flashvm_live::control::{ProcessReading, RunReading, StatsSnapshot};
use std::time::Duration;

/// Pages in a MiB.
const MIB: u64 = 256;

fn process(pid: u32, command: &str, stats: StatsSnapshot) -> ProcessReading {
    ProcessReading {
        identity: pid.into(),
        pid,
        command: command.to_owned(),
        resident_pages: 50 * MIB,
        committed_pages: 300 * MIB,
        stats,
    }
}

/// The counters of a busy process after `times` intervals.
fn busy(times: u64) -> StatsSnapshot {
    let latencies = (0..1000 * times).map(|at| if at % 100 < 98 { 5_000 } else { 240_000 });
    StatsSnapshot {
        faults_total: 4000 * times,
        faults_major: 500 * times,
        faults_pool: 2000 * times,
        faults_soft: 1000 * times,
        faults_write_protect: 20 * times,
        bytes_read: times << 22,
        bytes_written: times << 20,
        pages_in: 1024 * times,
        prefetch_issued: 300 * times,
        prefetch_used: 90 * times,
        prefetch_wasted: 10 * times,
        pages_lost: 1,
        latency: latencies.collect(),
        gauges: Gauges {
            slots_used: 200 * MIB,
            pool_frames: 16 * MIB,
            pool_pages_held: 64 * MIB,
            pool_share_frames: 20 * MIB,
            read_time_ns: 85_000,
            locked_pages: 0,
        },
        ..StatsSnapshot::default()
    }
}

fn snapshot(times: u64) -> Snapshot {
    let run = |pid, program: &str, compresses, processes| RunSnapshot {
        pid,
        program: program.to_owned(),
        preset: Preset::Modern,
        policy: Preset::Modern.settings().policy,
        compresses,
        elapsed: Duration::from_secs(83),
        run: RunReading {
            budget_frames: 128 * MIB as u32,
            used_frames: 100 * MIB as u32,
            used_frames_max: 128 * MIB as u32,
            store_slots: 8192 * MIB as u32,
        },
        processes,
    };
    let child = StatsSnapshot {
        faults_total: 2000 * times,
        faults_major: 100 * times,
        faults_pool: 1000 * times,
        faults_soft: 200 * times,
        ..StatsSnapshot::default()
    };
    let busy_ones = vec![
        process(4712, "/usr/bin/python3 dictionary.py 2000000", busy(times)),
        process(4713, "/bin/sort -u", child),
    ];
    let quiet = vec![process(901, "/bin/sleep 1000", StatsSnapshot::default())];
    Snapshot {
        at: Duration::from_secs(times),
        runs: vec![
            run(4711, "python3 dictionary.py 2000000", true, busy_ones),
            run(900, "sleep 1000", false, quiet),
        ],
    }
}

/// The reading, over one second.
pub(super) fn reading() -> Reading {
    Reading::between(Some(&snapshot(1)), &snapshot(2))
}
