//! A loop device with sectors of 4 KiB, detached when dropped.

use crate::support::children::{self, Bounded as _};
use crate::support::{self, Folder};
use std::fs;

const BYTES: u64 = 256 << 20;

pub(crate) struct Device {
    path: String,
    /// The image goes with it.
    _folder: Folder,
}

impl Device {
    /// Without loop devices it says so and returns `None`.
    pub(crate) fn with_large_sectors(test: &str) -> Option<Self> {
        let folder = Folder::new();
        let image = folder.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(BYTES))
            .expect("a file");
        let output = children::command("losetup")
            .args(["--find", "--show", "--sector-size", "4096"])
            .arg(&image)
            .output_in_time();
        match output {
            Ok(output) if output.status.success() => Some(Self {
                path: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
                _folder: folder,
            }),
            _ => {
                support::say(&format!("SKIPPED: {test}: needs root and loop devices"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // An error is ignored: the image is removed in any case.
        let _ = children::command("losetup")
            .args(["--detach", &self.path])
            .status_in_time();
    }
}
