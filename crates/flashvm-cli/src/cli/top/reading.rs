//! Turns two snapshots of the runs into a reading: the present amounts, and what happened between the snapshots.

use flashvm_core::{Gauges, PolicySpec, Preset};
use flashvm_live::control::{ProcessReading, RunReading, StatsSnapshot};
use std::time::Duration;

/// The runs at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// On a monotonic clock.
    pub(super) at: Duration,
    pub(super) runs: Vec<RunSnapshot>,
}

/// A run at one time.
#[derive(Clone, Debug)]
pub(super) struct RunSnapshot {
    /// Its supervisor.
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) preset: Preset,
    pub(super) policy: PolicySpec,
    /// Whether pages are compressed.
    pub(super) compresses: bool,
    /// Since the supervisor started.
    pub(super) elapsed: Duration,
    pub(super) run: RunReading,
    pub(super) processes: Vec<ProcessReading>,
}

/// The present amounts, and the differences between two snapshots.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Time between the snapshots; 0 with only one.
    pub(super) seconds: f64,
    pub(super) runs: Vec<RunEntry>,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct RunEntry {
    pub(super) run: RunReading,
    pub(super) preset: Preset,
    pub(super) policy: PolicySpec,
    pub(super) compresses: bool,
    pub(super) elapsed: Duration,
    /// The sums over its live processes; `pid` is the supervisor's, `command` the program, `resident_pages` the run's
    /// frames.
    pub(super) sum: Entry,
    pub(super) processes: Vec<Entry>,
}

/// A process, or the sum over the processes of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) resident_pages: u64,
    pub(super) committed_pages: u64,
    /// Since the process began.
    pub(super) total: StatsSnapshot,
    /// Between the snapshots.
    pub(super) recent: StatsSnapshot,
}

impl Reading {
    /// The reading of `now`, with what has happened since `before`, if there is an earlier snapshot.
    pub(super) fn between(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let seconds = before.map_or(0.0, |before| now.at.saturating_sub(before.at).as_secs_f64());
        let runs = now.runs.iter().map(|run| {
            let before = before.and_then(|before| before.runs.iter().find(|r| r.pid == run.pid));
            RunEntry::between(before, run)
        });
        Self {
            seconds,
            runs: runs.collect(),
        }
    }

    /// `number` events of the interval as a rate per second; 0 without an interval.
    pub(super) fn rate(&self, number: u64) -> f64 {
        match self.seconds > 0.0 {
            true => number as f64 / self.seconds,
            false => 0.0,
        }
    }
}

impl RunEntry {
    fn between(before: Option<&RunSnapshot>, now: &RunSnapshot) -> Self {
        let processes: Vec<Entry> = now
            .processes
            .iter()
            .map(|process| {
                let earlier = before.map(|before| {
                    let mut processes = before.processes.iter();
                    processes.find(|other| other.identity == process.identity)
                });
                Entry {
                    pid: process.pid,
                    command: process.command.clone(),
                    resident_pages: process.resident_pages,
                    committed_pages: process.committed_pages,
                    recent: match earlier {
                        Some(Some(earlier)) => process.stats.since(&earlier.stats),
                        // The process began after that snapshot: all its counts are recent.
                        Some(None) => process.stats.clone(),
                        // The run is new to us: no rates yet. `since` keeps the maxima.
                        None => process.stats.since(&process.stats),
                    },
                    total: process.stats.clone(),
                }
            })
            .collect();
        let mut sum = sum(&processes);
        sum.pid = now.pid;
        sum.command.clone_from(&now.program);
        // The run counts a shared frame once; a sum over processes would not.
        sum.resident_pages = now.run.used_frames.into();
        sum.total.resident_pages_max = now.run.used_frames_max.into();
        sum.recent.resident_pages_max = sum.total.resident_pages_max;
        Self {
            run: now.run,
            preset: now.preset,
            policy: now.policy,
            compresses: now.compresses,
            elapsed: now.elapsed,
            sum,
            processes,
        }
    }
}

