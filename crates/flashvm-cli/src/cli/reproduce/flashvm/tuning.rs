//! Figures 6(a), 6(b) and 6(c): pre-cleaning, clusters, schedulers.

use super::runs::{SCALE, alone, flashvm, seconds, side_by_side};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use flashvm_core::Settings;
use flashvm_sim::{Device, ModelKind, SchedulerKind, WorkloadKind};
use indicatif::ProgressBar;

const PROGRAMS: [WorkloadKind; 3] = [
    WorkloadKind::ImageMagick,
    WorkloadKind::Spin,
    WorkloadKind::MemcachedStore,
];

fn sweep(
    bar: &ProgressBar,
    what: &str,
    values: &[u32],
    settings: impl Fn(u32) -> Settings,
) -> (Table, Chart) {
    let device = Device::new(ModelKind::IntelX25m);
    let mut table = Table::new(&[what, "ImageMagick s", "Spin s", "memcached-store s"]);
    let mut series = Vec::from(PROGRAMS.map(|p| Series::new(p.info().name, Vec::new())));
    for &value in values {
        let mut row = vec![value.to_string()];
        for (program, series) in PROGRAMS.into_iter().zip(&mut series) {
            bar.set_message(format!("{what} {value}, {}", program.info().name));
            let frames = program.frames(SCALE);
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
    (table, chart)
}

pub(super) fn figure_6a(bar: &ProgressBar) -> Report {
    let values = [2, 4, 8, 16, 32, 64, 128, 256];
    let (table, chart) = sweep(bar, "pre-cleaned pages", &values, |preclean| Settings {
        preclean,
        ..flashvm()
    });
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "Paper: slow at two pages, due to frequent scans of the list; no gain beyond 32.".to_owned(),
            "Scanning takes no time in the replay: the difference here is the device's, between small and large \
             writes."
                .to_owned(),
        ],
    }
}

pub(super) fn figure_6b(bar: &ProgressBar) -> Report {
    let values = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let (table, chart) = sweep(bar, "cluster pages", &values, |cluster_pages| Settings {
        cluster_pages,
        ..flashvm()
    });
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "Pre-cleaning stays at 32 pages. Paper: overhead at two pages; stable from 32 pages on, the size \
             of an erase block."
                .to_owned(),
        ],
    }
}

pub(super) fn figure_6c(bar: &ProgressBar) -> Report {
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
            let kind = WorkloadKind::ImageMagick;
            let frames = 1024 * 256 / SCALE;
            let time = seconds(side_by_side(kind, 4, frames, &device, flashvm()).elapsed);
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
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "Paper: on the disk noop is worst and deadline best; on the SSDs noop is best, by up to 35 % against \
             CFQ and anticipatory and 10 % against deadline. Not reproduced on the disk: requests come from one \
             pager, so CFQ and anticipatory see a single process, and with few writes in flight, deadline has \
             little to delay behind the reads. The schedulers alone, with four processes and bursts of writes, \
             do rank as in the paper (tests/devices.rs of flashvm-sim)."
                .to_owned(),
        ],
    }
}
