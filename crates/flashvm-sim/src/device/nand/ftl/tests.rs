//! The translation layer against a naive model of flash, and blocks that fail.

use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

/// Flash that holds what was programmed, refuses what real flash refuses, and fails by chance.
struct Cells {
    pages_per_block: u32,
    /// By page: programmed since the last erase of its block.
    programmed: Vec<bool>,
    next: Vec<u32>,
    fail_ppm: u32,
    rng: Rng,
}

impl Cells {
    fn new(geometry: &Geometry, fail_ppm: u32) -> Self {
        let pages = geometry.blocks_all() * geometry.pages_per_block;
        Self {
            pages_per_block: geometry.pages_per_block,
            programmed: vec![false; pages as usize],
            next: vec![0; geometry.blocks_all() as usize],
            fail_ppm,
            rng: Rng::new(fail_ppm.into()),
        }
    }
}

impl Flash for Cells {
    fn read(&mut self, page: u32) {
        assert!(self.programmed[page as usize], "page {page} read, erased");
    }

    fn program(&mut self, page: u32) -> bool {
        let (block, at) = (page / self.pages_per_block, page % self.pages_per_block);
        assert_eq!(self.next[block as usize], at, "programmed out of order");
        self.next[block as usize] += 1;
        let fails = self.rng.chance(self.fail_ppm);
        self.programmed[page as usize] = !fails;
        if fails {
            self.next[block as usize] = u32::MAX;
        }
        !fails
    }

    fn erase(&mut self, block: u32) {
        let first = (block * self.pages_per_block) as usize;
        self.programmed[first..first + self.pages_per_block as usize].fill(false);
        self.next[block as usize] = 0;
    }
}

fn strategy(cleaning: Cleaning, levelling: Levelling) -> FtlStrategy {
    FtlStrategy {
        cleaning,
        levelling,
        levelling_gap: 4,
        ..FtlStrategy::default()
    }
}

proptest! {
    /// After any operations, every logical page that was written and not discarded has a programmed page of its
    /// own.
    #[test]
    fn no_page_is_lost(
        ops in prop::collection::vec((0..10_u8, 0..96_u32), 1..1500),
        separate in any::<bool>(),
        benefit in any::<bool>(),
        level in 0..3_u8,
        fail_ppm in prop_oneof![Just(0), Just(2_000_u32)],
        reserve in 0..3_u32,
    ) {
        let geometry = Geometry {
            frontiers: if separate { Frontiers::Separate } else { Frontiers::Shared },
            reserve,
            blocks: 20,
            pages_per_block: 8,
            logical_pages: 96,
        };
        geometry.check().expect("possible");
        let cleaning = if benefit { Cleaning::CostBenefit } else { Cleaning::Greedy };
        let levelling = [Levelling::None, Levelling::Dynamic, Levelling::Static][level as usize];
        let mut ftl = Ftl::new(geometry, strategy(cleaning, levelling));
        let mut cells = Cells::new(&geometry, fail_ppm);
        let mut held = [false; 96];
        for (op, page) in ops {
            match op {
                0..7 => held[page as usize] = ftl.write(page, &mut cells).is_ok(),
                7..9 => {
                    let had = ftl.discard(page);
                    prop_assert_eq!(had, std::mem::take(&mut held[page as usize]));
                }
                _ => ftl.read(page, &mut cells),
            }
        }
        ftl.check();
        for (page, held) in (0..).zip(held) {
            prop_assert_eq!(ftl.lookup(page).is_some(), held);
            ftl.read(page, &mut cells);
        }
    }
}

#[test]
fn static_levelling_moves_cold_pages_and_dynamic_does_not() {
    let mut spreads = Vec::new();
    for levelling in [Levelling::Dynamic, Levelling::Static] {
        let geometry = Geometry::of_blocks(64, 16, 0.25).expect("possible");
        let mut ftl = Ftl::new(geometry, strategy(Cleaning::Greedy, levelling));
        for page in 0..geometry.logical_pages {
            ftl.write(page, &mut ()).expect("not worn");
        }
        let mut rng = Rng::new(1);
        for _ in 0..200_000 {
            // Only the first tenth of the pages is written again.
            let page = rng.below_u32(geometry.logical_pages / 10);
            ftl.write(page, &mut ()).expect("not worn");
        }
        ftl.check();
        let (least, mean, most) = ftl.erases();
        println!("{levelling:?}: {least} to {most} erases, mean {mean:.0}");
        spreads.push(most - least);
    }
    assert!(spreads[0] > 10 * spreads[1], "{spreads:?}");
}

#[test]
fn blocks_wear_out_until_nothing_can_be_written_and_all_can_be_read() {
    let geometry = Geometry::of_blocks(32, 8, 0.3).expect("possible");
    let worn = FtlStrategy {
        endurance: 30,
        ..strategy(Cleaning::Greedy, Levelling::Static)
    };
    let mut ftl = Ftl::new(geometry, worn);
    let mut cells = Cells::new(&geometry, 0);
    let mut rng = Rng::new(3);
    let mut last = 0;
    let written = (0..1_000_000).position(|_| {
        last = rng.below_u32(geometry.logical_pages);
        ftl.write(last, &mut cells).is_err()
    });
    let written = written.expect("it wears out") as u32;
    let most = 30 * geometry.blocks_all() * geometry.pages_per_block;
    assert!(written > most / 10 && written < most, "{written} of {most}");
    assert!(ftl.bad_blocks() > 0);
    ftl.check();
    for page in 0..geometry.logical_pages {
        ftl.read(page, &mut cells);
    }
    assert_eq!(ftl.lookup(last), None, "a page that was not written");
    assert!(ftl.write(0, &mut cells).is_err(), "read only from now on");
}

#[test]
fn age_counts_in_cost_benefit() {
    // With hot and cold pages, cost-benefit cleans a cold block at a higher utilisation than a hot one,
    // and copies less than greedy does (Rosenblum and Ousterhout 1992).
    let copies = [Cleaning::Greedy, Cleaning::CostBenefit].map(|cleaning| {
        let mut geometry = Geometry::of_blocks(256, 32, 0.15).expect("possible");
        geometry.frontiers = Frontiers::Separate;
        let mut ftl = Ftl::new(geometry, strategy(cleaning, Levelling::None));
        let hot = geometry.logical_pages / 10;
        let mut rng = Rng::new(5);
        for page in 0..geometry.logical_pages {
            ftl.write(page, &mut ()).expect("not worn");
        }
        for _ in 0..400_000 {
            let page = match rng.below(10) {
                0 => hot + rng.below_u32(geometry.logical_pages - hot),
                _ => rng.below_u32(hot),
            };
            ftl.write(page, &mut ()).expect("not worn");
        }
        ftl.counts().copies
    });
    assert!(copies[1] < copies[0], "{copies:?}");
}
