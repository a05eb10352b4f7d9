//! A folder for a command's own files. It goes when the command ends, however that ends: a shell outlives the command
//! and removes it. Where there is no shell, it goes when the command ends by itself.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Waits for the end of its input: the kernel closes the other end when the command ends. Removes the folder `$0`, and once more a
/// second later, as programs that end with the command may have written to it meanwhile.
const KEEPER: &str = r#"read -r _; rm -rf -- "$0"; sleep 1; rm -rf -- "$0""#;

/// A temporary folder.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    keeper: Option<Child>,
}

impl Scratch {
    /// In the folder for temporary files (`TMPDIR`, `/tmp`).
    ///
    /// # Errors
    /// The folder cannot be made, or a shell that exists cannot be started.
    pub(crate) fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), "flashvm-")
    }

    /// In this folder, with a name that begins like this.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn within(parent: &Path, prefix: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        // Of a group of its own: keys of the terminal do not reach it.
        let keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let keeper = match keeper {
            Ok(keeper) => Some(keeper),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io::Error::new(error.kind(), format!("sh: {error}"))),
        };
        Ok(Self { folder, keeper })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            // The folder goes with this value.
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}
