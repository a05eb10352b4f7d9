//! Where a result differs from the paper's: the suspected cause, varied alone.

use crate::cli::refusal::Refusal;
use crate::cli::report::Table;
use crate::cli::reproduce::programs::Name;
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{
    alone_with, flashvm, less, percent, points, seconds, side_by_side,
};
use flashvm_core::{Nanos, Preset, Sampling, Settings};
use flashvm_sim::scheduler::IDLE;
use flashvm_sim::{Device, ModelKind, SchedulerKind, Step, Touch};
use indicatif::ProgressBar;

/// Consecutive pages, in the order of their first touches, that hold zeros: a black area.
const AREA: u32 = 256;

/// Zero-page sharing of ImageMagick: what its pages hold, sampling and memory.
pub(super) fn sharing(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Table, Refusal> {
    let mut table = Table::new(&[
        "varied",
        "written without",
        "written with",
        "saved",
        "paper",
        "difference",
    ]);
    table.name = "causes".to_owned();
    let device = Device::new(ModelKind::IntelX25m);
    let program = programs.get(Name::ImageMagick)?;
    let usual = flashvm().sampling;
    let cases = [
        ("nothing", 0, usual, 100),
        ("no sampling", 0, Sampling::Off, 100),
        ("99 % of the memory", 0, usual, 99),
        ("98 % of the memory", 0, usual, 98),
        ("101 % of the memory", 0, usual, 101),
        ("102 % of the memory", 0, usual, 102),
        ("5 % of the pages hold zeros", 5, usual, 100),
        ("10 %", 10, usual, 100),
        ("15 %", 15, usual, 100),
        ("30 %", 30, usual, 100),
    ];
    for (varied, black, sampling, memory) in cases {
        bar.set_message(varied);
        let change = move |step: Step| match step.touch {
            Touch::Write if step.page.0 / AREA % 20 < black / 5 => Step {
                touch: Touch::Clear,
                ..step
            },
            _ => step,
        };
        let [without, with] = [false, true].map(|zero_sharing| {
            let settings = Settings {
                zero_sharing,
                sampling,
                ..flashvm()
            };
            let frames = program.frames() * memory / 100;
            alone_with(program, frames, &device, settings, change)
                .counters
                .pages_out
        });
        table.row([
            varied.to_owned(),
            without.to_string(),
            with.to_string(),
            less(with as f64, without as f64),
            "up to 15 %".to_owned(),
            points((1.0 - with as f64 / without as f64) * 100.0, 15.0),
        ]);
    }
    Ok(table)
}

/// Table 4 for spin and SpecJBB: memory, computing.
pub(super) fn table_4(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Table, Refusal> {
    let mut table = Table::new(&[
        "program",
        "varied",
        "DiskVM s",
        "computing s",
        "FlashVM s",
        "rel. runtime",
        "paper",
        "difference",
    ]);
    table.name = "causes".to_owned();
    let disk = Device::new(ModelKind::Seagate7200);
    let cases = [
        ("nothing", 1000, 1, None),
        ("no computing", 1000, 0, None),
        ("62.5 % of the memory", 625, 1, None),
        ("50 %", 500, 1, None),
        ("25 %", 250, 1, None),
        ("25 %, no computing", 250, 0, None),
        ("25 %, no turnaround", 250, 1, Some(Nanos(0))),
    ];
    for name in [Name::Spin, Name::SpecJbb] {
        let program = programs.get(name)?;
        for (varied, memory, work, turnaround) in cases {
            let mut flash = Device::new(ModelKind::IntelX25m);
            flash.turnaround = turnaround;
            bar.set_message(format!("{}, {varied}", program.info.title));
            let frames = program.frames() * memory / 1000;
            let run = |device: &Device, settings: Settings| {
                let change = move |step: Step| Step {
                    work: Nanos(step.work.0 * work),
                    ..step
                };
                seconds(alone_with(program, frames, device, settings, change).elapsed)
            };
            let diskvm = run(&disk, Preset::Native.settings());
            let flashvm = run(&flash, flashvm());
            table.row([
                program.info.title.to_owned(),
                varied.to_owned(),
                format!("{diskvm:.1}"),
                format!("{:.1}", seconds(program.trace.work()) * work as f64),
                format!("{flashvm:.2}"),
                percent(flashvm, diskvm),
                format!("{:.0} %", program.info.runtime),
                points(flashvm * 100.0 / diskvm, program.info.runtime),
            ]);
        }
    }
    Ok(table)
}

/// Figure 6(c) on the SSDs: requests in the device, turnarounds between reads and writes, idling.
pub(super) fn figure_6c(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Table, Refusal> {
    let mut table = Table::new(&[
        "device",
        "varied",
        "noop s",
        "deadline",
        "cfq",
        "anticipatory",
        "pages in, noop",
        "pages in, anticipatory",
        "paper",
    ]);
    table.name = "causes".to_owned();
    let program = programs.get(Name::ImageMagick)?;
    let (ibm, intel) = (ModelKind::IbmSsd, ModelKind::IntelX25m);
    let cases = [
        (ibm, "at most 1 request in the device", 1, None, IDLE),
        (ibm, "at most 1, no turnaround", 1, Some(Nanos(0)), IDLE),
        (intel, "at most 4 requests in the device", 4, None, IDLE),
        (intel, "at most 1", 1, None, IDLE),
        (intel, "at most 1, no idling", 1, None, Nanos(0)),
        (intel, "at most 1, no turnaround", 1, Some(Nanos(0)), IDLE),
    ];
    for (model, varied, depth, turnaround, idle) in cases {
        let runs = SchedulerKind::ALL.iter().map(|info| {
            bar.set_message(format!("{} on {model}, {varied}", info.name));
            let mut device = Device::new(model);
            (device.scheduler, device.depth) = (info.kind, Some(depth));
            (device.turnaround, device.idle) = (turnaround, idle);
            let frames = 1024 * 256 / program.scale();
            side_by_side(program, 4, frames, &device, flashvm())
        });
        let runs = Vec::from_iter(runs);
        let (noop, others) = runs.split_first().expect("noop is the first");
        let time = seconds(noop.elapsed);
        let mut row = vec![model.to_string(), varied.to_owned(), format!("{time:.1}")];
        row.extend(others.iter().map(|run| percent(seconds(run.elapsed), time)));
        let anticipatory = others.last().expect("there are four");
        row.extend([noop, anticipatory].map(|run| run.counters.pages_in.to_string()));
        row.push("up to 110 %, 135 %, 135 %".to_owned());
        table.rows.push(row);
    }
    Ok(table)
}
