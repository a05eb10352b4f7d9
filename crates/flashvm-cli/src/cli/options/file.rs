//! The configuration file of a run: the options of the command line as TOML keys.

use super::spec::{Applies, Spec};
use super::table::{RunOptions, TABLE};
use crate::cli::refusal::Refusal;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

impl RunOptions {
    /// These options; the configuration file fills the gaps.
    pub(crate) fn with_file(self) -> Result<Self, Refusal> {
        match &self.config {
            None => Ok(self),
            Some(path) => {
                let file = read(path)?;
                Ok(self.or(file))
            }
        }
    }
}

fn read(path: &Path) -> Result<RunOptions, Refusal> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Refusal::new(format!("--config {shown}: {e}; name a readable TOML file")))?;
    parse(&text).map_err(|(at, why)| {
        let before = text.bytes().take(at).filter(|b| *b == b'\n').count();
        Refusal::new(format!("--config {shown}, line {}: {why}", before + 1))
    })
}

/// Parses the options in a text; the error has a byte offset in `text` and the cause.
pub(super) fn parse(text: &str) -> Result<RunOptions, (usize, String)> {
    let at = |span: Option<Range<usize>>| span.map_or(0, |span| span.start);
    let table = DeTable::parse(text).map_err(|e| {
        let message = Vec::from_iter(e.message().lines()).join("; ");
        (at(e.span()), message)
    })?;
    let mut options = RunOptions::default();
    for (key, value) in table.get_ref() {
        let spec = known(key.get_ref()).map_err(|why| (key.span().start, why))?;
        set(spec, &mut options, value.get_ref())
            .map_err(|why| (value.span().start, format!("`{}`: {why}", spec.name)))?;
    }
    Ok(options)
}

/// The option that a key names.
fn known(key: &str) -> Result<&'static Spec, String> {
    match TABLE.iter().find(|spec| spec.name == key) {
        Some(spec) if spec.applies == Applies::CommandLine => Err(format!(
            "`{key}` is for the command line alone: write --{key} there"
        )),
        Some(spec) => Ok(spec),
        None => {
            let known = TABLE
                .iter()
                .filter(|spec| spec.applies != Applies::CommandLine);
            let known = known.map(|spec| format!("`{}`", spec.name));
            let known = Vec::from_iter(known).join(", ");
            Err(format!("unknown key `{key}`: known are {known}"))
        }
    }
}

fn set(spec: &Spec, options: &mut RunOptions, value: &DeValue<'_>) -> Result<(), String> {
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        DeValue::Boolean(true) => "on",
        DeValue::Boolean(false) => "off",
        _ => return Err("write a text in quotes, a decimal number, true or false".to_owned()),
    };
    (spec.kind.set)(options, text.as_ref())
}
