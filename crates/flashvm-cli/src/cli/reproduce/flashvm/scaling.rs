//! Figures 5(b) and 5(c): several programs in one memory.

use super::mechanisms::WRITE_RUN;
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::Name;
use crate::cli::reproduce::programs::recorded::{Recorded, RecordedPrograms};
use crate::cli::reproduce::programs::runs::{flashvm, hard_faults, replay, seconds, side_by_side};
use flashvm_core::{Engine, LocalClusters, Nanos, PageId, PageState, Preset, Settings};
use flashvm_sim::replay::{Figures, Program};
use flashvm_sim::{Device, ModelKind, Step, Touch};
use indicatif::ProgressBar;

pub(super) fn figure_5b(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let models = [
        ModelKind::Seagate7200,
        ModelKind::IbmSsd,
        ModelKind::IntelX25m,
    ];
    let mut table = Table::new(&[
        "instances",
        "seagate-7200 faults/s",
        "ibm-ssd faults/s",
        "intel-x25m faults/s",
    ]);
    let mut series = Vec::from(models.map(|m| Series::new(m.info().name, Vec::new())));
    let program = programs.get(Name::ImageMagick)?;
    let mut runs = Vec::new();
    for instances in INSTANCES {
        let mut row = vec![instances.to_string()];
        for (model, series) in models.into_iter().zip(&mut series) {
            bar.set_message(format!("{instances} instances on {model}"));
            let device = Device::new(model);
            let figures = in_a_gigabyte(program, instances, &device, flashvm());
            let rate = hard_faults_a_second(&figures);
            series.points.push((f64::from(instances), rate));
            row.push(format!("{rate:.0}"));
            if instances == 1 {
                runs.push(format!(
                    "{model}: {:.0} read, {:.0} written",
                    figures.read_run, figures.write_run
                ));
            }
        }
        table.rows.push(row);
    }
    let chart = Chart {
        name: String::new(),
        title: format!("Instances of ImageMagick in 1 GB / {}", program.scale()),
        x: Axis::linear("instances"),
        y: Axis::logarithmic("page faults served a second"),
        series,
    };
    Ok(Report {
        tables: vec![table, causes_5b(program, bar)],
        charts: vec![chart],
        notes: vec![
            "Paper: disk and IBM SSD degrade from three instances on; the Intel SSD rises to 3,000 faults/s at \
             five instances and drops beyond, where writes approach its bandwidth. One instance of this \
             ImageMagick nearly fits into the 1 GB."
                .to_owned(),
            format!(
                "Mean number of consecutive pages in one direction, one instance: {}. Paper (5.2.1): 138 to \
                 169 requests to read and 170 to 230 to write, of a page each. The engine writes back as soon as a batch is whole, so its \
                 runs are shorter.",
                runs.join("; ")
            ),
            "The second table varies one thing. With one request in the drive at a time the Intel SSD has the paper's curve: it rises to 2,568 \
             faults/s at five instances and drops beyond. So this figure, too, is that of a drive without command queuing in effect, as is Figure \
             6(c). With runs of writes it peaks at five with queuing, too. What makes both drop is read-ahead that the instances evict \
             from each other unused: without it the rate rises up to eight instances."
                .to_owned(),
            "The IBM SSD's rate rises to five or six instances in the paper's preset, and drops beyond; none of these makes it drop from three on. Not \
             tried: slots that lie scattered, where this drive writes 66 times a second."
                .to_owned(),
        ],
    })
}

const INSTANCES: [u32; 7] = [1, 2, 3, 4, 5, 6, 8];

/// Instances of a program in the paper's 1 GB, at its trace's scale.
fn in_a_gigabyte(
    program: &Recorded,
    instances: u32,
    device: &Device,
    settings: Settings,
) -> Figures {
    let frames = 1024 * 256 / program.scale();
    side_by_side(program, instances, frames, device, settings)
}

fn hard_faults_a_second(figures: &Figures) -> f64 {
    hard_faults(&figures.counters) as f64 / seconds(figures.elapsed)
}

/// What may give the curves of Figure 5(b) on the SSDs.
fn causes_5b(program: &Recorded, bar: &ProgressBar) -> Table {
    let mut table = Table::new(&["device", "varied"]);
    let numbers = INSTANCES.iter().map(|n| format!("{n} instances"));
    table.columns.extend(numbers);
    table.name = "causes".to_owned();
    let cases: [(&str, u32, bool, Option<usize>); 6] = [
        ("nothing", 0, true, None),
        ("runs of 256 writes", WRITE_RUN, true, None),
        ("no read-ahead", 0, false, None),
        ("at most 1 request in the drive", 0, true, Some(1)),
        ("at most 1, runs of 256 writes", WRITE_RUN, true, Some(1)),
        ("at most 1, no read-ahead", 0, false, Some(1)),
    ];
    for model in [ModelKind::IbmSsd, ModelKind::IntelX25m] {
        for (varied, write_run, reads_ahead, depth) in cases {
            let mut device = Device::new(model);
            device.depth = depth;
            let mut settings = Settings {
                write_run,
                ..flashvm()
            };
            if !reads_ahead {
                (settings.readahead, settings.stride) = (1, 0);
            }
            let mut row = vec![model.to_string(), varied.to_owned()];
            for instances in INSTANCES {
                bar.set_message(format!("{model}, {varied}, {instances} instances"));
                let figures = in_a_gigabyte(program, instances, &device, settings.clone());
                row.push(format!("{:.0}", hard_faults_a_second(&figures)));
            }
            table.rows.push(row);
        }
    }
    table
}

