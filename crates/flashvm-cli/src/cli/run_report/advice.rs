//! `--profile`: what a run's record says, in a few sentences.

use super::allocations::Order;
use super::record::Record;
use super::timeline::Point;
use crate::cli::units::{Size, count};
use std::collections::HashMap;

/// Shares below this are not worth a sentence.
const WORTH: f64 = 0.05;
/// A function is named from this share of the faults from flash on; stacks say nothing with fewer samples.
const FUNCTION: f64 = 0.2;
const SAMPLES_MIN: u64 = 20;
/// Of the pages from flash, so many are read ahead by a program that goes in order, and by one that jumps.
const IN_ORDER: f64 = 0.75;
const JUMPS: f64 = 0.25;
/// More RAM is worth a sentence if it saves so much.
const SAVED: f64 = 0.5;
/// The common drive, and the years that it should last.
const RATED_TB: f64 = 600.0;
const YEARS: f64 = 5.0;

/// The sentences, the most important first.
pub(super) fn advice(record: &Record) -> Vec<String> {
    let end = record.timeline.last().cloned().unwrap_or_default();
    let paged = end.faults_flash + end.faults_pool + end.faults_waited;
    if paged == 0 {
        let used = record.totals.resident_pages_max * 4096;
        return vec![format!(
            "It never had to wait for a page: it used at most {} of {}.",
            Size(used),
            Size(record.about.ram_bytes)
        )];
    }
    let sentences = [
        Some(waiting(record, &end, paged)),
        code(record, share(end.faults_flash, paged)),
        memory(record),
        order(record, &end),
        wasted(record),
        more_ram(record, &end),
        cold(record),
        wear(record, &end),
    ];
    sentences.into_iter().flatten().collect()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

fn waiting(record: &Record, end: &Point, paged: u64) -> String {
    let waited = record.latency.sum as f64 / 1e9;
    let seconds = record.about.seconds.max(1e-3);
    let time = match waited / seconds {
        part if part < WORTH => format!(
            "Paging costs it little: it waited for pages for {waited:.2} s of {seconds:.1} s"
        ),
        part if part <= 1.0 => format!(
            "{} of the time it waited for pages, {waited:.1} s of {seconds:.1} s",
            percent(part)
        ),
        _ => format!("Its threads waited for pages for {waited:.1} s in all, in {seconds:.1} s"),
    };
    let from = match share(end.faults_pool, paged) {
        part if part < WORTH => "read from flash".to_owned(),
        part if part > 1.0 - WORTH => "were compressed in RAM".to_owned(),
        part => format!(
            "read from flash in {} of the cases, and compressed in RAM in the others",
            percent(1.0 - part)
        ),
    };
    format!(
        "{time}: {} faults on pages that were {}.",
        count(paged),
        from.trim_start_matches("were ")
    )
}

/// The functions that touched most of the pages from flash.
fn code(record: &Record, from_flash: f64) -> Option<String> {
    let stacks = &record.stacks;
    if stacks.samples < SAMPLES_MIN || from_flash < 2.0 * WORTH {
        return None;
    }
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (stack, faults) in &stacks.stacks {
        if let Some(inner) = stack.last() {
            *functions.entry(inner).or_default() += faults;
        }
    }
    let mut functions = Vec::from_iter(functions);
    functions.sort_by_key(|&(name, faults)| (std::cmp::Reverse(faults), name));
    let line_of = |function: &str| {
        let lines = stacks.lines.iter();
        let mut of_function = lines.filter(|(frame, _)| frame.function == function);
        let line = of_function
            .next()
            .and_then(|(frame, _)| frame.line.as_deref());
        line.map_or(String::new(), |line| format!(" ({line})"))
    };
    let named = functions
        .iter()
        .map(|&(name, faults)| (name, share(faults, stacks.faults)))
        .take_while(|&(_, share)| share >= FUNCTION)
        .map(|(name, share)| format!("{} in {name}{}", percent(share), line_of(name)));
    let named = Vec::from_iter(named);
    (!named.is_empty()).then(|| {
        format!(
            "Of the waits for flash, {} (--report shows the stacks).",
            named.join(", ")
        )
    })
}

/// The memory that most of the faults were on.
fn memory(record: &Record) -> Option<String> {
    let all = &record.allocations;
    let one = all.listed.first()?;
    let part = share(one.faults, all.faults);
    // Functions of files without names are in brackets.
    let named = one.by.iter().find(|frame| !frame.function.starts_with('['));
    let by = named.or(one.by.first())?.text();
    if part < FUNCTION || all.faults < SAMPLES_MIN {
        return None;
    }
    let size = Size(one.bytes);
    let what = match one.pieces {
        1 => format!("in {size} that {by} asked for"),
        pieces => format!("in memory that {by} asked for, {size} at most in {pieces} pieces"),
    };
    let order = match one.order() {
        Order::Steps(pages) => format!(
            ", in steps of {} pages: what lies side by side should be used side by side (the other order of the loops, or the \
             transpose)",
            count(pages.unsigned_abs())
        ),
        order => format!(", {order}"),
    };
    Some(format!(
        "{} of these faults were {what}{order}.",
        percent(part)
    ))
}

fn order(record: &Record, end: &Point) -> Option<String> {
    let ahead = record.totals.prefetch_used;
    let pages = ahead + end.faults_flash + end.faults_pool;
    match share(ahead, pages) {
        part if part >= IN_ORDER => Some(format!(
            "It goes through memory in order: {} of the pages were there before it asked.",
            percent(part)
        )),
        part if part <= JUMPS => Some(format!(
            "It jumps: only {} of the pages could be brought in ahead. Data that is used together should lie together.",
            percent(part)
        )),
        _ => None,
    }
}

fn wasted(record: &Record) -> Option<String> {
    let totals = &record.totals;
    let part = share(totals.prefetch_wasted, totals.prefetch_issued);
    let read = share(totals.prefetch_issued, totals.pages_in + totals.pool_pages);
    (part > 0.3 && read > WORTH).then(|| {
        format!(
            "{} of what was brought in ahead was not used: compare --prefetcher off.",
            percent(part)
        )
    })
}

fn more_ram(record: &Record, end: &Point) -> Option<String> {
    let all = end.faults_flash + end.faults_pool;
    let saved =
        |row: &super::what_if::WhatIf| share((row.flash_saved + row.pool_saved).min(all), all);
    if share(all, record.totals.faults) < WORTH {
        return None;
    }
    let enough = record.what_if.iter().find(|row| saved(row) >= SAVED);
    match (enough, record.what_if.last()) {
        (Some(row), _) => Some(format!(
            "With {} times the RAM, {}, it would have been spared at least {} of these faults; flashvm size finds out what it needs.",
            row.eighths as f64 / 8.0,
            Size(record.about.ram_bytes / 8 * row.eighths),
            percent(saved(row))
        )),
        (None, Some(row)) => Some(format!(
            "More RAM would help little: {} times as much would have saved at least {} of these faults.",
            row.eighths / 8,
            percent(saved(row))
        )),
        (None, None) => None,
    }
}

fn cold(record: &Record) -> Option<String> {
    let cold = &record.cold;
    (share(cold.cold_bytes, cold.seen_bytes) > 0.25).then(|| {
        format!(
            "{} of its {} were cold: out of RAM, and not touched in the last tenth of the time. They cost nothing.",
            Size(cold.cold_bytes),
            Size(cold.seen_bytes)
        )
    })
}

fn wear(record: &Record, end: &Point) -> Option<String> {
    let a_year = end.bytes_written as f64 / record.about.seconds.max(1e-3) * 86_400.0 * 365.25;
    let years = RATED_TB * 1e12 / a_year.max(1.0);
    (years < YEARS).then(|| {
        format!(
            "Run all day, it would wear out a drive rated for {RATED_TB} TB in {years:.1} years: --write-limit bounds what it writes."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run_report::allocations::{Allocation, Allocations};
    use crate::cli::run_report::stacks::{Frame, Stacks};
    use crate::cli::run_report::what_if::WhatIf;

    fn frame(function: &str, line: Option<&str>) -> Frame {
        Frame {
            function: function.to_owned(),
            line: line.map(str::to_owned),
        }
    }

    fn record() -> Record {
        let mut record = Record::default();
        record.about.seconds = 20.0;
        record.about.ram_bytes = 128 << 20;
        record.latency.sum = 12_400_000_000;
        record.totals.faults = 400_000;
        record.totals.pages_in = 200_000;
        record.timeline.push(Point {
            seconds: 20.0,
            faults_flash: 150_000,
            faults_pool: 50_000,
            ..Point::default()
        });
        record
    }

    fn text(record: &Record) -> String {
        advice(record).join("\n")
    }

    #[test]
    fn a_program_that_fits_hears_so() {
        let mut record = Record::default();
        record.about.ram_bytes = 128 << 20;
        record.totals.resident_pages_max = 4096;
        assert_eq!(
            text(&record),
            "It never had to wait for a page: it used at most 16 MiB of 128 MiB."
        );
    }

    #[test]
    fn a_program_that_jumps_hears_where_and_what_more_ram_gives() {
        let mut record = record();
        let stack = |inner: &str| vec!["main".to_owned(), inner.to_owned()];
        record.stacks = Stacks {
            samples: 500,
            faults: 150_000,
            stacks: vec![
                (stack("lookup"), 90_000),
                (stack("insert"), 40_000),
                (stack("free"), 20_000),
            ],
            lines: vec![
                (frame("lookup", Some("dict.c:31")), 70_000),
                (frame("lookup", None), 20_000),
            ],
        };
        record.allocations = Allocations {
            faults: 200_000,
            listed: vec![Allocation {
                by: vec![frame("grow", Some("dict.c:7")), frame("main", None)],
                bytes: 300 << 20,
                pieces: 1,
                faults: 150_000,
                in_order: 1000,
                in_steps: 120_000,
                step: -125,
            }],
        };
        record.what_if = vec![
            WhatIf {
                eighths: 10,
                flash_saved: 20_000,
                pool_saved: 0,
            },
            WhatIf {
                eighths: 12,
                flash_saved: 100_000,
                pool_saved: 20_000,
            },
        ];
        let text = text(&record);
        for sentence in [
            "62 % of the time it waited for pages, 12.4 s of 20.0 s: 200,000 faults on pages that were read from flash in 75 % \
             of the cases, and compressed in RAM in the others.",
            "Of the waits for flash, 60 % in lookup (dict.c:31), 27 % in insert (--report shows the stacks).",
            "75 % of these faults were in 300 MiB that grow at dict.c:7 asked for, in steps of 125 pages: what lies side by side",
            "It jumps: only 0 % of the pages",
            "With 1.5 times the RAM, 192 MiB, it would have been spared at least 60 % of these faults",
        ] {
            assert!(text.contains(sentence), "{sentence}\n---\n{text}");
        }
    }

    #[test]
    fn waste_wear_and_streams_are_named() {
        let mut record = record();
        record.totals.prefetch_issued = 900_000;
        record.totals.prefetch_used = 880_000;
        record.totals.pages_in = 1_050_000;
        record.what_if = vec![WhatIf {
            eighths: 64,
            flash_saved: 10_000,
            pool_saved: 0,
        }];
        record.timeline[0].bytes_written = 4 << 30;
        record.cold.seen_bytes = 400 << 20;
        record.cold.cold_bytes = 300 << 20;
        let all = text(&record);
        for sentence in [
            "It goes through memory in order: 81 %",
            "More RAM would help little: 8 times as much would have saved at least 5 %",
            "300 MiB of its 400 MiB were cold",
            "a drive rated for 600 TB in 0.1 years",
        ] {
            assert!(all.contains(sentence), "{sentence}\n---\n{all}");
        }
        assert!(!all.contains("not used"), "{all}");
        record.totals.prefetch_wasted = 500_000;
        assert!(text(&record).contains("56 % of what was brought in ahead was not used"));
    }

    #[test]
    fn few_samples_and_small_waits_say_little() {
        let mut record = record();
        record.latency.sum = 100_000_000;
        record.stacks = Stacks {
            samples: 3,
            faults: 150_000,
            stacks: vec![(vec!["main".to_owned()], 150_000)],
            lines: Vec::new(),
        };
        let text = text(&record);
        assert!(
            text.starts_with("Paging costs it little: it waited for pages for 0.10 s of 20.0 s")
        );
        assert!(!text.contains("main"), "{text}");
    }
}
