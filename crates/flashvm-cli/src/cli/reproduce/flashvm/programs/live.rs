//! Table 4 with real programs: each runs live, in its memory of the table, on models of a disk and of an SSD
//! (`--device-model`).

use super::{Failure, Info, Name, flashvm, text};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use indicatif::ProgressBar;
use std::path::Path;

/// The paper's sizes are divided by this: the disk model takes as long as a disk.
const SCALE: u32 = 16;

/// A system of the comparison: name, preset, device model.
type ComparedSystem = (&'static str, &'static str, &'static str);

/// The paper's two systems; Linux of its time on the same SSD; today's settings there.
const SYSTEMS: [ComparedSystem; 4] = [
    ("DiskVM", "native", "seagate-7200"),
    ("Linux on the SSD", "native", "intel-x25m"),
    ("FlashVM", "flashvm", "intel-x25m"),
    ("FlashVM, modern", "modern", "intel-x25m"),
];

/// Prepares a program and runs it on every system.
pub(in super::super) fn table_4(name: Name, bar: &ProgressBar) -> Report {
    let mut report = Report::default();
    if let Err(why) = measure(name.info(), bar, &mut report) {
        let note = format!("Not measured: {why}. Fix that and measure again with --again.");
        report.notes.push(note);
    }
    report
}

fn measure(info: &Info, bar: &ProgressBar, report: &mut Report) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    let program = info.prepare(folder.path(), SCALE)?;
    let name = info.title;
    bar.set_message(format!("{name}, in RAM"));
    let in_ram = program.run(&[])?.as_secs_f64();
    let ram = format!("{}K", info.frames(SCALE) * 4);
    let mut table = Table::new(&[
        "system",
        "s",
        "rel. to DiskVM",
        "paper",
        "pages in",
        "pages out",
        "write amplification",
    ]);
    let mut seconds = Series::new("measured", Vec::new());
    let mut diskvm = None;
    for (place, (system, preset, model)) in SYSTEMS.into_iter().enumerate() {
        bar.set_message(format!("{name}, {system}"));
        let stats = folder.path().join("stats.json");
        let took = program
            .run(&prefix(&ram, preset, model, &stats)?)?
            .as_secs_f64();
        let stats = std::fs::read(&stats).map_err(|e| format!("no statistics: {e}"))?;
        let stats: serde_json::Value =
            serde_json::from_slice(&stats).map_err(|e| format!("statistics: {e}"))?;
        let totals = &stats["totals"];
        let amplification = totals["device_model"]["write_amplification"].as_f64();
        let diskvm = *diskvm.get_or_insert(took);
        table.row([
            format!("{system} ({model})"),
            format!("{took:.1}"),
            format!("{:.0} %", took * 100.0 / diskvm),
            match system {
                "FlashVM" => format!("{:.0} %", info.runtime),
                _ => String::new(),
            },
            totals["pages_in"].to_string(),
            totals["pages_out"].to_string(),
            amplification.map_or(String::new(), |a| format!("{a:.2}")),
        ]);
        seconds.points.push((place as f64, took));
    }
    report.charts.push(Chart {
        name: String::new(),
        title: format!("{name}: {}", program.what()),
        x: Axis::places(&SYSTEMS.map(|(system, _, _)| system)),
        y: Axis::logarithmic("seconds"),
        series: vec![seconds],
    });
    report.tables.push(table);
    report.notes.push(format!(
        "{} In {:.0} MiB of RAM; without a limit it takes {in_ram:.1} s.",
        program.what(),
        f64::from(info.frames(SCALE)) / 256.0
    ));
    Ok(())
}

/// The first words of a command line that runs a program on a device model.
fn prefix(ram: &str, preset: &str, model: &str, stats: &Path) -> Result<Vec<String>, Failure> {
    flashvm(&[
        "--ram",
        ram,
        "--flash-size",
        "2G",
        "--preset",
        preset,
        "--device-model",
        model,
        "--stats",
        &text(stats)?,
    ])
}
