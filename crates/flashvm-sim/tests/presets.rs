//! The presets' performance on a modelled device: streams run near its bandwidth, random access at
//! its latency, and fills seldom wait. Run with `--nocapture` for the figures.

use flashvm_core::{
    Access, Compression, Counters, EngineConfig, Nanos, PageId, PrefetcherKind, Preset, Settings,
};
use flashvm_sim::{Device, Outcome, Rng, Simulator};

const FRAMES: u32 = 8192;
const PAGES: u32 = 4 * FRAMES;
const RANDOM: u32 = 10_000;
/// The program's own work on a page: it touches about half of the pages a second that the device can stream.
const WORK: Nanos = Nanos(5_000);
/// Latency of a request of one page, in ns, rounded up.
const LATENCY: u64 = 70_000;

/// The cost of a part of a run.
struct Figures {
    pages: u64,
    /// Waiting time a page, in ns.
    wait: u64,
    before: Counters,
    after: Counters,
}

fn filled(preset: Preset) -> Simulator {
    simulator(preset.settings())
}

/// Without compression, which `compressed.rs` tests.
fn simulator(settings: Settings) -> Simulator {
    let settings = Settings {
        compress: Compression::Off,
        ..settings
    };
    let config = EngineConfig {
        pages: PAGES,
        slots: 8 * FRAMES,
        frames: FRAMES,
        shadow: true,
        protects: true,
        copies_back: false,
        settings,
    };
    Simulator::new(config, Device::default(), 1).expect("a valid configuration")
}

fn measure(
    sim: &mut Simulator,
    name: &str,
    access: Access,
    pages: impl Iterator<Item = u32>,
) -> Figures {
    let (waited, before) = (sim.waited(), *sim.engine().counters());
    let mut n = 0;
    for page in pages {
        n += 1;
        assert_eq!(sim.access(PageId(page), access), Outcome::Done);
        sim.compute(WORK);
    }
    let after = *sim.engine().counters();
    let figures = Figures {
        pages: n,
        wait: sim.waited().since(waited).0 / n,
        before,
        after,
    };
    println!(
        "{name}: {} ns waiting a page, {} faults, {} major, {} ahead",
        figures.wait,
        after.faults_total - before.faults_total,
        after.faults_major - before.faults_major,
        after.prefetch_issued - before.prefetch_issued,
    );
    figures
}

fn random(seed: u64) -> impl Iterator<Item = u32> {
    let mut rng = Rng::new(seed);
    (0..RANDOM).map(move |_| rng.below_u32(PAGES))
}

#[test]
fn modern_streams_run_near_bandwidth_and_random_access_costs_one_read() {
    let mut sim = filled(Preset::Modern);
    let fill = measure(&mut sim, "fill", Access::Write, 0..PAGES);
    assert!(fill.wait < 1_000, "filling waits for writes");
    assert!(
        fill.after.faults_total < fill.pages / 20,
        "zeros are mapped ahead"
    );
    for name in ["sequential", "sequential again"] {
        let scan = measure(&mut sim, name, Access::Read, 0..PAGES);
        assert!(scan.wait < LATENCY / 50, "{name}");
        let wasted = scan.after.prefetch_wasted - scan.before.prefetch_wasted;
        let issued = scan.after.prefetch_issued - scan.before.prefetch_issued;
        assert!(wasted * 10 < issued, "{name}: {wasted} of {issued} wasted");
    }
    for stride in [4, 5] {
        let pages = (0..PAGES).step_by(stride);
        let name = format!("stride {stride}");
        let strided = measure(&mut sim, &name, Access::Read, pages);
        // Pages are read one by one, as many at once as the device accepts.
        assert!(strided.wait < LATENCY / 6, "{name}");
        assert!(strided.after.faults_major - strided.before.faults_major < 50);
    }
    let down = measure(&mut sim, "downwards", Access::Read, (0..PAGES).rev());
    assert!(down.wait < LATENCY / 20);
    let read = measure(&mut sim, "random reads", Access::Read, random(1));
    assert!(read.wait < LATENCY);
    let ahead = read.after.prefetch_issued - read.before.prefetch_issued;
    assert!(
        ahead < read.pages / 50,
        "{ahead} pages read ahead of random access"
    );
    let write = measure(&mut sim, "random writes", Access::Write, random(2));
    assert!(write.wait < LATENCY);
    let rewrite = measure(&mut sim, "rewrite", Access::Write, 0..PAGES);
    assert!(rewrite.wait < LATENCY / 10);
}

