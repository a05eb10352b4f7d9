//! `flashvm device models`: the list.

use super::args::ModelsArgs;
use crate::cli::refusal::Refusal;
use crate::cli::write_out;
use flashvm_sim::ModelKind;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct ModelLine {
    name: &'static str,
    help: &'static str,
}

pub(super) fn models(args: &ModelsArgs) -> Result<ExitCode, Refusal> {
    let lines = ModelKind::ALL.iter().map(|info| {
        let (name, help) = (info.name, info.help);
        match args.json {
            true => serde_json::to_string(&ModelLine { name, help }).expect("two texts"),
            false => format!("{name:<14}{help}"),
        }
    });
    write_out(&(lines.collect::<Vec<_>>().join("\n") + "\n"))
}
