//! The paper's claims for FlashVM's software, on the models: discards, zero sharing, sampling.

use flashvm_core::{Discard, DiscardKind, EngineConfig, Nanos, PageId, Preset, Sampling, Settings};
use flashvm_sim::replay::Figures;
use flashvm_sim::{Device, ModelKind, Replay, Rng, Step, Touch, WorkloadKind};

const SCALE: u32 = 32;
/// Runs of a program, one after the other: what one leaves on flash is garbage to the next.
const RUNS: u32 = 4;

fn replay(kind: WorkloadKind, device: &Device, settings: Settings) -> Figures {
    let pages = kind.pages(SCALE);
    let config = EngineConfig {
        pages,
        slots: (pages * 2).next_multiple_of(1024),
        frames: kind.frames(SCALE) / 2,
        shadow: true,
        protects: true,
        settings,
    };
    let replay = Replay::new(config, device).expect("valid");
    replay.program(Nanos(0), kind.runs(RUNS, SCALE)).run()
}

fn discarding(kind: DiscardKind) -> Settings {
    Settings {
        discard: Discard::new(kind),
        sampling: Sampling::Off,
        ..Preset::Flashvm.settings()
    }
}

/// Figure 7: merged discards cost little, `auto` no more, and native ones a multiple of the run: five
/// times and more where the program computes, less where it waits for random reads.
#[test]
fn merged_discards_cost_little_and_native_ones_many_times_the_run() {
    let device = Device::new(ModelKind::OczVertex);
    for (workload, native_min) in [
        (WorkloadKind::ImageMagick, 5.0),
        (WorkloadKind::SpecJbb, 1.5),
        (WorkloadKind::MemcachedStore, 2.0),
    ] {
        let run = |kind| replay(workload, &device, discarding(kind));
        let off = run(DiscardKind::Off);
        let times = |kind| {
            let figures = run(kind);
            let times = figures.elapsed.0 as f64 / off.elapsed.0 as f64;
            println!(
                "{workload:?} {kind:?}: {times:.3} times, {} commands of {} pages, {} elided",
                figures.counters.discard_commands,
                figures.counters.discard_pages,
                figures.counters.discards_elided,
            );
            (times, figures.counters)
        };
        let (native, merged) = (times(DiscardKind::Native), times(DiscardKind::Merged));
        let auto = times(DiscardKind::Auto);
        assert!(
            merged.1.discard_pages > 10_000,
            "there is something to discard"
        );
        assert!(native.0 >= native_min, "native: {:.2} times", native.0);
        assert!(merged.0 <= 1.15, "merged: {:.2} times", merged.0);
        assert!(auto.0 <= merged.0 * 1.01, "auto: {:.2} times", auto.0);
    }
}

/// Spin clears what it allocates in advance: at least 90 % of its page writes are saved (5.3.2).
#[test]
fn zero_sharing_saves_what_spin_clears() {
    let device = Device::new(ModelKind::IntelX25m);
    let writes = [false, true].map(|zero_sharing| {
        let settings = Settings {
            zero_sharing,
            ..discarding(DiscardKind::Off)
        };
        replay(WorkloadKind::Spin, &device, settings)
            .counters
            .pages_out
    });
    let saved = 1.0 - writes[1] as f64 / writes[0] as f64;
    println!("{writes:?}: {:.1} % saved", saved * 100.0);
    assert!(saved >= 0.9, "{saved}");
}

/// A read-mostly program writes fewer pages with page sampling, uniform and adaptive (5.3.2).
#[test]
fn sampling_writes_fewer_pages() {
    let device = Device::new(ModelKind::IntelX25m);
    let writes = [Sampling::Off, Sampling::Uniform(4), Sampling::Adaptive(4)].map(|sampling| {
        let settings = Settings {
            sampling,
            ..discarding(DiscardKind::Off)
        };
        let figures = replay(WorkloadKind::SpecJbb, &device, settings);
        println!(
            "{sampling}: {} written, {} passed over, {} faults, {} ms",
            figures.counters.pages_out,
            figures.counters.sampled,
            figures.counters.faults_major,
            figures.elapsed.0 / 1_000_000,
        );
        figures.counters.pages_out
    });
    assert!(writes[1] < writes[0], "uniform");
    assert!(writes[2] < writes[0], "adaptive");
}

/// The savings of unmanaged flash over a translation layer (4.4): no stale page is copied, no map
/// is written, and no discard is needed.
#[test]
fn raw_flash_copies_less_than_a_translation_layer() {
    let run = |model, discard| {
        let mut device = Device::new(model);
        device.nand.aged = true;
        replay(WorkloadKind::SpecJbb, &device, discarding(discard))
    };
    let managed = run(ModelKind::Nand, DiscardKind::Off);
    let told = run(ModelKind::Nand, DiscardKind::Merged);
    let raw = run(ModelKind::RawNand, DiscardKind::Off);
    for (name, figures) in [("managed", &managed), ("merged", &told), ("raw", &raw)] {
        let wear = figures.wear.expect("flash has some");
        println!("{name}: {} ms, {wear:?}", figures.elapsed.0 / 1_000_000);
    }
    let copies = |figures: &Figures| figures.wear.expect("flash has some").copies;
    assert!(copies(&raw) < copies(&managed));
    assert!(copies(&told) < copies(&managed), "discards help");
    assert_eq!(raw.wear.expect("flash has some").map_writes, 0);
    assert!(raw.elapsed < managed.elapsed);
}

#[test]
fn a_replay_is_the_same_every_time() {
    let device = Device::new(ModelKind::Nand);
    let run = || {
        replay(
            WorkloadKind::MemcachedLookup,
            &device,
            Preset::Flashvm.settings(),
        )
    };
    let (one, two) = (run(), run());
    assert_eq!(one.elapsed, two.elapsed);
    assert_eq!(one.counters, two.counters);
}

/// References a second through engine and translation layer; eval/README.md has the command.
#[test]
#[ignore = "a measurement: run it alone, in release, with --nocapture"]
fn speed() {
    const FRAMES: u32 = 16_384;
    for (name, percent_hot) in [
        ("99 % hot", 99),
        ("97 % hot", 97),
        ("90 % hot", 90),
        ("uniform", 0),
    ] {
        let mut rng = Rng::new(1);
        let steps = (0..20_000_000 / if percent_hot == 0 { 10 } else { 1 }).map(move |_| {
            let page = match rng.below(100) < percent_hot {
                true => rng.below_u32(FRAMES / 2),
                false => rng.below_u32(4 * FRAMES),
            };
            let touch = if rng.below(4) == 0 {
                Touch::Write
            } else {
                Touch::Read
            };
            Step {
                page: PageId(page),
                touch,
                work: Nanos(2_000),
            }
        });
        let config = EngineConfig {
            pages: 4 * FRAMES,
            slots: 8 * FRAMES,
            frames: FRAMES,
            shadow: true,
            protects: true,
            settings: Preset::Flashvm.settings(),
        };
        let replay = Replay::new(config, &Device::new(ModelKind::Nand)).expect("valid");
        let begun = std::time::Instant::now();
        let figures = replay.program(Nanos(0), Box::new(steps)).run();
        let took = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {:.1} M references/s, {:.1} % faults, write amplification {:.2}",
            figures.references as f64 / took / 1e6,
            figures.counters.faults_total as f64 * 100.0 / figures.references as f64,
            figures.wear.expect("flash has some").write_amplification(),
        );
    }
}
