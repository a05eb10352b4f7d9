//! What the pager did to the program: calls refused, pages lost, processes ended.

use super::{Names, PAGE, one_line, totals};
use crate::cli::outcome::Outcome;
use crate::cli::units::{Size, count};
use flashvm_live::control::{Control, LIMIT_FRAMES_MIN, ProcessRecord, StatsSnapshot};

/// The lines that `--quiet` still shows when a program fails: all causes but refused system calls and what exceeds the budget.
pub(crate) fn complaints(outcome: &Outcome, control: Control, names: &Names) -> String {
    causes(outcome, control, &totals(outcome, control))
        .into_iter()
        .filter(|(name, _)| ![CALLS, OUTSIDE, BUDGET].contains(name))
        .map(|(name, text)| format!("flashvm: {}: {name}: {text}\n", names.program))
        .collect()
}

/// The name of the lines on refused system calls. The caller got an error for each.
const CALLS: &str = "calls";
/// The name of the line on memory beyond the budget.
const OUTSIDE: &str = "outside";
/// The name of the line on frames granted beyond the budget.
const BUDGET: &str = "budget";
/// The line is shown for more pages than this + budget / 8: the pager's own tables are there, too.
const UNCOUNTED_TOLD: u64 = (16 << 20) / PAGE;
/// Processes that get a line of their own under one name; the others are counted.
const NAMED_MAX: usize = 5;

/// The lines on refused calls, lost pages, lost locks and ended processes: a name and a text each.
pub(super) fn causes(
    outcome: &Outcome,
    control: Control,
    sum: &StatsSnapshot,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let refused: Vec<_> = [
        (sum.allocations_refused, "allocation"),
        (sum.forks_refused, "fork"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, what)| number_of(number, what))
    .collect();
    if !refused.is_empty() {
        lines.push((
            "refused",
            format!("{} (ENOMEM): {}", refused.join(", "), too_little(control)),
        ));
    }
    if sum.pages_lost > 0 {
        lines.push((
            "lost",
            format!(
                "{}, which flash did not return as written: touching them raises SIGBUS; see the device's log",
                number_of(sum.pages_lost, "page")
            ),
        ));
    }
    if sum.locks_lost > 0 {
        lines.push((
            "locks",
            format!(
                "{} unlocked (mlock): other processes left too little of the budget: give the run more --ram",
                number_of(sum.locks_lost, "page")
            ),
        ));
    }
    if sum.budget_overruns > 0 {
        lines.push((
            BUDGET,
            format!(
                "exceeded {}: each process can have {LIMIT_FRAMES_MIN} pages at least, and a fork goes on without room after a \
                 while: give the run more --ram for its {}",
                number_of(sum.budget_overruns, "time"),
                number_of(outcome.records.processes(), "process")
            ),
        ));
    }
    let most = outcome
        .records
        .iter()
        .max_by_key(|record| record.stats.uncounted_pages_max);
    let budget = u64::from(control.budget_frames());
    if let Some(record) = most
        && record.stats.uncounted_pages_max > UNCOUNTED_TOLD + budget / 8
    {
        lines.push((
            OUTSIDE,
            format!(
                "process {} ({}) had {} in RAM that the budget does not count: mappings of MAP_32BIT, stacks, pieces \
                 below 64 KiB, and reservations of more than 4 TiB stay the kernel's",
                record.pid,
                one_line(&record.command),
                Size(record.stats.uncounted_pages_max * PAGE)
            ),
        ));
    }
    let reasons = |name, of: fn(&ProcessRecord) -> Option<&String>| {
        let told: Vec<_> = outcome
            .records
            .iter()
            .filter_map(|record| {
                let reason = one_line(of(record)?);
                let command = one_line(&record.command);
                Some(format!("process {} ({command}): {reason}", record.pid))
            })
            .collect();
        let more = told.len().saturating_sub(NAMED_MAX) as u64;
        let more = (more > 0).then(|| format!("and {} more", number_of(more, "process")));
        let named = told.into_iter().take(NAMED_MAX);
        named
            .chain(more)
            .map(move |text| (name, text))
            .collect::<Vec<_>>()
    };
    lines.extend(reasons(CALLS, |record| record.refused.as_ref()));
    lines.extend(reasons("ended", |record| record.ended.as_ref()));
    lines
}

/// Why allocations and forks found no room, and the remedy.
fn too_little(control: Control) -> String {
    if control.disk_was_full() {
        return "the disk of the flash store is full: make room there, or name another --flash"
            .to_owned();
    }
    let (_, most) = control.committed_pages();
    format!(
        "budget and store hold {} together: give the run a larger --flash-size (it was {}) or more --ram",
        Size(most * PAGE),
        Size(u64::from(control.store_slots()) * PAGE)
    )
}

/// `1 fork`, `1,234 allocations`.
fn number_of(number: u64, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "process") => format!("{} processes", count(number)),
        _ => format!("{} {what}s", count(number)),
    }
}
