//! Sweeps: many replacement policies and sizes of memory over one trace.
//!
//! The policies are those of `flashvm_core::policy`, the very code that runs live. The trace is
//! read once ([`References`]); every [`Job`], a policy with a number of frames, then runs over it
//! on its own, on any number of threads. A reference takes four bytes: in RAM while there are few,
//! otherwise in a nameless file, so the memory used does not grow with the trace.
//!
//! - `references`, `spool`: the stored trace; `size`: the syntax of memory sizes;
//! - `ram`: frames, a policy and a device; `watch`: progress, and a way to end a sweep early; `row`: results as text.

mod ram;
mod references;
mod row;
mod size;
mod spool;
mod watch;

pub use ram::{Counts, Observation};
pub use references::References;
pub use row::Row;
pub use size::{MemorySize, SizeError, TooSmall};
pub use watch::Watch;

use crate::device::{nand::GeometryError, page_costs};
use crate::setup::Device;
use crate::trace::TraceError;
use flashvm_core::policy::{BLOCK_PAGES, Policy, PolicyContext, PolicySpec};
use ram::Ram;
use references::unpack;
use spool::{CHUNK, Spool};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Seed of the device's random choices.
const SEED: u64 = 1;

/// A policy with a number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The policy.
    pub policy: PolicySpec,
    /// Frames, at least one.
    pub frames: u32,
    /// What the policy observes.
    pub observation: Observation,
}

impl Job {
    /// Every policy with every number of frames: by number of frames, then by policy.
    #[must_use]
    pub fn all(policies: &[PolicySpec], frames: &[u32], observation: Observation) -> Vec<Self> {
        let jobs = frames.iter().flat_map(|&frames| {
            policies.iter().map(move |&policy| Self {
                policy,
                frames,
                observation,
            })
        });
        jobs.collect()
    }
}

/// The results of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// References simulated.
    pub requests: u64,
    /// Misses, pages read and written, device time.
    pub counts: Counts,
    /// Wall time of the simulation.
    pub wall: Duration,
}

/// Why a sweep is impossible.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has too many pages.
    #[error(
        "the trace has more than 2^30 pages, or pages in more than 2^27 blocks of flash: take a part of it"
    )]
    Pages,
    /// A temporary file for references failed: often the folder is full.
    #[error("a temporary file for references: {0}: name a folder with room in TMPDIR")]
    Spool(#[source] io::Error),
    /// There can be no such device.
    #[error(transparent)]
    Device(#[from] GeometryError),
    /// The device has worn out.
    #[error("{policy} with {frames} frames has worn the device out: give the model more endurance")]
    Worn {
        /// The policy.
        policy: PolicySpec,
        /// Its frames.
        frames: u32,
    },
    /// [`Watch::stop`] was called.
    #[error("the sweep was stopped before its end")]
    Stopped,
}

/// What all jobs share. `next_uses` is for offline policies.
struct Material<'a> {
    references: &'a References,
    next_uses: Option<Spool<u64>>,
    device: &'a Device,
}

