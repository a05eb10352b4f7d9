//! The references of which a process's engine hears: the process's share of a trace.

use crate::Error;
use crate::control::reference_trace::{Observation, Observed};
use crate::sys::descriptors::PagerFd;
use flashvm_core::shards::Seen;
use flashvm_core::{Access, Event};
use rustix::fd::{AsRawFd, RawFd};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Appends to the file that all processes of the run share.
pub(crate) struct Tracer {
    path: PathBuf,
    file: PagerFd,
    pid: u32,
    /// The sample that was noted last.
    sample: Option<u32>,
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
            sample: None,
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
        self.sample = None;
        self.write(Observation::Begin)
    }

    /// Appends what an event did to pages of the sample of 2^-`bits` of all. The event's access is that of its own
    /// page; all others count as loaded.
    pub(crate) fn note_seen(
        &mut self,
        bits: u32,
        event: &Event,
        seen: impl Iterator<Item = Seen>,
    ) -> Result<(), Error> {
        if self.sample.replace(bits) != Some(bits) {
            self.write(Observation::Sample { bits })?;
        }
        let stored = match *event {
            Event::Fault {
                page,
                access: Access::Write,
                ..
            } => Some(page),
            _ => None,
        };
        for seen in seen {
            self.write(match seen {
                Seen::Touched(page) if Some(page) == stored => Observation::Store(page),
                Seen::Touched(page) => Observation::Load(page),
                Seen::Gone(page) => Observation::Gone(page),
            })?;
        }
        Ok(())
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
