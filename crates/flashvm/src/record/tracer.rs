//! The references of which a process's engine hears: the process's share of a trace.

use crate::Error;
use crate::control::reference_trace::{Observation, Observed};
use crate::sys::descriptors::PagerFd;
use flashvm_core::{Access, Event};
use rustix::fd::{AsRawFd, RawFd};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Appends to the file that all processes of the run share.
pub(crate) struct Tracer {
    path: PathBuf,
    file: PagerFd,
    pid: u32,
}

impl Tracer {
    /// Opens the run's file for the process `pid`, which begins.
    pub(crate) fn open(path: &Path, pid: u32) -> Result<Self, Error> {
        let failed = |source| Error::Recording {
            path: path.to_owned(),
            source,
        };
        let file = File::options().append(true).open(path).map_err(failed)?;
        let file =
            PagerFd::keep(file.into()).map_err(|error| failed(std::io::Error::from(error)))?;
        let mut tracer = Self {
            path: path.to_owned(),
            file,
            pid,
        };
        tracer.write(Observation::Begin)?;
        Ok(tracer)
    }

    /// The descriptor of the run's file.
    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Goes on for a forked child, whose pages are its own from now on.
    pub(crate) fn forked(&mut self, pid: u32) -> Result<(), Error> {
        self.pid = pid;
        self.write(Observation::Begin)
    }

    /// Appends the reference that an event reports, if there is one.
    pub(crate) fn note(&mut self, event: &Event) -> Result<(), Error> {
        match *event {
            Event::Fault { page, access, .. } => self.write(match access {
                Access::Read => Observation::Load(page),
                Access::Write => Observation::Store(page),
            }),
            Event::WriteProtectFault { page } => self.write(Observation::Store(page)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, observation: Observation) -> Result<(), Error> {
        let seen = Observed {
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
