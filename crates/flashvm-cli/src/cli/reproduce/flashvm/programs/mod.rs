//! The real programs of the paper's evaluation (5.1): how to prepare each, and how to time a run. The paper's inputs, or
//! such as give the paper's memory, divided by a scale. A file per program.

mod imagemagick;
mod jvm;
pub(super) mod live;
mod memcached;
mod spin;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An error, in one line.
pub(super) type Failure = String;

/// A program of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    ImageMagick,
    Spin,
    SpecJbb,
    MemcachedStore,
    MemcachedLookup,
}

/// What the paper says of a program, and how to prepare it.
pub(super) struct Info {
    pub(super) name: Name,
    /// As in Table 4.
    pub(super) title: &'static str,
    /// The name of its trace's file, without the ending.
    pub(super) file: &'static str,
    /// Table 4: the memory of DiskVM, in MB.
    table_4_mb: u32,
    /// Table 4: FlashVM's runtime and memory, in percent of DiskVM's.
    pub(super) runtime: f64,
    pub(super) memory: f64,
    prepare: fn(&Path, u32) -> Prepared,
}

/// In the order of Table 4.
pub(super) static ALL: [Info; 5] = [
    Info {
        name: Name::ImageMagick,
        title: "ImageMagick",
        file: "imagemagick",
        table_4_mb: 814,
        runtime: 31.0,
        memory: 51.0,
        prepare: imagemagick::prepare,
    },
    Info {
        name: Name::Spin,
        title: "Spin",
        file: "spin",
        table_4_mb: 795,
        runtime: 11.0,
        memory: 16.0,
        prepare: spin::prepare,
    },
    Info {
        name: Name::SpecJbb,
        title: "SpecJBB",
        file: "specjbb",
        table_4_mb: 710,
        runtime: 6.0,
        memory: 19.0,
        prepare: jvm::prepare,
    },
    Info {
        name: Name::MemcachedStore,
        title: "memcached-store",
        file: "memcached-store",
        table_4_mb: 706,
        runtime: 18.0,
        memory: 60.0,
        prepare: memcached::store,
    },
    Info {
        name: Name::MemcachedLookup,
        title: "memcached-lookup",
        file: "memcached-lookup",
        table_4_mb: 837,
        runtime: 23.0,
        memory: 50.0,
        prepare: memcached::lookup,
    },
];

impl Name {
    /// Its line.
    pub(super) fn info(self) -> &'static Info {
        let found = ALL.iter().find(|info| info.name == self);
        found.expect("every program is in the list")
    }
}

impl Info {
    /// DiskVM's memory in Table 4 divided by `scale`, in pages.
    pub(super) fn frames(&self, scale: u32) -> u32 {
        self.table_4_mb * 256 / scale
    }

    /// Prepares it in a folder, with the paper's input divided by `scale`.
    pub(super) fn prepare(&self, folder: &Path, scale: u32) -> Prepared {
        (self.prepare)(folder, scale)
    }
}

/// A program that can run, or why there is none.
type Prepared = Result<Box<dyn Program>, Failure>;

/// A prepared program.
pub(super) trait Program {
    /// One sentence on its work.
    fn what(&self) -> String;

    /// Runs it by a command line that begins with `prefix` (empty: without FlashVM): the time.
    fn run(&self, prefix: &[String]) -> Result<Duration, Failure>;
}

/// The first words of a command line that runs a program under this command.
pub(super) fn flashvm(options: &[&str]) -> Result<Vec<String>, Failure> {
    let own = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let mut line = vec![text(&own)?];
    line.extend(["run", "--quiet"].map(str::to_owned));
    line.extend(options.iter().map(|&word| word.to_owned()));
    line.push("--".to_owned());
    Ok(line)
}

pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("{}: not UTF-8", path.display()))
}

/// A command of the prefix and these words.
fn command<S: AsRef<OsStr>>(prefix: &[String], program: &Path, words: &[S]) -> Command {
    let mut command = match prefix.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs a command to its end; the last line of its standard error is the error.
fn finish(command: &mut Command) -> Result<Duration, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(started.elapsed());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().last().unwrap_or_default();
    Err(format!("{name} ended with {}: {line}", output.status))
}

/// The path of a program.
fn find(name: &str, package: &str) -> Result<PathBuf, Failure> {
    flashvm::program::find(OsStr::new(name))
        .map(|(path, _)| path)
        .map_err(|_| format!("{name} is missing: install {package}"))
}
