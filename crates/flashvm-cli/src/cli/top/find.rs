//! Finds the runs on this machine. The supervisor of a run, `flashvm run`, holds its control region: a memfd that
//! `/proc/PID/fd` names. Whoever may read that folder may observe the run: the same user, or root.

use flashvm_live::ProcessState;
use flashvm_live::control::{MEMFD_NAME, Observer, RunSettings};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A run, observed.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its supervisor.
    pub(crate) pid: u32,
    /// The program, with its arguments.
    pub(super) program: String,
    /// The settings of the run.
    pub(super) settings: RunSettings,
    /// Its control region.
    pub(crate) observer: Observer,
    /// When the supervisor started, in clock ticks since boot.
    started: u64,
}

/// Why a process is not observed as a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRun {
    /// There is no such process.
    Gone,
    /// It belongs to somebody else.
    Forbidden,
    /// It is not the supervisor of a run.
    Other,
    /// It supervises a run whose control region has another layout.
    OtherVersion,
    /// The kernel refused.
    Os(Errno),
}

impl fmt::Display for NoRun {
    /// The end of a sentence about a process, with the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "no such process: flashvm top without a PID shows your runs",
            Self::Forbidden => {
                "it belongs to another user, or is protected: only its user and root can look into it"
            }
            Self::Other => {
                "neither flashvm run nor a process in a run of yours: flashvm top without a PID shows your runs"
            }
            Self::OtherVersion => {
                "a run of another version of flashvm: use flashvm top of the same version"
            }
            Self::Os(error) => return write!(f, "{error}"),
        })
    }
}

/// The runs that are observed.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By supervisors' process ids.
    runs: BTreeMap<u32, Run>,
    /// Runs that cannot be observed, and why.
    refused: BTreeMap<u32, NoRun>,
}

impl Runs {
    /// Only the run with this supervisor.
    pub(super) fn only(run: Run) -> Self {
        Self {
            runs: BTreeMap::from([(run.pid, run)]),
            refused: BTreeMap::new(),
        }
    }

    /// Forgets the runs that have ended.
    pub(super) fn forget_ended(&mut self) {
        self.runs
            .retain(|pid, run| started(*pid) == Some(run.started));
    }

    /// Looks for new runs.
    pub(crate) fn find_new(&mut self) {
        self.refused.clear();
        for pid in candidates() {
            if self.runs.contains_key(&pid) {
                continue;
            }
            match attach(pid) {
                Ok(run) => {
                    self.runs.insert(pid, run);
                }
                Err(why @ (NoRun::OtherVersion | NoRun::Os(_))) => {
                    self.refused.insert(pid, why);
                }
                Err(NoRun::Gone | NoRun::Forbidden | NoRun::Other) => {}
            }
        }
    }

    /// The observed runs, ordered by supervisors' process ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// The observed runs.
    pub(crate) fn into_runs(self) -> impl Iterator<Item = Run> {
        self.runs.into_values()
    }

    /// A line about each run that cannot be observed.
    pub(super) fn notices(&self) -> impl Iterator<Item = String> {
        let refused = self.refused.iter();
        refused.map(|(pid, why)| format!("process {pid}: {why}"))
    }
}

impl Run {
    /// How long the supervisor has been running.
    pub(super) fn age(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::new(
            now.tv_sec.try_into().unwrap_or(0),
            now.tv_nsec.try_into().unwrap_or(0),
        );
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let began = Duration::from_nanos(self.started.saturating_mul(1_000_000_000 / ticks));
        now.saturating_sub(began)
    }
}

/// The run that a process id means: the process supervises it, or is in it.
pub(crate) fn run_of(pid: u32) -> Result<Run, NoRun> {
    let other = match attach(pid) {
        Ok(run) => return Ok(run),
        // A process of a run may be unreadable while its supervisor is not: search the runs too.
        Err(why @ (NoRun::Other | NoRun::Forbidden)) => why,
        Err(why) => return Err(why),
    };
    let mut runs = Runs::default();
    runs.find_new();
    let has = |run: &Run| {
        // A run in another PID namespace records ids that mean other processes here.
        run.pid == run.observer.supervisor()
            && run.observer.processes().iter().any(|one| one.pid == pid)
    };
    runs.runs.into_values().find(has).ok_or(other)
}

