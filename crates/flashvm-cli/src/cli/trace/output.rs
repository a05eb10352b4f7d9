//! A trace file that appears whole: it has no name until it is finished.

use crate::cli::refusal::Refusal;
use flashvm_sim::trace::flashvm::Writer;
use flashvm_sim::trace::{Granularity, Provenance, Reference};
use rustix::fd::AsRawFd;
use rustix::fs::{AtFlags, CWD};
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// An unfinished trace.
pub(crate) struct Output {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
}

impl Output {
    /// Starts a trace with the final name `path`.
    pub(crate) fn create(
        path: &Path,
        granularity: Granularity,
        provenance: &Provenance,
    ) -> Result<Self, Refusal> {
        let refuse = |e: &dyn std::fmt::Display| cannot(path, e);
        if path.file_name().is_none() {
            return Err(refuse(&"it names no file"));
        }
        if path.exists() && !path.is_file() {
            return Err(refuse(&"it is no regular file"));
        }
        let file = tempfile::tempfile_in(folder(path)).map_err(|e| refuse(&e))?;
        let permissions = PermissionsExt::from_mode(0o644);
        file.set_permissions(permissions).map_err(|e| refuse(&e))?;
        let writer = Writer::new(BufWriter::new(file), granularity, provenance);
        Ok(Self {
            writer: writer.map_err(|e| refuse(&e))?,
            path: path.to_owned(),
        })
    }

    /// Adds a reference.
    pub(crate) fn push(&mut self, reference: Reference) -> Result<(), Refusal> {
        let pushed = self.writer.push(reference);
        pushed.map_err(|e| cannot(&self.path, &e))
    }

    /// References so far.
    pub(crate) fn references(&self) -> u64 {
        self.writer.references()
    }

    /// Names the trace, in place of an older file. Returns its bytes.
    pub(crate) fn finish(self) -> Result<u64, Refusal> {
        let path = self.path;
        let finish = || -> io::Result<u64> {
            let mut file = self
                .writer
                .finish()?
                .into_inner()
                .map_err(|e| e.into_error())?;
            let bytes = file.stream_position()?;
            name(&mut file, &path)?;
            Ok(bytes)
        };
        finish().map_err(|e| cannot(&path, &e))
    }
}

fn folder(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// linkat refuses a name that exists: link another one and rename it.
fn name(file: &mut File, path: &Path) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let beside = folder(path).join(format!(".flashvm-{}", std::process::id()));
    match rustix::fs::linkat(CWD, &own, CWD, &beside, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => std::fs::rename(&beside, path),
        // Without O_TMPFILE the file was unlinked, and cannot be linked again.
        Err(_) => {
            file.rewind()?;
            io::copy(file, &mut File::create(path)?).map(|_| ())
        }
    }
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(format!(
        "{}: {why}: name a file that can be written",
        path.display()
    ))
}
