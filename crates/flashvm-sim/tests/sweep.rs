//! Sweeps against known answers, and what every policy promises over whole traces.

use flashvm_core::PolicyKind;
use flashvm_core::policy::PolicySpec;
use flashvm_sim::sweep::{Counts, Figures, Job, Observation, References, Watch, sweep};
use flashvm_sim::trace::{Granularity, Kind, Reference, TraceError};
use flashvm_sim::{Device, ModelKind, Rng, trace};
use std::path::PathBuf;
use std::sync::OnceLock;

fn read(name: &str) -> References {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let trace = trace::open(&folder.join(name), None).expect("a trace");
    References::read(trace.granularity(), trace).expect("a trace")
}

/// 113,872 requests of a CloudPhysics trace, as it comes with libCacheSim.
fn cloud() -> &'static References {
    static TRACE: OnceLock<References> = OnceLock::new();
    TRACE.get_or_init(|| read("cloudPhysicsIO.txt.zst"))
}

/// Loads and stores of gcc, a trace for courses on computer architecture.
fn gcc() -> &'static References {
    static TRACE: OnceLock<References> = OnceLock::new();
    TRACE.get_or_init(|| read("gcc.trace.gz"))
}

fn run(references: &References, jobs: &[Job]) -> Vec<Figures> {
    let device = Device::new(ModelKind::SlcNand);
    sweep(references, jobs, &device, 2, &Watch::default()).expect("a sweep")
}

fn misses(references: &References, policies: &str, frames: u32) -> Vec<u64> {
    let policies = PolicySpec::list(policies).expect("policies");
    let jobs: Vec<_> = policies
        .into_iter()
        .map(|policy| Job {
            policy,
            frames,
            observation: Observation::Full,
        })
        .collect();
    let figures = run(references, &jobs);
    figures
        .iter()
        .map(|figures| figures.counts.misses)
        .collect()
}

const KNOWN: &str = "lru,fifo,clock(insert=clear),sieve,arc,car,opt";

/// Miss counts from libCacheSim's own tests, or computed twice independently.
#[test]
fn known_answers_cloud_physics() {
    let trace = cloud();
    assert_eq!((trace.len(), trace.pages()), (113_872, 48_974));
    for (frames, known) in [
        (
            400,
            [95_593, 96_939, 95_465, 94_494, 94_368, 94_398, 90_975],
        ),
        (
            2000,
            [94_189, 94_588, 94_081, 93_411, 92_829, 92_843, 81_870],
        ),
        (
            8000,
            [87_740, 87_596, 87_731, 84_794, 82_230, 82_450, 64_766],
        ),
    ] {
        assert_eq!(misses(trace, KNOWN, frames), known, "{frames} frames");
    }
}

#[test]
fn known_answers_gcc() {
    let trace = gcc();
    let sizes = (trace.len(), trace.pages(), trace.pages_written());
    assert_eq!(sizes, (515_683, 294, 154));
    let known = [736, 1375, 797, 732, 732, 756, 491];
    assert_eq!(misses(trace, KNOWN, 32), known);
}

fn everything(frames: &[u32], observation: Observation) -> Vec<Job> {
    let policies = PolicyKind::ALL.iter();
    let jobs = policies.flat_map(|info| {
        frames.iter().map(move |&frames| Job {
            policy: info.kind.into(),
            frames,
            observation,
        })
    });
    jobs.collect()
}

