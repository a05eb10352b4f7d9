//! Recording: what the engine was told and what it decided, for replay in a test; and what it was
//! told of the program's references, for a trace.

use crate::Error;
use crate::control::reference_trace::{Observation, Record as Seen};
use crate::sys::descriptors;
use flashvm_core::record::{ClusterAnswer, Step};
use flashvm_core::{Access, Action, Event, Nanos};
use rustix::fd::{AsRawFd, RawFd};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A recording in the making: as JSON lines, the configuration and then one step a line.
pub(crate) struct Recorder {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Recorder {
    /// Opens `path` with the process id appended.
    pub(super) fn create(path: &Path, pid: u32, config: &impl Serialize) -> Result<Self, Error> {
        let path = PathBuf::from(format!("{}.{pid}", path.display()));
        let failed = |source| Error::Recording {
            path: path.clone(),
            source,
        };
        let file = File::create(&path).map_err(failed)?;
        let file =
            descriptors::keep(file.into()).map_err(|error| failed(std::io::Error::from(error)))?;
        let mut recorder = Self {
            out: BufWriter::new(File::from(file)),
            path: path.clone(),
        };
        recorder.line(config).map_err(failed)?;
        Ok(recorder)
    }

    /// Adds a step. Without buffering across steps: the process may end at any time.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        event: &Event,
        actions: &[Action],
        clusters: Vec<ClusterAnswer>,
    ) -> Result<(), Error> {
        self.append(&Step {
            now,
            event: event.clone(),
            clusters,
            actions: actions.to_vec(),
        })
    }

    /// Adds a line.
    pub(crate) fn append(&mut self, step: &impl Serialize) -> Result<(), Error> {
        self.line(step).map_err(|source| Error::Recording {
            path: self.path.clone(),
            source,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

/// The process's share of a trace: appends to the file that all processes of the run share.
pub(super) struct Tracer {
    path: PathBuf,
    file: File,
    pid: u32,
}

impl Tracer {
    /// Opens the run's file for the process `pid`, which begins.
    pub(super) fn open(path: &Path, pid: u32) -> Result<Self, Error> {
        let failed = |source| Error::Recording {
            path: path.to_owned(),
            source,
        };
        let file = File::options().append(true).open(path).map_err(failed)?;
        let file =
            descriptors::keep(file.into()).map_err(|error| failed(std::io::Error::from(error)))?;
        let mut tracer = Self {
            path: path.to_owned(),
            file: File::from(file),
            pid,
        };
        tracer.write(Observation::Begin)?;
        Ok(tracer)
    }

    /// The descriptor of the run's file.
    pub(super) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Goes on for a forked child, whose pages are its own from now on.
    pub(super) fn forked(&mut self, pid: u32) -> Result<(), Error> {
        self.pid = pid;
        self.write(Observation::Begin)
    }

    /// Notes an event that tells of a reference.
    pub(super) fn note(&mut self, event: &Event) -> Result<(), Error> {
        match *event {
            Event::Fault { page, access } => self.write(match access {
                Access::Read => Observation::Load(page),
                Access::Write => Observation::Store(page),
            }),
            Event::WriteProtectFault { page } => self.write(Observation::Store(page)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, observation: Observation) -> Result<(), Error> {
        let seen = Seen {
            pid: self.pid,
            observation,
        };
        let bytes = seen.to_bytes();
        let written = match rustix::io::write(&self.file, &bytes) {
            Ok(count) if count == bytes.len() => return Ok(()),
            Ok(_) => std::io::ErrorKind::WriteZero.into(),
            Err(error) => std::io::Error::from(error),
        };
        Err(Error::Recording {
            path: self.path.clone(),
            source: written,
        })
    }
}
