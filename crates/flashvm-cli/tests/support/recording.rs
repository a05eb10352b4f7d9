//! The recordings of `flashvm run --record`: JSON lines, a file for each engine of each process.

use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// The recordings in a folder: those of page engines, and those of small pages.
pub(crate) fn find(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.partition(|path| !path.display().to_string().contains(".small."))
}

/// The first line and all others.
pub(crate) fn load<Config: DeserializeOwned, Step: DeserializeOwned>(
    path: &Path,
) -> (Config, Vec<Step>) {
    let file = File::open(path).expect("a recording");
    let mut lines = BufReader::new(file).lines().map(|l| l.expect("a line"));
    let config = lines.next().expect("the configuration");
    let mut steps = Vec::new();
    for line in lines {
        match serde_json::from_str(&line) {
            Ok(step) => steps.push(step),
            // The last line is incomplete if the process ended during its write.
            Err(error) => assert!(error.is_eof(), "{}: {error}", path.display()),
        }
    }
    let config = serde_json::from_str(&config).expect("a configuration");
    (config, steps)
}
