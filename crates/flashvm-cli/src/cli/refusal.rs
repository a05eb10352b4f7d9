//! The one way to say no: a line that names the value and the remedy, and the exit code.

use flashvm::program::Refused;
use std::fmt;

/// Bad input, or a machine that does not allow what was asked.
const BAD_INPUT: u8 = 2;
/// The program is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
const NOT_FOUND: u8 = 127;

/// Why nothing was run.
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

    /// The same with other names for options: that of the command which borrowed a check.
    pub(crate) fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        for (from, to) in names {
            self.line = self.line.replace(from, to);
        }
        self
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl From<Refused> for Refusal {
    /// As env and timeout say it.
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
    /// One line whatever was in the value that is named.
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
