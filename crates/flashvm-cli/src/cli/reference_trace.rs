//! `flashvm run --trace`: all processes of a run append their references to one file; at the end it becomes the
//! trace.

use super::refusal::Refusal;
use super::summary::Names;
use super::trace::Output;
use super::units::{Size, count};
use flashvm::control::reference_trace::{Observation, Observed, RECORD_BYTES};
use flashvm_sim::trace::{Granularity, Kind, Provenance, Reference};
use rustix::fd::AsRawFd;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

/// An address in the trace is process number << `PAGE_BITS` | page.
const PAGE_BITS: u32 = 32;

/// The nameless file of references, and the trace that is made from it.
pub(crate) struct ReferenceTrace {
    path: PathBuf,
    file: File,
    output: Output,
}

impl ReferenceTrace {
    /// Creates both files, before the run starts.
    pub(crate) fn create(
        path: &Path,
        program: &[OsString],
        ram_bytes: u64,
        names: &Names,
    ) -> Result<Self, Refusal> {
        let words = program.iter().map(|word| word.to_string_lossy());
        let words: String = Vec::from_iter(words).join(" ").chars().take(1000).collect();
        let provenance = Provenance {
            source: format!("{words} (flashvm run)"),
            steps: vec![format!(
                "faults and first stores with {} of RAM, preset {}, policy {}",
                Size(ram_bytes),
                names.preset,
                names.policy
            )],
        };
        let output = Output::create(path, Granularity::Pages, &provenance)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")));
        let refuse = |e| {
            Refusal::new(format!(
                "{}: {e}: name a file that can be written",
                path.display()
            ))
        };
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(refuse)?,
            output,
        })
    }

    /// The path by which the processes of the run open the file.
    pub(crate) fn open_path(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd());
        format!("/proc/{pid}/fd/{fd}").into()
    }

    /// Converts the references to the trace. `quiet`: without the line about it.
    pub(crate) fn finish(self, quiet: bool) -> Result<(), Refusal> {
        let (path, mut file, mut output) = (self.path, self.file, self.output);
        let refuse = |e| Refusal::new(format!("{}: {e}: the trace is not written", path.display()));
        file.rewind().map_err(refuse)?;
        let mut records = BufReader::new(file);
        let mut spaces: HashMap<u32, u64> = HashMap::new();
        let mut processes = 0;
        let mut bytes = [0; RECORD_BYTES];
        loop {
            match records.read_exact(&mut bytes) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
                Err(e) => return Err(refuse(e)),
            }
            let record = Observed::from_bytes(&bytes)
                .ok_or_else(|| refuse(ErrorKind::InvalidData.into()))?;
            let (page, kind) = match record.observation {
                Observation::Begin => {
                    spaces.insert(record.pid, processes);
                    processes += 1;
                    continue;
                }
                Observation::Load(page) => (page, Kind::Read),
                Observation::Store(page) => (page, Kind::Write),
            };
            let space = spaces.get(&record.pid).copied();
            let space = space.ok_or_else(|| refuse(ErrorKind::InvalidData.into()))?;
            output.push(Reference {
                address: space << PAGE_BITS | u64::from(page.0),
                bytes: 0,
                kind,
            })?;
        }
        let references = output.references();
        if references == 0 {
            let line = format!(
                "{}: the pager saw no reference: the trace is not written",
                path.display()
            );
            return Err(Refusal::new(line));
        }
        let bytes = output.finish()?;
        if !quiet {
            eprintln!(
                "  trace     {}: {} references of {processes} processes, {}",
                path.display(),
                count(references),
                Size(bytes)
            );
        }
        Ok(())
    }
}
