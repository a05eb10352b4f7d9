//! A real program that runs live on a device model (`--device-model`), and what its runs count.

use super::super::ablation::Run;
use super::{FOR_EVER, Failure, Info, Program, flashvm, text};
use std::time::Duration;
use tempfile::TempDir;

/// A prepared program.
pub(super) struct Live {
    pub(super) program: Box<dyn Program>,
    folder: TempDir,
}

impl Live {
    /// With the paper's input divided by `scale`.
    pub(super) fn prepare(info: &Info, scale: u32) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let program = info.prepare(folder.path(), scale)?;
        Ok(Self { program, folder })
    }

    /// Runs it in `ram_kib` of RAM on a device model, with these options.
    pub(super) fn run(
        &self,
        ram_kib: u64,
        model: &str,
        options: &[String],
    ) -> Result<Run, Failure> {
        let run = self.run_within(ram_kib, model, options, FOR_EVER)?;
        Ok(run.expect("nothing takes longer"))
    }

    /// As [`Self::run`]; `None`: it took longer than `within`.
    pub(super) fn run_within(
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
            faults: count("faults/major")? + count("faults/waited")?,
            pages_in: count("pages_in")?,
            pages_out: count("pages_out")?,
        }))
    }
}

/// The middle one.
pub(super) fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}
