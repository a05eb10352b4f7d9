//! Table 4: runtime in the same memory, memory for the same runtime.

use super::runs::{SCALE, alone, percent, seconds};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use flashvm_core::Preset;
use flashvm_sim::{Device, ModelKind, WorkloadKind};
use indicatif::ProgressBar;

/// Steps of the search for the memory in which FlashVM takes as long as DiskVM.
const SEARCH_STEPS: u32 = 8;

/// The paper's relative runtime and memory, in percent.
fn paper(kind: WorkloadKind) -> (f64, f64) {
    match kind {
        WorkloadKind::ImageMagick => (31.0, 51.0),
        WorkloadKind::Spin => (11.0, 16.0),
        WorkloadKind::SpecJbb => (6.0, 19.0),
        WorkloadKind::MemcachedStore => (18.0, 60.0),
        WorkloadKind::MemcachedLookup => (23.0, 50.0),
    }
}

pub(super) fn table_4(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "program",
        "DiskVM s",
        "DiskVM MB / 16",
        "FlashVM s",
        "rel. runtime",
        "paper",
        "rel. memory",
        "paper",
    ]);
    let disk = Device::new(ModelKind::Seagate7200);
    let flash = Device::new(ModelKind::IntelX25m);
    let mut series = [
        Series::new("runtime, same memory", Vec::new()),
        Series::paper("paper, runtime", Vec::new()),
        Series::new("memory, same runtime", Vec::new()),
        Series::paper("paper, memory", Vec::new()),
    ];
    for (place, info) in WorkloadKind::ALL.iter().enumerate() {
        let frames = info.kind.frames(SCALE);
        bar.set_message(format!("{}, DiskVM", info.name));
        let run = |frames, device: &Device, preset: Preset| {
            seconds(alone(info.kind, frames, device, preset.settings()).elapsed)
        };
        let diskvm = run(frames, &disk, Preset::Native);
        bar.set_message(format!("{}, same memory", info.name));
        let flashvm = run(frames, &flash, Preset::Flashvm);
        bar.set_message(format!("{}, same runtime", info.name));
        let (mut low, mut high) = (frames / 50, frames);
        for _ in 0..SEARCH_STEPS {
            let middle = low.midpoint(high);
            match run(middle, &flash, Preset::Flashvm) > diskvm {
                true => low = middle,
                false => high = middle,
            }
        }
        let (paper_time, paper_memory) = paper(info.kind);
        let x = place as f64;
        let figures = [
            flashvm * 100.0 / diskvm,
            paper_time,
            f64::from(high) * 100.0 / f64::from(frames),
            paper_memory,
        ];
        for (series, y) in series.iter_mut().zip(figures) {
            series.points.push((x, y));
        }
        table.row([
            info.name.to_owned(),
            format!("{diskvm:.1}"),
            format!("{:.1}", f64::from(frames) / 256.0),
            format!("{flashvm:.1}"),
            percent(flashvm, diskvm),
            format!("{paper_time:.0} %"),
            percent(high.into(), frames.into()),
            format!("{paper_memory:.0} %"),
        ]);
    }
    let names = Vec::from_iter(WorkloadKind::ALL.iter().map(|info| info.name));
    let chart = Chart {
        name: String::new(),
        title: "FlashVM relative to DiskVM".to_owned(),
        x: Axis::places(&names),
        y: Axis::linear("%"),
        series: series.into(),
    };
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "DiskVM is the native preset on the disk model, FlashVM the paper's preset on the Intel SSD's. \
             Memory is the paper's for DiskVM, divided by 16; times are those of models, so compare only ratios."
                .to_owned(),
            "The smallest relative memory tried is 2 %. The models of ImageMagick and memcached have little \
             locality: on flash, less memory slows them down little; the paper's programs reach a cliff."
                .to_owned(),
        ],
    }
}
