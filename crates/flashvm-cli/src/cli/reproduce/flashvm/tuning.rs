//! Figures 6(a), 6(b) and 6(c): pre-cleaning, clusters, schedulers.

use super::mechanisms::WRITE_RUN;
use super::{causes, deadline};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::Name;
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, flashvm, seconds, side_by_side};
use flashvm_core::Settings;
use flashvm_sim::{Device, ModelKind, SchedulerKind};
use indicatif::ProgressBar;

const PROGRAMS: [Name; 3] = [Name::ImageMagick, Name::Spin, Name::MemcachedStore];

fn sweep(
    programs: &RecordedPrograms,
    bar: &ProgressBar,
    what: &str,
    values: &[u32],
    settings: impl Fn(u32) -> Settings,
) -> Result<(Table, Chart), Refusal> {
    let device = Device::new(ModelKind::IntelX25m);
    let mut table = Table::new(&[what, "ImageMagick s", "Spin s", "memcached-store s"]);
    let programs = PROGRAMS.map(|name| programs.get(name));
    let programs: Vec<_> = programs.into_iter().collect::<Result<_, _>>()?;
    let series = programs.iter();
    let mut series = Vec::from_iter(series.map(|p| Series::new(p.info.title, Vec::new())));
    for &value in values {
        let mut row = vec![value.to_string()];
        for (program, series) in programs.iter().zip(&mut series) {
            bar.set_message(format!("{what} {value}, {}", program.info.title));
            let frames = program.frames();
            let time = seconds(alone(program, frames, &device, settings(value)).elapsed);
            series.points.push((f64::from(value), time));
            row.push(format!("{time:.2}"));
        }
        table.rows.push(row);
    }
    let chart = Chart {
        name: String::new(),
        title: format!("Time by {what}, Intel SSD"),
        x: Axis::logarithmic(what),
        y: Axis::linear("seconds"),
        series,
    };
    Ok((table, chart))
}

pub(super) fn figure_6a(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let values = [2, 4, 8, 16, 32, 64, 128, 256];
    let swept = |write_run| {
        sweep(programs, bar, "pre-cleaned pages", &values, |preclean| {
            Settings {
                preclean,
                write_run,
                ..flashvm()
            }
        })
    };
    let (table, chart) = swept(flashvm().write_run)?;
    let (mut runs, _) = swept(WRITE_RUN)?;
    runs.name = "runs".to_owned();
    Ok(Report {
        tables: vec![table, runs],
        charts: vec![chart],
        notes: vec![
            "Paper: slow at two pages, due to frequent scans of the list; no gain beyond 32.".to_owned(),
            "Scanning is not charged in the replay; it would not show. The replay runs the live engine, and all its work, scans and searches for \
             slots included, takes 0.04 s of a processor of today for ImageMagick with two pages, 0.03 s with 32: 0.3 % of the time. The \
             difference here is the device's, between small and large writes."
                .to_owned(),
            "The second table is with runs of 256 writes (`--write-run`), which a batch of 256 pages is without. Then the batch hardly matters: \
             what makes few pages slow, here as in the paper, are writes that take turns with reads."
                .to_owned(),
        ],
    })
}

pub(super) fn figure_6b(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let values = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let (table, chart) = sweep(programs, bar, "cluster pages", &values, |cluster_pages| {
        Settings {
            cluster_pages,
            ..flashvm()
        }
    })?;
    Ok(Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "Pre-cleaning stays at 32 pages. Paper: overhead at two pages; stable from 32 pages on, the size of an erase block. Here two pages cost \
             nothing: the processor time of a run is 0.03 s with clusters of 2, 32 and 1,024 pages alike. For 5 % more time at two pages, each of ImageMagick's 22,770 searches for a cluster would have to \
             take 20 us, so the paper's overhead is likely that of its kernel's search (not tried there)."
                .to_owned(),
        ],
    })
}

pub(super) fn figure_6c(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let models = [
        ModelKind::Seagate7200,
        ModelKind::IbmSsd,
        ModelKind::IntelX25m,
    ];
    let mut table = Table::new(&["scheduler", "seagate-7200 s", "ibm-ssd s", "intel-x25m s"]);
    let mut series = Vec::from(models.map(|m| Series::new(m.info().name, Vec::new())));
    for (place, info) in SchedulerKind::ALL.iter().enumerate() {
        let mut row = vec![info.name.to_owned()];
        for (model, series) in models.into_iter().zip(&mut series) {
            bar.set_message(format!("{} on {model}", info.name));
            let mut device = Device::new(model);
            device.scheduler = info.kind;
            let program = programs.get(Name::ImageMagick)?;
            let frames = 1024 * 256 / program.scale();
            let time = seconds(side_by_side(program, 4, frames, &device, flashvm()).elapsed);
            series.points.push((place as f64, time));
            row.push(format!("{time:.1}"));
        }
        table.rows.push(row);
    }
    let names = Vec::from_iter(SchedulerKind::ALL.iter().map(|info| info.name));
    let chart = Chart {
        name: String::new(),
        title: "Four instances of ImageMagick, the last one's end".to_owned(),
        x: Axis::places(&names),
        y: Axis::logarithmic("seconds"),
        series,
    };
    Ok(Report {
        tables: vec![
            table,
            causes::figure_6c(programs, bar)?,
            deadline::figure_6c(programs, bar)?,
        ],
        charts: vec![chart],
        notes: vec![
            "Paper: on the disk noop is worst and deadline best; on the SSDs noop is best, by up to 35 % against \
             CFQ and anticipatory and 10 % against deadline. A read belongs to the process whose fault it is, and \
             writes that no fault caused to the pager. On the disk noop is worst here too, by a fifth; the other three \
             are within 6 % of each other. The schedulers alone, with four processes and bursts of writes, rank as in the paper \
             (tests/devices.rs of flashvm-sim)."
                .to_owned(),
            "On the SSDs no scheduler matters because the drive takes 32 requests at once, and four programs have fewer: nothing waits in \
             front of it. With one request in the drive, and nothing else changed, the idling schedulers lose on the Intel SSD: anticipatory \
             34 %, the paper's 35 %; CFQ more. Without idling that loss is gone (paper: 22 % faster, \"but still worse than \
             NOOP\"); anticipatory then wins, as its order of programs brings in a third of the pages. The paper's result needs requests that \
             wait in front of the drive, in spite of command queuing."
                .to_owned(),
            "Deadline stays better than noop in each case of the second table: it serves faults before writes. A part of that is turnarounds saved (85 % with, \
             90 % without them). On the IBM SSD anticipatory wins because a change of direction costs it 4.65 ms, more than its idling."
                .to_owned(),
            "The third table varies on the Intel SSD, with at most one request in the drive, what may make deadline lose 10 % in the paper: its batches, \
             starved writes, expiry, merges, then what the engine sends and how the drive takes it. No single one gives it. Deadline gains here \
             because it turns around less often, and the more the longer its batches are (75 % with 128 requests, 92 % with one)."
                .to_owned(),
            "Three together give the paper's loss. Where the writes come in runs as long as the paper's (230 pages in a row) and nothing is \
             read ahead, noop turns around as rarely, and 2 % are left of the gain. Where in addition the engine waits as Linux does, up to \
             100 ms whatever the drive does, deadline loses 8 %: it holds writes back behind reads, faults wait for the frames that these writes \
             free, and 15 % more pages have to be read again. That this is the cause shows in deadline's own setting: with writes before reads \
             nothing is lost, with 16 batches of reads before one of writes 17 %. Without turnarounds it loses 9 %."
                .to_owned(),
        ],
    })
}
