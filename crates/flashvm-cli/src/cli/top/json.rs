//! A reading as one JSON object. Its counters have the names of `flashvm run --stats`.

use super::reading::{Entry, Reading, RunEntry};
use crate::cli::summary::{Figures, figures};
use flashvm_core::Gauges;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Readings<'a> {
    /// Seconds between the two snapshots.
    interval_s: f64,
    runs: Vec<LiveRun<'a>>,
}

#[derive(Debug, Serialize)]
struct LiveRun<'a> {
    /// Its supervisor: `flashvm run`.
    pid: u32,
    command: &'a str,
    ram_budget_pages: u32,
    store_pages: u32,
    processes: Vec<LiveProcess<'a>>,
    totals: LiveTotals,
}

#[derive(Debug, Serialize)]
struct LiveProcess<'a> {
    pid: u32,
    command: &'a str,
    #[serde(flatten)]
    amounts: Amounts,
}

/// The sums over the live processes.
#[derive(Debug, Serialize)]
struct LiveTotals {
    processes: usize,
    elapsed_s: f64,
    #[serde(flatten)]
    amounts: Amounts,
}

#[derive(Debug, Serialize)]
struct Amounts {
    resident_pages: u64,
    committed_pages: u64,
    gauges: Gauges,
    /// Since the process began.
    #[serde(flatten)]
    total: Figures,
    /// In the interval; maxima, and the bytes and frames of small pages, are those of `total`.
    interval: Figures,
}

fn amounts(run: &RunEntry, entry: &Entry) -> Amounts {
    Amounts {
        resident_pages: entry.resident_pages,
        committed_pages: entry.committed_pages,
        gauges: entry.total.gauges,
        total: figures(&entry.total, run.preset, run.policy),
        interval: figures(&entry.recent, run.preset, run.policy),
    }
}

/// The reading as one line of JSON, with its line break.
pub(super) fn line(reading: &Reading) -> serde_json::Result<String> {
    let runs = reading.runs.iter().map(|run| LiveRun {
        pid: run.sum.pid,
        command: &run.sum.command,
        ram_budget_pages: run.run.budget_frames,
        store_pages: run.run.store_slots,
        processes: run
            .processes
            .iter()
            .map(|process| LiveProcess {
                pid: process.pid,
                command: &process.command,
                amounts: amounts(run, process),
            })
            .collect(),
        totals: LiveTotals {
            processes: run.processes.len(),
            elapsed_s: run.elapsed.as_secs_f64(),
            amounts: amounts(run, &run.sum),
        },
    });
    let readings = Readings {
        interval_s: reading.seconds,
        runs: runs.collect(),
    };
    Ok(serde_json::to_string(&readings)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing;
    use serde_json::Value;

    #[test]
    fn totals_and_the_interval() {
        let line = line(&testing::reading()).expect("JSON");
        assert_eq!(line.matches('\n').count(), 1);
        let json: Value = serde_json::from_str(&line).expect("JSON");
        let number = |pointer: &str| json.pointer(pointer).and_then(Value::as_f64);
        for (pointer, value) in [
            ("/interval_s", 1.0),
            ("/runs/0/pid", 4711.0),
            ("/runs/0/ram_budget_pages", 32768.0),
            ("/runs/0/processes/0/pid", 4712.0),
            ("/runs/0/processes/0/faults/major", 1000.0),
            ("/runs/0/processes/0/interval/faults/major", 500.0),
            ("/runs/0/processes/0/gauges/pool_pages_held", 16384.0),
            ("/runs/0/totals/faults/total", 12000.0),
            ("/runs/0/totals/processes", 2.0),
            ("/runs/0/totals/resident_pages", 25600.0),
            ("/runs/1/totals/faults/total", 0.0),
        ] {
            assert_eq!(number(pointer), Some(value), "{pointer}: {line}");
        }
    }
}
