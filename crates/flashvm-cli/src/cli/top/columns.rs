//! The columns of the table: their headings, contents and orders.

use super::compact;
use super::reading::{Entry, Reading};
use crate::cli::summary::{PAGE, bytes_read, bytes_written};
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Pid,
    Resident,
    Pool,
    Flash,
    Faults,
    Major,
    Read,
    Write,
    P99,
    Prefetch,
    Command,
}

impl Column {
    /// From left to right.
    pub(super) const ALL: [Self; 11] = [
        Self::Pid,
        Self::Resident,
        Self::Pool,
        Self::Flash,
        Self::Faults,
        Self::Major,
        Self::Read,
        Self::Write,
        Self::P99,
        Self::Prefetch,
        Self::Command,
    ];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Resident => "RES",
            Self::Pool => "POOL",
            Self::Flash => "FLASH",
            Self::Faults => "FAULT/s",
            Self::Major => "MAJOR/s",
            Self::Read => "READ/s",
            Self::Write => "WRITE/s",
            Self::P99 => "P99",
            Self::Prefetch => "PREF",
            Self::Command => "COMMAND",
        }
    }

    /// The meaning of its contents, for the help.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Pid => "process; of a run: flashvm run itself",
            Self::Resident => "RAM of the budget in use, also that of compressed pages",
            Self::Pool => "compressed pages in RAM, as they would be uncompressed",
            Self::Flash => "slots on flash in use",
            Self::Faults => "faults a second, without first writes",
            Self::Major => "of these, faults with a read from flash",
            Self::Read => "bytes read from flash a second",
            Self::Write => "bytes written to flash a second",
            Self::P99 => "latency that 99 % of the last faults do not exceed",
            Self::Prefetch => "prefetched pages that were used, of those whose fate is known",
            Self::Command => "command",
        }
    }

    /// Characters of a cell; of the last column at least, as it has the rest of the line.
    pub(super) fn width(self) -> u16 {
        match self {
            Self::Pid | Self::Faults | Self::Major | Self::Write => 7,
            Self::Read => 6,
            Self::Command => 8,
            Self::Resident | Self::Pool | Self::Flash | Self::P99 | Self::Prefetch => 5,
        }
    }

    /// The column to the right; after the last one, the first.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&column| column == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }

    /// Whether the unreversed order begins with the smallest: process ids and commands do, amounts do not.
    fn ascends(self) -> bool {
        matches!(self, Self::Pid | Self::Command)
    }

    /// The contents for an entry.
    pub(super) fn cell(self, entry: &Entry, reading: &Reading) -> String {
        let (total, recent) = (&entry.total, &entry.recent);
        let rate = |number| compact::count(reading.rate(number));
        let byte_rate = |number| compact::bytes(reading.rate(number) as u64);
        match self {
            Self::Pid => entry.pid.to_string(),
            Self::Resident => compact::bytes(entry.resident_pages * PAGE),
            Self::Pool => compact::bytes(total.gauges.pool_pages_held * PAGE),
            Self::Flash => compact::bytes(total.gauges.slots_used * PAGE),
            Self::Faults => rate(recent.faults_total + recent.svmp_faults),
            Self::Major => rate(recent.faults_major + recent.svmp_major),
            Self::Read => byte_rate(bytes_read(recent)),
            Self::Write => byte_rate(bytes_written(recent)),
            Self::P99 => match recent.latency.total() {
                (0, _) => "-".to_owned(),
                _ => compact::latency(recent.latency.quantile(0.99)),
            },
            Self::Prefetch => match prefetch_accuracy(entry) {
                None => "-".to_owned(),
                Some(share) => format!("{:.0}%", share * 100.0),
            },
            Self::Command => name_first(&entry.command),
        }
    }

    /// The order of two entries.
    pub(super) fn order(self, one: &Entry, two: &Entry, reversed: bool) -> Ordering {
        let order = match self {
            Self::Command => name_first(&one.command).cmp(&name_first(&two.command)),
            _ => self.amount(one).total_cmp(&self.amount(two)),
        };
        let order = match self.ascends() == reversed {
            true => order.reverse(),
            false => order,
        };
        // Ties go by process id, so that equal rows keep their order from reading to reading.
        order.then(one.pid.cmp(&two.pid))
    }

    fn amount(self, entry: &Entry) -> f64 {
        let (total, recent) = (&entry.total, &entry.recent);
        let number = match self {
            Self::Pid => entry.pid.into(),
            Self::Resident => entry.resident_pages,
            Self::Pool => total.gauges.pool_pages_held,
            Self::Flash => total.gauges.slots_used,
            Self::Faults => recent.faults_total + recent.svmp_faults,
            Self::Major => recent.faults_major + recent.svmp_major,
            Self::Read => bytes_read(recent),
            Self::Write => bytes_written(recent),
            Self::P99 => recent.latency.quantile(0.99),
            Self::Prefetch => return prefetch_accuracy(entry).unwrap_or(-1.0),
            Self::Command => 0,
        };
        number as f64
    }
}

