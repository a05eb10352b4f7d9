//! Ctrl-C during long work: Python runs its signal handlers only when it is asked to.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// How long a signal waits at most. To ask costs a turn of the interpreter lock, so not after each chunk.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Asks now.
pub(crate) fn check() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Asks every [`INTERVAL`].
pub(crate) struct Signals {
    asked: Instant,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            asked: Instant::now(),
        }
    }

    /// The exception that a signal handler has raised, if it is time to ask.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if self.asked.elapsed() < INTERVAL {
            return Ok(());
        }
        self.asked = Instant::now();
        check()
    }
}
