//! What the compressed tier saves on a modelled device.

use flashvm_core::{Access, Compression, Counters, EngineConfig, Nanos, PageId, Preset};
use flashvm_sim::{Device, Outcome, Rng, Simulator};

const FRAMES: u32 = 2048;
/// The program's own work on a page.
const WORK: Nanos = Nanos(5_000);

/// A program that has stored to all of its pages.
fn filled(pages: u32, compress: Compression) -> Simulator {
    let mut settings = Preset::Modern.settings();
    settings.compress = compress;
    let config = EngineConfig {
        pages,
        slots: 8 * pages,
        frames: FRAMES,
        shadow: true,
        protects: true,
        copies_back: false,
        settings,
    };
    let mut sim = Simulator::new(config, Device::default(), 1).expect("a valid configuration");
    touch(&mut sim, Access::Write, 0..pages);
    sim
}

/// Touches pages in turn. Returns the counters before and after.
fn touch(sim: &mut Simulator, access: Access, pages: impl Iterator<Item = u32>) -> [Counters; 2] {
    let before = *sim.engine().counters();
    for page in pages {
        assert_eq!(sim.access(PageId(page), access), Outcome::Done);
        sim.compute(WORK);
    }
    [before, *sim.engine().counters()]
}

/// One read brings neighbouring objects, and pages of a stream are decompressed ahead of their faults.
#[test]
fn a_scan_takes_few_reads_and_faults() {
    let pages = 8 * FRAMES;
    let mut sim = filled(pages, Compression::Lz4);
    let [before, after] = touch(&mut sim, Access::Read, 0..pages);
    let reads = after.reads - before.reads;
    let read = after.pages_in - before.pages_in;
    let pool = after.prefetch_pool - before.prefetch_pool;
    let faults = after.faults_major + after.faults_pool - before.faults_major - before.faults_pool;
    println!(
        "{pages} pages: {reads} reads, {read} slots, {pool} pages ahead from the pool, {faults} faults"
    );
    assert!(reads < u64::from(pages) / 8, "{reads} reads");
    assert!(read < u64::from(pages), "{read} slots for {pages} pages");
    assert!(pool > 0);
    assert!(faults < u64::from(pages) / 8, "{faults} faults");
}

/// Pages that come back from flash go to the pool while it has room: most of what fits is not read again. (A third of
/// the simulator's pages does not shrink.)
#[test]
fn what_fits_compressed_is_not_read_again() {
    let pages = FRAMES + FRAMES / 4;
    let reads = |compress| {
        let mut sim = filled(pages, compress);
        let mut rng = Rng::new(1);
        let random: Vec<u32> = (0..80_000).map(|_| rng.below_u32(pages)).collect();
        let [before, after] = touch(&mut sim, Access::Read, random.into_iter());
        after.faults_major - before.faults_major
    };
    let (off, lz4) = (reads(Compression::Off), reads(Compression::Lz4));
    println!("reads that were waited for: {off} without the pool, {lz4} with it");
    assert!(lz4 < off / 2, "{lz4} of {off}");
}

/// Pages that are only read are already on flash when they are evicted. While the pool has room, they go there, too.
#[test]
fn clean_pages_that_fit_compressed_are_not_read_again() {
    let pages = FRAMES + FRAMES / 4;
    let reads = |compress| {
        let mut sim = filled(pages, compress);
        let mut rng = Rng::new(2);
        let mut random = |count| -> Vec<u32> { (0..count).map(|_| rng.below_u32(pages)).collect() };
        touch(&mut sim, Access::Read, random(40_000).into_iter());
        let [before, after] = touch(&mut sim, Access::Read, random(40_000).into_iter());
        after.faults_major - before.faults_major
    };
    let (off, lz4) = (reads(Compression::Off), reads(Compression::Lz4));
    println!("of pages that were only read: {off} reads without the pool, {lz4} with it");
    assert!(lz4 * 5 < off * 3, "{lz4} of {off}");
}

/// Pages that keep their compressed form in the pool are compared when they leave: what was stored to them meanwhile is
/// there.
#[test]
fn what_is_stored_to_a_page_that_keeps_its_object_is_there() {
    for seed in 0..4 {
        let pages = FRAMES + FRAMES / 2;
        let mut sim = filled(pages, Compression::Lz4);
        let mut rng = Rng::new(seed);
        for _ in 0..40_000 {
            let page = rng.below_u32(pages);
            let [before, after] = touch(&mut sim, Access::Read, std::iter::once(page));
            // Of the pages that come from the pool, one in three is stored to.
            if after.faults_pool > before.faults_pool && rng.below(3) == 0 {
                touch(&mut sim, Access::Write, std::iter::once(page));
            }
        }
        let counters = sim.engine().counters();
        println!(
            "{} pages left unchanged, {} were compressed",
            counters.pages_unchanged, counters.pool_pages
        );
        assert!(counters.pages_unchanged > 1000);
        sim.exit();
    }
}
