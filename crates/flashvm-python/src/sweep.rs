//! Replacement policies over references, without the interpreter's lock.

use crate::errors;
use crate::signals::{self, INTERVAL};
use crate::source::References;
use flashvm_core::policy::PolicySpec;
use flashvm_sim::sweep::{
    self as sim, Figures, Job, MemorySize, Observation, Row, SweepError, Watch,
};
use flashvm_sim::{Device, ModelKind};
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

/// Runs each policy with each memory size; both lists are texts as `flashvm sim` takes them. Returns the lines of
/// `flashvm sim --json`, by size, then by policy.
#[pyfunction]
pub(crate) fn sweep(
    py: Python<'_>,
    references: &Bound<'_, References>,
    policies: &str,
    frames: &str,
    device_model: &str,
    live: bool,
    threads: Option<usize>,
) -> PyResult<Vec<String>> {
    let References {
        name,
        inner: references,
    } = references.get();
    let policies = PolicySpec::list(policies).map_err(errors::value)?;
    let sizes = MemorySize::list(frames).map_err(errors::value)?;
    let sizes = sizes.iter().map(|size| size.frames(references.pages()));
    let sizes = sizes
        .collect::<Result<Vec<_>, _>>()
        .map_err(errors::value)?;
    let device = Device::new(device_model.parse::<ModelKind>().map_err(errors::value)?);
    let observation = match live {
        true => Observation::Live,
        false => Observation::Full,
    };
    let jobs = Job::all(&policies, &sizes, observation);
    let threads =
        threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let figures =
        py.detach(|| watched(|watch| sim::sweep(references, &jobs, &device, threads, watch)))?;
    let rows = jobs.iter().zip(&figures);
    Ok(rows
        .map(|(job, figures)| Row::new(name, job, figures).to_json())
        .collect())
}

/// Sweeps on another thread, and stops the sweep when a signal handler raises an exception on this one.
fn watched(
    work: impl FnOnce(&Watch) -> Result<Vec<Figures>, SweepError> + Send,
) -> PyResult<Vec<Figures>> {
    let watch = &Watch::default();
    std::thread::scope(|scope| {
        let (sender, results) = sync_channel(1);
        let worker = scope.spawn(move || sender.send(work(watch)));
        let mut raised = None;
        let result = loop {
            match results.recv_timeout(INTERVAL) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                    if let Err(error) = signals::check() {
                        raised = Some(error);
                        watch.stop();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = worker.join().expect_err("it has sent nothing");
                    std::panic::resume_unwind(panic)
                }
            }
        };
        match (raised, result) {
            (Some(error), _) => Err(error),
            (None, result) => result.map_err(|e| errors::sweep(&e)),
        }
    })
}