/// No policy that observes every reference misses less often than OPT. All miss every page at least
/// once, and exactly once if all pages fit. The same run gives the same figures. Without padded blocks
/// (BPLRU), no more pages are written than read.
#[test]
fn no_policy_does_better_than_opt_and_every_run_is_the_same() {
    for (trace, sizes) in [(gcc(), [4, 32, 294]), (cloud(), [16, 3000, 48_974])] {
        for observation in [Observation::Full, Observation::Live, Observation::Protected] {
            let jobs = everything(&sizes, observation);
            let first = run(trace, &jobs);
            let again = run(trace, &jobs);
            let opt = &first[..sizes.len()];
            for (index, (job, figures)) in jobs.iter().zip(&first).enumerate() {
                let counts = figures.counts;
                assert_eq!(counts, again[index].counts, "{job:?}");
                let bound = opt[index % sizes.len()].counts;
                if observation == Observation::Full {
                    assert!(counts.misses >= bound.misses, "{job:?}");
                }
                assert!(counts.misses >= u64::from(trace.pages()), "{job:?}");
                if job.frames == trace.pages() {
                    assert_eq!(counts.misses, u64::from(trace.pages()), "{job:?}");
                    assert_eq!(counts.page_writes, 0, "{job:?}");
                }
                if job.policy.kind() != PolicyKind::Bplru {
                    assert_eq!(counts.page_reads, counts.misses, "{job:?}");
                    assert!(counts.page_writes <= counts.misses, "{job:?}");
                    let time = counts.page_reads * 50_000 + counts.page_writes * 400_000;
                    assert_eq!(counts.io_time.0, time, "{job:?}");
                }
            }
        }
    }
}

/// Frames for three pages. The fault on page 4 evicts page 1 and clears the bits of 2, which is dirty, and 3: then a
/// load of 2 is observed by a pager, its first store only by one that withdraws the right to write.
#[test]
fn access_rights_show_stores_to_dirty_pages() {
    let references = [
        (1, 'r'),
        (2, 'w'),
        (3, 'r'),
        (4, 'r'),
        (2, 'r'),
        (2, 'w'),
        (2, 'w'),
        (2, 'r'),
    ];
    let trace = references.map(|(address, kind)| {
        Ok::<_, TraceError>(Reference {
            address,
            bytes: 0,
            kind: if kind == 'w' { Kind::Write } else { Kind::Read },
        })
    });
    let references = References::read(Granularity::Pages, trace).expect("a trace");
    for (observation, observed) in [
        (Observation::Full, 4),
        (Observation::Live, 1),
        (Observation::Protected, 2),
    ] {
        let policy = "clock".parse().expect("a policy");
        let job = Job {
            policy,
            frames: 3,
            observation,
        };
        let counts = run(&references, &[job])[0].counts;
        assert_eq!(
            (counts.misses, counts.observed),
            (4, observed),
            "{observation:?}"
        );
    }
}

/// The counts of `tenure` and of a fixed share under observation, as a live pager observes them.
fn tenure_and_fixed(mut page: impl FnMut(&mut Rng) -> u64) -> [Counts; 2] {
    let mut rng = Rng::new(7);
    let trace = (0..1_000_000).map(|_| {
        Ok::<_, TraceError>(Reference {
            address: page(&mut rng),
            bytes: 0,
            kind: Kind::Read,
        })
    });
    let references = References::read(Granularity::Pages, trace).expect("a trace");
    let jobs = ["tenure", "segmented-fifo(inactive=0.06)"].map(|policy| Job {
        policy: policy.parse().expect("a policy"),
        frames: 1024,
        observation: Observation::Live,
    });
    let figures = run(&references, &jobs);
    [figures[0].counts, figures[1].counts]
}

#[test]
fn tenure_observes_more_where_that_saves_misses() {
    // Nine in ten references are to a set in use that leaves 174 frames to others.
    let [tenure, fixed] = tenure_and_fixed(|rng| match rng.below(10) {
        0 => 1_000 + rng.below(25_000),
        _ => rng.below(850),
    });
    assert!(
        3 * tenure.misses < 2 * fixed.misses,
        "{} and {} misses",
        tenure.misses,
        fixed.misses
    );
}

#[test]
fn tenure_observes_less_where_all_pages_are_alike() {
    let [tenure, fixed] = tenure_and_fixed(|rng| rng.below(1_100));
    assert!(
        3 * tenure.observed < 2 * fixed.observed,
        "{} and {} observed",
        tenure.observed,
        fixed.observed
    );
    assert!(
        100 * tenure.misses < 105 * fixed.misses,
        "{} and {} misses",
        tenure.misses,
        fixed.misses
    );
}
