//! The engine against a naive model: thousands of short random runs, each with its own seed, with
//! every policy, prefetcher and preset, with and without a shadow, and with injected faults.
//!
//! A failing run names its seed; `FLASHVM_SEED=n` runs that one alone, `FLASHVM_RUNS=n` sets how
//! many are run.

use flashvm_core::record::{Difference, Recording, replay};
use flashvm_core::{
    Access, Advice, Compression, Discard, DiscardKind, EngineConfig, FirstStore, Nanos, PageId,
    PolicyKind, PrefetcherKind, Preset, Sampling,
};
use flashvm_sim::{
    Device, Faults, KernelFaults, Layout, ModelKind, Outcome, Rng, SchedulerKind, Simulator,
};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGES_MAX: u32 = 200;
const RUNS: u64 = 1500;
/// Seeds that failed once: while every block of the pool was being read back, the engine searched endlessly for one to
/// write.
const FOUND: [u64; 3] = [2272, 3100, 4740];

fn config(rng: &mut Rng) -> EngineConfig {
    let preset = Preset::ALL[rng.below(3) as usize].0;
    let mut settings = preset.settings();
    if rng.below(2) == 0 {
        let live = PolicyKind::ALL
            .iter()
            .filter(|info| !info.kind.is_offline());
        let policies: Vec<_> = live.collect();
        let policy = policies[rng.below(policies.len() as u64) as usize];
        settings.policy = policy.kind.into();
        let prefetchers = PrefetcherKind::ALL;
        settings.prefetcher = prefetchers[rng.below(prefetchers.len() as u64) as usize].kind;
        settings.preclean = 1 + rng.below_u32(80);
        settings.write_requests_max = 1 + rng.below_u32(4);
        settings.zero_sharing = rng.below(2) == 0;
        settings.reserve_share = 2 + rng.below_u32(70);
        let n = 2 + rng.below_u32(20);
        let sampling = [Sampling::Off, Sampling::Uniform(n), Sampling::Adaptive(n)];
        settings.sampling = sampling[rng.below(3) as usize];
        let strategies = DiscardKind::ALL;
        settings.discard = Discard {
            kind: strategies[rng.below(strategies.len() as u64) as usize].kind,
            batch_pages: 1 + rng.below_u32(64),
        };
    }
    settings.cluster_pages = 2 << rng.below(5);
    let pages = 20 + rng.below_u32(PAGES_MAX - 20);
    // A quarter of the spaces has no shadow; of those with one, a quarter cannot protect.
    let shadow = rng.below(4) != 0;
    let protects = !shadow || rng.below(4) != 0;
    // No numbers of their own: the seeds above name these configurations.
    let copies_back = shadow && protects && !pages.is_multiple_of(3);
    settings.shards = shadow && pages.is_multiple_of(4);
    settings.first_store = FirstStore::ALL[(pages % 3) as usize].0;
    if settings.preclean != preset.settings().preclean {
        settings.write_run = pages % 3 * settings.preclean;
    }
    if rng.below(3) == 0 {
        // Several blocks of the pool in RAM, and sometimes little room on flash.
        settings.cluster_pages = 16 << rng.below(3);
        let pages = PAGES_MAX + rng.below_u32(PAGES_MAX);
        let slots = pages + 256 + rng.below_u32(3 * pages);
        let frames = 64 + rng.below_u32(100);
        settings.compress = match frames % 3 {
            0 => Compression::Auto,
            _ => Compression::Lz4,
        };
        return EngineConfig {
            pages,
            slots,
            frames,
            shadow,
            protects,
            copies_back,
            settings,
        };
    }
    EngineConfig {
        pages,
        slots: pages + 32 + rng.below_u32(pages),
        frames: 4 + rng.below_u32(40),
        shadow,
        protects,
        copies_back,
        settings,
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let mut chance = |most| {
        if rng.below(3) == 0 {
            rng.below_u32(most)
        } else {
            0
        }
    };
    Faults {
        reads: chance(50_000),
        writes: chance(50_000),
        discards: chance(300_000),
        kernel: KernelFaults {
            busy: chance(300_000),
            again: chance(200_000),
            misreported: chance(200_000),
        },
    }
}

fn device(rng: &mut Rng) -> Device {
    let model = ModelKind::ALL[rng.below(ModelKind::ALL.len() as u64) as usize];
    let scheduler = SchedulerKind::ALL[rng.below(SchedulerKind::ALL.len() as u64) as usize];
    let mut device = Device::new(model.kind);
    device.scheduler = scheduler.kind;
    // Small blocks, so that even small stores need cleaning; some devices wear out.
    device.nand.pages_per_block = 2 << rng.below(4);
    device.nand.over_provisioning = 0.3;
    device.nand.channels = 1 + rng.below_u32(4);
    if rng.below(4) == 0 {
        device.nand.endurance = 3 + rng.below_u32(10);
        device.nand.program_failure_ppm = rng.below_u32(2_000);
    }
    device
}

/// Chooses the next page: runs, strides and random pages take turns.
struct Walk {
    at: u32,
    stride: u32,
    left: u32,
}

impl Walk {
    fn next(&mut self, rng: &mut Rng, pages: u32) -> PageId {
        if self.left == 0 {
            self.left = 1 + rng.below_u32(30);
            self.at = rng.below_u32(pages);
            self.stride = [1, 1, 5, pages - 1, 0][rng.below(5) as usize];
        }
        self.left -= 1;
        self.at = match self.stride {
            0 => rng.below_u32(pages),
            stride => (self.at + stride) % pages,
        };
        PageId(self.at)
    }
}

/// Runs a program, one step for each choice. Then checks the frames in use at rest, loads every page, and replays the
/// recording.
fn run(
    config: EngineConfig,
    device: Device,
    faults: Faults,
    seed: u64,
    choices: impl Iterator<Item = u64>,
) {
    let pages = config.pages;
    let limit = config.frames;
    let wears_out = device.nand.endurance < 100;
    let mut sim = Simulator::new(config, device, seed)
        .expect("a valid configuration")
        .with_faults(faults)
        .checked()
        .recorded();
    let mut walk = Walk {
        at: 0,
        stride: 1,
        left: 0,
    };
    let mut threads = Vec::new();
    for choice in choices {
        step(&mut sim, &mut walk, &mut threads, pages, choice);
    }
    for thread in threads {
        sim.finish(thread);
    }
    sim.limit(limit);
    sim.settle();
    if faults.kernel.busy == 0 && !sim.engine().store_full() {
        let frames = sim.engine().frames_in_use();
        let policy = sim.engine().settings().policy;
        assert!(
            frames <= limit,
            "{policy}: {frames} frames at rest, of {limit}: {:?}",
            sim.engine()
                .present_pages()
                .map(|page| (
                    page.0,
                    sim.engine().page_state(page),
                    sim.engine().is_shared(page)
                ))
                .collect::<Vec<_>>()
        );
    }
    for page in (0..pages).map(PageId) {
        let outcome = sim.access(page, Access::Read);
        let excused = faults.writes > 0 || wears_out || outcome != Outcome::StoreFull;
        assert!(excused, "the store has room for every page");
    }
    let recording = sim.into_recording().expect("it was recorded");
    if let Err(difference) = replay(&recording) {
        panic!("replay: {difference}");
    }
}

/// One operation of a program, decoded from a number.
fn step(sim: &mut Simulator, walk: &mut Walk, threads: &mut Vec<u64>, pages: u32, choice: u64) {
    let mut rng = Rng::new(choice);
    let access = if rng.below(2) == 0 {
        Access::Read
    } else {
        Access::Write
    };
    let first = PageId(rng.below_u32(pages));
    let count = 1 + rng.below_u32((pages - first.0).min(20));
    match rng.below(100) {
        0..60 => {
            sim.access(walk.next(&mut rng, pages), access);
        }
        60..80 => threads.push(sim.begin(walk.next(&mut rng, pages), access)),
        80..86 => {
            sim.advance();
        }
        86..89 => sim.discard(first, count),
        89 => match rng.below(3) {
            0 => sim.unlock(first, count),
            _ => sim.lock(first, count.min(8)),
        },
        90..92 => {
            let advice = [Advice::WillNeed, Advice::Cold, Advice::PageOut];
            sim.advise(first, count, advice[rng.below(3) as usize]);
        }
        92..94 => sim.limit(4 + rng.below_u32(40)),
        94 => sim.fork().exit(),
        95 => {
            let half = pages / 2;
            let from = PageId(rng.below_u32(half));
            let count = 1 + rng.below_u32((half - from.0).min(20));
            let to = PageId(half + rng.below_u32(half - count + 1));
            sim.relocate(from, to, count);
        }
        96 => sim.drop_unreported(first, count),
        97 => sim.set_layout(Layout {
            mapping_pages: [0, 1, 7, 30][rng.below(4) as usize],
            read_only_every: [0, 2, 5][rng.below(3) as usize],
            code_every: [0, 1, 3][rng.below(3) as usize],
            huge: false,
        }),
        _ => sim.compute(Nanos(rng.below(200_000))),
    }
}

fn run_seed(seed: u64) {
    let mut rng = Rng::new(seed);
    let config = config(&mut rng);
    let faults = faults(&mut rng);
    let device = device(&mut rng);
    let steps = 50 + rng.below(250);
    let sim_seed = rng.next_u64();
    run(
        config,
        device,
        faults,
        sim_seed,
        (0..steps).map(|_| rng.next_u64()),
    );
}

#[test]
fn no_page_is_lost_stale_or_mapped_twice_and_the_budget_is_kept() {
    if let Ok(seed) = std::env::var("FLASHVM_SEED") {
        run_seed(seed.parse().expect("FLASHVM_SEED is a number"));
        return;
    }
    let runs = std::env::var("FLASHVM_RUNS").ok();
    let runs = runs.map_or(RUNS, |n| n.parse().expect("FLASHVM_RUNS is a number"));
    for seed in FOUND.into_iter().chain(0..runs) {
        if catch_unwind(AssertUnwindSafe(|| run_seed(seed))).is_err() {
            panic!("run failed: repeat it with FLASHVM_SEED={seed}");
        }
    }
}

proptest! {
    // A case in which the engine stands still takes a second or two.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 120_000,
        ..ProptestConfig::default()
    })]

    /// The same, in a form that proptest shrinks to the steps that matter.
    #[test]
    fn short_runs_keep_every_page(
        setup in any::<u64>(),
        choices in prop::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut rng = Rng::new(setup);
        let config = config(&mut rng);
        let faults = faults(&mut rng);
        let device = device(&mut rng);
        run(config, device, faults, setup, choices.into_iter());
    }
}

