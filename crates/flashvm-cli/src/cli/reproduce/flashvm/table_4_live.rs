//! Table 4 with real programs: each runs live, in its memory of the table, on models of a disk and of an SSD; then in ever
//! less memory, until FlashVM on the SSD takes as long as Linux on the disk.

use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::live::{Live, Run};
use crate::cli::reproduce::programs::runs::percent;
use crate::cli::reproduce::programs::{ALL, Failure, Info};
use indicatif::ProgressBar;
use std::time::Duration;

/// The paper's sizes are divided by this: the disk model takes as long as a disk.
const SCALE: u32 = 16;
const SCALE_QUICK: u32 = 64;
/// Steps of the search for the memory in which FlashVM takes as long as DiskVM.
const SEARCH_STEPS: u32 = 5;
const SEARCH_STEPS_QUICK: u32 = 2;
/// The least memory of `flashvm run`.
const LEAST_KIB: u64 = 4096;

/// A system of the comparison: name, preset, device model.
type ComparedSystem = (&'static str, &'static str, &'static str);

const DISK_VM: ComparedSystem = ("DiskVM", "native", "seagate-7200");
const FLASH_VM: ComparedSystem = ("FlashVM", "flashvm", "intel-x25m");
/// The paper's two systems; between them Linux of its time on the same SSD, then today's settings there.
const SYSTEMS: [ComparedSystem; 4] = [
    DISK_VM,
    ("Linux on the SSD", "native", "intel-x25m"),
    FLASH_VM,
    ("FlashVM, modern", "modern", "intel-x25m"),
];

/// Runs all programs.
pub(super) fn table_4(is_quick: bool, bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "program",
        "RAM MB",
        "system",
        "device",
        "s",
        "rel. to DiskVM",
        "paper",
        "faults",
        "pages in",
        "pages out",
    ]);
    table.name = "systems".to_owned();
    let mut memory = Table::new(&[
        "program",
        "DiskVM s",
        "DiskVM MB",
        "FlashVM s",
        "rel. runtime",
        "paper",
        "FlashVM MB, same runtime",
        "its s",
        "rel. memory",
        "paper",
    ]);
    let mut series = [
        Series::new("runtime, same memory", Vec::new()),
        Series::paper("paper, runtime", Vec::new()),
        Series::new("memory, same runtime", Vec::new()),
        Series::paper("paper, memory", Vec::new()),
    ];
    let mut notes = Vec::new();
    for (place, info) in ALL.iter().enumerate() {
        let measured = match measure(info, is_quick, bar) {
            Ok(measured) => measured,
            Err(why) => {
                notes.push(format!(
                    "Not measured: {why}. Fix that and measure again with --again."
                ));
                continue;
            }
        };
        let mb = |kib: u64| kib as f64 / 1024.0;
        let diskvm = measured.of(DISK_VM).seconds;
        for ((system, _, model), run) in SYSTEMS.into_iter().zip(measured.runs) {
            table.row([
                info.title.to_owned(),
                format!("{:.0}", mb(measured.ram_kib)),
                system.to_owned(),
                model.to_owned(),
                format!("{:.1}", run.seconds),
                percent(run.seconds, diskvm),
                match system == FLASH_VM.0 {
                    true => format!("{:.0} %", info.runtime),
                    false => String::new(),
                },
                run.faults.to_string(),
                run.pages_in.to_string(),
                run.pages_out.to_string(),
            ]);
        }
        let flashvm = measured.of(FLASH_VM).seconds;
        let (kib, at) = measured.same_runtime;
        let share = kib as f64 * 100.0 / measured.ram_kib as f64;
        let figures = [flashvm * 100.0 / diskvm, info.runtime, share, info.memory];
        for (series, y) in series.iter_mut().zip(figures) {
            series.points.push((place as f64, y));
        }
        memory.row([
            info.title.to_owned(),
            format!("{diskvm:.1}"),
            format!("{:.1}", mb(measured.ram_kib)),
            format!("{flashvm:.1}"),
            percent(flashvm, diskvm),
            format!("{:.0} %", info.runtime),
            format!("{:.1}", mb(kib)),
            format!("{at:.1}"),
            match kib <= LEAST_KIB {
                true => format!("at most {share:.1} %"),
                false => format!("{share:.1} %"),
            },
            format!("{:.0} %", info.memory),
        ]);
        notes.push(format!("{}: {}", info.title, measured.what));
    }
    let names = Vec::from_iter(ALL.iter().map(|info| info.title));
    let chart = Chart {
        name: String::new(),
        title: "FlashVM relative to DiskVM, live".to_owned(),
        x: Axis::places(&names),
        y: Axis::linear("%"),
        series: series.into(),
    };
    Report {
        tables: vec![memory, table],
        charts: vec![chart],
        notes,
    }
}

/// The runs of a program.
struct Measured {
    what: String,
    ram_kib: u64,
    /// One for each of [`SYSTEMS`].
    runs: [Run; SYSTEMS.len()],
    /// The least memory found in which FlashVM takes at most DiskVM's time, in KiB, and its time there, in seconds.
    same_runtime: (u64, f64),
}

impl Measured {
    fn of(&self, system: ComparedSystem) -> Run {
        let at = SYSTEMS.iter().position(|one| *one == system);
        self.runs[at.expect("it is one of them")]
    }
}

fn measure(info: &Info, is_quick: bool, bar: &ProgressBar) -> Result<Measured, Failure> {
    let (scale, steps) = match is_quick {
        true => (SCALE_QUICK, SEARCH_STEPS_QUICK),
        false => (SCALE, SEARCH_STEPS),
    };
    let live = Live::prepare(info, scale)?;
    let ram_kib = u64::from(info.frames(scale)) * 4;
    let preset = |name: &str| ["--preset".to_owned(), name.to_owned()];
    let mut runs = [Run::default(); SYSTEMS.len()];
    for ((system, settings, model), run) in SYSTEMS.into_iter().zip(&mut runs) {
        bar.set_message(format!("{}, {system}", info.title));
        *run = live.run(ram_kib, model, &preset(settings))?;
    }
    let mut measured = Measured {
        what: live.program.what(),
        ram_kib,
        runs,
        same_runtime: (ram_kib, 0.0),
    };
    measured.same_runtime.1 = measured.of(FLASH_VM).seconds;
    let (_, settings, model) = FLASH_VM;
    let diskvm = Duration::from_secs_f64(measured.of(DISK_VM).seconds);
    let mut low = LEAST_KIB;
    for step in 1..=steps {
        let kib = if step == 1 {
            LEAST_KIB
        } else {
            low.midpoint(measured.same_runtime.0)
        };
        bar.set_message(format!("{}, {:.1} MB", info.title, kib as f64 / 1024.0));
        match live.run_within(kib, model, &preset(settings), diskvm)? {
            Some(run) if run.seconds <= diskvm.as_secs_f64() => {
                measured.same_runtime = (kib, run.seconds);
            }
            _ => low = kib,
        }
        if measured.same_runtime.0 == LEAST_KIB {
            break;
        }
    }
    Ok(measured)
}
