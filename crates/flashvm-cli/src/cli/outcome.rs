//! The result of a run: how the program ended, and the records of all processes.

use flashvm_live::control::{ProcessRecord, StatsSnapshot};
use flashvm_sim::device::Wear;
use std::time::Duration;

/// Processes with a record of their own; later ones are summed. Processes that the pager ended get a record up to
/// twice this number.
const RECORDS_MAX: usize = 1000;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How the program ended.
    pub(crate) end: End,
    /// The records of its processes, by time of their ends.
    pub(crate) records: Records,
    /// Wall time.
    pub(crate) elapsed: Duration,
    /// The device model's wear, if it has any.
    pub(crate) wear: Option<Wear>,
}

/// The records of all processes; bounded, as a run may have very many processes.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// One record for each process, see [`RECORDS_MAX`].
    pub(crate) single: Vec<ProcessRecord>,
    /// The sum of all other records, and their number.
    pub(crate) others: Option<(ProcessRecord, u64)>,
}

impl Records {
    pub(super) fn extend(&mut self, records: Vec<ProcessRecord>) {
        for record in records {
            self.push(record);
        }
    }

    /// Adds a record. A process leaves a record at each `exec` and at its end: these become one, under its last name.
    pub(super) fn push(&mut self, record: ProcessRecord) {
        if let Some(before) = self
            .single
            .iter_mut()
            .rfind(|before| before.pid == record.pid)
        {
            before.command = record.command;
            before.ended = record.ended.or(before.ended.take());
            before.refused = before.refused.take().or(record.refused);
            before.decisions = record.decisions;
            merge(&mut before.stats, &record.stats);
            before.stats.gauges = record.stats.gauges;
        } else if self.single.len() < RECORDS_MAX
            || record.ended.is_some() && self.single.len() < 2 * RECORDS_MAX
        {
            self.single.push(record);
        } else if let Some((sum, number)) = &mut self.others {
            merge(&mut sum.stats, &record.stats);
            *number += 1;
        } else {
            let command = "(others)".to_owned();
            self.others = Some((
                ProcessRecord {
                    pid: 0,
                    command,
                    ended: None,
                    refused: None,
                    decisions: Vec::new(),
                    ..record
                },
                1,
            ));
        }
    }

    /// All records, the sum last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ProcessRecord> {
        self.single
            .iter()
            .chain(self.others.iter().map(|(record, _)| record))
    }

    /// The sum over these records and those of processes that run.
    pub(crate) fn sum_with(&self, alive: &[ProcessRecord]) -> StatsSnapshot {
        let mut sum = StatsSnapshot::default();
        self.iter()
            .chain(alive)
            .for_each(|record| sum.add(&record.stats));
        sum
    }

    /// The number of processes.
    pub(crate) fn processes(&self) -> u64 {
        self.single.len() as u64 + self.others.as_ref().map_or(0, |(_, number)| *number)
    }
}

/// Adds `stats` to `sum`; of `resident_pages_max` and `uncounted_pages_max` the larger one remains.
fn merge(sum: &mut StatsSnapshot, stats: &StatsSnapshot) {
    let resident_pages_max = sum.resident_pages_max.max(stats.resident_pages_max);
    let uncounted_pages_max = sum.uncounted_pages_max.max(stats.uncounted_pages_max);
    sum.add(stats);
    sum.resident_pages_max = resident_pages_max;
    sum.uncounted_pages_max = uncounted_pages_max;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, command: &str, resident_pages_max: u64) -> ProcessRecord {
        let stats = StatsSnapshot {
            faults_total: 1,
            resident_pages_max,
            ..StatsSnapshot::default()
        };
        ProcessRecord {
            pid,
            command: command.to_owned(),
            stats,
            ended: None,
            refused: None,
            decisions: Vec::new(),
        }
    }

    #[test]
    fn a_process_is_one_record_across_exec() {
        let mut records = Records::default();
        records.extend(vec![
            record(7, "sh", 5),
            record(8, "sh", 1),
            record(7, "sort", 3),
        ]);
        assert_eq!(records.processes(), 2);
        let first = records.iter().next().expect("a record");
        assert_eq!((&*first.command, first.stats.faults_total), ("sort", 2));
        assert_eq!(first.stats.resident_pages_max, 5);
    }

    #[test]
    fn very_many_processes_are_summed() {
        let mut records = Records::default();
        let pids = 1..=RECORDS_MAX as u32 + 10;
        records.extend(pids.map(|pid| record(pid, "sh", 1)).collect());
        assert_eq!(records.processes(), RECORDS_MAX as u64 + 10);
        assert_eq!(records.iter().count(), RECORDS_MAX + 1);
        let last = records.iter().last().expect("a record");
        assert_eq!((&*last.command, last.stats.faults_total), ("(others)", 10));
    }
}
