//! The parts of the command.
//!
//! - `args`, `config`, `units`: what was asked for, on the command line or in a file;
//! - `machine`, `program`, `store`: whether it can be done, before anything is begun;
//! - `run`, `supervise`, `sys`: doing it;
//! - `summary`, `progress`: telling what happened;
//! - `doctor`: what this machine allows;
//! - `heap`: persistent heaps;
//! - `reproduce`: tables and figures of the papers.

mod args;
mod config;
mod doctor;
mod heap;
mod machine;
mod progress;
mod refusal;
mod reproduce;
mod run;
mod store;
mod summary;
mod supervise;
mod sys;
mod units;

use args::{Command, parse};
use refusal::Refusal;
use std::process::ExitCode;

/// Runs the command of this process's arguments.
pub(crate) fn main() -> Result<ExitCode, Refusal> {
    match parse(std::env::args_os())? {
        None => Ok(ExitCode::SUCCESS),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Doctor(args)) => doctor::doctor(&args),
        Some(Command::Heap(command)) => heap::heap(&command),
        Some(Command::Reproduce(args)) => reproduce::reproduce(&args),
    }
}
