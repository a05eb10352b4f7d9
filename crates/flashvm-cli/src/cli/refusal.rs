//! Refusals: one line that names the value and the remedy, and an exit code.

use flashvm::program::Refused;
use std::fmt;

/// Names a file for the line, beside standard error: for programs that start this command and leave standard
/// error to what it runs.
pub(crate) const FILE_VARIABLE: &str = "FLASHVM_REFUSAL";

/// Bad input, or a machine that does not permit what was asked.
const BAD_INPUT: u8 = 2;
/// The program exists and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The program does not exist.
const NOT_FOUND: u8 = 127;

/// Why the command did nothing.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: u8,
    line: String,
}

impl Refusal {
    /// Bad input.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self {
            code: BAD_INPUT,
            line: line.into(),
        }
    }

    /// The same with another command's names for options, for a shared check.
    pub(crate) fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        for (from, to) in names {
            self.line = self.line.replace(from, to);
        }
        self
    }

    /// Writes the line to the file that the environment names, if it names one. Standard error has it anyway.
    pub(crate) fn leave(&self) {
        if let Some(path) = std::env::var_os(FILE_VARIABLE) {
            let _ = std::fs::write(path, format!("{self}\n"));
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl From<Refused> for Refusal {
    /// The codes of `env` and `timeout`.
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
    /// One line, even if the named value has several.
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
