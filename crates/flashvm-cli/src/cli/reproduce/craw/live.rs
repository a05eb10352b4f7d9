//! CRAW in the live pager: real programs on a model of the paper's flash, and the same programs replayed in the simulator.

use super::programs::{device, mean, spec};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::programs::live::{Case, LONG, Live, Run};
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, seconds};
use crate::cli::reproduce::programs::{Failure, Info, Name};
use flashvm_core::policy::Costs;
use flashvm_core::prefetch::PrefetcherKind;
use flashvm_core::{Compression, Nanos, Preset, Settings};
use flashvm_sim::ModelKind;
use indicatif::ProgressBar;

/// CLOCK is first: the others' figures are relative to it.
const POLICIES: [&str; 9] = [
    "clock",
    "car",
    "cfclock",
    "craw",
    "craw(bits=set)",
    "craw-a",
    "craw-c",
    "craw-c(bits=set)",
    "wage",
];
/// The FlashVM paper's inputs and memory are divided by this in live runs.
const SCALE: u32 = 64;
/// Memory, in permille of Table 4's there.
const MEMORY: u32 = 750;
/// Live runs of each policy, which take turns: the medians are shown. Fewer, if they have taken [`LONG`].
const ROUNDS: usize = 3;

/// The runs of a program, one for each of [`POLICIES`].
struct Compared {
    live: Vec<Run>,
    replayed: Vec<Run>,
}

/// Each policy, live and replayed.
pub(super) fn live(bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut by_program = Table::new(&[
        "program",
        "policy",
        "RAM MB",
        "pages in",
        "pages out",
        "faults on rights",
        "I/O s",
        "of CLOCK's",
        "s",
        "of CLOCK's",
        "replayed: pages in",
        "pages out",
        "I/O of CLOCK's",
    ]);
    by_program.name = "programs".to_owned();
    let mut notes = Vec::new();
    let mut all = Vec::new();
    let recorded = RecordedPrograms::new(None);
    let all_but_spin = recorded.all()?.iter();
    for program in all_but_spin.filter(|program| program.info.name != Name::Spin) {
        let info = program.info;
        let ram_kib = u64::from(info.frames(SCALE) * MEMORY / 1000) * 4;
        let live = match measure(info, ram_kib, bar) {
            Ok(live) => live,
            Err(why) => {
                notes.push(format!(
                    "Not measured: {why}. Fix that and measure again with --again."
                ));
                continue;
            }
        };
        let replayed = POLICIES.map(|policy| {
            bar.set_message(format!("{}, {policy}, replayed", info.title));
            let frames = program.frames() * MEMORY / 1000;
            let figures = alone(program, frames, &device(), settings(policy));
            Run::of(seconds(figures.elapsed), &figures.counters)
        });
        let compared = Compared {
            live,
            replayed: replayed.into(),
        };
        for (at, policy) in POLICIES.into_iter().enumerate() {
            let (live, replayed) = (compared.live[at], compared.replayed[at]);
            by_program.row([
                info.title.to_owned(),
                policy.to_owned(),
                format!("{:.1}", ram_kib as f64 / 1024.0),
                live.pages_in.to_string(),
                live.pages_out.to_string(),
                live.on_rights.to_string(),
                format!("{:.2}", seconds(io_time(&live))),
                format!("{:.3}", over_clock(&compared.live, at, io)),
                format!("{:.2}", live.seconds),
                format!("{:.3}", over_clock(&compared.live, at, |run| run.seconds)),
                replayed.pages_in.to_string(),
                replayed.pages_out.to_string(),
                format!("{:.3}", over_clock(&compared.replayed, at, io)),
            ]);
        }
        all.push(compared);
    }
    notes.push(format!(
        "The FlashVM paper's programs in {} % of their memory in its Table 4, both divided by {SCALE}, on slc-nand; without Spin, a round of \
         which takes 13 minutes. Medians of up to {ROUNDS} runs, policies in turn: fewer where these take more than {} s. I/O: the paper's \
         times of the pages in and out. Without prefetching and compression. Replayed: the built-in traces of the same programs, at their own \
         scale, on the same model.",
        MEMORY / 10,
        LONG.as_secs()
    ));
    Ok(Report {
        tables: vec![means(&all), by_program],
        charts: Vec::new(),
        notes,
    })
}

/// The mean over the programs of each policy's figures.
fn means(all: &[Compared]) -> Table {
    let mut table = Table::new(&[
        "policy",
        "live: I/O time",
        "whole time",
        "faults on rights a page read",
        "replayed: I/O time",
    ]);
    if all.is_empty() {
        return table;
    }
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let mean_of = |of: &dyn Fn(&Compared) -> f64| mean(&Vec::from_iter(all.iter().map(of)));
        table.row([
            policy.to_owned(),
            format!("{:.3}", mean_of(&|one| over_clock(&one.live, at, io))),
            format!(
                "{:.3}",
                mean_of(&|one| over_clock(&one.live, at, |run| run.seconds))
            ),
            format!(
                "{:.2}",
                mean_of(&|one| one.live[at].on_rights as f64 / one.live[at].pages_in as f64)
            ),
            format!("{:.3}", mean_of(&|one| over_clock(&one.replayed, at, io))),
        ]);
    }
    table
}

/// A figure of the policy at a place, over CLOCK's.
fn over_clock(runs: &[Run], at: usize, of: impl Fn(&Run) -> f64) -> f64 {
    of(&runs[at]) / of(&runs[0])
}

/// The paper's times of the pages in and out.
fn io_time(run: &Run) -> Nanos {
    let Costs { read, write } = Costs::NAND;
    Nanos(run.pages_in * read.0 + run.pages_out * write.0)
}

fn io(run: &Run) -> f64 {
    io_time(run).0 as f64
}

/// The settings of both, live and replayed: nothing is brought in ahead or compressed, so that replacement alone decides what is read
/// and written.
fn settings(policy: &str) -> Settings {
    Settings {
        policy: spec(policy),
        prefetcher: PrefetcherKind::Off,
        compress: Compression::Off,
        ..Preset::Modern.settings()
    }
}

fn measure(info: &Info, ram_kib: u64, bar: &ProgressBar) -> Result<Vec<Run>, Failure> {
    let cases = POLICIES.map(|policy| {
        let options = [
            "--policy",
            policy,
            "--prefetcher",
            "off",
            "--compress",
            "off",
        ];
        Case {
            name: policy.to_owned(),
            model: ModelKind::SlcNand.to_string(),
            options: options.map(str::to_owned).into(),
        }
    });
    let progress = |text| bar.set_message(format!("{}, {text}", info.title));
    Live::prepare(info, SCALE)?.in_turn(ram_kib, &cases, ROUNDS, progress)
}
