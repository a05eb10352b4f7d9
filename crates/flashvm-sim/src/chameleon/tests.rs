//! Runs in which a test decides what the program does.

use super::{Due, Faults, Setup, Simulator};
use flashvm_core::chameleon::{Config, Request, Svmp};
use std::cmp::Reverse;

const FRAMES: u32 = 400;
const PAGES: u32 = 8000;

/// A process whose threads do nothing by themselves.
fn idle() -> Simulator {
    let setup = Setup {
        config: Config {
            frames_most: FRAMES,
            mappings_most: u32::MAX,
            by_page: false,
            spill: false,
            log_structuring: true,
            blocks: 200,
            budget_bytes: 1 << 30,
        },
        threads: 1,
        operations: 0,
        pages_most: PAGES,
        mappings_most: u32::MAX,
        frames_fewest: FRAMES,
        forks_most: 0,
        faults: Faults::default(),
        sabotage: None,
    };
    Simulator::new(setup, 1)
}

/// Goes on until nothing is left to do. No read takes so long that its thread does anything else meanwhile.
fn settle(simulator: &mut Simulator) {
    loop {
        let due = &mut simulator.due;
        due.retain(|Reverse((.., due))| *due != Due::Meanwhile);
        if !simulator.advance() {
            return;
        }
    }
}

#[test]
fn a_stream_reads_runs_where_reads_end_at_once() {
    let mut simulator = idle();
    settle(&mut simulator);
    while simulator.memory.truth.len() < PAGES as usize {
        simulator.begin(0, Request::Take(512));
        settle(&mut simulator);
    }
    let pages: Vec<u32> = simulator.memory.truth.keys().copied().collect();
    for (&page, version) in pages.iter().zip(1..) {
        simulator.touch(0, Svmp(page), Some(version), 0);
        settle(&mut simulator);
    }
    let before = *simulator.engine.counters();
    for &page in &pages {
        simulator.touch(0, Svmp(page), None, 0);
        settle(&mut simulator);
    }
    let after = simulator.engine.counters();
    let (reads, read) = (
        after.major - before.major,
        after.read_pages - before.read_pages,
    );
    assert!(read > u64::from(PAGES) / 2, "{read} pages in");
    assert!(reads * 16 < read, "{reads} reads of {read} pages");
}