/// Runs jobs on `threads` threads and returns their results in the order of `jobs`. `watch` shows the progress and
/// can stop the sweep.
///
/// # Errors
/// If there can be no such device, or it wears out; if a temporary file fails; if the sweep was stopped.
///
/// # Examples
/// ```
/// use flashvm_sim::sweep::{Job, References, Observation, sweep};
/// use flashvm_sim::trace::{Granularity, Kind, Reference, TraceError};
/// use flashvm_sim::{Device, ModelKind};
/// let trace = [1, 2, 3, 1, 2, 3].map(|address| {
///     Ok::<_, TraceError>(Reference { address, bytes: 0, kind: Kind::Read })
/// });
/// let references = References::read(Granularity::Pages, trace)?;
/// let job = |policy: &str| Job { policy: policy.parse().unwrap(), frames: 2, observation: Observation::Full };
/// let device = Device::new(ModelKind::SlcNand);
/// let figures = sweep(&references, &[job("lru"), job("opt")], &device, 1, &Default::default())?;
/// assert_eq!((figures[0].counts.misses, figures[1].counts.misses), (6, 4));
/// # Ok::<(), flashvm_sim::sweep::SweepError>(())
/// ```
pub fn sweep(
    references: &References,
    jobs: &[Job],
    device: &Device,
    threads: usize,
    watch: &Watch,
) -> Result<Vec<Figures>, SweepError> {
    let material = Material::new(references, jobs, device)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else {
                return Ok(results);
            };
            match material.run(job, watch, |_, _| ()) {
                Ok(figures) => results.push((index, figures)),
                Err(e) => {
                    // The other threads begin no further job.
                    next.store(jobs.len(), Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
    };
    let mut results = std::thread::scope(|scope| {
        let threads = (0..threads.clamp(1, jobs.len().max(1))).map(|_| scope.spawn(work));
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        let joined = joined.map(|result| result.unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect::<Result<Vec<_>, SweepError>>()
    })?
    .concat();
    results.sort_unstable_by_key(|&(index, _)| index);
    Ok(results.into_iter().map(|(_, figures)| figures).collect())
}

/// Runs one job; `observe` is called after every fault with the number of its reference and the policy.
///
/// # Errors
/// As [`sweep`].
pub fn observe(
    references: &References,
    job: Job,
    device: &Device,
    observe: impl FnMut(u64, &dyn Policy),
) -> Result<Figures, SweepError> {
    let material = Material::new(references, &[job], device)?;
    material.run(&job, &Watch::default(), observe)
}

impl<'a> Material<'a> {
    fn new(
        references: &'a References,
        jobs: &[Job],
        device: &'a Device,
    ) -> Result<Self, SweepError> {
        let offline = jobs.iter().any(|job| job.policy.kind().is_offline());
        Ok(Self {
            references,
            next_uses: offline.then(|| references.next_uses()).transpose()?,
            device,
        })
    }

    fn run(
        &self,
        job: &Job,
        watch: &Watch,
        mut observe: impl FnMut(u64, &dyn Policy),
    ) -> Result<Figures, SweepError> {
        let begin = Instant::now();
        let places = self.references.places();
        let device_pages = places.iter().max().map_or(BLOCK_PAGES, |place| {
            (place + 1).next_multiple_of(BLOCK_PAGES)
        });
        let build = || self.device.bare(device_pages, SEED);
        let context = PolicyContext {
            pages: self.references.pages(),
            places: Some(places.clone()),
            costs: page_costs(&mut *build()?),
        };
        let policy = job.policy.build(&context, job.frames);
        let mut ram = Ram::new(policy, build()?, &context, job.frames, job.observation);
        let next_uses = self.next_uses.as_ref();
        let next_uses = next_uses.filter(|_| job.policy.kind().is_offline());
        let (mut buffer, mut next_buffer) = (Vec::new(), Vec::new());
        let packed = self.references.packed();
        for index in 0..packed.blocks() {
            if watch.is_stopped() {
                return Err(SweepError::Stopped);
            }
            let block = packed
                .chunk(index, &mut buffer)
                .map_err(SweepError::Spool)?;
            let next_uses = match next_uses {
                Some(next_uses) => next_uses.chunk(index, &mut next_buffer),
                None => Ok(&[][..]),
            };
            let next_uses = next_uses.map_err(SweepError::Spool)?;
            let first = index * CHUNK as u64;
            for (at, &reference) in block.iter().enumerate() {
                if let Some(&next_use) = next_uses.get(at) {
                    ram.foresee(next_use);
                }
                let (page, access) = unpack(reference);
                if ram.reference(page, access) {
                    observe(first + at as u64, ram.policy());
                }
            }
            watch.advance(block.len() as u64);
            if ram.is_worn() {
                return Err(SweepError::Worn {
                    policy: job.policy,
                    frames: job.frames,
                });
            }
        }
        Ok(Figures {
            requests: self.references.len(),
            counts: ram.counts(),
            wall: begin.elapsed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ModelKind;
    use crate::rng::Rng;
    use crate::trace::{Granularity, Kind, Reference};

    /// References in a file give the same results as in RAM, also for an offline policy.
    #[test]
    fn references_in_a_file_are_those_in_ram() {
        let trace = || {
            let mut rng = Rng::new(5);
            (0..200_000).map(move |_| {
                let kind = match rng.below(3) {
                    0 => Kind::Write,
                    _ => Kind::Read,
                };
                let address = rng.below(40) * rng.below(40);
                Ok::<_, TraceError>(Reference {
                    address,
                    bytes: 0,
                    kind,
                })
            })
        };
        let device = Device::new(ModelKind::SlcNand);
        let jobs = ["opt", "craw", "bplru"].map(|policy| Job {
            policy: policy.parse().expect("a policy"),
            frames: 100,
            observation: Observation::Full,
        });
        let counts = [0, usize::MAX].map(|ram_bytes_max| {
            let references = References::read_within(ram_bytes_max, Granularity::Pages, trace());
            let references = references.expect("room on the disk");
            let figures = sweep(&references, &jobs, &device, 2, &Watch::default());
            let figures = figures.expect("a device that does not wear out");
            Vec::from_iter(figures.iter().map(|figures| figures.counts))
        });
        assert_eq!(counts[0], counts[1]);
    }

    #[test]
    fn a_stopped_sweep_says_so_and_one_that_ends_has_counted_all() {
        let trace = (0..3 * CHUNK as u64).map(|at| {
            Ok::<_, TraceError>(Reference {
                address: at % 70,
                bytes: 0,
                kind: Kind::Read,
            })
        });
        let references = References::read(Granularity::Pages, trace).expect("a trace");
        let jobs = [Job {
            policy: "lru".parse().expect("a policy"),
            frames: 10,
            observation: Observation::Full,
        }; 2];
        let device = Device::new(ModelKind::SlcNand);
        let watch = Watch::default();
        sweep(&references, &jobs, &device, 2, &watch).expect("figures");
        assert_eq!(watch.done(), 2 * references.len());
        let watch = Watch::default();
        watch.stop();
        let stopped = sweep(&references, &jobs, &device, 2, &watch);
        assert!(matches!(stopped, Err(SweepError::Stopped)), "{stopped:?}");
        assert_eq!(watch.done(), 0);
    }
}
