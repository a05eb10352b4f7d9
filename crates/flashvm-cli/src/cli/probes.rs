//! `flashvm probes`: where bpftrace, perf and gdb find the pager's static probes, and what their arguments are. The probes
//! lie in the object that programs load, which often is a nameless file of the run's supervisor.

use super::object;
use super::refusal::Refusal;
use super::top::{Run, Runs, parse_pid, run_of};
use super::write_out;
use clap::Args;
use flashvm_live::PROBES;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) const PROBES_EXAMPLES: &str = "\
Examples:
  flashvm probes --list
  flashvm probes 4711
  bpftrace contrib/bpftrace/faults.bt \"$(flashvm probes 4711)\"
  gdb -p 4711 -ex 'info probes stap flashvm'

PID is a flashvm run or a process in one. Without PID there has to be one run of yours. A probe that nobody looks at
costs nothing. To look at it takes root.";

/// `flashvm probes`.
#[derive(Debug, Args)]
pub(crate) struct ProbesArgs {
    /// The run: the process id of flashvm run, or of a process in it [default: the only run]
    #[arg(value_name = "PID", value_parser = parse_pid, conflicts_with = "list")]
    pid: Option<u32>,
    /// List the probes and their arguments
    #[arg(long)]
    list: bool,
}

/// Prints the path of a run's object, or the list of probes.
pub(super) fn probes(args: &ProbesArgs) -> Result<ExitCode, Refusal> {
    if args.list {
        return write_out(&list());
    }
    let run = match args.pid {
        Some(pid) => {
            run_of(pid).map_err(|why| Refusal::new(format!("probes: process {pid}: {why}")))?
        }
        None => only_run()?,
    };
    let path = object_of(&run).ok_or_else(|| {
        Refusal::new(format!(
            "probes: process {}: none of its programs has loaded the object yet: try again",
            run.pid
        ))
    })?;
    write_out(&format!("{}\n", path.display()))
}

fn list() -> String {
    let lines = PROBES.iter().map(|probe| {
        let name = format!("{}({})", probe.name, probe.arguments.join(", "));
        format!("{name:<36}{}\n", probe.meaning)
    });
    lines.collect()
}

fn only_run() -> Result<Run, Refusal> {
    let mut runs = Runs::default();
    runs.find_new();
    let mut all: Vec<Run> = runs.into_runs().collect();
    match (all.pop(), all.len()) {
        (Some(run), 0) => Ok(run),
        (None, _) => Err(Refusal::new(
            "probes: no run of yours: start one with flashvm run, or see the probes with --list",
        )),
        (Some(last), others) => Err(Refusal::new(format!(
            "probes: {} runs of yours: name one, for example {}",
            others + 1,
            last.pid
        ))),
    }
}

/// A path of the object that a run's programs load.
fn object_of(run: &Run) -> Option<PathBuf> {
    object::memfd_of(run.pid).or_else(|| {
        let processes = run.observer.processes();
        processes
            .iter()
            .find_map(|process| file_in_maps(process.pid))
    })
}

/// The object's file, as a process has it mapped.
fn file_in_maps(pid: u32) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let path = paths
        .map(Path::new)
        .find(|path| path.ends_with(object::NAME))?;
    Some(path.to_owned())
}
