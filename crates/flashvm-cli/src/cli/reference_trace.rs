//! `flashvm run --trace`: all processes of a run append their references to one file; at the end it becomes the
//! trace.

use super::refusal::Refusal;
use super::shared_file::path_of;
use super::summary::Names;
use super::trace::Output;
use super::units::{Size, count};
use flashvm_core::shards::is_sampled;
use flashvm_live::control::RunSettings;
use flashvm_live::control::reference_trace::{Observation, Observed, RECORD_BYTES};
use flashvm_sim::trace::{Granularity, Kind, Provenance, Reference};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

/// An address in the trace is page | process number << `PAGE_BITS` | number of contents << `CONTENTS_BIT`: a page that
/// had lost its contents counts as another page.
const PAGE_BITS: u32 = 32;
const CONTENTS_BIT: u32 = 48;

/// The nameless file of references, and the trace that is made from it.
pub(crate) struct ReferenceTrace {
    path: PathBuf,
    file: File,
    provenance: Provenance,
    output: Output,
}

impl ReferenceTrace {
    /// Creates both files, before the run starts.
    pub(crate) fn create(
        path: &Path,
        program: &[OsString],
        settings: &RunSettings,
        names: &Names,
    ) -> Result<Self, Refusal> {
        let words = program.iter().map(|word| word.to_string_lossy());
        let words: String = Vec::from_iter(words).join(" ").chars().take(1000).collect();
        let what = match settings.engine.shards {
            true => "touches of a sample of the pages",
            false => "faults and first stores",
        };
        let provenance = Provenance {
            source: format!("{words} (flashvm run)"),
            steps: vec![format!("{what} {}", names.settings(settings.ram_bytes))],
            shard_bits: 0,
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
            provenance,
            output,
        })
    }

    /// The path by which the processes of the run open the file.
    pub(crate) fn open_path(&self) -> PathBuf {
        path_of(&self.file)
    }

    /// Converts the references to the trace. `quiet`: without the line about it.
    pub(crate) fn finish(self, quiet: bool) -> Result<(), Refusal> {
        let (path, mut file) = (self.path, self.file);
        let refuse = |e| Refusal::new(format!("{}: {e}: the trace is not written", path.display()));
        // The last sample is the smallest, and lies within all others.
        let mut shard_bits = None;
        read(&mut file, |record| {
            if let Observation::Sample { bits } = record.observation {
                shard_bits = shard_bits.max(Some(bits));
            }
            Ok(())
        })
        .map_err(refuse)?;
        let mut output = self.output;
        let mut provenance = self.provenance;
        if let Some(bits) = shard_bits {
            provenance.shard_bits = bits;
            output = Output::create(&path, Granularity::Pages, &provenance)?;
        }
        let mut spaces: HashMap<u32, u64> = HashMap::new();
        let mut contents: HashMap<u64, u64> = HashMap::new();
        let mut processes = 0;
        read(&mut file, |record| {
            let (page, kind) = match record.observation {
                Observation::Begin => {
                    spaces.insert(record.pid, processes);
                    processes += 1;
                    return Ok(());
                }
                Observation::Sample { .. } => return Ok(()),
                Observation::Load(page) => (page, Some(Kind::Read)),
                Observation::Store(page) => (page, Some(Kind::Write)),
                Observation::Gone(page) => (page, None),
            };
            if !is_sampled(page, shard_bits.unwrap_or(0)) {
                return Ok(());
            }
            let space = spaces.get(&record.pid).copied();
            let space = space.ok_or(ErrorKind::InvalidData)?;
            let place = space << PAGE_BITS | u64::from(page.0);
            let Some(kind) = kind else {
                *contents.entry(place).or_default() += 1;
                return Ok(());
            };
            let number = contents.get(&place).copied().unwrap_or_default();
            output
                .push(Reference {
                    address: number << CONTENTS_BIT | place,
                    bytes: 0,
                    kind,
                })
                .map_err(|refusal| io::Error::other(refusal.to_string()))?;
            Ok(())
        })
        .map_err(refuse)?;
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

/// Calls `use_record` with all records of a file, in order.
fn read(file: &mut File, mut use_record: impl FnMut(Observed) -> io::Result<()>) -> io::Result<()> {
    file.rewind()?;
    let mut records = BufReader::new(file);
    let mut bytes = [0; RECORD_BYTES];
    loop {
        match records.read_exact(&mut bytes) {
            Ok(()) => use_record(Observed::from_bytes(&bytes).ok_or(ErrorKind::InvalidData)?)?,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}
