//! A device model named on the command line: one of the list, or a file with the parts of a NAND device.

use crate::cli::refusal::Refusal;
use flashvm_sim::device::nand::NandOptions;
use flashvm_sim::{Device, ModelKind};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The value of `--model` and `--device-model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    Known(ModelKind),
    File(PathBuf),
}

impl ModelName {
    /// The device; a refusal names `option`.
    pub(crate) fn device(&self, option: &str) -> Result<Device, Refusal> {
        match self {
            Self::Known(model) => Ok(Device::new(*model)),
            Self::File(path) => read(option, path),
        }
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with(".toml") {
            return Ok(Self::File(text.into()));
        }
        let model = text.parse().map(Self::Known);
        model.map_err(|e| format!("{e}, or a file.toml"))
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(model) => model.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
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
    let is_open_blocks = |key: &String| key == "open-blocks";
    let why = match model {
        ModelKind::BlockNand if table.keys().all(is_open_blocks) => None,
        ModelKind::BlockNand => Some("block-nand has one part: open-blocks".to_owned()),
        ModelKind::Nand | ModelKind::RawNand if !table.keys().any(is_open_blocks) => None,
        ModelKind::Nand | ModelKind::RawNand => {
            Some("open-blocks is a part of block-nand: write model = \"block-nand\"".to_owned())
        }
        _ => Some(format!(
            "model = \"{model}\" has no parts: nand, raw-nand and block-nand have"
        )),
    };
    if let Some(why) = why {
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
