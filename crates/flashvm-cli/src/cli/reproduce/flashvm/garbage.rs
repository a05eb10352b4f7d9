//! Figure 7, and the savings of unmanaged flash (4.4).

use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::Name;
use crate::cli::reproduce::programs::recorded::{Recorded, RecordedPrograms};
use crate::cli::reproduce::programs::runs::{flashvm, replay, seconds};
use flashvm_core::{Discard, DiscardKind, Nanos, Sampling, Settings};
use flashvm_sim::replay::Figures;
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;

/// Consecutive runs of a program: each leaves garbage for the next.
const RUNS: u32 = 4;

fn run(program: &Recorded, device: &Device, discard: DiscardKind) -> Figures {
    let settings = Settings {
        discard: Discard::new(discard),
        sampling: Sampling::Off,
        ..flashvm()
    };
    // Half of the memory makes much garbage.
    let (pages, frames) = (program.trace.pages(), program.frames() / 2);
    let program = program.trace.runs(RUNS);
    replay(pages, frames, device, settings)
        .program(Nanos(0), program)
        .run()
}

pub(super) fn figure_7(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let device = Device::new(ModelKind::OczVertex);
    let chosen =
        [Name::ImageMagick, Name::SpecJbb, Name::MemcachedStore].map(|name| programs.get(name));
    let chosen: Vec<_> = chosen.into_iter().collect::<Result<_, _>>()?;
    let systems = [
        (DiscardKind::Off, "1"),
        (DiscardKind::Native, "12"),
        (DiscardKind::Merged, "1.15"),
        (DiscardKind::Dummy, ""),
        (DiscardKind::Auto, "1.11"),
    ];
    let mut table = Table::new(&[
        "program",
        "discards",
        "s",
        "times off",
        "paper",
        "commands",
        "MB",
        "overwritten",
    ]);
    let names = systems.map(|(discard, _)| discard.info().name);
    let mut series = Vec::from(names.map(|name| Series::new(name, Vec::new())));
    for (place, program) in chosen.iter().enumerate() {
        let mut off = None;
        for ((discard, paper), series) in systems.into_iter().zip(&mut series) {
            let name = program.info.title;
            bar.set_message(format!("{name}, {}", discard.info().name));
            let figures = run(program, &device, discard);
            let time = seconds(figures.elapsed);
            let off = *off.get_or_insert(time);
            series.points.push((place as f64, time));
            table.row([
                name.to_owned(),
                discard.info().name.to_owned(),
                format!("{time:.1}"),
                format!("{:.2}", time / off),
                paper.to_owned(),
                figures.counters.discard_commands.to_string(),
                format!(
                    "{:.0}",
                    figures.counters.discard_pages as f64 * 4096.0 / 1e6
                ),
                figures.counters.discards_elided.to_string(),
            ]);
        }
    }
    let chart = Chart {
        name: String::new(),
        title: "Time by discard strategy, OCZ-Vertex".to_owned(),
        x: Axis::places(&Vec::from_iter(
            chosen.iter().map(|program| program.info.title),
        )),
        y: Axis::logarithmic("seconds"),
        series,
    };
    Ok(Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "Four consecutive runs of each program, in half of its memory in Table 4; each frees all its pages \
             at its end. A merged discard gathers 100 MB, or an eighth of the store where that is less. The \
             paper replays block traces; the fourth bar of its figure, merged with adaptive dummy discards, is \
             auto here."
                .to_owned(),
            "Native discards cost 55 ms per freed 128 KiB. The ratio to off depends on how much a program \
             frees in its time."
                .to_owned(),
            "SpecJBB replaces the paper's Spin, which frees hardly any cluster with zero sharing on."
                .to_owned(),
        ],
    })
}

pub(super) fn raw_flash(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "flash",
        "discards",
        "s",
        "write amplification",
        "copied pages",
        "map pages",
        "erases, mean",
        "erases, most",
    ]);
    let program = programs.get(Name::SpecJbb)?;
    for (model, discard) in [
        (ModelKind::Nand, DiscardKind::Off),
        (ModelKind::Nand, DiscardKind::Native),
        (ModelKind::Nand, DiscardKind::Merged),
        (ModelKind::Nand, DiscardKind::Auto),
        (ModelKind::RawNand, DiscardKind::Off),
    ] {
        let name = discard.info().name;
        bar.set_message(format!("{model}, discards {name}"));
        let mut device = Device::new(model);
        device.nand.aged = true;
        let figures = run(program, &device, discard);
        let wear = figures.wear.expect("flash has some");
        table.row([
            model.to_string(),
            name.to_owned(),
            format!("{:.1}", seconds(figures.elapsed)),
            format!("{:.3}", wear.write_amplification()),
            wear.copies.to_string(),
            wear.map_writes.to_string(),
            format!("{:.1}", wear.erase_mean),
            wear.erase_max.to_string(),
        ]);
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "SpecJBB in half of its memory on aged flash chips. On raw-nand the swap map itself cleans, and \
             knows every free page: it sends no discard, writes no map, and copies no free page. Erases include \
             those of the aging."
                .to_owned(),
        ],
    })
}
