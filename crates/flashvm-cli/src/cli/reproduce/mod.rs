//! `flashvm reproduce`: the papers' tables and figures, measured again, beside the papers' values.
//!
//! A paper is a [`Suite`], a list of experiments. An experiment gives a [`Report`]: tables, charts and notes. This module
//! has the common parts: an index page, progress, and resuming after an interruption.
//!
//! - `index`: the page around the experiments' results;
//! - `programs`: real programs, their traces, and runs and replays on device models;
//! - `flashvm`, `craw`, `chameleon`, `gordon`: the experiments of these papers.

mod chameleon;
mod craw;
mod flashvm;
mod gordon;
mod index;
mod programs;

use self::flashvm::RecordArgs;
use super::refusal::Refusal;
use super::report::{Report, cannot, write_chart, write_whole};
use super::write_out;
use clap::{Args, Subcommand};
use craw::Programs;
use indicatif::{ProgressBar, ProgressStyle};
use programs::recorded::RecordedPrograms;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Changes whenever experiments change: results of another edition are measured again.
const EDITION: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  flashvm reproduce flashvm
  flashvm reproduce flashvm --models-only
  flashvm reproduce flashvm table-4 figure-7 --out results
  flashvm reproduce chameleon figure-5
  flashvm reproduce gordon
  flashvm reproduce craw --traces longer-traces

Each experiment writes a CSV file per table, an SVG file per chart and a JSON file with all results. Open
index.html, or read index.md. Results in the folder are kept: an interrupted run continues, --again
repeats all.";

const RECORD_EXAMPLES: &str = "\
Examples:
  flashvm reproduce record
  flashvm reproduce record --scale 1 --out full-size
  flashvm reproduce flashvm table-4 --traces full-size

It needs ImageMagick, spin and a C compiler, a JDK, and memcached. At a scale of 4 it takes minutes.";

/// The paper.
#[derive(Debug, Subcommand)]
pub(crate) enum ReproduceCommand {
    /// FlashVM: Virtual Memory Management on Flash (Saxena and Swift, USENIX ATC 2010)
    #[command(after_help = EXAMPLES)]
    Flashvm(FlashvmArgs),
    /// CRAW: Page Replacement for Write References in NAND Flash Based Virtual Memory Systems
    #[command(after_help = EXAMPLES)]
    Craw(TracedArgs),
    /// Chameleon: Better Flash Access via Shape-shifting Virtual Memory Pages (Badam, Pai and Nellans, TRIOS
    /// 2013): live runs, twenty minutes
    #[command(after_help = EXAMPLES)]
    Chameleon(ReproduceArgs),
    /// Gordon: General-Purpose Persistence Using Flash Memory (Moore, Hicks and Nettles, 1997)
    #[command(after_help = EXAMPLES)]
    Gordon(ReproduceArgs),
    /// Record the FlashVM paper's programs, for flashvm reproduce flashvm --traces
    #[command(after_help = RECORD_EXAMPLES)]
    Record(RecordArgs),
}

/// The experiments, and the folder of their results.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Tables and figures [default: all but those that --list says take long]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "reproduction")]
    pub(crate) out: PathBuf,
    /// Repeat measurements that the folder has
    #[arg(long)]
    pub(crate) again: bool,
    /// Leave out experiments that run real programs and take minutes
    #[arg(long)]
    pub(crate) models_only: bool,
    /// List the names
    #[arg(long)]
    pub(crate) list: bool,
}

/// The experiments of a paper that stand on traces.
#[derive(Debug, Args)]
pub(crate) struct TracedArgs {
    #[command(flatten)]
    common: ReproduceArgs,
    /// A folder of traces in place of the built-in ones: for craw all its files but README.md, for flashvm those of
    /// flashvm reproduce record
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
}

/// The experiments of the FlashVM paper.
#[derive(Debug, Args)]
pub(crate) struct FlashvmArgs {
    #[command(flatten)]
    traced: TracedArgs,
    /// Fewer and smaller live runs, for rough figures
    #[arg(long)]
    quick: bool,
}

/// The experiments of a paper.
pub(crate) struct Suite {
    /// The title of the page.
    title: &'static str,
    /// The method, for the page.
    introduction: &'static str,
    experiments: &'static [Experiment],
    /// Experiments that run real programs, and take minutes.
    programs: &'static [Experiment],
    /// Experiments that take longer: they run only if they are named.
    named: &'static [Experiment],
}

impl Suite {
    fn all(&self) -> impl Iterator<Item = &'static Experiment> + use<> {
        self.experiments
            .iter()
            .chain(self.programs)
            .chain(self.named)
    }
}

/// One table or figure.
pub(crate) struct Experiment {
    /// Its name on the command line.
    name: &'static str,
    title: &'static str,
    /// Measures, and shows progress.
    run: fn(&Material, &ProgressBar) -> Result<Report, Refusal>,
}

/// What experiments share.
pub(crate) struct Material {
    programs: Programs,
    recorded: RecordedPrograms,
    /// Few and small live runs will do.
    is_quick: bool,
}

