//! The facts on a run or a process, the same on the screen and with `--once`: a line each, of a name and a text.

use super::columns::prefetch_accuracy;
use super::reading::{Entry, Reading, RunEntry};
use crate::cli::summary::{PAGE, bytes_read, bytes_written, svmp_zero_faults};
use crate::cli::units::{Size, count, latency};
use flashvm_live::control::StatsSnapshot;
use std::time::Duration;

/// A line: its name and its text.
pub(super) type Fact = (&'static str, String);

/// A kind of faults: its name, its number in given counters, and its meaning.
pub(super) type FaultKind = (&'static str, fn(&StatsSnapshot) -> u64, &'static str);

/// The kinds of faults.
pub(super) const KINDS: [FaultKind; 8] = [
    (
        "all",
        |s| s.faults_total + s.svmp_faults,
        "without first writes",
    ),
    (
        "from flash",
        |s| s.faults_major + s.svmp_major,
        "with a read",
    ),
    ("pool", |s| s.faults_pool, "on a compressed page in RAM"),
    ("soft", |s| s.faults_soft + s.svmp_soft, "page still in RAM"),
    (
        "zero",
        |s| s.faults_zero + svmp_zero_faults(s),
        "first touches",
    ),
    ("waited", |s| s.faults_waited, "page was being read"),
    ("stalled", |s| s.faults_stalled, "without a free frame"),
    ("first writes", |s| s.faults_write_protect, "to clean pages"),
];

/// The kinds in `KINDS` that the line on faults names.
const NAMED: std::ops::Range<usize> = 1..5;

/// The budget: used, and in all.
pub(super) fn ram(run: &RunEntry) -> String {
    let bytes = |frames: u32| Size(u64::from(frames) * PAGE);
    format!(
        "{} of {}",
        bytes(run.run.used_frames),
        bytes(run.run.budget_frames)
    )
}

/// The facts on an entry of a run; the budget is the run's.
pub(super) fn facts(run: &RunEntry, entry: &Entry, reading: &Reading) -> Vec<Fact> {
    let mut facts = vec![("ram", ram(run))];
    facts.extend(pool(run, entry));
    facts.push(("flash", flash(run, entry)));
    facts.push(("faults", faults(entry, reading)));
    facts.push(("latency", waits(entry, reading)));
    facts.push(("device", device(entry, reading)));
    facts.push(("prefetch", prefetch(entry, reading)));
    facts.extend(troubles(entry));
    facts
}

fn pool(run: &RunEntry, entry: &Entry) -> Option<Fact> {
    let held = &entry.total.gauges;
    if !run.compresses && held.pool_frames == 0 {
        return None;
    }
    let ratio = match held.pool_frames {
        0 => String::new(),
        frames => format!(" ({:.1}:1)", held.pool_pages_held as f64 / frames as f64),
    };
    Some((
        "pool",
        format!(
            "{} compressed in {}{ratio}, share {}",
            Size(held.pool_pages_held * PAGE),
            Size(held.pool_frames * PAGE),
            Size(held.pool_share_frames * PAGE),
        ),
    ))
}

fn flash(run: &RunEntry, entry: &Entry) -> String {
    format!(
        "{} of {}; {} committed",
        Size(entry.total.gauges.slots_used * PAGE),
        Size(u64::from(run.run.store_slots) * PAGE),
        Size(entry.committed_pages * PAGE)
    )
}

fn faults(entry: &Entry, reading: &Reading) -> String {
    let a_second = |number: u64| count(reading.rate(number).round() as u64);
    let all = KINDS[0].1(&entry.recent);
    let kinds = KINDS[NAMED].iter();
    let kinds =
        kinds.map(|(name, number, _)| format!("{} {name}", a_second(number(&entry.recent))));
    format!("{}/s: {}", a_second(all), Vec::from_iter(kinds).join(", "))
}

fn waits(entry: &Entry, reading: &Reading) -> String {
    let (number, ns) = entry.recent.latency.total();
    if number == 0 {
        return "no faults in this interval".to_owned();
    }
    let recent = &entry.recent.latency;
    format!(
        "p50 {}, p99 {}; threads wait {:.2} s per second in all",
        latency(recent.quantile(0.5)),
        latency(recent.quantile(0.99)),
        reading.rate(ns) / 1e9
    )
}

fn device(entry: &Entry, reading: &Reading) -> String {
    let a_second = |bytes: u64| Size(reading.rate(bytes) as u64);
    let read_time = match entry.total.gauges.read_time_ns {
        0 => String::new(),
        ns => format!(", {} a read", latency(ns)),
    };
    format!(
        "reads {}/s{read_time}; writes {}/s",
        a_second(bytes_read(&entry.recent)),
        a_second(bytes_written(&entry.recent))
    )
}

fn prefetch(entry: &Entry, reading: &Reading) -> String {
    let a_second = count(reading.rate(entry.recent.prefetch_issued).round() as u64);
    match prefetch_accuracy(entry) {
        None => format!("{a_second} pages/s"),
        Some(share) => format!("{a_second} pages/s, {:.0} % used", share * 100.0),
    }
}

/// Errors and refusals since the entry began, if there were any.
fn troubles(entry: &Entry) -> Option<Fact> {
    let total = &entry.total;
    let troubles = [
        (total.read_errors + total.svmp_read_errors, "failed reads"),
        (total.write_errors + total.log_write_errors, "failed writes"),
        (total.pages_lost, "pages lost"),
        (total.allocations_refused, "allocations refused"),
        (total.forks_refused, "forks refused"),
    ];
    let troubles = troubles.iter().filter(|(number, _)| *number > 0);
    let troubles: Vec<_> = troubles
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
    (!troubles.is_empty()).then(|| ("trouble", troubles.join(", ")))
}

/// A duration as minutes or hours: `1:23`, `2:05:00`.
pub(super) fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing;

    #[test]
    fn a_line_for_each_subject() {
        let reading = testing::reading();
        let run = &reading.runs[0];
        let facts = facts(run, &run.sum, &reading);
        let names: Vec<_> = facts.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            [
                "ram", "pool", "flash", "faults", "latency", "device", "prefetch", "trouble"
            ]
        );
        let text = |name| {
            &facts
                .iter()
                .find(|(other, _)| *other == name)
                .expect(name)
                .1
        };
        assert_eq!(text("ram"), "100 MiB of 128 MiB");
        assert_eq!(
            text("pool"),
            "64 MiB compressed in 16 MiB (4.0:1), share 20 MiB"
        );
        assert_eq!(
            text("faults"),
            "6,000/s: 600 from flash, 3,000 pool, 1,200 soft, 0 zero"
        );
        assert_eq!(text("trouble"), "1 pages lost");
        for (name, text) in &facts {
            assert!(name.len() + text.len() < 69, "{text}");
        }
    }

    #[test]
    fn a_run_without_compression_has_no_pool() {
        let reading = testing::reading();
        let run = &reading.runs[1];
        let facts = facts(run, &run.sum, &reading);
        assert!(
            facts
                .iter()
                .all(|(name, _)| !["pool", "trouble"].contains(name))
        );
        assert!(facts.contains(&("latency", "no faults in this interval".to_owned())));
    }

    #[test]
    fn clocks() {
        assert_eq!(clock(Duration::from_secs(83)), "1:23");
        assert_eq!(clock(Duration::from_secs(7500)), "2:05:00");
    }
}
