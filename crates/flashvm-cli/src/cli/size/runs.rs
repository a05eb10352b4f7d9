//! Runs of the program: `flashvm run` as a child, and what its statistics say.

use super::SizeArgs;
use super::forecast::{FRAMES_MIN, Run};
use crate::cli::refusal::Refusal;
use crate::cli::scratch::Scratch;
use crate::cli::sys::{self, Signals};
use crate::cli::units::Size;
use flashvm_core::PAGE_SIZE;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Interval of looks at the child.
const LOOK: Duration = Duration::from_millis(100);

/// What of `--stats` is used.
#[derive(Deserialize)]
struct Stats {
    ram_budget_pages: u64,
    totals: Totals,
}

#[derive(Deserialize)]
struct Totals {
    elapsed_s: f64,
    resident_pages_max: u64,
    faults: Faults,
}

#[derive(Deserialize)]
struct Faults {
    major: u64,
    waited: u64,
}

/// Runs the program with what the arguments say.
pub(super) struct Runs<'a> {
    args: &'a SizeArgs,
    own: PathBuf,
    folder: Scratch,
    trace: PathBuf,
    signals: Signals,
}

impl<'a> Runs<'a> {
    pub(super) fn new(args: &'a SizeArgs) -> Result<Self, Refusal> {
        let fail =
            |e: io::Error| Refusal::new(format!("no temporary folder: {e}: name one in TMPDIR"));
        let own = std::env::current_exe()
            .map_err(|e| Refusal::new(format!("/proc/self/exe: {e}: mount /proc")))?;
        let folder = Scratch::new().map_err(fail)?;
        let trace = match &args.keep {
            Some(path) => path.clone(),
            None => folder.path().join("touches.fvt"),
        };
        let signals = Signals::take(&sys::SUPERVISED)
            .map_err(|e| Refusal::new(format!("signals cannot be handled: {e}")))?;
        Ok(Self {
            args,
            own,
            folder,
            trace,
            signals,
        })
    }

    /// The trace of the observed run.
    pub(super) fn trace(&self) -> &Path {
        &self.trace
    }

    /// A run that observes a sample of the pages.
    pub(super) fn observed(&self) -> Result<Run, Refusal> {
        let mut command = self.command(self.args.ram);
        command.arg("--shards").arg("--trace").arg(&self.trace);
        self.run(command, self.args.ram, f64::INFINITY)
    }

    /// The same run without observation.
    pub(super) fn unobserved(&self) -> Result<Run, Refusal> {
        let command = self.command(self.args.ram);
        self.run(command, self.args.ram, f64::INFINITY)
    }

    /// A run with so many frames, which is ended after `most` seconds.
    pub(super) fn paged(&self, frames: u64, most: f64) -> Result<Run, Refusal> {
        let ram = Some(Size(frames.max(FRAMES_MIN) * PAGE_SIZE as u64));
        self.run(self.command(ram), ram, most)
    }

    fn stats(&self) -> PathBuf {
        self.folder.path().join("stats.json")
    }

    fn command(&self, ram: Option<Size>) -> Command {
        let mut command = Command::new(&self.own);
        command
            .arg("run")
            .arg("--quiet")
            .arg("--stats")
            .arg(self.stats());
        if let Some(Size(bytes)) = ram {
            command.arg("--ram").arg(bytes.to_string());
        }
        if let Some(path) = &self.args.flash {
            command.arg("--flash").arg(path);
        }
        if let Some(path) = &self.args.config {
            command.arg("--config").arg(path);
        }
        command
    }

    fn run(&self, mut command: Command, ram: Option<Size>, most: f64) -> Result<Run, Refusal> {
        let name = self.args.program[0].display().to_string();
        let with = ram.map_or(String::new(), |ram| format!(" in {ram} of RAM"));
        command.arg("--").args(&self.args.program);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let bar = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a valid template"),
        );
        bar.set_message(format!("runs {name}{with}"));
        bar.enable_steady_tick(LOOK);
        let ended = self.wait(command, most);
        bar.finish_and_clear();
        let ended = ended.map_err(|e| Refusal::new(format!("{}: {e}", self.own.display())))?;
        let (status, is_cut) = ended;
        if !status.success() && !is_cut {
            return Err(Refusal::new(format!(
                "{name}{with}: {status}: the time of a run that fails says nothing"
            )));
        }
        let path = self.stats();
        let read = || -> io::Result<Stats> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
        let stats = read().map_err(|e| Refusal::new(format!("{}: {e}", path.display())))?;
        Ok(Run {
            frames: stats.ram_budget_pages,
            frames_used: stats.totals.resident_pages_max,
            seconds: stats.totals.elapsed_s,
            waits: stats.totals.faults.major + stats.totals.faults.waited,
            is_cut,
        })
    }

    /// Waits for the child, and ends it after `most` seconds: then the second value is true. Signals of the terminal reach it as
    /// well; others are passed on.
    fn wait(&self, mut command: Command, most: f64) -> io::Result<(ExitStatus, bool)> {
        self.signals.prepare(&mut command);
        let mut child = command.spawn()?;
        let begun = Instant::now();
        let mut is_cut = false;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.as_nanos() as _,
        };
        loop {
            while let Some(received) = self.signals.next() {
                if received.number != libc::SIGCHLD && !received.from_terminal {
                    sys::send(Pid::from_child(&child), received.number);
                }
            }
            if let Some(status) = child.try_wait()? {
                return Ok((status, is_cut));
            }
            if begun.elapsed().as_secs_f64() > most && !is_cut {
                is_cut = true;
                sys::send(Pid::from_child(&child), libc::SIGTERM);
            }
            let mut fds = [PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN)];
            // Interrupted or failed: the next look checks everything anyway.
            let _ = poll(&mut fds, Some(&timeout));
        }
    }
}
