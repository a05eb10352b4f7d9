//! `flashvm reproduce`: the papers' tables and figures, measured again, beside what they say.
//!
//! A paper is a [`Suite`], a list of experiments. An experiment gives a [`report::Report`]: tables,
//! charts and notes. What is common to all is here: CSV and SVG files, an index page, progress, and
//! going on where an interrupted run has stopped.
//!
//! - `report`: what an experiment gives; `chart`: its pictures; `index`: the page around them;
//! - `craw`, `flashvm`, `gordon`: the experiments of these papers.

mod chart;
mod craw;
mod flashvm;
mod gordon;
mod index;
pub(crate) mod report;

use super::refusal::Refusal;
use super::write_out;
use clap::{Args, Subcommand};
use craw::Programs;
use indicatif::{ProgressBar, ProgressStyle};
use report::{Chart, Report};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Changes whenever experiments change what they measure: results of another are measured again.
const EDITION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  flashvm reproduce flashvm
  flashvm reproduce flashvm table-4 figure-7 --out results
  flashvm reproduce gordon
  flashvm reproduce craw --traces longer-traces

Each experiment leaves a CSV file for each table, an SVG file for each picture and a JSON file with all of
it. Open index.html, or read index.md. What is in the folder already is not measured again: an
interrupted run goes on where it was, --again starts anew.";

/// Whose tables and figures.
#[derive(Debug, Subcommand)]
pub(crate) enum ReproduceCommand {
    /// FlashVM: Virtual Memory Management on Flash (Saxena and Swift, USENIX ATC 2010)
    #[command(after_help = EXAMPLES)]
    Flashvm(ReproduceArgs),
    /// CRAW: Page Replacement for Write References in NAND Flash Based Virtual Memory Systems
    #[command(after_help = EXAMPLES)]
    Craw(CrawArgs),
    /// Gordon: General-Purpose Persistence Using Flash Memory (Moore, Hicks and Nettles, 1997)
    #[command(after_help = EXAMPLES)]
    Gordon(ReproduceArgs),
}

/// What of it, and where to.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Tables and figures [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "reproduction")]
    pub(crate) out: PathBuf,
    /// Measure again what is there already
    #[arg(long)]
    pub(crate) again: bool,
    /// List the names
    #[arg(long)]
    pub(crate) list: bool,
}

/// `flashvm reproduce craw`.
#[derive(Debug, Args)]
pub(crate) struct CrawArgs {
    #[command(flatten)]
    common: ReproduceArgs,
    /// Traces to take in place of those that come with the command: all files of a
    /// folder, but for its README.md
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
}

/// The experiments of a paper.
pub(crate) struct Suite {
    /// Its title, for the page.
    title: &'static str,
    /// How it was done, for the page.
    introduction: &'static str,
    experiments: &'static [Experiment],
}

/// One table or figure.
pub(crate) struct Experiment {
    /// As on the command line.
    name: &'static str,
    title: &'static str,
    /// Measures; says how far it is.
    run: fn(&Material, &ProgressBar) -> Result<Report, Refusal>,
}

/// What experiments are made of, beside models.
pub(crate) struct Material {
    programs: Programs,
}

/// What a folder keeps of an experiment.
#[derive(Serialize, Deserialize)]
struct Kept {
    edition: u32,
    /// The folder of traces that was named.
    #[serde(default)]
    traces: Option<PathBuf>,
    report: Report,
}

/// Runs what was asked for.
pub(crate) fn reproduce(command: &ReproduceCommand) -> Result<ExitCode, Refusal> {
    match command {
        ReproduceCommand::Flashvm(args) => run(&flashvm::SUITE, args, None),
        ReproduceCommand::Craw(args) => run(&craw::SUITE, &args.common, args.traces.clone()),
        ReproduceCommand::Gordon(args) => run(&gordon::SUITE, args, None),
    }
}

fn run(suite: &Suite, args: &ReproduceArgs, traces: Option<PathBuf>) -> Result<ExitCode, Refusal> {
    if args.list {
        let lines = suite.experiments.iter();
        let lines = lines.map(|e| format!("{:<14}{}\n", e.name, e.title));
        return write_out(&lines.collect::<String>());
    }
    let chosen = choose(suite, &args.names)?;
    let material = Material {
        programs: Programs::new(traces),
    };
    let traces = material.programs.folder();
    std::fs::create_dir_all(&args.out).map_err(|e| cannot(&args.out, &e))?;
    let bar = ProgressBar::new(chosen.len() as u64).with_style(
        ProgressStyle::with_template("{prefix:14} {msg:44} {bar:20} {pos}/{len}, {elapsed}")
            .expect("a valid template"),
    );
    for experiment in &chosen {
        bar.set_prefix(experiment.name);
        bar.set_message("");
        let file = args.out.join(format!("{}.json", experiment.name));
        if args.again || kept(&file, traces).is_none() {
            let report = (experiment.run)(&material, &bar)?;
            write_report(&args.out, experiment, &report)?;
            // Last, so that what is kept is whole.
            let kept = Kept {
                edition: EDITION,
                traces: traces.map(Path::to_owned),
                report,
            };
            let json = serde_json::to_vec_pretty(&kept).expect("numbers and texts");
            write_whole(&file, &json)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    // The page has all that is there, also of earlier runs.
    let all = suite.experiments.iter().filter_map(|experiment| {
        let kept = kept(&args.out.join(format!("{}.json", experiment.name)), traces)?;
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

fn choose(suite: &Suite, names: &[String]) -> Result<Vec<&'static Experiment>, Refusal> {
    if names.is_empty() {
        return Ok(suite.experiments.iter().collect());
    }
    let find = |name: &String| {
        let found = suite.experiments.iter().find(|e| e.name == name);
        found.ok_or_else(|| {
            let known = Vec::from_iter(suite.experiments.iter().map(|e| e.name)).join(", ");
            Refusal::new(format!(
                "unknown table or figure '{name}': known are {known}"
            ))
        })
    };
    names.iter().map(find).collect()
}

fn kept(file: &Path, traces: Option<&Path>) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    (kept.edition == EDITION && kept.traces.as_deref() == traces).then_some(kept)
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

/// Draws a chart into a file.
pub(crate) fn write_chart(file: &Path, chart: &Chart) -> Result<(), Refusal> {
    let svg = chart::svg(chart).map_err(|e| cannot(file, &e))?;
    write_whole(file, svg.as_bytes())
}

/// Writes a file such that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let file = tempfile::Builder::new()
        .prefix(".flashvm-")
        .permissions(permissions)
        .tempfile_in(folder);
    let mut file = file.map_err(|e| cannot(folder, &e))?;
    file.write_all(bytes).map_err(|e| cannot(path, &e))?;
    file.persist(path).map_err(|e| cannot(path, &e.error))?;
    Ok(())
}

pub(crate) fn cannot(path: &Path, why: &dyn Display) -> Refusal {
    Refusal::new(format!(
        "{}: {why}: name a folder that can be written with --out",
        path.display()
    ))
}
