//! `flashvm trace`: recording, converting and measuring traces.
//!
//! - `record`: runs a program under Valgrind's lackey; `convert`: any format into our own; `stat`: the
//!   figures of CRAW's section III;
//! - `pipeline`: the steps between a reference and the file; `output`: a file that appears whole;
//! - `figures`: charts of a trace's locality.

mod args;
mod convert;
pub(crate) mod figures;
mod output;
mod pipeline;
mod record;
mod stat;

pub(crate) use args::{TraceCommand, formats};
pub(crate) use output::Output;
pub(crate) use stat::measure;

use super::refusal::Refusal;
use flashvm_sim::trace::{Trace, TraceError};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;

/// Runs a command of `flashvm trace`.
pub(crate) fn trace(command: &TraceCommand) -> Result<ExitCode, Refusal> {
    match command {
        TraceCommand::Record(args) => record::record(args),
        TraceCommand::Convert(args) => convert::convert(args),
        TraceCommand::Stat(args) => stat::stat(args),
    }
}

impl From<TraceError> for Refusal {
    fn from(error: TraceError) -> Self {
        Self::new(error.to_string())
    }
}

/// A progress bar over a trace file's bytes, on standard error if that is a terminal.
pub(crate) fn bar(trace: &Trace) -> ProgressBar {
    let bytes = trace.progress().bytes();
    let template = match bytes {
        0 => "{bytes} read, {bytes_per_sec}, {elapsed}",
        _ => "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
    };
    let style = ProgressStyle::with_template(template).expect("a valid template");
    let bar = match bytes {
        0 => ProgressBar::no_length(),
        bytes => ProgressBar::new(bytes),
    };
    bar.with_style(style)
}
