//! A file that a run writes at its end: the path is checked before the run.

use super::refusal::Refusal;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A path that can be written.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    /// The folder for the new file, or `None` for a special file.
    folder: Option<PathBuf>,
}

impl ResultFile {
    /// Checks that a file can be written at `path`; `option` names it in a refusal.
    pub(crate) fn check(option: &str, path: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &dyn std::fmt::Display| {
            Refusal::new(format!(
                "{option} {}: {why}: name a file that can be written",
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

    /// Writes the file atomically.
    pub(crate) fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(folder) = &self.folder else {
            return std::fs::OpenOptions::new()
                .write(true)
                .open(&self.path)?
                .write_all(bytes);
        };
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .prefix(".flashvm-")
            .permissions(permissions)
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(&self.path)?;
        Ok(())
    }
}