/// The sums over some processes.
fn sum(processes: &[Entry]) -> Entry {
    let mut sum = Entry::default();
    let mut gauges = Gauges::default();
    let (mut reads_ns, mut reads) = (0_u128, 0_u128);
    for one in processes {
        sum.committed_pages += one.committed_pages;
        sum.total.add(&one.total);
        sum.recent.add(&one.recent);
        let own = one.total.gauges;
        gauges.slots_used += own.slots_used;
        gauges.pool_frames += own.pool_frames;
        gauges.pool_pages_held += own.pool_pages_held;
        gauges.pool_share_frames += own.pool_share_frames;
        // The mean read time, each process weighted by its reads in the interval. Without reads it still weighs a
        // little, so that an idle run keeps its mean.
        if own.read_time_ns > 0 {
            let weight = u128::from(one.recent.pages_in) * 1000 + 1;
            reads_ns += u128::from(own.read_time_ns) * weight;
            reads += weight;
        }
    }
    gauges.read_time_ns = (reads_ns / reads.max(1)) as u64;
    sum.total.gauges = gauges;
    sum.recent.gauges = gauges;
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(identity: u64, faults: u64, read_time_ns: u64) -> ProcessReading {
        ProcessReading {
            identity,
            pid: identity as u32,
            command: format!("program {identity}"),
            resident_pages: 100,
            committed_pages: 1000,
            stats: StatsSnapshot {
                faults_total: faults,
                pages_in: faults,
                resident_pages_max: 100,
                gauges: Gauges {
                    slots_used: 10,
                    read_time_ns,
                    ..Gauges::default()
                },
                ..StatsSnapshot::default()
            },
        }
    }

    fn snapshot(at: u64, processes: Vec<ProcessReading>) -> Snapshot {
        let run = RunSnapshot {
            pid: 7,
            program: "sh".to_owned(),
            run: RunReading {
                used_frames: 150,
                ..RunReading::default()
            },
            preset: Preset::Modern,
            policy: Preset::Modern.settings().policy,
            compresses: false,
            elapsed: Duration::from_secs(83),
            processes,
        };
        Snapshot {
            at: Duration::from_millis(at),
            runs: vec![run],
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = snapshot(1000, vec![process(1, 100, 0)]);
        let now = snapshot(3000, vec![process(1, 300, 50), process(2, 40, 100)]);
        let reading = Reading::between(Some(&before), &now);
        assert_eq!(reading.seconds, 2.0);
        let run = &reading.runs[0];
        let recent: Vec<_> = run
            .processes
            .iter()
            .map(|p| p.recent.faults_total)
            .collect();
        // The second process began between the snapshots.
        assert_eq!(recent, [200, 40]);
        assert_eq!(reading.rate(recent[0]), 100.0);
        assert_eq!(run.sum.recent.faults_total, 240);
        assert_eq!(run.sum.total.faults_total, 340);
        assert_eq!(run.sum.total.gauges.slots_used, 20);
        assert_eq!(run.sum.resident_pages, 150);
        assert_eq!(run.sum.committed_pages, 2000);
        // (200 * 50 ns + 40 * 100 ns) / 240.
        assert_eq!(run.sum.total.gauges.read_time_ns, 58);
        assert_eq!((run.sum.pid, &*run.sum.command), (7, "sh"));
    }

    #[test]
    fn the_first_snapshot_of_a_run_has_no_rates() {
        let now = snapshot(1000, vec![process(1, 100, 0)]);
        let elsewhere = Snapshot {
            at: Duration::ZERO,
            runs: Vec::new(),
        };
        for before in [None, Some(&elsewhere)] {
            let reading = Reading::between(before, &now);
            let process = &reading.runs[0].processes[0];
            assert_eq!(process.recent.faults_total, 0);
            assert_eq!(process.total.faults_total, 100);
            assert_eq!(process.recent.resident_pages_max, 100);
        }
        assert_eq!(Reading::between(None, &now).rate(100), 0.0);
    }

    #[test]
    fn what_is_gone_is_not_shown() {
        let before = snapshot(1000, vec![process(1, 100, 0), process(2, 5, 0)]);
        let now = snapshot(2000, vec![process(2, 7, 0)]);
        let reading = Reading::between(Some(&before), &now);
        assert_eq!(reading.runs[0].processes.len(), 1);
        assert_eq!(reading.runs[0].sum.recent.faults_total, 2);
        // A new process with the id of an old one.
        let now = snapshot(2000, vec![process(1 << 32 | 1, 3, 0)]);
        let reading = Reading::between(Some(&before), &now);
        assert_eq!(reading.runs[0].sum.recent.faults_total, 3);
    }
}
