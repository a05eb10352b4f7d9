//! The statistics of a run: one JSON object in the file of `--stats`.

use super::figures::{Figures, figures};
use super::{Names, totals};
use crate::cli::outcome::Outcome;
use crate::cli::refusal::Refusal;
use flashvm::control::Control;
use flashvm_core::Gauges;
use flashvm_sim::device::Wear;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The object in the file of `--stats`.
#[derive(Debug, Serialize)]
struct Stats<'a> {
    ram_budget_pages: u64,
    processes: Vec<EndedProcess<'a>>,
    totals: Totals<'a>,
}

#[derive(Debug, Serialize)]
struct EndedProcess<'a> {
    pid: u32,
    command: &'a str,
    /// Why the pager ended the process, if it did.
    ended_by_pager: Option<&'a str>,
    /// The first system call that the pager refused, and why.
    refused_call: Option<&'a str>,
    /// What the process held at its end.
    gauges: Gauges,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize)]
struct Totals<'a> {
    processes: u64,
    elapsed_s: f64,
    device_model: Option<DeviceModel<'a>>,
    #[serde(flatten)]
    figures: Figures,
}

/// The device model, and its wear if it has any.
#[derive(Debug, Serialize)]
struct DeviceModel<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    #[serde(flatten)]
    wear: Option<&'a Wear>,
}

/// The path of `--stats`, checked before the run.
#[derive(Debug)]
pub(crate) struct StatsFile {
    path: PathBuf,
    /// The folder for the new file, or `None` for a special file.
    folder: Option<PathBuf>,
}

impl StatsFile {
    /// Checks that a file can be written at `path`.
    pub(crate) fn check(path: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &dyn std::fmt::Display| {
            Refusal::new(format!(
                "--stats {}: {why}: name a file that can be written",
                path.display()
            ))
        };
        let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
        if special {
            if path.is_dir() {
                return Err(refuse(&"a folder"));
            }
            return Ok(Self {
                path: path.to_owned(),
                folder: None,
            });
        }
        // Replace the target of a symbolic link, not the link.
        let path_real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match path_real.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Err(refuse(&"not a file")),
        };
        // An absolute path survives a change of the working folder.
        let folder = std::fs::canonicalize(folder).map_err(|e| refuse(&e))?;
        rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).map_err(|e| refuse(&e))?;
        Ok(Self {
            path: path_real,
            folder: Some(folder),
        })
    }

    /// Writes the object atomically.
    pub(crate) fn write(
        &self,
        outcome: &Outcome,
        control: Control,
        names: &Names,
    ) -> std::io::Result<()> {
        let stats = Stats {
            ram_budget_pages: control.budget_frames().into(),
            processes: outcome
                .records
                .iter()
                .map(|record| EndedProcess {
                    pid: record.pid,
                    command: &record.command,
                    ended_by_pager: record.ended.as_deref(),
                    refused_call: record.refused.as_deref(),
                    gauges: record.stats.gauges,
                    figures: figures(&record.stats, names.preset, names.policy),
                })
                .collect(),
            totals: Totals {
                processes: outcome.records.processes(),
                elapsed_s: outcome.elapsed.as_secs_f64(),
                device_model: names.device.as_deref().map(|model| DeviceModel {
                    model,
                    write_amplification: outcome.wear.as_ref().map(Wear::write_amplification),
                    wear: outcome.wear.as_ref(),
                }),
                figures: figures(&totals(outcome, control), names.preset, names.policy),
            },
        };
        let mut json = serde_json::to_vec(&stats)?;
        json.push(b'\n');
        let Some(folder) = &self.folder else {
            return std::fs::OpenOptions::new()
                .write(true)
                .open(&self.path)?
                .write_all(&json);
        };
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .prefix(".flashvm-stats-")
            .permissions(permissions)
            .tempfile_in(folder)?;
        file.write_all(&json)?;
        file.persist(&self.path)?;
        Ok(())
    }
}
