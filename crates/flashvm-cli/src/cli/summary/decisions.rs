//! The last decisions of processes' pagers (`--decisions`), shown where a run went wrong.

use crate::cli::outcome::{End, Outcome};

/// Processes whose decisions are shown: the last ones.
const SHOWN_MAX: usize = 5;

/// The decisions in processes that the pager ended; if `asked`, in all processes of a run that failed.
pub(crate) fn decision_lines(outcome: &Outcome, asked: bool) -> String {
    let all = asked && outcome.end != End::Exited(0);
    let records = outcome.records.iter();
    let kept: Vec<_> = records
        .filter(|record| (all || record.ended.is_some()) && !record.decisions.is_empty())
        .collect();
    // The program itself is among the last: it ends after its children.
    let shown = &kept[kept.len().saturating_sub(SHOWN_MAX)..];
    let mut lines = String::new();
    for record in shown {
        let command = super::one_line(&record.command);
        lines.push_str(&format!(
            "  {:<10}process {} ({command}):\n",
            "decisions", record.pid
        ));
        for line in &record.decisions {
            let (at, text) = (line.at_ns as f64 / 1e9, super::one_line(&line.text));
            lines.push_str(&format!("  {at:>12.6} s {text}\n"));
        }
    }
    lines
}
