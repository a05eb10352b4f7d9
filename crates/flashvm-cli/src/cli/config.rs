//! The configuration file of a run: the options of the command line as TOML keys.

use super::args::RunOptions;
use super::refusal::Refusal;
use std::path::Path;

/// Reads the options in `path`.
pub(crate) fn read(path: &Path) -> Result<RunOptions, Refusal> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Refusal::new(format!("--config {shown}: {e}; name a readable TOML file")))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| {
            1 + text[..span.start.min(text.len())]
                .bytes()
                .filter(|b| *b == b'\n')
                .count()
        });
        let message: Vec<&str> = e.message().lines().collect();
        Refusal::new(format!(
            "--config {shown}, line {line}: {}",
            message.join("; ")
        ))
    })
}
