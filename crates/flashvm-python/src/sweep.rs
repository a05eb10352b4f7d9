//! Replacement policies over references, without the interpreter's lock.

use crate::errors;
use crate::signals::{self, INTERVAL};
use crate::source::References;
use flashvm_core::policy::PolicySpec;
use flashvm_sim::sweep::{self as sim, Figures, Job, MemorySize, Observation, SweepError, Watch};
use flashvm_sim::{Device, ModelKind};
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

/// The result of a policy with a size: a `dict` in Python, with the keys of `flashvm sim --json`.
#[derive(IntoPyObject)]
pub(crate) struct Line {
    trace: String,
    policy: String,
    frames: u32,
    requests: u64,
    misses: u64,
    page_reads: u64,
    page_writes: u64,
    io_time_us: f64,
    wall_s: f64,
    requests_per_s: f64,
}

/// Runs policies with sizes, both lists in a text as `flashvm sim` takes them. The lines are by size, then by
/// policy.
#[pyfunction]
pub(crate) fn sweep(
    py: Python<'_>,
    references: &Bound<'_, References>,
    policies: &str,
    frames: &str,
    device_model: &str,
    live: bool,
    threads: Option<usize>,
) -> PyResult<Vec<Line>> {
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
    let jobs = sizes.iter().flat_map(|&frames| {
        policies.iter().map(move |&policy| Job {
            policy,
            frames,
            observation,
        })
    });
    let jobs: Vec<_> = jobs.collect();
    let threads =
        threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let figures =
        py.detach(|| watched(|watch| sim::sweep(references, &jobs, &device, threads, watch)))?;
    let lines = jobs.iter().zip(&figures);
    Ok(lines
        .map(|(job, figures)| line(name, job, figures))
        .collect())
}

/// Sweeps on another thread, and stops that when a signal handler raises an exception here.
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

fn line(trace: &str, job: &Job, figures: &Figures) -> Line {
    let (counts, wall_s) = (figures.counts, figures.wall.as_secs_f64());
    Line {
        trace: trace.to_owned(),
        policy: job.policy.to_string(),
        frames: job.frames,
        requests: figures.requests,
        misses: counts.misses,
        page_reads: counts.page_reads,
        page_writes: counts.page_writes,
        io_time_us: counts.io_time.0 as f64 / 1e3,
        wall_s,
        requests_per_s: figures.requests as f64 / wall_s,
    }
}
