//! `flashvm top`: what the runs on this machine are doing. It maps their control regions read-only and compares
//! two snapshots, by default a second apart. It stores nothing and takes no lock there, so the runs are undisturbed.
//!
//! - `find`: the runs on this machine; `reading`: two snapshots of them become rates;
//! - `columns`, `rows`, `facts`, `compact`: the parts of a reading that are shown, as text;
//! - `text`, `json`: a reading without a terminal;
//! - `view`: the screen; `state`: what it shows, and how keys change it; `screen`: the terminal; `live`: the loop.

mod columns;
mod compact;
mod details;
mod facts;
mod find;
mod json;
mod live;
mod reading;
mod rows;
mod screen;
mod state;
#[cfg(test)]
mod testing;
mod text;
mod view;

use super::refusal::Refusal;
use clap::Args;
pub(super) use find::{Run, Runs, run_of};
use reading::{Reading, RunSnapshot, Snapshot};
use rows::RowId;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  flashvm top
  flashvm top 4711
  flashvm top --once
  flashvm top --once --json | jq '.runs[].totals.faults'
  flashvm top --json --interval 5 4711 > readings.jsonl

Shown are the runs of your user; of all users to root. PID is a flashvm run or a process in one.
Keys: q quits, s sorts by the next column, r reverses, f or space freezes, j k or arrows choose a
row, enter shows its details, ? explains keys and columns. The runs are not disturbed.";

/// `flashvm top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The run to show: the process id of flashvm run, or of a process in it [default: all runs]
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pid: Option<u32>,
    /// Print one reading over an interval as plain text, and end
    #[arg(long)]
    once: bool,
    /// Print readings as JSON, an object a line; the counters have the names of run --stats
    #[arg(long)]
    json: bool,
    /// Seconds between readings: 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
}

/// A process id.
pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text
        .parse()
        .ok()
        .filter(|pid| (1..=i32::MAX as u32).contains(pid));
    pid.ok_or_else(|| {
        format!("'{text}' is no process id: flashvm top without a PID shows your runs")
    })
}

/// Seconds, with a fraction.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds
        .ok_or_else(|| format!("'{text}' is no interval: write seconds from 0.1 to 3600"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Shows what runs are doing.
pub(super) fn top(args: &TopArgs) -> Result<ExitCode, Refusal> {
    let mut watch = Watch::new(args.pid)?;
    if args.once || args.json {
        return print(args, &mut watch);
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Refusal::new(
            "top: standard input and output are no terminal: add --once, or --json",
        ));
    }
    live::live(watch, args.interval)
}

/// Prints one reading; with `--json` but without `--once`, one after the other until the run ends.
fn print(args: &TopArgs, watch: &mut Watch) -> Result<ExitCode, Refusal> {
    let mut before = watch.snapshot();
    loop {
        std::thread::sleep(args.interval);
        let now = watch.snapshot();
        if watch.ended {
            return match args.once {
                true => Err(Refusal::new("top: the run ended before the reading")),
                false => Ok(ExitCode::SUCCESS),
            };
        }
        let reading = Reading::between(Some(&before), &now);
        let text = match args.json {
            true => json::line(&reading).map_err(|e| Refusal::new(format!("--json: {e}")))?,
            false => text::lines(&reading, &watch.notices()),
        };
        let mut stdout = std::io::stdout().lock();
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) if !args.once => {}
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(Refusal::new(format!("standard output: {e}"))),
        }
        before = now;
    }
}

/// The runs that are watched.
#[derive(Debug)]
struct Watch {
    runs: Runs,
    /// All runs are watched, new ones included; otherwise a single one.
    all: bool,
    /// A single run was watched and has ended.
    ended: bool,
    /// The row of the process that was asked for.
    chosen: Option<RowId>,
    began: Instant,
}

impl Watch {
    /// Watches all runs, or the run that `pid` means.
    fn new(pid: Option<u32>) -> Result<Self, Refusal> {
        let run = pid.map(|pid| {
            run_of(pid).map_err(|why| Refusal::new(format!("top: process {pid}: {why}")))
        });
        let run = run.transpose()?;
        let chosen = run.as_ref().map(|run| RowId {
            run: run.pid,
            process: pid.filter(|&pid| pid != run.pid),
        });
        Ok(Self {
            all: run.is_none(),
            runs: run.map_or_else(Runs::default, Runs::only),
            ended: false,
            chosen,
            began: Instant::now(),
        })
    }

    /// The runs as they are now.
    fn snapshot(&mut self) -> Snapshot {
        self.runs.forget_ended();
        if self.all {
            self.runs.find_new();
        }
        let at = self.began.elapsed();
        let runs: Vec<_> = self.runs.iter().map(run_snapshot).collect();
        self.ended = !self.all && runs.is_empty();
        Snapshot { at, runs }
    }

    /// Lines on runs that cannot be observed.
    fn notices(&self) -> Vec<String> {
        self.runs.notices().collect()
    }
}

fn run_snapshot(run: &Run) -> RunSnapshot {
    RunSnapshot {
        pid: run.pid,
        program: run.program.clone(),
        preset: run.settings.preset,
        policy: run.settings.engine.policy,
        compresses: run.settings.engine.compress.is_on(),
        elapsed: run.age(),
        run: run.observer.run(),
        processes: run.observer.processes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(parse_pid("4711"), Ok(4711));
        for bad in ["0", "-1", "abc", "", "99999999999", "1.5"] {
            let line = parse_pid(bad).unwrap_err();
            assert!(line.contains(&format!("'{bad}'")), "{line}");
        }
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "1e9", "soon", ""] {
            let line = parse_interval(bad).unwrap_err();
            assert!(line.contains(&format!("'{bad}'")), "{line}");
        }
    }
}
