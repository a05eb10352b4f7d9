//! The live line of `--progress`: the totals of the run so far.

use super::outcome::Records;
use super::summary::{bytes_read, bytes_written};
use super::units::{Size, count};
use flashvm_live::control::{Control, ProcessRecord};
use std::io::{IsTerminal, Write};
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(500);

/// The live line: rewritten on a terminal, repeated elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    control: Control,
    next: Duration,
    terminal: bool,
    shown: usize,
}

impl Progress {
    /// Shows the counters of `control` on standard error.
    pub(crate) fn new(control: Control) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            control,
            next: EVERY,
            terminal,
            shown: 0,
        }
    }

    /// Shows the line if it is due; `gone` and `alive` are the records of all processes.
    pub(crate) fn show(&mut self, elapsed: Duration, gone: &Records, alive: &[ProcessRecord]) {
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + EVERY;
        let sum = gone.sum_with(alive);
        let (used, budget) = (self.control.used_frames(), self.control.budget_frames());
        let bytes = |pages: u64| Size(pages * 4096);
        let line = format!(
            "{:6.1} s  faults {} ({} from flash)  in {}  out {}  resident {} of {}",
            elapsed.as_secs_f64(),
            count(sum.faults_total),
            count(sum.faults_major),
            Size(bytes_read(&sum)),
            Size(bytes_written(&sum)),
            bytes(used.into()),
            bytes(budget.into()),
        );
        // A closed pipe must not end the run.
        let _ = if self.terminal {
            let pad = self.shown.saturating_sub(line.len());
            self.shown = line.len();
            write!(std::io::stderr(), "\r{line}{:pad$}", "")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    /// Clears the line.
    pub(crate) fn finish(&mut self) {
        if self.terminal && self.shown > 0 {
            let _ = write!(std::io::stderr(), "\r{:1$}\r", "", self.shown);
            self.shown = 0;
        }
    }
}
