//! The touches of a trace: the miss curve of LRU, and the misses of other policies.

use crate::cli::refusal::Refusal;
use crate::cli::sim;
use flashvm_core::PolicySpec;
use flashvm_sim::locality::MissCurve;
use flashvm_sim::sweep::{Job, Observation, References, sweep};
use flashvm_sim::trace::{Format, open};
use flashvm_sim::{Device, ModelKind};
use std::path::Path;

/// Fewest frames of a simulation in small.
const FRAMES_MIN: u64 = 8;

/// The touches of a program, or of a trace.
pub(super) struct Touches {
    curve: MissCurve,
    references: References,
}

/// The misses of a policy, by size of memory.
pub(super) struct Compared {
    pub(super) policy: PolicySpec,
    /// Without the first reference to each page. `None`: the memory is too small for this sample.
    pub(super) misses: Vec<Option<u64>>,
}

impl Touches {
    /// Reads a trace.
    pub(super) fn read(path: &Path, format: Option<Format>) -> Result<Self, Refusal> {
        let trace = open(path, format)?;
        let granularity = trace.granularity();
        let mut curve = MissCurve::new(trace.provenance().shard_bits);
        let references = sim::read(trace, |reference| {
            granularity
                .pages(reference)
                .for_each(|page| curve.add(page));
        })?;
        Ok(Self { curve, references })
    }

    pub(super) fn curve(&self) -> &MissCurve {
        &self.curve
    }

    /// Misses of policies with these sizes of memory. A sample of the pages runs in as much less memory ("miniature
    /// simulation": Waldspurger et al., USENIX ATC 2017).
    pub(super) fn compare(
        &self,
        policies: &[PolicySpec],
        sizes: &[u64],
    ) -> Result<Vec<Compared>, Refusal> {
        if policies.is_empty() {
            return Ok(Vec::new());
        }
        let bits = self.curve.shard_bits();
        let small = |frames: u64| u32::try_from(frames >> bits).unwrap_or(u32::MAX);
        let fits = |frames: u64| bits == 0 || frames >> bits >= FRAMES_MIN;
        let kept = sizes.iter().copied().filter(|&frames| fits(frames));
        let kept = Vec::from_iter(kept.map(|frames| small(frames).max(1)));
        let jobs = Job::all(policies, &kept, Observation::Full);
        let device = Device::new(ModelKind::SlcNand);
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        let figures = sim::watched(&self.references, &jobs, |watch| {
            sweep(&self.references, &jobs, &device, threads, watch)
        })?;
        let first = u64::from(self.references.pages());
        let of = |policy: PolicySpec, frames: u64| {
            let at = jobs
                .iter()
                .position(|job| job.policy == policy && job.frames == small(frames).max(1))?;
            Some((figures[at].counts.misses - first) << bits)
        };
        let compared = policies.iter().map(|&policy| Compared {
            policy,
            misses: sizes
                .iter()
                .map(|&frames| fits(frames).then(|| of(policy, frames)).flatten())
                .collect(),
        });
        Ok(compared.collect())
    }
}
