//! `flashvm device`: device models, a simulated translation layer, measurements of real devices.

mod args;
mod model;
mod models;
mod probe;
mod simulate;

pub(crate) use args::DeviceCommand;
pub(crate) use model::ModelName;

use super::refusal::Refusal;
use std::process::ExitCode;

/// Runs a command of `flashvm device`.
pub(crate) fn device(command: &DeviceCommand) -> Result<ExitCode, Refusal> {
    match command {
        DeviceCommand::Models(args) => models::models(args),
        DeviceCommand::Simulate(args) => simulate::simulate(args),
        DeviceCommand::Probe(args) => probe::probe(args),
    }
}
