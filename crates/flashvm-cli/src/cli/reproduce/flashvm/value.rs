//! Table 4: runtime in the same memory, memory for the same runtime.

use super::causes;
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::ALL;
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, percent, seconds};
use flashvm_core::Preset;
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;

/// Steps of the search for the memory in which FlashVM takes as long as DiskVM.
const SEARCH_STEPS: u32 = 8;

pub(super) fn table_4(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "DiskVM s",
        "DiskVM MB",
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
    for (place, program) in programs.all()?.iter().enumerate() {
        let (info, frames) = (program.info, program.frames());
        bar.set_message(format!("{}, DiskVM", info.title));
        let run = |frames, device: &Device, preset: Preset| {
            seconds(alone(program, frames, device, preset.settings()).elapsed)
        };
        let diskvm = run(frames, &disk, Preset::Native);
        bar.set_message(format!("{}, same memory", info.title));
        let flashvm = run(frames, &flash, Preset::Flashvm);
        bar.set_message(format!("{}, same runtime", info.title));
        // In less memory than the recorded run had, the program would return to pages more often than its trace shows.
        let least = (program.trace.origin().ram_bytes >> 12) as u32;
        let is_below = run(least, &flash, Preset::Flashvm) <= diskvm;
        let (steps, mut high) = match is_below {
            true => (0, least),
            false => (SEARCH_STEPS, frames),
        };
        let mut low = least;
        for _ in 0..steps {
            let middle = low.midpoint(high);
            match run(middle, &flash, Preset::Flashvm) > diskvm {
                true => low = middle,
                false => high = middle,
            }
        }
        let (paper_time, paper_memory) = (info.runtime, info.memory);
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
            info.title.to_owned(),
            format!("{diskvm:.1}"),
            format!("{:.1}", f64::from(frames) / 256.0),
            format!("{flashvm:.1}"),
            percent(flashvm, diskvm),
            format!("{paper_time:.0} %"),
            match is_below {
                true => format!("below {}", percent(least.into(), frames.into())),
                false => percent(high.into(), frames.into()),
            },
            format!("{paper_memory:.0} %"),
        ]);
    }
    let names = Vec::from_iter(ALL.iter().map(|info| info.title));
    let chart = Chart {
        name: String::new(),
        title: "FlashVM relative to DiskVM".to_owned(),
        x: Axis::places(&names),
        y: Axis::linear("%"),
        series: series.into(),
    };
    Ok(Report {
        tables: vec![table, causes::table_4(programs, bar)?],
        charts: vec![chart],
        notes: vec![
            "DiskVM is the native preset on the disk model, FlashVM the paper's preset on the Intel SSD's. \
             Memory is the paper's for DiskVM, divided by the trace's scale."
                .to_owned(),
            "The traces were recorded in a quarter of the memory, so less is not tried."
                .to_owned(),
            "The second table says why spin and SpecJBB lie at 37 and 40 %: in Table 4's memory they hardly page. Spin's time on flash is its \
             computing: without it 6 % are left. In 62.5 % of the memory it lies at the paper's 11 % (Figure 1), in half of it at 6.5 %. SpecJBB comes \
             to 11 % in a quarter of the memory; of that the turnarounds between reads and writes are one half: without them it lies at 6 %, as in \
             the paper. So the paper's programs must have paged more: their footprints were larger beside the memory, and its write-back \
             mixed less with its reads."
                .to_owned(),
        ],
    })
}