/// Processes that fork from each other share a store; none sees another's changes.
fn run_family(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut config = config(&mut rng);
    config.pages = config.pages.min(60);
    // Much room: free slots of sealed clusters may be of use to no process.
    config.slots = 20 * config.pages;
    let pages = config.pages;
    let device = Device::default();
    let root = Simulator::new(config, device, rng.next_u64())
        .expect("a valid configuration")
        .checked()
        .recorded();
    let mut family = vec![root];
    let mut walk = Walk {
        at: 0,
        stride: 1,
        left: 0,
    };
    for _ in 0..50 + rng.below(150) {
        let at = rng.below(family.len() as u64) as usize;
        if rng.below(20) == 0 {
            family[at].own_what_nobody_shares();
        }
        match rng.below(40) {
            0 if family.len() < 4 => {
                let child = family[at].fork();
                family.push(child);
            }
            1 if family.len() > 1 => family.swap_remove(at).exit(),
            2 => family[at].discard(PageId(0), pages),
            3 => family[at].limit(4 + rng.below_u32(40)),
            _ => {
                let access = if rng.below(2) == 0 {
                    Access::Read
                } else {
                    Access::Write
                };
                let page = walk.next(&mut rng, pages);
                assert_eq!(family[at].access(page, access), Outcome::Done);
            }
        }
    }
    for mut sim in family {
        for page in (0..pages).map(PageId) {
            assert_eq!(sim.access(page, Access::Read), Outcome::Done);
        }
        sim.exit();
    }
}