/// used / (used + wasted) prefetched pages of the interval; of all time if the interval has none.
pub(super) fn prefetch_accuracy(entry: &Entry) -> Option<f64> {
    let known = [&entry.recent, &entry.total].into_iter();
    let mut known = known.map(|stats| (stats.prefetch_used, stats.prefetch_wasted));
    let (used, wasted) = known.find(|(used, wasted)| used + wasted > 0)?;
    Some(used as f64 / (used + wasted) as f64)
}

/// A command without the folder of its program.
pub(super) fn name_first(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let name = program.rsplit('/').next().unwrap_or(program);
    let text = format!("{name} {arguments}");
    text.trim_end().replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_live::control::StatsSnapshot;

    fn entry(pid: u32, command: &str, faults_total: u64) -> Entry {
        Entry {
            pid,
            command: command.to_owned(),
            recent: StatsSnapshot {
                faults_total,
                ..StatsSnapshot::default()
            },
            ..Entry::default()
        }
    }

    #[test]
    fn amounts_descend_and_names_ascend() {
        let (a, b) = (entry(1, "/bin/b", 5), entry(2, "/usr/bin/a x", 9));
        assert_eq!(Column::Faults.order(&a, &b, false), Ordering::Greater);
        assert_eq!(Column::Faults.order(&a, &b, true), Ordering::Less);
        assert_eq!(Column::Command.order(&a, &b, false), Ordering::Greater);
        assert_eq!(Column::Command.order(&a, &b, true), Ordering::Less);
        assert_eq!(Column::Pid.order(&a, &b, false), Ordering::Less);
        // Equal amounts: by process id, whichever way.
        assert_eq!(Column::Read.order(&a, &b, false), Ordering::Less);
        assert_eq!(Column::Read.order(&a, &b, true), Ordering::Less);
    }

    #[test]
    fn all_columns_fit_into_80_characters_with_a_command() {
        let widths: u16 = Column::ALL.iter().map(|column| column.width() + 1).sum();
        assert!(widths < 80 - 1, "{widths}");
        for column in Column::ALL {
            assert!(
                column.heading().len() <= column.width().into(),
                "{column:?}"
            );
        }
        let mut seen = Column::Pid;
        for column in Column::ALL {
            assert_eq!(seen, column);
            seen = seen.next();
        }
        assert_eq!(seen, Column::Pid);
    }

    #[test]
    fn cells() {
        let reading = Reading {
            seconds: 0.5,
            runs: Vec::new(),
        };
        let mut one = entry(12, "/usr/bin/python3 a.py", 700);
        one.resident_pages = 256;
        let cell = |column: Column, entry: &Entry| column.cell(entry, &reading);
        assert_eq!(cell(Column::Pid, &one), "12");
        assert_eq!(cell(Column::Resident, &one), "1.0M");
        assert_eq!(cell(Column::Faults, &one), "1400");
        assert_eq!(cell(Column::Command, &one), "python3 a.py");
        assert_eq!(cell(Column::P99, &one), "-");
        assert_eq!(cell(Column::Prefetch, &one), "-");
        one.total.prefetch_used = 1;
        one.total.prefetch_wasted = 1;
        assert_eq!(cell(Column::Prefetch, &one), "50%");
        one.recent.prefetch_used = 9;
        one.recent.prefetch_wasted = 1;
        assert_eq!(cell(Column::Prefetch, &one), "90%");
    }
}
