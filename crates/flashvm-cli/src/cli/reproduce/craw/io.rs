//! Figures 12 to 14 and 17: I/O time, pages read and pages written by memory size.

use super::programs::{POLICIES, Swept, SweptSize, TracedProgram};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::Material;
use flashvm_sim::sweep::Counts;
use indicatif::ProgressBar;

/// Indices into [`POLICIES`].
const CLOCK: usize = 0;
const CRAW: usize = 3;
const CRAW_A: usize = 4;
/// The policies of Figures 12 to 14.
const FOUR: [usize; 4] = [0, 1, 2, 3];
const FIVE: [usize; 5] = [0, 1, 2, 3, 4];

fn io_time(counts: &Counts) -> u64 {
    counts.io_time.0
}

/// A policy's figure over CLOCK's.
fn to_clock(size: &SweptSize, policy: usize, of: impl Fn(&Counts) -> u64) -> f64 {
    of(&size.counts[policy]) as f64 / of(&size.counts[CLOCK]).max(1) as f64
}

pub(super) fn figure_12(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let swept = material.programs.swept(bar)?;
    Ok(Report {
        tables: vec![
            savings(programs, swept),
            sizes(programs, swept, &FOUR, io_time, "ms", 1e6),
        ],
        charts: charts(programs, swept, &FOUR, "I/O time, CLOCK = 1", |size, policy| {
            to_clock(size, policy, io_time)
        }),
        notes: vec![
            "Mean, least and most are over the sizes below 100 % of the footprint; a negative saving is a loss.".to_owned(),
            "The paper: against CLOCK 23.9 % less on average and up to 66.5 %; against CAR 25 to 66 %, against \
             CFCLOCK 16 to 58 % (section V.B); at 100 % all are equal."
                .to_owned(),
        ],
    })
}

/// CRAW's saving of I/O time against each rival.
fn savings(programs: &[TracedProgram], swept: &[Swept]) -> Table {
    let mut table = Table::new(&[
        "program",
        "against",
        "mean saving",
        "least",
        "most",
        "paper",
    ]);
    let mut all = [const { Vec::new() }; 3];
    let rivals = [
        (0, "23.9 % on average, up to 66.5 %"),
        (1, "25 to 66 %"),
        (2, "16 to 58 %"),
    ];
    let row = |table: &mut Table, name: &str, rival: usize, savings: &[f64], paper: &str| {
        let mean = savings.iter().sum::<f64>() / savings.len() as f64;
        let least = savings.iter().copied().fold(f64::INFINITY, f64::min);
        let most = savings.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shown = [mean, least, most].map(|saving| format!("{saving:.1} %"));
        let [mean, least, most] = shown;
        let against = POLICIES[rival].to_owned();
        table.row([
            name.to_owned(),
            against,
            mean,
            least,
            most,
            paper.to_owned(),
        ]);
    };
    for (program, sizes) in programs.iter().zip(swept) {
        for (rival, _) in rivals {
            let sizes = sizes.iter().filter(|size| size.percent < 100);
            let saving = |size: &SweptSize| {
                let (own, other) = (&size.counts[CRAW], &size.counts[rival]);
                (1.0 - io_time(own) as f64 / io_time(other) as f64) * 100.0
            };
            let savings: Vec<f64> = sizes.map(saving).collect();
            row(&mut table, &program.name, rival, &savings, "");
            all[rival].extend(savings);
        }
    }
    for (rival, paper) in rivals {
        row(&mut table, "all", rival, &all[rival], paper);
    }
    table
}

/// Figures 13 and 14.
pub(super) fn pages(
    material: &Material,
    bar: &ProgressBar,
    what: &str,
    of: fn(&Counts) -> u64,
) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let swept = material.programs.swept(bar)?;
    let paper = match what {
        "pages read" => {
            "The paper: CRAW keeps reads \"to a certain limited range\"; CFCLOCK's are \"almost 200 % of CLOCK\" \
             for gedit in a small memory."
        }
        _ => {
            "The paper: CRAW and CFCLOCK write less than CLOCK and CAR, CFCLOCK \"dramatically\" so."
        }
    };
    Ok(Report {
        tables: vec![sizes(programs, swept, &FOUR, of, "pages", 1.0)],
        charts: charts(programs, swept, &FOUR, what, |size, policy| {
            of(&size.counts[policy]) as f64
        }),
        notes: vec![paper.to_owned()],
    })
}

pub(super) fn figure_17(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let swept = material.programs.swept(bar)?;
    let mut table = Table::new(&[
        "program",
        "mean difference",
        "CRAW-A better by",
        "CRAW-A worse by",
    ]);
    for (program, sizes) in programs.iter().zip(swept) {
        let ratio = |size: &SweptSize| {
            let [own, other] = [CRAW_A, CRAW].map(|policy| io_time(&size.counts[policy]) as f64);
            (own / other - 1.0) * 100.0
        };
        let ratios: Vec<f64> = sizes.iter().map(ratio).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let best = ratios.iter().copied().fold(0.0, f64::min);
        table.row([
            program.name.clone(),
            format!("{mean:+.1} %"),
            format!("{:.1} %", -best),
            format!("{worst:.1} %"),
        ]);
    }
    Ok(Report {
        tables: vec![table, sizes(programs, swept, &FIVE, io_time, "ms", 1e6)],
        charts: charts(programs, swept, &FIVE, "I/O time, CLOCK = 1", |size, policy| {
            to_clock(size, policy, io_time)
        }),
        notes: vec![
            "The paper: CRAW and CRAW-A are almost indistinguishable in most cases; in some CRAW-A is better."
                .to_owned(),
        ],
    })
}

/// For every program and size, CLOCK's figure, and the others' over it.
fn sizes(
    programs: &[TracedProgram],
    swept: &[Swept],
    policies: &[usize],
    of: fn(&Counts) -> u64,
    unit: &str,
    divisor: f64,
) -> Table {
    let clock = format!("clock, {unit}");
    let mut columns = vec!["program", "memory", "frames", &clock];
    columns.extend(policies[1..].iter().map(|&policy| POLICIES[policy]));
    let mut table = Table::new(&columns);
    table.name = "sizes".to_owned();
    for (program, sizes) in programs.iter().zip(swept) {
        for size in sizes {
            let clock = of(&size.counts[CLOCK]) as f64 / divisor;
            let mut row = vec![
                program.name.clone(),
                format!("{} %", size.percent),
                size.frames.to_string(),
                format!("{clock:.0}"),
            ];
            let share = |&policy: &usize| format!("{:.3}", to_clock(size, policy, of));
            row.extend(policies[1..].iter().map(share));
            table.rows.push(row);
        }
    }
    table
}

/// One chart per program.
fn charts(
    programs: &[TracedProgram],
    swept: &[Swept],
    policies: &[usize],
    what: &str,
    value: impl Fn(&SweptSize, usize) -> f64,
) -> Vec<Chart> {
    let chart = |(program, sizes): (&TracedProgram, &Swept)| {
        let series = policies.iter().map(|&policy| {
            let points = sizes
                .iter()
                .map(|size| (f64::from(size.percent), value(size, policy)));
            Series::new(POLICIES[policy], points.collect())
        });
        Chart {
            name: program.name.clone(),
            title: format!("{}: {what}", program.name),
            x: Axis::linear("memory, % of the footprint"),
            y: Axis::linear(what),
            series: series.collect(),
        }
    };
    programs.iter().zip(swept).map(chart).collect()
}
