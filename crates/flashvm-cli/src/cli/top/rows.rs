//! The rows of the table: each run with its processes below it, in the chosen order.

use super::columns::Column;
use super::reading::{Entry, Reading, RunEntry};

/// Names a row by what it shows: the name stays the same when the row moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowId {
    /// The supervisor of its run.
    pub(super) run: u32,
    /// The process; `None`: the run itself.
    pub(super) process: Option<u32>,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) id: RowId,
    pub(super) run: &'a RunEntry,
    pub(super) entry: &'a Entry,
}

/// All rows from top to bottom: the runs in the order of their sums, each followed by its processes in order.
pub(super) fn rows(reading: &Reading, sort: Column, reversed: bool) -> Vec<Row<'_>> {
    let mut runs: Vec<&RunEntry> = reading.runs.iter().collect();
    runs.sort_by(|one, two| sort.order(&one.sum, &two.sum, reversed));
    let mut rows = Vec::new();
    for run in runs {
        let mut processes: Vec<&Entry> = run.processes.iter().collect();
        processes.sort_by(|one, two| sort.order(one, two, reversed));
        let row = |process: Option<&'_ Entry>| RowId {
            run: run.sum.pid,
            process: process.map(|entry| entry.pid),
        };
        rows.push(Row {
            id: row(None),
            run,
            entry: &run.sum,
        });
        rows.extend(processes.into_iter().map(|entry| Row {
            id: row(Some(entry)),
            run,
            entry,
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing;

    #[test]
    fn processes_follow_their_run() {
        let reading = testing::reading();
        let ids = |sort, reversed| {
            let rows = rows(&reading, sort, reversed);
            let ids = rows.iter().map(|row| (row.id.run, row.id.process));
            ids.collect::<Vec<_>>()
        };
        let by_faults = [
            (4711, None),
            (4711, Some(4712)),
            (4711, Some(4713)),
            (900, None),
            (900, Some(901)),
        ];
        assert_eq!(ids(Column::Faults, false), by_faults);
        let by_pid = [
            (900, None),
            (900, Some(901)),
            (4711, None),
            (4711, Some(4712)),
            (4711, Some(4713)),
        ];
        assert_eq!(ids(Column::Pid, false), by_pid);
        assert_eq!(ids(Column::Pid, true)[1], (4711, Some(4713)));
    }
}
