//! A real program that runs live on a device model (`--device-model`), and what its runs count.

use super::runs::hard_faults;
use super::{FOR_EVER, Failure, Info, Program, flashvm, text};
use crate::cli::scratch::Scratch;
use flashvm_core::Counters;
use std::time::{Duration, Instant};

/// A run: its time, and what it counted.
#[derive(Clone, Copy, Default)]
pub(in crate::cli::reproduce) struct Run {
    pub(in crate::cli::reproduce) seconds: f64,
    /// Hard faults: see [`hard_faults`].
    pub(in crate::cli::reproduce) faults: u64,
    /// Faults that only change access rights: second chances and stores.
    pub(in crate::cli::reproduce) on_rights: u64,
    pub(in crate::cli::reproduce) pages_in: u64,
    pub(in crate::cli::reproduce) pages_out: u64,
}

impl Run {
    pub(in crate::cli::reproduce) fn of(seconds: f64, counters: &Counters) -> Self {
        Self {
            seconds,
            faults: hard_faults(counters),
            on_rights: counters.faults_soft + counters.faults_write_protect,
            pages_in: counters.pages_in,
            pages_out: counters.pages_out,
        }
    }

    /// The median of each figure.
    fn median(runs: &[Self]) -> Self {
        let count = |of: fn(&Self) -> u64| median(runs.iter().map(of).collect());
        Self {
            seconds: median(runs.iter().map(|run| run.seconds).collect()),
            faults: count(|run| run.faults),
            on_rights: count(|run| run.on_rights),
            pages_in: count(|run| run.pages_in),
            pages_out: count(|run| run.pages_out),
        }
    }
}

/// Runs in turn are not begun again once they have taken this long.
pub(in crate::cli::reproduce) const LONG: Duration = Duration::from_secs(120);

/// A device model and options of `flashvm run`, with a name for the progress.
pub(in crate::cli::reproduce) struct Case {
    pub(in crate::cli::reproduce) name: String,
    pub(in crate::cli::reproduce) model: String,
    pub(in crate::cli::reproduce) options: Vec<String>,
}

/// A prepared program.
pub(in crate::cli::reproduce) struct Live {
    pub(in crate::cli::reproduce) program: Box<dyn Program>,
    folder: Scratch,
}

impl Live {
    /// With the paper's input divided by `scale`.
    pub(in crate::cli::reproduce) fn prepare(info: &Info, scale: u32) -> Result<Self, Failure> {
        let folder = Scratch::new().map_err(|e| format!("no temporary folder: {e}"))?;
        let program = info.prepare(folder.path(), scale)?;
        Ok(Self { program, folder })
    }

    /// The medians of up to `rounds` runs of each case, which take turns: what else the machine does disturbs all alike. At
    /// least one round; no further one after [`LONG`].
    pub(in crate::cli::reproduce) fn in_turn(
        &self,
        ram_kib: u64,
        cases: &[Case],
        rounds: usize,
        progress: impl Fn(String),
    ) -> Result<Vec<Run>, Failure> {
        let mut runs = vec![Vec::new(); cases.len()];
        let begun = Instant::now();
        for round in 1..=rounds {
            if round > 1 && begun.elapsed() > LONG {
                break;
            }
            for (case, runs) in cases.iter().zip(&mut runs) {
                progress(format!("{}, {round} of {rounds}", case.name));
                runs.push(self.run(ram_kib, &case.model, &case.options)?);
            }
        }
        Ok(runs.iter().map(|runs| Run::median(runs)).collect())
    }

    /// Runs it in `ram_kib` of RAM on a device model, with these options.
    pub(in crate::cli::reproduce) fn run(
        &self,
        ram_kib: u64,
        model: &str,
        options: &[String],
    ) -> Result<Run, Failure> {
        let run = self.run_within(ram_kib, model, options, FOR_EVER)?;
        Ok(run.expect("nothing takes longer"))
    }

    /// As [`Self::run`]; `None`: it took longer than `within`.
    pub(in crate::cli::reproduce) fn run_within(
        &self,
        ram_kib: u64,
        model: &str,
        options: &[String],
        within: Duration,
    ) -> Result<Option<Run>, Failure> {
        let stats = self.folder.path().join("stats.json");
        let ram = format!("{ram_kib}K");
        let mut words = Vec::from(options);
        let own = ["--ram", &ram, "--flash-size", "2G", "--device-model", model];
        words.extend(own.map(str::to_owned));
        words.extend(["--stats".to_owned(), text(&stats)?]);
        let Some(took) = self.program.run_within(&flashvm(&words)?, within)? else {
            return Ok(None);
        };
        let stats = std::fs::read(&stats).map_err(|e| format!("no statistics: {e}"))?;
        let stats: serde_json::Value =
            serde_json::from_slice(&stats).map_err(|e| format!("statistics: {e}"))?;
        let count = |name: &str| {
            let count = stats.pointer(&format!("/totals/{name}"));
            let count = count.and_then(serde_json::Value::as_u64);
            count.ok_or_else(|| format!("statistics: no {name}"))
        };
        Ok(Some(Run {
            seconds: took.as_secs_f64(),
            faults: count("faults/major")?,
            on_rights: count("faults/soft")? + count("faults/write_protect")?,
            pages_in: count("pages_in")?,
            pages_out: count("pages_out")?,
        }))
    }
}

/// The middle one.
fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}
