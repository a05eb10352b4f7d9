//! What makes CRAW worse than CLOCK in large memories, and what mends it.

use super::programs::{TracedProgram, device, frames, mean, ratios, refusal, sweep_of};
use super::readings::{PERCENTS, with};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::Material;
use flashvm_sim::sweep::{Job, Observation, observe};
use indicatif::ProgressBar;

/// Policy, parameters, and what they vary.
const CAUSES: [(&str, &str, &str); 9] = [
    ("clock", "", ""),
    ("craw", "start=halves", "the earlier reading"),
    (
        "craw",
        "start=halves,growth=whole",
        "areas grow eight times as fast",
    ),
    (
        "craw",
        "start=halves,other-history=hit",
        "every fault counts in both histories",
    ),
    ("craw", "start=halves,ghosts=each", "longer histories"),
    ("craw-a", "start=halves", "writes set R's bit too"),
    ("craw", "", "equal sizes at first"),
    ("craw-c", "start=halves", "the victim's cost counts"),
    ("craw-c", "", "both"),
];
const LARGE: [u32; 4] = [60, 70, 80, 90];

/// Who evicts what in a large memory, one cause varied at a time.
pub(super) fn causes(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let program = programs.iter().find(|program| program.name == "mupdf");
    let program = program.unwrap_or(&programs[0]);
    bar.set_message(format!("{}: causes", program.name));
    let mut table = Table::new(&[
        "memory",
        "policy",
        "varies",
        "I/O time",
        "read",
        "written",
        "evicted by R",
        "by W1",
        "by W2",
        "R at the end",
        "W1",
        "W2",
    ]);
    for percent in LARGE {
        let mut clock = None;
        for (policy, parameters, varies) in CAUSES {
            let job = Job {
                policy: with(policy, parameters),
                frames: frames(program, percent),
                observation: Observation::Full,
            };
            let mut areas = Vec::new();
            let figures = observe(&program.references, job, &device(), |_, policy| {
                areas = policy.areas();
            });
            let counts = figures.map_err(|e| refusal(&e))?.counts;
            let clock = *clock.get_or_insert(counts.io_time.0);
            let mut row = vec![
                format!("{percent} %"),
                job.policy.to_string(),
                varies.to_owned(),
                format!("{:.3}", counts.io_time.0 as f64 / clock as f64),
                counts.page_reads.to_string(),
                counts.page_writes.to_string(),
            ];
            let of = |area: usize| areas.get(area);
            row.extend((0..3).map(|at| of(at).map_or(String::new(), |a| a.evicted.to_string())));
            row.extend((0..3).map(|at| {
                of(at).map_or(String::new(), |a| {
                    format!("{} of {:.0}", a.pages, a.desired)
                })
            }));
            table.rows.push(row);
        }
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![format!(
            "{}. At the end: pages of the area, and its desired size. Evicted: pages that left RAM under the area's hand.",
            program.name
        )],
    })
}

/// CRAW, CRAW-A and CRAW-C on all programs.
pub(super) fn table(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let names = ["clock", "craw", "craw-a", "craw-c", "cfclock", "wage"];
    let policies = names.map(|name| with(name, ""));
    let mut table = Table::new(&[
        "program", "craw", "worst", "craw-a", "worst", "craw-c", "worst", "cfclock", "worst",
        "wage", "worst",
    ]);
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for program in programs {
        bar.set_message(format!("{}: CRAW-C", program.name));
        let sizes = sweep_of(program, &policies, &PERCENTS, &device(), Observation::Full)?;
        let ratios: Vec<_> = (0..names.len())
            .map(|policy| ratios(&sizes, policy))
            .collect();
        row(&mut table, program, &ratios);
        for (all, ratios) in all.iter_mut().zip(ratios) {
            all.extend(ratios);
        }
    }
    let mut cells = vec!["all".to_owned()];
    cells.extend(all[1..].iter().flat_map(|ratios| mean_and_worst(ratios)));
    table.rows.push(cells);
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "I/O time over CLOCK's: mean over the sizes below 100 % of the footprint, and the largest.".to_owned(),
            "CRAW-C multiplies R's ratio of current to desired size by the root of what evicting a dirty page costs in \
             reads (3 on the paper's flash), and so takes clean pages sooner."
                .to_owned(),
        ],
    })
}

fn row(table: &mut Table, program: &TracedProgram, ratios: &[Vec<f64>]) {
    let mut cells = vec![program.name.clone()];
    cells.extend(ratios[1..].iter().flat_map(|ratios| mean_and_worst(ratios)));
    table.rows.push(cells);
}

fn mean_and_worst(ratios: &[f64]) -> [String; 2] {
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    [format!("{:.3}", mean(ratios)), format!("{worst:.3}")]
}
