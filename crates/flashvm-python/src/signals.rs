//! Ctrl-C during long work: Python runs its signal handlers only when asked.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Longest delay of a signal handler. Asking takes the interpreter lock, which is too slow to do after each chunk.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Asks Python to run pending signal handlers now. The error is the exception that one raises.
pub(crate) fn check() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Asks at most once an [`INTERVAL`].
pub(crate) struct Signals {
    asked: Instant,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            asked: Instant::now(),
        }
    }

    /// Asks if an [`INTERVAL`] has passed; the error is the exception that a signal handler raises.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if self.asked.elapsed() < INTERVAL {
            return Ok(());
        }
        self.asked = Instant::now();
        check()
    }
}
