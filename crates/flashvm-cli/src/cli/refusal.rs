//! Refusals: one line that names the value and the remedy, and an exit code.

use flashvm_live::program::Refused;
use std::fmt;

/// The environment variable that names a file for the line, besides standard error: for programs that start this
/// command and leave its standard error to the program that it runs.
pub(crate) const FILE_VARIABLE: &str = "FLASHVM_REFUSAL";

/// Bad input, or a machine that does not permit what was asked.
pub(crate) const BAD_INPUT: u8 = 2;
/// The program exists, but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The program does not exist.
const NOT_FOUND: u8 = 127;

/// Why the command refused: its line and its exit code.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: u8,
    line: String,
}

impl Refusal {
    /// A refusal with exit code 2; `line` names the value and the remedy.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self {
            code: BAD_INPUT,
            line: line.into(),
        }
    }

    /// Replaces option names (from, to) in the line: commands with other names share a check.
    pub(crate) fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        for (from, to) in names {
            self.line = self.line.replace(from, to);
        }
        self
    }

    /// Writes the line to the file that [`FILE_VARIABLE`] names, if it is set. Errors are ignored: standard error has
    /// the line.
    pub(crate) fn leave(&self) {
        if let Some(path) = std::env::var_os(FILE_VARIABLE) {
            let _ = std::fs::write(path, format!("{self}\n"));
        }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl From<Refused> for Refusal {
    /// 127 and 126 as in `env` and `timeout`; 2 for a program that cannot be paged.
    fn from(refused: Refused) -> Self {
        let code = match &refused {
            Refused::NotFound(_) => NOT_FOUND,
            Refused::NotExecutable(_) => NOT_EXECUTABLE,
            Refused::Unpaged(_) => BAD_INPUT,
        };
        Self {
            code,
            line: refused.to_string(),
        }
    }
}

impl fmt::Display for Refusal {
    /// One line, even if the named value has several: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.line.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
