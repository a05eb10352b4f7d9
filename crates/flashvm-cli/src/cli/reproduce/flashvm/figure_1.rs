//! Figure 1: execution time by memory, with disk and with flash. The paper draws it as a sketch.

use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, percent, seconds};
use flashvm_core::Preset;
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;

/// Memory in thousandths of the program's in Table 4; a trace shows no less than a quarter.
const SHARES: [u32; 7] = [250, 375, 500, 625, 750, 1000, 1250];

pub(super) fn figure_1(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "memory",
        "MB",
        "disk s",
        "flash s",
        "flash to disk",
        "ΔT s",
        "ΔM MB",
    ]);
    let disk = Device::new(ModelKind::Seagate7200);
    let flash = Device::new(ModelKind::IntelX25m);
    let mut charts = Vec::new();
    for program in programs.all()? {
        let title = program.info.title;
        let mut curves = [Vec::new(), Vec::new()];
        for share in SHARES {
            let frames = (u64::from(program.frames()) * u64::from(share) / 1000) as u32;
            let memory = f64::from(frames) / 256.0;
            bar.set_message(format!("{title} in {memory:.0} MB"));
            let run = |device: &Device, preset: Preset| {
                seconds(alone(program, frames, device, preset.settings()).elapsed)
            };
            let times = [run(&disk, Preset::Native), run(&flash, Preset::Flashvm)];
            for (curve, time) in curves.iter_mut().zip(times) {
                curve.push((memory, time));
            }
        }
        let [on_disk, on_flash] = &curves;
        for (share, (&(memory, disk), &(_, flash))) in
            SHARES.iter().zip(on_disk.iter().zip(on_flash))
        {
            table.row([
                title.to_owned(),
                format!("{:.1} %", f64::from(*share) / 10.0),
                format!("{memory:.0}"),
                format!("{disk:.1}"),
                format!("{flash:.1}"),
                percent(flash, disk),
                format!("{:.1}", disk - flash),
                saved(on_flash, memory, disk),
            ]);
        }
        let [on_disk, on_flash] = curves;
        charts.push(Chart {
            name: program.info.file.to_owned(),
            title: format!("{title}: time by memory"),
            x: Axis::linear("MB of memory"),
            y: Axis::logarithmic("seconds"),
            series: vec![Series::new("disk", on_disk), Series::new("flash", on_flash)],
        });
    }
    Ok(Report {
        tables: vec![table],
        charts,
        notes: vec![
            "The paper's figure is a sketch, not to scale. Here it is measured: disk is Linux on the disk, flash is FlashVM on \
             the Intel SSD. ΔT: the time that flash saves in the same memory; ΔM: the memory that it saves in the same time. \
             \"Over\": a quarter of the memory, the least that a trace shows, is still faster than the disk."
                .to_owned(),
            "As in the sketch, the curves meet where the program fits into memory, and part the more the less memory there is; \
             ΔT grows to the left, as the paper says of programs on the far left."
                .to_owned(),
        ],
    })
}

/// ΔM: the memory that flash needs less than `memory` to take no longer than `time`, between measured sizes.
fn saved(flash: &[(f64, f64)], memory: f64, time: f64) -> String {
    let first = flash.first().expect("sizes were measured");
    if first.0 == memory {
        return String::new();
    }
    if first.1 <= time {
        return format!("over {:.0}", memory - first.0);
    }
    let between = flash.windows(2).find(|pair| pair[1].1 <= time);
    between.map_or(String::new(), |pair| {
        let [(less, slow), (more, fast)] = [pair[0], pair[1]];
        let needed = less + (more - less) * (slow - time) / (slow - fast);
        format!("{:.0}", memory - needed)
    })
}
