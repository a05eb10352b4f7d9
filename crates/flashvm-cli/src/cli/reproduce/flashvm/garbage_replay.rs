//! 5.3.3 as the paper measured it: paging as a block trace, its discards processed, replayed on an aged drive.

use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::recorded::{Recorded, RecordedPrograms};
use crate::cli::reproduce::programs::runs::{flashvm, replay, seconds};
use flashvm_core::{Discard, DiscardKind, Nanos, Sampling, Settings};
use flashvm_sim::device::ERASE_BLOCK_PAGES;
use flashvm_sim::{BlockTrace, Device, ModelKind};
use indicatif::ProgressBar;

/// Consecutive runs of a program: each leaves garbage for the next.
const RUNS: u32 = 4;
/// A merged discard: 100 MB.
const MERGED_PAGES: u32 = 100_000_000 / 4096;
/// The drives of the curve, whether they are aged, and the pauses between requests in those of the trace; without pauses
/// the drive never waits.
const CURVE: [(&str, bool, u64); 3] = [
    ("aged", true, 0),
    ("fresh", false, 0),
    ("aged, pauses 20 times as long", true, 20),
];
/// How much slower Linux with discards is in the paper.
const PAPER: f64 = 12.0;

/// The requests of a program, written and read as blkparse's text. The drive of the capture takes discards at little cost,
/// so that they delay nothing.
fn captured(program: &Recorded) -> BlockTrace {
    let settings = Settings {
        discard: Discard::new(DiscardKind::Native),
        sampling: Sampling::Off,
        zero_sharing: false,
        ..flashvm()
    };
    let (pages, frames) = (program.trace.pages(), program.frames() / 2);
    let device = Device::new(ModelKind::Nvme);
    let mut replay = replay(pages, frames, &device, settings)
        .program(Nanos(0), program.trace.runs(RUNS))
        .keep_requests();
    replay.run();
    let mut text = Vec::new();
    replay.requests().write(&mut text).expect("memory takes it");
    BlockTrace::read(&text[..]).expect("blkparse's text")
}

pub(super) fn garbage(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "drive",
        "discards",
        "commands",
        "MB",
        "s",
        "times off",
        "paper",
    ]);
    let mut curve = Table::new(&[
        "program",
        "drive",
        "clusters freed/s",
        "times off",
        "ms a cluster",
    ]);
    curve.name = "curve".to_owned();
    let mut points = CURVE.map(|(drive, ..)| Series::new(drive, Vec::new()));
    let mut costs = Vec::new();
    for program in programs.all()? {
        let title = program.info.title;
        bar.set_message(format!("{title}, captured"));
        let native = captured(program);
        let off = native.without_discards();
        let merged = native.with_merged_discards(MERGED_PAGES / program.scale());
        let slots = (2 * program.trace.pages()).next_multiple_of(1024);
        let time = |trace: &BlockTrace, aged, stretch| {
            let mut drive = Device::new(ModelKind::Nand);
            drive.nand.aged = aged;
            let mut drive = drive.build(slots, 1).expect("a possible device");
            seconds(trace.replay(&mut drive, stretch))
        };
        let clusters = native.discards().1 as f64 / f64::from(ERASE_BLOCK_PAGES);
        for ((drive, aged, stretch), series) in CURVE.into_iter().zip(&mut points) {
            let mut run = |name: &str, trace: &BlockTrace, before: Option<f64>, paper: &str| {
                bar.set_message(format!("{title}, {drive}, {name}"));
                let took = time(trace, aged, stretch);
                let (commands, pages) = trace.discards();
                table.row([
                    title.to_owned(),
                    drive.to_owned(),
                    name.to_owned(),
                    commands.to_string(),
                    format!("{:.0}", pages as f64 * 4096.0 / 1e6),
                    format!("{took:.1}"),
                    format!("{:.2}", took / before.unwrap_or(took)),
                    paper.to_owned(),
                ]);
                took
            };
            let without = run("off", &off, None, "1");
            let with = run("native", &native, Some(without), "12");
            run("merged", &merged, Some(without), "1.11 to 1.15");
            let (rate, slower) = (clusters / without, with / without);
            let cost = (slower - 1.0) / rate;
            series.points.push((rate, slower));
            if stretch == 0 {
                costs.push(cost);
            }
            curve.row([
                title.to_owned(),
                drive.to_owned(),
                format!("{rate:.1}"),
                format!("{slower:.2}"),
                format!("{:.1}", cost * 1e3),
            ]);
        }
    }
    let cost = costs.iter().sum::<f64>() / costs.len() as f64;
    let rate = (PAPER - 1.0) / cost;
    curve.row([
        "the paper's 12 times".to_owned(),
        String::new(),
        format!("{rate:.1}"),
        format!("{PAPER:.2}"),
        format!("{:.1}, the mean without pauses", cost * 1e3),
    ]);
    for series in &mut points {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut series = Vec::from(points);
    series.push(Series::paper("paper's 12 times", vec![(rate, PAPER)]));
    let chart = Chart {
        name: String::new(),
        title: "Native discards by clusters freed".to_owned(),
        x: Axis::logarithmic("clusters of 128 KiB freed a second, without discards"),
        y: Axis::logarithmic("times as long as without discards"),
        series,
    };
    Ok(Report {
        tables: vec![table, curve],
        charts: vec![chart],
        notes: vec![
            "As the paper did it: each program's paging, four runs in half of its memory without zero sharing, is kept as \
             blkparse's text with a discard of 128 KiB for each cluster that becomes free; the text is read, its discards are left \
             out (off), kept (native) or gathered (merged: 100 MB over the trace's scale in one command, without what is overwritten in \
             the meantime, which is a dummy discard), and all is replayed on flash chips behind a translation layer, without pauses unless the table says so."
                .to_owned(),
            format!(
                "Without pauses native discards cost 42 to 55 ms a cluster, whatever the program: the slowdown is 1 + that times the clusters freed a \
                 second. The paper's 12 times stand where {rate:.0} clusters, {:.0} MB, become free a second. On a fresh drive ImageMagick, \
                 SpecJBB and memcached-store do free that many, and are 11 to 16 times slower; on an aged one the same garbage spreads over more time, as \
                 the drive is slow without discards as well. Pauses between requests hide discards.",
                rate * 0.131_072
            ),
            "Merged discards are 6 to 16 % slower than none on the fresh drive, in the same three programs: the paper's 11 to 15 %. They make the \
             aged drive faster, as the layer no longer copies what is free; so do they in spin and memcached-lookup, which age the fresh one. \
             So the paper's figures are those of a drive that still has clean blocks to \
             write, though it calls it aged: it gained nothing from discards (\"little direct performance benefit\")."
                .to_owned(),
        ],
    })
}
