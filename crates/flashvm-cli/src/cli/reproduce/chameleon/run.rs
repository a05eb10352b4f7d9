//! A run of one of the paper's programs under one system.

use super::super::super::refusal::Refusal;
use crate::cli::doctor;
use crate::cli::options::FaultMode;
use crate::cli::scratch::Scratch;
use crate::cli::sys;
use indicatif::ProgressBar;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, exit};

/// The programs, beside this command or in `../lib/flashvm`.
const WORKLOAD: &str = "flashvm-workload";

/// A system that pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Chameleon,
    SsdAlloc,
    LogSwap,
    FlashVm,
}

impl System {
    pub(super) const ALL: [Self; 4] = [
        Self::Chameleon,
        Self::SsdAlloc,
        Self::LogSwap,
        Self::FlashVm,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chameleon => "Chameleon",
            Self::SsdAlloc => "SSDAlloc",
            Self::LogSwap => "Log-Swap",
            Self::FlashVm => "FlashVM",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Chameleon => &["--granularity", "512"],
            Self::SsdAlloc => &["--peer", "ssdalloc:25"],
            Self::LogSwap => &["--peer", "log-swap"],
            // Small pages are not compressed either.
            Self::FlashVm => &["--granularity", "4096", "--compress", "off"],
        }
    }
}

/// The result of a program's runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// The median of the program's own figure.
    pub(super) value: f64,
    /// The statistics of the last round.
    stats: Value,
    /// Those of a run that builds the program's data, if there was one.
    built: Value,
}

impl Measured {
    /// A figure in the statistics' totals, by its path.
    pub(super) fn stat(&self, path: &[&str]) -> f64 {
        total(&self.stats, path)
    }

    /// The same without what building the program's data took.
    pub(super) fn since_build(&self, path: &[&str]) -> f64 {
        (self.stat(path) - total(&self.built, path)).max(0.0)
    }
}

fn total(stats: &Value, path: &[&str]) -> f64 {
    let value = path
        .iter()
        .fold(&stats["totals"], |value, key| &value[*key]);
    value.as_f64().unwrap_or(0.0)
}

fn workload() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let places = [folder.to_owned(), folder.join("../lib/flashvm")];
    let mut places = places.iter().map(|place| place.join(WORKLOAD));
    places.find(|path| path.is_file())
}

/// Checks that the experiments can run here.
pub(in super::super) fn check() -> Result<(), Refusal> {
    doctor::choose_delivery(FaultMode::Inline, false)?;
    workload().map(|_| ()).ok_or_else(|| {
        Refusal::new(format!(
            "{WORKLOAD} is neither beside this command nor in ../lib/flashvm: build or install it again"
        ))
    })
}

/// Runs a program under each system in turn, `rounds` times.
pub(super) fn measure(
    bar: &ProgressBar,
    systems: &[System],
    ram: &str,
    words: &[&str],
    figure: &str,
    rounds: usize,
) -> Vec<Measured> {
    let mut values = vec![Vec::new(); systems.len()];
    let mut measured = vec![Measured::default(); systems.len()];
    for round in 1..=rounds {
        for (at, system) in systems.iter().enumerate() {
            bar.set_message(format!(
                "{} {ram} {} {round}/{rounds}",
                words[0],
                system.name()
            ));
            // A failure would repeat: there is nothing to report.
            let (value, stats) = once(*system, ram, words, figure).unwrap_or_else(|why| {
                eprintln!(
                    "flashvm: {} under {}: {why}",
                    words.join(" "),
                    system.name()
                );
                exit(2)
            });
            values[at].push(value);
            measured[at].stats = stats;
        }
    }
    for (measured, mut values) in measured.iter_mut().zip(values) {
        values.sort_by(f64::total_cmp);
        measured.value = values[values.len() / 2];
    }
    measured
}

/// Runs a program under all systems in turn, `rounds` times, and once with one operation: the last word is their number.
pub(super) fn measure_and_build(
    bar: &ProgressBar,
    ram: &str,
    words: &[&str],
    figure: &str,
    rounds: usize,
) -> Vec<Measured> {
    let mut measured = measure(bar, &System::ALL, ram, words, figure, rounds);
    let (_, build) = words.split_last().expect("a program");
    let build = [build, &["1"]].concat();
    let built = measure(bar, &System::ALL, ram, &build, figure, 1);
    for (measured, built) in measured.iter_mut().zip(built) {
        measured.built = built.stats;
    }
    measured
}

fn once(system: System, ram: &str, words: &[&str], figure: &str) -> Result<(f64, Value), String> {
    let program = workload().ok_or("the program is missing")?;
    let folder = Scratch::new().map_err(|e| format!("no temporary folder: {e}"))?;
    let stats = folder.path().join("stats.json");
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    sys::die_with_this_process(&mut command);
    let output = command
        .args([
            "run",
            "--quiet",
            "--fault",
            "inline",
            "--flash-size",
            "1G",
            "--ram",
            ram,
        ])
        .args(system.options())
        .arg("--stats")
        .arg(&stats)
        .arg("--")
        .arg(program)
        .args(words)
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let line = errors.lines().last().unwrap_or_default();
        return Err(format!("{}: {line}", output.status));
    }
    let value = text.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.next() == Some(figure)).then(|| fields.next()?.parse().ok())?
    });
    let stats = std::fs::read(&stats).map_err(|e| e.to_string())?;
    let stats = serde_json::from_slice(&stats).map_err(|e| e.to_string())?;
    Ok((value.unwrap_or(0.0), stats))
}