/// As in the FlashVM paper (4.1.3 and 5.2): programs wait less with its prefetching than with that of
/// Linux, on the same device.
#[test]
fn flashvm_waits_less_than_native() {
    let mut waits = Vec::new();
    for (preset, name) in [(Preset::Native, "native"), (Preset::Flashvm, "flashvm")] {
        println!("{name}");
        let mut sim = filled(preset);
        measure(&mut sim, "fill", Access::Write, 0..PAGES);
        let sequential = measure(&mut sim, "sequential", Access::Read, 0..PAGES);
        let strided = measure(&mut sim, "stride 5", Access::Read, (0..PAGES).step_by(5));
        waits.push([sequential.wait, strided.wait]);
    }
    assert!(waits[1][0] < waits[0][0], "sequential");
    assert!(waits[1][1] < waits[0][1], "strided");
}

#[test]
fn a_dirty_page_is_written_once_and_a_clean_one_never() {
    let mut sim = filled(Preset::Modern);
    measure(&mut sim, "fill", Access::Write, 0..PAGES);
    measure(&mut sim, "sequential", Access::Read, 0..PAGES);
    let written = sim.engine().counters().pages_out + sim.engine().counters().zero_pages_skipped;
    assert!(
        written <= u64::from(PAGES),
        "{written} writes of {PAGES} pages"
    );
    let again = measure(&mut sim, "sequential again", Access::Read, 0..PAGES);
    assert!(again.after.pages_out - again.before.pages_out < u64::from(FRAMES));
}

/// A loop updates pages in place: few of its stores fault. Once it only loads, hardly any page is written.
#[test]
fn modern_maps_what_is_updated_in_place_writable() {
    let mut sim = filled(Preset::Modern);
    measure(&mut sim, "fill", Access::Write, 0..PAGES);
    measure(&mut sim, "sequential", Access::Read, 0..PAGES);
    let before = *sim.engine().counters();
    for page in (0..PAGES).map(PageId) {
        assert_eq!(sim.access(page, Access::Read), Outcome::Done);
        assert_eq!(sim.access(page, Access::Write), Outcome::Done);
        sim.compute(WORK);
    }
    let after = *sim.engine().counters();
    let stores = after.faults_write_protect - before.faults_write_protect;
    println!("update in place: {stores} faults for stores");
    assert!(stores < u64::from(PAGES / 4), "{stores} faults for stores");
    let again = measure(&mut sim, "sequential", Access::Read, 0..PAGES);
    let third = measure(&mut sim, "sequential", Access::Read, 0..PAGES);
    assert!(again.wait < LATENCY / 20);
    let written = third.after.pages_out - third.before.pages_out;
    assert!(
        written < u64::from(FRAMES) / 8,
        "{written} pages written by loads"
    );
}

/// A B-tree or a merge: a walk through cold pages that skips some, beside pages in constant use. Pages that are read
/// ahead of the walk must not push out those in use.
#[test]
fn pages_in_use_stay_beside_a_walk_that_looks_like_a_stream() {
    const HOT: u32 = FRAMES / 4 * 3;
    let reads = |prefetcher: PrefetcherKind| {
        let mut sim = simulator(Settings {
            prefetcher,
            ..Preset::Modern.settings()
        });
        measure(&mut sim, "fill", Access::Write, 0..PAGES);
        measure(&mut sim, "warm", Access::Read, 0..HOT);
        let mut rng = Rng::new(3);
        let mut cold = HOT;
        let mixed = (0..40_000).map(move |step| {
            if step % 10 != 0 {
                return rng.below_u32(HOT);
            }
            // Eight pages in a row, then a gap.
            cold += if step / 10 % 8 == 0 {
                8 + rng.below_u32(60)
            } else {
                1
            };
            HOT + (cold - HOT) % (PAGES - HOT)
        });
        let figures = measure(&mut sim, "hot and cold", Access::Read, mixed);
        let (before, after) = (figures.before, figures.after);
        (
            after.pages_in - before.pages_in,
            after.faults_major - before.faults_major,
        )
    };
    let ((off, off_major), (modern, major)) =
        (reads(PrefetcherKind::Off), reads(PrefetcherKind::Modern));
    println!(
        "pages in: {off} without prefetching, {modern} with it; major faults {off_major}, {major}"
    );
    assert!(
        major < off_major / 5 * 4,
        "{major} major faults, {off_major} without prefetching"
    );
    assert!(
        modern < off * 2,
        "{modern} pages in, {off} without prefetching"
    );
}
