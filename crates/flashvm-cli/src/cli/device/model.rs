//! A device model as it is named on the command line: one of the list, or a file that says what a
//! NAND device is made of.

use crate::cli::refusal::Refusal;
use flashvm_sim::device::nand::NandOptions;
use flashvm_sim::{Device, ModelKind};
use serde::Deserialize;
use std::path::Path;

/// The device that `--model` or `--device-model` (`option`) names.
pub(crate) fn named(option: &str, name: &str) -> Result<Device, Refusal> {
    if name.ends_with(".toml") {
        return read(option, Path::new(name));
    }
    let model = name.parse::<ModelKind>();
    let model = model.map_err(|e| Refusal::new(format!("{option}: {e}, or a file.toml")))?;
    Ok(Device::new(model))
}

fn read(option: &str, path: &Path) -> Result<Device, Refusal> {
    let refuse = |why: String| Refusal::new(format!("{option} {}: {why}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|e| refuse(format!("{e}; name a readable TOML file")))?;
    let mut table: toml::Table =
        toml::from_str(&text).map_err(|e| refuse(one_line(e.message())))?;
    let model = match table.remove("model") {
        None => ModelKind::Nand,
        Some(toml::Value::String(name)) => name.parse().map_err(|e| refuse(format!("{e}")))?,
        Some(other) => return Err(refuse(format!("model = {other}: write a name in quotes"))),
    };
    if !matches!(model, ModelKind::Nand | ModelKind::RawNand) {
        let why = format!("model = \"{model}\" is not made of parts: nand and raw-nand are");
        return Err(refuse(why));
    }
    let nand = NandOptions::deserialize(table).map_err(|e| refuse(one_line(e.message())))?;
    Ok(Device {
        nand,
        ..Device::new(model)
    })
}

fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join("; ")
}