/// Nearly every frame and every slot is taken, and most pages in RAM are dirty: each policy still finds the clean ones.
#[test]
fn a_full_store_serves_every_policy() {
    let live = PolicyKind::ALL
        .iter()
        .filter(|info| !info.kind.is_offline());
    for info in live {
        serve_from_a_full_store(info.kind, FirstStore::Auto, true, info.name);
    }
    let policy = PolicyKind::SegmentedFifo;
    for (way, name) in FirstStore::ALL {
        serve_from_a_full_store(policy, way, true, name);
    }
    serve_from_a_full_store(policy, FirstStore::Auto, false, "stores cannot be stopped");
}

fn serve_from_a_full_store(policy: PolicyKind, way: FirstStore, protects: bool, named: &str) {
    const FRAMES: u32 = 128;
    const SLOTS: u32 = 512;
    let mut settings = Preset::Modern.settings();
    settings.policy = policy.into();
    settings.first_store = way;
    settings.compress = Compression::Off;
    settings.cluster_pages = 32;
    // A small reserve: the search for clean pages then ends at the last page of memory, and has to begin anew.
    settings.reserve_min = 1;
    let config = EngineConfig {
        pages: FRAMES + SLOTS - 16,
        slots: SLOTS,
        frames: FRAMES,
        shadow: true,
        protects,
        copies_back: protects,
        settings,
    };
    let pages = config.pages;
    let mut sim = Simulator::new(config, Device::default(), 1)
        .expect("a valid configuration")
        .checked();
    let mut walk = Walk {
        at: 0,
        stride: 1,
        left: 0,
    };
    let mut rng = Rng::new(1);
    for page in 0..pages {
        let outcome = sim.access(PageId(page), Access::Write);
        assert_eq!(outcome, Outcome::Done, "{named}: page {page}");
    }
    for _ in 0..4 * pages {
        let outcome = sim.access(walk.next(&mut rng, pages), Access::Read);
        assert_eq!(outcome, Outcome::Done, "{named}");
    }
}

#[test]
fn processes_that_share_a_store_do_not_see_each_other() {
    for seed in 0..RUNS / 5 {
        if catch_unwind(AssertUnwindSafe(|| run_family(seed))).is_err() {
            panic!("run failed with seed {seed}");
        }
    }
}

#[test]
fn a_recording_survives_json_and_a_changed_one_is_detected() {
    let mut rng = Rng::new(7);
    let mut config = config(&mut rng);
    config.settings = Preset::Modern.settings();
    config.slots = 2048;
    let mut sim = Simulator::new(config, Device::default(), 7)
        .expect("a valid configuration")
        .recorded();
    for i in 0..200 {
        sim.access(
            PageId(i % 20),
            if i % 3 == 0 {
                Access::Write
            } else {
                Access::Read
            },
        );
    }
    let recording = sim.into_recording().expect("it was recorded");
    let text = serde_json::to_string(&recording).expect("all of it can be written");
    let mut read: Recording = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(read, recording);
    assert_eq!(replay(&read), Ok(()));
    let at = read
        .steps
        .iter()
        .rposition(|step| !step.actions.is_empty())
        .expect("some acted");
    read.steps[at].actions.clear();
    assert!(matches!(replay(&read), Err(Difference::Actions { step, .. }) if step == at));
}
