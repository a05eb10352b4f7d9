//! The real programs of the FlashVM paper's evaluation (5.1): how to prepare each, and how to time a run. The paper's inputs, or
//! such as give the paper's memory, divided by a scale. A file per program.

mod imagemagick;
mod jvm;
pub(super) mod live;
mod memcached;
pub(super) mod recorded;
pub(super) mod runs;
mod spin;

use crate::cli::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
    MemcachedThreads,
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

/// memcached with as many threads as clients: not in Table 4. "Similar increase in paging throughput" (5.2.2).
pub(super) static THREADED: Info = Info {
    name: Name::MemcachedThreads,
    title: "memcached, 4 threads",
    file: "memcached-threads",
    table_4_mb: 837,
    runtime: 23.0,
    memory: 50.0,
    prepare: memcached::threads,
};

impl Name {
    /// Its line.
    pub(super) fn info(self) -> &'static Info {
        let found = ALL.iter().chain([&THREADED]).find(|info| info.name == self);
        found.expect("every program is in one of the lists")
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

    /// Runs it by a command line that begins with `prefix` (empty: without FlashVM): the time. `None`: it took longer than
    /// `within`, and was killed.
    fn run_within(&self, prefix: &[String], within: Duration) -> Result<Option<Duration>, Failure>;

    /// As [`Self::run_within`], without a limit.
    fn run(&self, prefix: &[String]) -> Result<Duration, Failure> {
        let took = self.run_within(prefix, FOR_EVER)?;
        Ok(took.expect("nothing takes longer"))
    }
}

/// More than any run takes: a year.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The first words of a command line that runs a program under this command.
pub(super) fn flashvm<S: AsRef<str>>(options: &[S]) -> Result<Vec<String>, Failure> {
    let own = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let mut line = vec![text(&own)?];
    line.extend(["run", "--quiet"].map(str::to_owned));
    line.extend(options.iter().map(|word| word.as_ref().to_owned()));
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
    sys::die_with_this_process(&mut command);
    command
}

/// Runs a command to its end; the last line of its standard error is the error.
fn finish(command: &mut Command) -> Result<Duration, Failure> {
    let took = finish_within(command, FOR_EVER)?;
    Ok(took.expect("nothing takes longer"))
}

/// As [`finish`]; a command that takes longer than `within` is killed, and gives `None`. `flashvm run` takes its program
/// with it.
fn finish_within(command: &mut Command, within: Duration) -> Result<Option<Duration>, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| format!("{name}: {e}");
    let started = Instant::now();
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = child.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = said.read_to_end(&mut text);
        text
    });
    let in_time = ends_within(&child, within).map_err(|e| failed(e.into()))?;
    if !in_time {
        child.kill().map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let took = started.elapsed();
    let text = reader.join().unwrap_or_default();
    if !in_time {
        return Ok(None);
    }
    if status.success() {
        return Ok(Some(took));
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().last().unwrap_or_default();
    Err(format!("{name} ended with {status}: {line}"))
}

/// Whether a child ends within a time.
fn ends_within(child: &Child, within: Duration) -> rustix::io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The path of a program.
fn find(name: &str, package: &str) -> Result<PathBuf, Failure> {
    flashvm_live::program::find(OsStr::new(name))
        .map(|(path, _)| path)
        .map_err(|_| format!("{name} is missing: install {package}"))
}
