//! A reading as plain text, for scripts and where there is no terminal.

use super::columns::{Column, name_first};
use super::facts::{clock, facts};
use super::reading::Reading;
use super::rows::{Row, rows};
use super::state::State;
use std::fmt::Write as _;

/// Characters that are shown of a program and its arguments.
const PROGRAM_CHARS_MAX: usize = 60;

/// The text of a reading: for each run its facts and its table, then the notices.
pub(super) fn lines(reading: &Reading, notices: &[String]) -> String {
    let state = State::default();
    let mut text = String::new();
    let rows = rows(reading, state.sort, state.reversed);
    for row in &rows {
        if row.id.process.is_none() {
            if !text.is_empty() {
                text.push('\n');
            }
            head(&mut text, row, reading);
        }
        let cells = Column::ALL
            .iter()
            .map(|&column| match (column, row.id.process) {
                (Column::Command, None) => "(all)".to_owned(),
                _ => column.cell(row.entry, reading),
            });
        push_cells(&mut text, cells);
    }
    if rows.is_empty() {
        text.push_str("no run of yours: start one with flashvm run --ram 512M -- PROGRAM\n");
    }
    for notice in notices {
        text.push_str(&format!("{notice}\n"));
    }
    text
}

fn head(text: &mut String, row: &Row<'_>, reading: &Reading) {
    let run = row.run;
    // Writing to memory does not fail.
    let _ = writeln!(
        text,
        "run {}: {} for {}, over {:.1} s ({} mode, preset {}, policy {})",
        run.sum.pid,
        shortened(name_first(&run.sum.command)),
        clock(run.elapsed),
        reading.seconds,
        run.sum.total.deliveries,
        run.preset,
        run.policy
    );
    for (name, fact) in facts(run, &run.sum, reading) {
        let _ = writeln!(text, "  {name:<10}{fact}");
    }
    let headings = Column::ALL.iter().map(|column| column.heading().to_owned());
    push_cells(text, headings);
}

/// Shortens a command line: its arguments may be a whole script.
fn shortened(program: String) -> String {
    match program.char_indices().nth(PROGRAM_CHARS_MAX) {
        None => program,
        Some((end, _)) => format!("{}...", &program[..end]),
    }
}

fn push_cells(text: &mut String, cells: impl Iterator<Item = String>) {
    for (column, cell) in Column::ALL.into_iter().zip(cells) {
        let width = usize::from(column.width());
        match column {
            Column::Command => text.push_str(&format!("{cell}\n")),
            _ => text.push_str(&format!("{cell:>width$} ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing;

    #[test]
    fn each_run_has_its_lines_and_its_table() {
        let text = lines(&testing::reading(), &["process 5: hidden".to_owned()]);
        let all: Vec<&str> = text.lines().collect();
        assert!(all[0].starts_with("run 4711: python3 dictionary.py 2000000 for 1:23, over 1.0 s"));
        assert_eq!(all[1], "  ram       100 MiB of 128 MiB");
        let rows = all
            .iter()
            .filter(|line| line.contains("python3 dictionary.py"));
        assert_eq!(rows.count(), 2, "{text}");
        assert_eq!(all.iter().filter(|line| line.contains("PID")).count(), 2);
        assert_eq!(all.last(), Some(&"process 5: hidden"));
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn long_programs_are_shortened() {
        let long = format!("sh -c {}", "é".repeat(100));
        let short = shortened(long.clone());
        assert_eq!(short.chars().count(), PROGRAM_CHARS_MAX + 3);
        assert!(short.ends_with("é...") && long.starts_with(short.trim_end_matches('.')));
        assert_eq!(shortened("sort a".to_owned()), "sort a");
    }

    #[test]
    fn without_runs() {
        assert!(lines(&Reading::default(), &[]).contains("flashvm run --ram"));
    }
}
