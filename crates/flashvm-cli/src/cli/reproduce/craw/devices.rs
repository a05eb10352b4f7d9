//! The policies on flash that maps pages and on flash that maps blocks, and CRAW as a live pager sees memory.

use super::programs::{device, mean, ratios, spec, sweep_of};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::Material;
use flashvm_sim::sweep::{Counts, Observation};
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;

const POLICIES: [&str; 13] = [
    "clock", "lru", "car", "cfclock", "cflru", "lru-wsr", "craw", "craw-a", "craw-c", "wage",
    "fab", "bplru", "clc",
];
const PERCENTS: [u32; 6] = [5, 10, 20, 40, 60, 80];
/// The time of a fault that only changes access rights: the mean of protect mode's soft faults by a load and by a
/// store (`docs/performance.md`).
const RIGHTS_FAULT_US: f64 = 7.3;

/// The devices: the paper's flash bare, mapped by pages, and mapped by blocks.
fn devices() -> [(&'static str, Device); 4] {
    let mut pages = Device::new(ModelKind::Nand);
    // The same flash: a page of memory takes two reads or programs of 2 KiB, one after the other.
    pages.nand.channels = 1;
    pages.nand.pages_per_block = 32;
    pages.nand.read_us = 50.0;
    pages.nand.program_us = 400.0;
    pages.nand.transfer_us = 0.0;
    pages.nand.aged = true;
    let blocks = |open_blocks| {
        let mut blocks = Device::new(ModelKind::BlockNand);
        blocks.nand.open_blocks = open_blocks;
        blocks
    };
    [
        ("no translation", device()),
        ("page-mapped", pages),
        ("block-mapped", blocks(1)),
        ("block-mapped, 8 open", blocks(8)),
    ]
}

/// The rank of each policy on each device.
pub(super) fn ranks(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let policies = POLICIES.map(spec);
    let mut columns = vec!["policy".to_owned()];
    let mut means: Vec<Vec<f64>> = Vec::new();
    for (name, device) in devices() {
        columns.extend([name.to_owned(), "rank".to_owned()]);
        let mut logs = [0.0; POLICIES.len()];
        let mut points = 0_u32;
        for program in programs {
            bar.set_message(format!("{}: {name}", program.name));
            let sizes = sweep_of(program, &policies, &PERCENTS, &device, Observation::Full)?;
            points += sizes.len() as u32;
            for (policy, sum) in logs.iter_mut().enumerate() {
                *sum += ratios(&sizes, policy)
                    .iter()
                    .map(|ratio| ratio.ln())
                    .sum::<f64>();
            }
        }
        means.push(logs.map(|sum| (sum / f64::from(points)).exp()).to_vec());
    }
    let mut table = Table::new(&[]);
    table.columns = columns;
    for (policy, name) in POLICIES.iter().enumerate() {
        let mut row = vec![(*name).to_owned()];
        for means in &means {
            let better = means.iter().filter(|&&mean| mean < means[policy]).count();
            row.extend([format!("{:.3}", means[policy]), (better + 1).to_string()]);
        }
        table.rows.push(row);
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "I/O time over CLOCK's, geometric means over all programs and memory of 5 to 80 % of the footprint.".to_owned(),
            "The flash is the paper's; page-mapped: an aged device with 7 % over-provisioning, greedy cleaning, blocks of 32 \
             pages of memory, erased in 2 ms; block-mapped: a write out of order merges its block."
                .to_owned(),
        ],
    })
}

/// CRAW with full sight, and as a pager sees memory by access rights.
pub(super) fn sight(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let names = [
        "clock",
        "craw",
        "craw(bits=set)",
        "craw-a",
        "craw-c",
        "craw-c(bits=set)",
    ];
    let policies = names.map(spec);
    let sights = [
        ("every reference", Observation::Full),
        ("a live pager's", Observation::Live),
        ("by rights (VI.B)", Observation::Protected),
    ];
    let mut table = Table::new(&[
        "policy",
        "sight",
        "I/O time",
        "with faults on rights",
        "faults on rights a page read",
    ]);
    let mut swept = Vec::new();
    for (name, observation) in sights {
        let mut of_programs = Vec::new();
        for program in programs {
            bar.set_message(format!("{}: {name}", program.name));
            of_programs.push(sweep_of(
                program,
                &policies,
                &super::readings::PERCENTS,
                &device(),
                observation,
            )?);
        }
        swept.push(of_programs);
    }
    for (policy, name) in names.into_iter().enumerate() {
        for (at, (sight, observation)) in sights.into_iter().enumerate() {
            let points = swept[at].iter().flatten().map(|counts| counts[policy]);
            let points: Vec<Counts> = points.collect();
            // CLOCK with every reference is the unit for all.
            let clocks = swept[0]
                .iter()
                .flatten()
                .map(|counts| counts[0].io_time.0 as f64);
            let faults = |counts: &Counts| match observation {
                Observation::Full => 0.0,
                _ => counts.observed as f64,
            };
            let mean_of = |of: &dyn Fn(&Counts) -> f64| {
                let points = points.iter().zip(clocks.clone());
                let ratios = points.map(|(counts, clock)| of(counts) / clock);
                mean(&Vec::from_iter(ratios))
            };
            let io = |counts: &Counts| counts.io_time.0 as f64;
            let reads: u64 = points.iter().map(|counts| counts.page_reads).sum();
            let all: f64 = points.iter().map(faults).sum();
            table.row([
                name.to_owned(),
                sight.to_owned(),
                format!("{:.3}", mean_of(&io)),
                format!(
                    "{:.3}",
                    mean_of(&|counts| io(counts) + faults(counts) * RIGHTS_FAULT_US * 1e3)
                ),
                format!("{:.2}", all / reads as f64),
            ]);
        }
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "Over the I/O time of CLOCK that sees every reference; means over programs and sizes below 100 % of the footprint."
                .to_owned(),
            format!("A fault on rights is counted as {RIGHTS_FAULT_US} us."),
        ],
    })
}