/// The stored results of an experiment.
#[derive(Serialize, Deserialize)]
struct Kept {
    edition: u32,
    #[serde(flatten)]
    inputs: Inputs,
    report: Report,
}

/// What results depend on besides the edition: others are measured again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Inputs {
    /// The folder of traces, if one was named.
    #[serde(default)]
    traces: Option<PathBuf>,
    #[serde(default)]
    is_quick: bool,
}

/// Runs the command.
pub(crate) fn reproduce(command: &ReproduceCommand) -> Result<ExitCode, Refusal> {
    match command {
        ReproduceCommand::Flashvm(FlashvmArgs { traced, quick }) => {
            run(&flashvm::SUITE, &traced.common, traced.inputs(*quick))
        }
        ReproduceCommand::Craw(args) => run(&craw::SUITE, &args.common, args.inputs(false)),
        ReproduceCommand::Chameleon(args) => {
            if !args.list {
                chameleon::check()?;
            }
            run(&chameleon::SUITE, args, Inputs::default())
        }
        ReproduceCommand::Gordon(args) => run(&gordon::SUITE, args, Inputs::default()),
        ReproduceCommand::Record(args) => flashvm::record(args),
    }
}

impl TracedArgs {
    fn inputs(&self, is_quick: bool) -> Inputs {
        Inputs {
            traces: self.traces.clone(),
            is_quick,
        }
    }
}

fn run(suite: &Suite, args: &ReproduceArgs, inputs: Inputs) -> Result<ExitCode, Refusal> {
    if args.list {
        let unless_named = |e: &Experiment| match suite.named.iter().any(|one| one.name == e.name) {
            true => " (takes long: only if it is named)",
            false => "",
        };
        let lines = suite
            .all()
            .map(|e| format!("{:<26}{}{}\n", e.name, e.title, unless_named(e)));
        return write_out(&lines.collect::<String>());
    }
    let chosen = choose(suite, args)?;
    let material = Material {
        programs: Programs::new(inputs.traces.clone()),
        recorded: RecordedPrograms::new(inputs.traces.clone()),
        is_quick: inputs.is_quick,
    };
    std::fs::create_dir_all(&args.out).map_err(|e| cannot(&args.out, &e))?;
    let bar = progress_of(chosen.len());
    for experiment in &chosen {
        bar.set_prefix(experiment.name);
        bar.set_message("");
        let file = args.out.join(format!("{}.json", experiment.name));
        if args.again || kept(&file, &inputs).is_none() {
            let report = (experiment.run)(&material, &bar)?;
            write_report(&args.out, experiment, &report)?;
            // Written last, so that a kept experiment is complete.
            let kept = Kept {
                edition: EDITION,
                inputs: inputs.clone(),
                report,
            };
            let json = serde_json::to_vec_pretty(&kept).expect("numbers and texts");
            write_whole(&file, &json)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    // The page has all kept results, of earlier runs too.
    let all = suite.all().filter_map(|experiment| {
        let kept = kept(&args.out.join(format!("{}.json", experiment.name)), &inputs)?;
        Some((experiment, kept.report))
    });
    let all: Vec<_> = all.collect();
    write_whole(
        &args.out.join("index.md"),
        index::markdown(suite, &all).as_bytes(),
    )?;
    write_whole(
        &args.out.join("index.html"),
        index::html(suite, &all).as_bytes(),
    )?;
    let mut text = String::new();
    for (experiment, report) in &all {
        if chosen.iter().any(|chosen| chosen.name == experiment.name) {
            text.push_str(&report.text(experiment.title));
        }
    }
    text.push_str(&format!("{}\n", args.out.join("index.html").display()));
    write_out(&text)
}

/// A bar over so many steps, each with a name and a message.
fn progress_of(steps: usize) -> ProgressBar {
    ProgressBar::new(steps as u64).with_style(
        ProgressStyle::with_template("{prefix:24} {msg:44} {bar:20} {pos}/{len}, {elapsed}")
            .expect("a valid template"),
    )
}

fn choose(suite: &Suite, args: &ReproduceArgs) -> Result<Vec<&'static Experiment>, Refusal> {
    if args.names.is_empty() && args.models_only {
        return Ok(suite.experiments.iter().collect());
    }
    if args.names.is_empty() {
        return Ok(suite.experiments.iter().chain(suite.programs).collect());
    }
    let find = |name: &String| {
        let found = suite.all().find(|e| e.name == name);
        found.ok_or_else(|| {
            let known = Vec::from_iter(suite.all().map(|e| e.name)).join(", ");
            Refusal::new(format!(
                "unknown table or figure '{name}': known are {known}"
            ))
        })
    };
    args.names.iter().map(find).collect()
}

fn kept(file: &Path, inputs: &Inputs) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    (kept.edition == EDITION && kept.inputs == *inputs).then_some(kept)
}

fn write_report(out: &Path, experiment: &Experiment, report: &Report) -> Result<(), Refusal> {
    for table in &report.tables {
        let file = out.join(table.file(experiment.name));
        write_whole(&file, table.csv().as_bytes())?;
    }
    for chart in &report.charts {
        let file = out.join(chart.file(experiment.name));
        write_chart(&file, chart)?;
    }
    Ok(())
}