const MIB: u32 = 256;
const FIRST: u32 = 512 * MIB;
const SECOND: u32 = 1536 * MIB;
const SWITCH_S: u64 = 10;
const RESUME_S: u64 = 120;
const END_S: u64 = 240;

/// Pages of a range that are in RAM.
fn resident(engine: &Engine<LocalClusters>, first: u32, count: u32) -> u32 {
    let away = |page| {
        let state = engine.page_state(PageId(page));
        matches!(state, PageState::Absent | PageState::Stored)
    };
    (first..first + count)
        .map(|page| u32::from(!away(page)))
        .sum()
}

/// Touches the pages of a range in a cycle, for `time`.
fn rounds(first: u32, count: u32, work: Nanos, time: Nanos) -> impl Iterator<Item = Step> {
    let steps = time.0 / work.0;
    (0..steps).map(move |i| Step {
        page: PageId(first + (i % u64::from(count)) as u32),
        touch: if i % 3 == 0 {
            Touch::Write
        } else {
            Touch::Read
        },
        work,
    })
}

pub(super) fn figure_5c(bar: &ProgressBar) -> Report {
    let s = |seconds: u64| Nanos(seconds * 1_000_000_000);
    let mut table = Table::new(&["device", "faults to resume", "seconds to resume", "paper"]);
    let mut charts = Vec::new();
    for (model, paper) in [
        (ModelKind::Seagate7200, "over 16,000 faults, 11.5 s"),
        (ModelKind::IntelX25m, "over 16,000 faults, 3.5 s"),
    ] {
        bar.set_message(format!("two processes on {model}"));
        let preset = match model {
            ModelKind::Seagate7200 => Preset::Native,
            _ => Preset::Flashvm,
        };
        let device = Device::new(model);
        let mut replay = replay(FIRST + SECOND, 1024 * MIB, &device, preset.settings());
        let idle = Step {
            page: PageId(0),
            touch: Touch::Read,
            work: s(RESUME_S - SWITCH_S),
        };
        let resume = (0..FIRST).map(|page| Step {
            page: PageId(page),
            touch: Touch::Read,
            work: Nanos(1_000),
        });
        let first = rounds(0, FIRST, Nanos(20_000), s(SWITCH_S))
            .chain([idle])
            .chain(resume);
        let second = rounds(FIRST, SECOND, Nanos(20_000), s(END_S));
        let second: Program<'_> = Box::new(second);
        let pages = (PageId(FIRST), SECOND);
        replay = replay.program(Nanos(0), Box::new(first)).program_until(
            s(SWITCH_S),
            s(RESUME_S),
            pages,
            second,
        );
        let mut points = [Vec::new(), Vec::new()];
        let mut faults_before = 0;
        replay.run_until(s(END_S), |at, engine| {
            let x = seconds(at);
            let mb = |first, count| f64::from(resident(engine, first, count)) / f64::from(MIB);
            points[0].push((x, mb(0, FIRST)));
            points[1].push((x, mb(FIRST, SECOND)));
            if at <= s(RESUME_S) {
                faults_before = hard_faults(engine.counters());
            }
        });
        let figures = replay.figures();
        let faults = hard_faults(&figures.counters) - faults_before;
        let took = seconds(figures.ended[0]) - RESUME_S as f64;
        table.row([
            model.to_string(),
            faults.to_string(),
            format!("{took:.1}"),
            paper.to_owned(),
        ]);
        let [one, two] = points;
        charts.push(Chart {
            name: model.to_string(),
            title: format!("Resident memory of two processes in 1 GB, {model}"),
            x: Axis::linear("seconds"),
            y: Axis::linear("MB in RAM"),
            series: vec![Series::new("512 MB", one), Series::new("1.5 GB", two)],
        });
    }
    Report {
        tables: vec![table],
        charts,
        notes: vec![
            "At the paper's own size. The first process touches 512 MB for 10 s, then the second 1.5 GB; at 120 \
             s the second ends, and the first resumes and reads all of its pages once, in order. The disk has \
             the native preset, the SSD the paper's. The paper does not describe its processes' accesses; 16,000 \
             faults are 512 MB in steps of eight pages. FlashVM's fault reads two stride pages beyond its eight, so there are 14,980."
                .to_owned(),

        ],
    }
}
