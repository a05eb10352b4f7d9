//! The parts of the command.
//!
//! - `args`: the commands; `options`: the table of a run's options; `units`: sizes, durations, switches;
//! - `machine`, `memory`: checks before a run starts; `run_store`: its store, which is a `store` of this machine, at a
//!   server (`nbd`), or a `mirror` of two of these; `environment`: containers and services, and remedies there;
//! - `run`, `supervise`, `sys`: the run; `serve`, `door`: a run for processes that run already; `object`: the preloaded object; `modelled`: the device model;
//!   `reference_trace`: the trace; `saved_pages`: the order of pages that is saved and followed;
//! - `outcome`: the result of a run; `summary`, `progress`: reports of it; `run_report`: a page of it; `top`: what runs are doing, seen
//!   from outside; `probes`: for tracers; `metrics`: its counters for Prometheus; `result_file`: files written at
//!   the end; `scratch`: files that go with the command;
//! - `device`: device models, and measurements of real devices;
//! - `trace`: recording, converting and measuring traces; `sim`: replacement policies over them; `size`: how much RAM a
//!   program needs;
//! - `heap`: persistent heaps;
//! - `reproduce`: papers' tables and figures, measured again; `report`: tables and charts as files;
//! - `doctor`: what this machine supports; `documents`: manual pages and completions.

mod args;
mod cgroups;
mod device;
mod doctor;
mod documents;
mod door;
mod environment;
mod heap;
mod machine;
mod memory;
mod metrics;
mod mirror;
mod modelled;
mod nbd;
mod object;
mod options;
mod outcome;
mod probes;
mod progress;
mod reference_trace;
mod refusal;
mod report;
mod reproduce;
mod result_file;
mod run;
mod run_report;
mod run_store;
mod saved_pages;
mod scratch;
mod serve;
mod shard;
mod shared_file;
mod sides;
mod sim;
mod single_store;
mod size;
mod store;
mod stripe;
mod summary;
mod supervise;
mod sys;
mod tier;
mod tls;
mod top;
mod trace;
mod units;

use args::{Command, command, parse};
use refusal::Refusal;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the command that this process's arguments name.
pub(crate) fn main() -> Result<ExitCode, Refusal> {
    execute(std::env::args_os())
}

/// Runs the command that these arguments name.
fn execute(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Refusal> {
    match parse(args)? {
        None => Ok(ExitCode::SUCCESS),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Serve(args)) => serve::serve(args),
        Some(Command::Top(args)) => top::top(&args),
        Some(Command::Probes(args)) => probes::probes(&args),
        Some(Command::Report(args)) => run_report::report(&args),
        Some(Command::Doctor(args)) => doctor::doctor(args.flash.as_deref(), args.json),
        Some(Command::Heap(command)) => heap::heap(&command),
        Some(Command::Device(command)) => device::device(&command),
        Some(Command::Reproduce(command)) => reproduce::reproduce(&command),
        Some(Command::Trace(command)) => trace::trace(&command),
        Some(Command::Sim(args)) => sim::sim(&args),
        Some(Command::Size(args)) => size::size(&args),
        Some(Command::Man(args)) => documents::man(command(), &args),
        Some(Command::Completions(args)) => documents::completions(command(), &args),
    }
}

/// Prints a result. A closed pipe is no error.
fn write_out(text: &str) -> Result<ExitCode, Refusal> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(Refusal::new(format!("standard output: {e}"))),
    }
}
