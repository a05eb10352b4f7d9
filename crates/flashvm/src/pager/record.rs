//! Recording what the engine was told and what it decided, for replay in a test.

use crate::Error;
use crate::sys::descriptors;
use flashvm_core::record::{ClusterAnswer, Step};
use flashvm_core::{Action, EngineConfig, Event, Nanos};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A recording in the making: as JSON lines, the configuration and then one step a line.
pub(super) struct Recorder {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Recorder {
    /// Opens `path` with the process id appended.
    pub(super) fn create(path: &Path, pid: u32, config: &EngineConfig) -> Result<Self, Error> {
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
        let step = Step {
            now,
            event: event.clone(),
            clusters,
            actions: actions.to_vec(),
        };
        self.line(&step).map_err(|source| Error::Recording {
            path: self.path.clone(),
            source,
        })
    }

    fn line(&mut self, value: &impl serde::Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}
