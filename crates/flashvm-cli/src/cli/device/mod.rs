//! `flashvm device`: the device models, a translation layer alone, and what a real device does.

mod args;
pub(super) mod model;
mod models;
mod probe;
mod simulate;

pub(crate) use args::DeviceCommand;
pub(crate) use model::named;

use super::refusal::Refusal;
use std::process::ExitCode;

/// Runs one of its commands.
pub(crate) fn device(command: &DeviceCommand) -> Result<ExitCode, Refusal> {
    match command {
        DeviceCommand::Models(args) => models::models(args),
        DeviceCommand::Simulate(args) => simulate::simulate(args),
        DeviceCommand::Probe(args) => probe::probe(args),
    }
}
