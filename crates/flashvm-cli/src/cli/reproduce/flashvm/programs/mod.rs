//! Table 4 with real programs: each runs live, in at most half of the memory that it needs, on models of a disk and of
//! an SSD (`--device-model`).
//!
//! A file per program: how to prepare it, and how to time a run.

mod imagemagick;
mod jvm;
mod memcached;
mod spin;

use crate::cli::report::{Axis, Chart, Report, Series, Table};
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A system of the comparison: name, preset, device model.
type ComparedSystem = (&'static str, &'static str, &'static str);

/// The paper's two systems; Linux of its time on the same SSD; today's settings there.
const SYSTEMS: [ComparedSystem; 4] = [
    ("DiskVM", "native", "seagate-7200"),
    ("Linux on the SSD", "native", "intel-x25m"),
    ("FlashVM", "flashvm", "intel-x25m"),
    ("FlashVM, modern", "modern", "intel-x25m"),
];

/// An error, in one line.
type Failure = String;

/// A real program.
trait Program {
    /// One sentence on its work.
    fn what(&self) -> String;

    /// Its RAM budget.
    fn ram(&self) -> &'static str;

    /// Runs it by a command line that begins with `prefix` (empty: without FlashVM): the time.
    fn run(&self, prefix: &[String]) -> Result<Duration, Failure>;
}

pub(super) fn imagemagick(bar: &ProgressBar) -> Report {
    report("ImageMagick", 31.0, bar, imagemagick::prepare)
}

pub(super) fn spin(bar: &ProgressBar) -> Report {
    report("spin", 11.0, bar, spin::prepare)
}

pub(super) fn jvm(bar: &ProgressBar) -> Report {
    report("a JVM with 16 warehouses", 6.0, bar, jvm::prepare)
}

pub(super) fn memcached_store(bar: &ProgressBar) -> Report {
    let prepare = |folder: &Path| memcached::prepare(folder, memcached::Load::Store);
    report("memcached, store", 18.0, bar, prepare)
}

pub(super) fn memcached_lookup(bar: &ProgressBar) -> Report {
    let prepare = |folder: &Path| memcached::prepare(folder, memcached::Load::Lookup);
    report("memcached, lookup", 23.0, bar, prepare)
}

/// Prepares a program and runs it on every system. `paper`: its runtime under FlashVM in percent of DiskVM's.
fn report<P: Program>(
    name: &str,
    paper: f64,
    bar: &ProgressBar,
    prepare: impl FnOnce(&Path) -> Result<P, Failure>,
) -> Report {
    let mut report = Report::default();
    if let Err(why) = measure(name, paper, bar, prepare, &mut report) {
        let note = format!("Not measured: {why}. Fix that and measure again with --again.");
        report.notes.push(note);
    }
    report
}

fn measure<P: Program>(
    name: &str,
    paper: f64,
    bar: &ProgressBar,
    prepare: impl FnOnce(&Path) -> Result<P, Failure>,
    report: &mut Report,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    let program = prepare(folder.path())?;
    bar.set_message(format!("{name}, in RAM"));
    let in_ram = program.run(&[])?.as_secs_f64();
    let mut table = Table::new(&[
        "system",
        "s",
        "rel. to DiskVM",
        "paper",
        "pages in",
        "pages out",
        "write amplification",
    ]);
    let mut seconds = Series::new("measured", Vec::new());
    let mut diskvm = None;
    for (place, (system, preset, model)) in SYSTEMS.into_iter().enumerate() {
        bar.set_message(format!("{name}, {system}"));
        let stats = folder.path().join("stats.json");
        let prefix = flashvm(program.ram(), preset, model, &stats)?;
        let took = program.run(&prefix)?.as_secs_f64();
        let stats = std::fs::read(&stats).map_err(|e| format!("no statistics: {e}"))?;
        let stats: serde_json::Value =
            serde_json::from_slice(&stats).map_err(|e| format!("statistics: {e}"))?;
        let totals = &stats["totals"];
        let amplification = totals["device_model"]["write_amplification"].as_f64();
        let diskvm = *diskvm.get_or_insert(took);
        table.row([
            format!("{system} ({model})"),
            format!("{took:.1}"),
            format!("{:.0} %", took * 100.0 / diskvm),
            match system {
                "FlashVM" => format!("{paper:.0} %"),
                _ => String::new(),
            },
            totals["pages_in"].to_string(),
            totals["pages_out"].to_string(),
            amplification.map_or(String::new(), |a| format!("{a:.2}")),
        ]);
        seconds.points.push((place as f64, took));
    }
    report.charts.push(Chart {
        name: String::new(),
        title: format!("{name}: {}", program.what()),
        x: Axis::places(&SYSTEMS.map(|(system, _, _)| system)),
        y: Axis::logarithmic("seconds"),
        series: vec![seconds],
    });
    report.tables.push(table);
    report.notes.push(format!(
        "{} In {} of RAM; without a limit it takes {in_ram:.1} s.",
        program.what(),
        program.ram()
    ));
    Ok(())
}

/// The first words of a command line that runs a program on a device model.
fn flashvm(ram: &str, preset: &str, model: &str, stats: &Path) -> Result<Vec<String>, Failure> {
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| format!("{}: not UTF-8", path.display()))
    };
    let own = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let options = [
        "run",
        "--quiet",
        "--ram",
        ram,
        "--flash-size",
        "2G",
        "--preset",
        preset,
    ];
    let mut line = vec![text(&own)?];
    line.extend(options.map(str::to_owned));
    line.extend(["--device-model".to_owned(), model.to_owned()]);
    line.extend(["--stats".to_owned(), text(stats)?, "--".to_owned()]);
    Ok(line)
}

/// A command of the prefix and these words.
fn command<S: AsRef<OsStr>>(prefix: &[String], program: &Path, words: &[S]) -> Command {
    let mut command = match prefix.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs a command to its end; the last line of its standard error is the error.
fn finish(command: &mut Command) -> Result<Duration, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(started.elapsed());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().last().unwrap_or_default();
    Err(format!("{name} ended with {}: {line}", output.status))
}

/// The path of a program.
fn find(name: &str, package: &str) -> Result<PathBuf, Failure> {
    flashvm::program::find(OsStr::new(name))
        .map(|(path, _)| path)
        .map_err(|_| format!("{name} is missing: install {package}"))
}
