//! Programs with huge pages on a kernel that postpones, refuses and misreports: no page is lost or stale.

use flashvm_core::record::replay;
use flashvm_core::{Access, EngineConfig, HUGE_PAGES, PageId, Preset};
use flashvm_sim::{Device, Faults, KernelFaults, Layout, Outcome, Rng, Simulator};

/// 128 MiB.
const FRAMES: u32 = 64 * HUGE_PAGES;
const PAGES: u32 = FRAMES + FRAMES / 2;

/// Fills 1.5 times the frames by a store to one random page of each huge page, then uses pages at random.
fn run(seed: u64, kernel: KernelFaults, mapping_pages: u32) -> u64 {
    let config = EngineConfig {
        pages: PAGES,
        slots: 2 * PAGES,
        frames: FRAMES,
        shadow: true,
        protects: true,
        copies_back: false,
        settings: Preset::Modern.settings(),
    };
    let faults = Faults {
        kernel,
        ..Faults::default()
    };
    let mut sim = Simulator::new(config, Device::default(), seed)
        .expect("a valid configuration")
        .with_faults(faults)
        .recorded();
    sim.set_layout(Layout {
        mapping_pages,
        read_only_every: 0,
        code_every: 0,
        huge: true,
    });
    let mut rng = Rng::new(seed);
    for first in (0..PAGES).step_by(HUGE_PAGES as usize) {
        let page = PageId(first + rng.below_u32(HUGE_PAGES));
        assert_eq!(sim.access(page, Access::Write), Outcome::Done);
    }
    for _ in 0..20_000 {
        let page = PageId(rng.below_u32(PAGES));
        let access = [Access::Read, Access::Write][rng.below(2) as usize];
        assert_eq!(sim.access(page, access), Outcome::Done);
    }
    sim.settle();
    assert!(sim.engine().frames_in_use() <= FRAMES);
    for page in (0..PAGES).map(PageId) {
        assert_eq!(sim.access(page, Access::Read), Outcome::Done);
    }
    sim.engine().check();
    let filled = sim.engine().counters().huge_pages;
    let recording = sim.into_recording().expect("it was recorded");
    if let Err(difference) = replay(&recording) {
        panic!("seed {seed}: {difference}");
    }
    filled
}

#[test]
fn no_page_is_lost_or_stale() {
    for seed in 0..4 {
        let kernel = KernelFaults {
            again: 100_000,
            misreported: 100_000,
            ..KernelFaults::default()
        };
        let filled = run(seed, kernel, 0);
        assert!(filled >= 16, "seed {seed}: {filled} huge pages");
    }
}

#[test]
fn a_mapping_that_ends_in_it_has_none() {
    let filled = run(1, KernelFaults::default(), HUGE_PAGES / 2);
    assert_eq!(filled, 0);
}
