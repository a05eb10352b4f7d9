//! Recordings: events and actions of an engine, as JSON lines, for replay in a test. `tracer`: the
//! program's references as the engine saw them, for a trace.

mod tracer;

use crate::Error;
use crate::sys::descriptors::PagerFd;
use flashvm_core::record::{ClusterAnswer, Step};
use flashvm_core::{Action, Event, Nanos};
use rustix::fd::{AsRawFd, RawFd};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
pub(crate) use tracer::Tracer;

/// A recording in the making: as JSON lines, the configuration and then one step a line.
pub(crate) struct Recorder {
    /// The path that the user named: without the process id.
    base: PathBuf,
    path: PathBuf,
    /// Not buffered across lines: the process may end at any time.
    file: PagerFd<File>,
    bytes: u64,
}

impl Recorder {
    /// Opens `base` with the process id appended.
    pub(crate) fn create(base: &Path, pid: u32, config: &impl Serialize) -> Result<Self, Error> {
        let mut recorder = Self::open(base, pid)?;
        recorder.append(config)?;
        Ok(recorder)
    }

    fn open(base: &Path, pid: u32) -> Result<Self, Error> {
        let path = PathBuf::from(format!("{}.{pid}", base.display()));
        // A forked child reads the lines that its parent wrote.
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        let kept = options
            .open(&path)
            .and_then(|file| PagerFd::keep(file.into()).map_err(std::io::Error::from));
        match kept {
            Ok(file) => Ok(Self {
                base: base.to_owned(),
                path,
                file: file.map(File::from),
                bytes: 0,
            }),
            Err(source) => Err(Error::Recording { path, source }),
        }
    }

    /// The descriptor of the file.
    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// In a forked child, from the parent's recording: opens the child's, which begins with the parent's lines up to
    /// the fork. The parent may already have added others.
    pub(crate) fn for_child(self, pid: u32) -> Result<Self, Error> {
        let mut child = Self::open(&self.base, pid)?;
        let copied = child.copy(&self.file, self.bytes);
        drop(self);
        copied.map_err(|source| child.failed(source))?;
        Ok(child)
    }

    fn copy(&mut self, from: &File, bytes: u64) -> std::io::Result<()> {
        let mut buffer = [0; 1 << 12];
        while self.bytes < bytes {
            let left = usize::try_from(bytes - self.bytes).unwrap_or(usize::MAX);
            let part = &mut buffer[..left.min(1 << 12)];
            // Not at the file's position, which the parent shares.
            from.read_exact_at(part, self.bytes)?;
            self.file.write_all(part)?;
            self.bytes += part.len() as u64;
        }
        Ok(())
    }

    /// Adds a step.
    pub(crate) fn step(
        &mut self,
        now: Nanos,
        event: &Event,
        actions: &[Action],
        clusters: Vec<ClusterAnswer>,
    ) -> Result<(), Error> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.append(&Step {
            now,
            thread: thread.unsigned_abs(),
            event: event.clone(),
            clusters,
            actions: actions.to_vec(),
        })
    }

    /// Adds a line.
    pub(crate) fn append(&mut self, step: &impl Serialize) -> Result<(), Error> {
        let written = serde_json::to_vec(step)
            .map_err(std::io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)?;
                self.bytes += line.len() as u64;
                Ok(())
            });
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Recording {
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the fork, parent and child each add to their own recording only.
    #[test]
    fn a_childs_recording_begins_as_its_parents() {
        let folder = std::env::temp_dir().join(format!("flashvm-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let base = folder.join("steps");
        let mut parent = Recorder::create(&base, 1, &"config").expect("a recording");
        let long = "x".repeat(5000);
        parent.append(&long).expect("a step");
        // The child's copy of the parent's memory and descriptors.
        let copy = parent.file.try_clone().expect("a copy");
        let file = PagerFd::keep(copy.into()).expect("a copy").map(File::from);
        let inherited = Recorder {
            base: parent.base.clone(),
            path: parent.path.clone(),
            file,
            bytes: parent.bytes,
        };
        parent.append(&"parent").expect("a step");
        let mut child = inherited.for_child(2).expect("a recording");
        child.append(&"child").expect("a step");
        parent.append(&"parent").expect("a step");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a recording");
        let before = format!("\"config\"\n\"{long}\"\n");
        let (first, second) = (read("steps.1"), read("steps.2"));
        std::fs::remove_dir_all(&folder).expect("the folder");
        assert_eq!(first, format!("{before}\"parent\"\n\"parent\"\n"));
        assert_eq!(second, format!("{before}\"child\"\n"));
    }
}
