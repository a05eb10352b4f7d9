//! The results of 5.3.2: page sampling and page sharing.

use super::runs::{SCALE, alone, flashvm, less, percent, seconds};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use flashvm_core::{Sampling, Settings};
use flashvm_sim::{Device, ModelKind, WorkloadKind};
use indicatif::ProgressBar;

pub(super) fn sampling(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "program",
        "sampling",
        "pages written",
        "fewer",
        "faults",
        "s",
        "time",
        "paper",
    ]);
    let device = Device::new(ModelKind::IntelX25m);
    for kind in [WorkloadKind::ImageMagick, WorkloadKind::SpecJbb] {
        let mut before = None;
        for sampling in [
            Sampling::Off,
            Sampling::Uniform(100),
            Sampling::Uniform(20),
            Sampling::Adaptive(20),
        ] {
            let name = kind.info().name;
            bar.set_message(format!("{name}, {sampling}"));
            let settings = Settings {
                sampling,
                ..flashvm()
            };
            let figures = alone(kind, kind.frames(SCALE), &device, settings);
            let (written, time) = (figures.counters.pages_out as f64, seconds(figures.elapsed));
            let (written_off, time_off) = *before.get_or_insert((written, time));
            let paper = match (kind, sampling) {
                (WorkloadKind::ImageMagick, Sampling::Uniform(100)) => {
                    "12 % fewer, 5 % more faults, 107 %"
                }
                (WorkloadKind::ImageMagick, Sampling::Adaptive(_)) => "14 % fewer, 100 %",
                _ => "",
            };
            table.row([
                name.to_owned(),
                sampling.to_string(),
                format!("{written:.0}"),
                less(written, written_off),
                (figures.counters.faults_major + figures.counters.faults_waited).to_string(),
                format!("{time:.2}"),
                percent(time, time_off),
                paper.to_owned(),
            ]);
        }
    }
    Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "A skipped page returns to the head of the inactive list, so one page in N is delayed by one pass \
             over that list. This saves a write only if the page is written again or zapped before then. The model \
             of ImageMagick writes every page once and keeps it, so it saves little; SpecJBB rewrites its pages."
                .to_owned(),
            "Skipping 1 % of the dirty pages cannot alone save 12 % of the writes, as in the paper; it does not \
             name another change."
                .to_owned(),
        ],
    }
}

pub(super) fn sharing(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "program",
        "written without",
        "written with",
        "saved",
        "time",
        "paper",
    ]);
    let device = Device::new(ModelKind::IntelX25m);
    let mut points = Vec::new();
    for (place, (kind, paper)) in [
        (WorkloadKind::ImageMagick, "up to 15 %"),
        (WorkloadKind::Spin, "up to 93 %"),
        (WorkloadKind::MemcachedStore, "1 %"),
    ]
    .into_iter()
    .enumerate()
    {
        let [without, with] = [false, true].map(|zero_sharing| {
            bar.set_message(format!("{}, zero sharing {zero_sharing}", kind.info().name));
            let settings = Settings {
                zero_sharing,
                ..flashvm()
            };
            alone(kind, kind.frames(SCALE), &device, settings)
        });
        let (before, now) = (without.counters.pages_out, with.counters.pages_out);
        points.push((place as f64, (1.0 - now as f64 / before as f64) * 100.0));
        table.row([
            kind.info().name.to_owned(),
            before.to_string(),
            now.to_string(),
            less(now as f64, before as f64),
            percent(seconds(with.elapsed), seconds(without.elapsed)),
            paper.to_owned(),
        ]);
    }
    let chart = Chart {
        name: String::new(),
        title: "Page writes saved by zero-page sharing".to_owned(),
        x: Axis::places(&["ImageMagick", "Spin", "memcached-store"]),
        y: Axis::linear("%"),
        series: vec![
            Series::new("measured", points),
            Series::paper("paper", vec![(0.0, 15.0), (1.0, 93.0), (2.0, 1.0)]),
        ],
    };
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "The shares of zero pages are inputs of the models: ImageMagick's is the paper's; Spin clears all of \
             its memory and uses a part."
                .to_owned(),
        ],
    }
}
