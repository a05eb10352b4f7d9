//! Figure 6(c): why deadline is slower than noop on the paper's SSDs, and not here: what may cause it, varied alone, and
//! three causes together that give the paper's loss.

use super::mechanisms::WRITE_RUN;
use crate::cli::refusal::Refusal;
use crate::cli::report::Table;
use crate::cli::reproduce::programs::Name;
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{flashvm, hard_faults, percent, seconds, side_by_side};
use flashvm_core::{CongestionWait, Counters, Nanos, Settings};
use flashvm_sim::scheduler::DeadlineTuning;
use flashvm_sim::{Device, ModelKind, SchedulerKind};
use indicatif::ProgressBar;

/// A case: what is varied, and how.
struct Case {
    varied: &'static str,
    scheduler: fn(&mut DeadlineTuning),
    engine: fn(&mut Settings),
    device: fn(&mut Device),
}

const NOTHING: Case = Case {
    varied: "nothing",
    scheduler: |_| (),
    engine: |_| (),
    device: |_| (),
};

/// Faults wait for frames that writes free, and noop has few turnarounds to save.
const THROTTLED: Case = Case {
    varied: "no read-ahead, runs of 256 writes, whole waits",
    engine: |settings| {
        (settings.readahead, settings.stride) = (1, 0);
        settings.write_run = WRITE_RUN;
        wait_whole(settings);
    },
    ..NOTHING
};

/// Waits of Linux that nothing but their end ends (5.3.1).
fn wait_whole(settings: &mut Settings) {
    settings.congestion_allocator = Nanos(20_000_000);
    settings.congestion_cleaner = Nanos(100_000_000);
    settings.congestion_wait = CongestionWait::Whole;
}

/// The first of [`CASES`] that tune deadline alone.
const SCHEDULERS: usize = 8;

/// Each beside at most one request in the drive.
const CASES: [Case; 19] = [
    NOTHING,
    Case {
        varied: "batches of 1 request",
        scheduler: |tuning| tuning.fifo_batch = 1,
        ..NOTHING
    },
    Case {
        varied: "batches of 128",
        scheduler: |tuning| tuning.fifo_batch = 128,
        ..NOTHING
    },
    Case {
        varied: "writes before reads",
        scheduler: |tuning| tuning.writes_starved = 0,
        ..NOTHING
    },
    Case {
        varied: "16 batches of reads before one of writes",
        scheduler: |tuning| tuning.writes_starved = 16,
        ..NOTHING
    },
    Case {
        varied: "reads and writes expire at once: no sweep",
        scheduler: |tuning| (tuning.read_expire, tuning.write_expire) = (Nanos(0), Nanos(0)),
        ..NOTHING
    },
    Case {
        varied: "writes expire after 20 ms",
        scheduler: |tuning| tuning.write_expire = Nanos(20_000_000),
        ..NOTHING
    },
    Case {
        varied: "no front merges",
        scheduler: |tuning| tuning.front_merges = false,
        ..NOTHING
    },
    Case {
        varied: "runs of 256 writes",
        engine: |settings| settings.write_run = WRITE_RUN,
        ..NOTHING
    },
    Case {
        varied: "no read-ahead",
        engine: |settings| (settings.readahead, settings.stride) = (1, 0),
        ..NOTHING
    },
    Case {
        varied: "no read-ahead, runs of 256 writes",
        engine: |settings| {
            (settings.readahead, settings.stride) = (1, 0);
            settings.write_run = WRITE_RUN;
        },
        ..NOTHING
    },
    Case {
        varied: "waits of 20 and 100 ms that nothing else ends",
        engine: wait_whole,
        ..NOTHING
    },
    Case {
        varied: "no turnaround",
        device: |device| device.turnaround = Some(Nanos(0)),
        ..NOTHING
    },
    Case {
        varied: "at most 4 requests in the drive",
        device: |device| device.depth = Some(4),
        ..NOTHING
    },
    Case {
        varied: "at most 32",
        device: |device| device.depth = None,
        ..NOTHING
    },
    THROTTLED,
    Case {
        varied: "the three, writes before reads",
        scheduler: |tuning| tuning.writes_starved = 0,
        ..THROTTLED
    },
    Case {
        varied: "the three, 16 batches of reads before one of writes",
        scheduler: |tuning| tuning.writes_starved = 16,
        ..THROTTLED
    },
    Case {
        varied: "the three, no turnaround",
        device: |device| device.turnaround = Some(Nanos(0)),
        ..THROTTLED
    },
];

pub(super) fn figure_6c(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Table, Refusal> {
    let mut table = Table::new(&[
        "varied",
        "noop s",
        "deadline s",
        "deadline to noop",
        "paper",
        "faults",
        "pages in",
        "pages out",
        "pages in a row, noop",
        "deadline",
    ]);
    table.name = "deadline".to_owned();
    let program = programs.get(Name::ImageMagick)?;
    let frames = 1024 * 256 / program.scale();
    let mut last_noop = None;
    for (at, case) in CASES.iter().enumerate() {
        let mut device = Device::new(ModelKind::IntelX25m);
        device.depth = Some(1);
        (case.device)(&mut device);
        (case.scheduler)(&mut device.deadline);
        let mut settings = flashvm();
        (case.engine)(&mut settings);
        let mut run = |scheduler| {
            bar.set_message(format!("{scheduler}, {}", case.varied));
            device.scheduler = scheduler;
            side_by_side(program, 4, frames, &device, settings.clone())
        };
        let deadline = run(SchedulerKind::Deadline);
        // What tunes deadline leaves noop as it is.
        let noop = match last_noop.take() {
            Some(noop) if at < SCHEDULERS => noop,
            _ => run(SchedulerKind::Noop),
        };
        let share = |of: fn(&Counters) -> u64| {
            percent(of(&deadline.counters) as f64, of(&noop.counters) as f64)
        };
        let time = [&noop, &deadline].map(|run| seconds(run.elapsed));
        table.row([
            case.varied.to_owned(),
            format!("{:.1}", time[0]),
            format!("{:.1}", time[1]),
            percent(time[1], time[0]),
            "110 %".to_owned(),
            share(hard_faults),
            share(|counters| counters.pages_in),
            share(|counters| counters.pages_out),
            format!("{:.0}, {:.0}", noop.read_run, noop.write_run),
            format!("{:.0}, {:.0}", deadline.read_run, deadline.write_run),
        ]);
        last_noop = Some(noop);
    }
    Ok(table)
}
