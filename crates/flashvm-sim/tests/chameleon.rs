//! The engine of small pages against a naive model: many short random runs, each with its own seed,
//! with threads, forks and injected faults; and injected bugs, each of which a seed must find.
//!
//! A failing run names its seed; `FLASHVM_SEED=n` runs that one alone, `FLASHVM_RUNS=n` sets how many are run.

use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::record::replay;
use flashvm_core::chameleon::{BLOCK_BYTES, Config};
use flashvm_sim::Rng;
use flashvm_sim::chameleon::{Faults, Sabotage, Setup, Simulator};
use std::panic::{AssertUnwindSafe, catch_unwind};

const RUNS: u64 = 150;

fn setup(rng: &mut Rng) -> Setup {
    let mut chance = |most| {
        if rng.one_in(3) {
            rng.below_u32(most)
        } else {
            0
        }
    };
    let mut faults = Faults {
        reads: chance(100_000),
        flips: chance(50_000),
        writes: chance(100_000),
        mappings: chance(20_000),
    };
    let frames_most = 16 + rng.below_u32(200);
    let pages_most = 64 + rng.below_u32(1500);
    // Room for every page at full size, and for blocks that turn bad.
    let fewest = pages_most * PAGE_SIZE as u32 / BLOCK_BYTES as u32 + 16;
    let mut blocks = 2 * fewest + rng.below_u32(fewest);
    let mut forks_most = 4;
    if rng.one_in(3) {
        // So few blocks that commitments can fill the store: no block may turn bad. No forks: a child that sleeps keeps
        // blocks that are mostly garbage, and its parent cannot clean them.
        forks_most = 0;
        blocks = 5 + rng.below_u32(20);
        (faults.reads, faults.flips, faults.writes) = (0, 0, 0);
    }
    let mappings_most = match rng.below(3) {
        0 => 70 + rng.below_u32(200),
        _ => u32::MAX,
    };
    Setup {
        config: Config {
            frames_most,
            mappings_most: mappings_most.min(65_530 - rng.below_u32(100)),
            by_page: rng.one_in(5),
            spill: rng.one_in(2),
            log_structuring: !rng.one_in(3),
            blocks,
            budget_bytes: u64::from(frames_most) * PAGE_SIZE as u64,
        },
        threads: 1 + rng.below_u32(4),
        operations: 200 + rng.below_u32(800),
        pages_most,
        mappings_most: if rng.one_in(2) {
            mappings_most
        } else {
            u32::MAX
        },
        frames_fewest: 16,
        forks_most,
        faults,
        sabotage: None,
    }
}

/// Runs a process and its descendants.
fn run(setup: Setup, seed: u64) -> Simulator {
    let mut simulator = Simulator::new(setup, seed).recorded();
    simulator.run();
    let mut children = simulator.take_children();
    while let Some(mut child) = children.pop() {
        child.run();
        children.extend(child.take_children());
        child.exit();
    }
    simulator
}

fn seeds() -> Box<dyn Iterator<Item = u64>> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    match number("FLASHVM_SEED") {
        Some(seed) => Box::new(std::iter::once(seed)),
        None => Box::new(0..number("FLASHVM_RUNS").unwrap_or(RUNS)),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

#[test]
fn any_seed_runs_through_and_replays() {
    for seed in seeds() {
        let setup = setup(&mut Rng::new(seed));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let recording = run(setup, seed).into_recording().expect("it was recorded");
            replay(&recording).unwrap_or_else(|difference| panic!("{difference}"));
        }));
        if let Err(panic) = ran {
            panic!("FLASHVM_SEED={seed}: {}\nwith {setup:?}", message(&*panic));
        }
    }
}

/// One of 200 seeds must find an injected bug, and find it again in the same way.
fn is_found(sabotage: Sabotage, expected: &str) {
    let find = |seed| {
        let mut setup = setup(&mut Rng::new(seed));
        setup.sabotage = Some(sabotage);
        setup.faults = Faults::default();
        let ran = catch_unwind(AssertUnwindSafe(|| run(setup, seed)));
        ran.err().map(|panic| message(&*panic).to_owned())
    };
    let found = (0..200).find_map(|seed| Some((seed, find(seed)?)));
    let (seed, message) = found.unwrap_or_else(|| panic!("{sabotage:?} is not found"));
    eprintln!("{sabotage:?} is found by seed {seed}: {message}");
    assert!(message.contains(expected), "seed {seed}: {message}");
    assert_eq!(find(seed), Some(message), "seed {seed} again");
}

#[test]
fn a_lost_page_is_found() {
    is_found(Sabotage::LoseWrite, "is lost after 0 reads that failed");
}

#[test]
fn a_frame_given_twice_is_found() {
    is_found(Sabotage::StayMapped, "is mapped from it");
}

#[test]
fn a_page_mapped_twice_is_found() {
    is_found(Sabotage::MapTwice, "is mapped twice");
}

#[test]
fn a_fork_during_a_round_is_found() {
    is_found(Sabotage::ForkInRound, "in flight during a fork");
}

#[test]
fn a_lost_wake_up_is_found() {
    is_found(Sabotage::LoseWakeUp, "nothing will wake it");
}