/// Opens the control region of a supervisor.
fn attach(pid: u32) -> Result<Run, NoRun> {
    let why = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::SRCH) => NoRun::Gone,
        Some(Errno::ACCESS | Errno::PERM) => NoRun::Forbidden,
        Some(errno) => NoRun::Os(errno),
        None => NoRun::Other,
    };
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let mut end = NoRun::Other;
    for entry in std::fs::read_dir(&folder).map_err(why)? {
        let path = entry.map_err(why)?.path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        if !target.to_str().is_some_and(is_control_region) {
            continue;
        }
        // The descriptor may be another file by now: opening it must neither block nor give us a controlling terminal.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(fd) = rustix::fs::open(&path, flags, Mode::empty()) else {
            continue;
        };
        let observer = match Observer::attach(fd.as_fd()) {
            Ok(observer) => observer,
            Err(_) => {
                end = NoRun::OtherVersion;
                continue;
            }
        };
        // A process of the run also holds the region for a moment when it starts: only the supervisor counts.
        if own_pid_of(pid) != Some(observer.supervisor()) {
            continue;
        }
        let (Ok(settings), Some(started)) = (observer.settings(), started(pid)) else {
            end = NoRun::OtherVersion;
            continue;
        };
        return Ok(Run {
            pid,
            program: program(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()),
            settings,
            observer,
            started,
        });
    }
    Err(end)
}

/// Processes that may be supervisors: they run our executable, or one whose name begins with `flashvm`.
fn candidates() -> impl Iterator<Item = u32> {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| {
        // The kernel refuses this for other users' processes, except to root.
        let Ok(path) = std::fs::read_link(format!("/proc/{pid}/exe")) else {
            return false;
        };
        let name = path.file_name().unwrap_or_default();
        path == own || name.as_encoded_bytes().starts_with(b"flashvm")
    })
}

/// Whether a link in `/proc/PID/fd` names a control region.
fn is_control_region(target: &str) -> bool {
    let name = target.strip_prefix("/memfd:");
    let name = name.map(|name| name.strip_suffix(" (deleted)").unwrap_or(name));
    name == Some(MEMFD_NAME)
}

/// When a process started, in clock ticks since boot; `None` if it has ended.
fn started(pid: u32) -> Option<u64> {
    let state = ProcessState::of(pid)?;
    (!state.is_zombie()).then_some(state.started)
}

/// The id of a process in its own PID namespace.
fn own_pid_of(pid: u32) -> Option<u32> {
    innermost_pid(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The last process id in the line `NSpid` of `/proc/PID/status`.
fn innermost_pid(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// The program of a run, from the supervisor's command line: the words after `--`, or all words without it.
fn program(cmdline: &[u8]) -> String {
    let words: Vec<_> = cmdline
        .strip_suffix(b"\0")
        .unwrap_or(cmdline)
        .split(|b| *b == 0)
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    let program = words.iter().position(|word| word == "--");
    let program = program.map_or(&words[..], |at| &words[at + 1..]);
    let text = program.join(" ");
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_regions_are_known_by_name() {
        assert!(is_control_region("/memfd:flashvm-control (deleted)"));
        for other in [
            "/memfd:flashvm-frames (deleted)",
            "/memfd:flashvm-control2 (deleted)",
            "/tmp/memfd:flashvm-control",
            "pipe:[1]",
            "",
        ] {
            assert!(!is_control_region(other), "{other}");
        }
    }

    #[test]
    fn fields_of_proc() {
        assert_eq!(innermost_pid("Name:\tsh\nNSpid:\t900\t7\n"), Some(7));
        assert_eq!(innermost_pid("Name:\tsh\n"), None);
        let own = std::process::id();
        assert!(started(own).is_some() && own_pid_of(own).is_some());
    }

    #[test]
    fn programs_follow_the_dashes() {
        let line = b"flashvm\0run\0--ram\x0064M\0--\0sort\0-o\0a\nb\0";
        assert_eq!(program(line), "sort -o a b");
        assert_eq!(program(b"flashvm\0run\0sort\0"), "flashvm run sort");
        assert_eq!(program(b""), "");
    }

    #[test]
    fn what_is_no_run() {
        assert_eq!(attach(std::process::id()).unwrap_err(), NoRun::Other);
        assert_eq!(attach(u32::MAX).unwrap_err(), NoRun::Gone);
    }

    #[test]
    fn another_version_is_told() {
        let name = rustix::fs::MemfdFlags::CLOEXEC;
        let _memfd = rustix::fs::memfd_create(MEMFD_NAME, name).expect("a memfd");
        assert_eq!(attach(std::process::id()).unwrap_err(), NoRun::OtherVersion);
    }
}
