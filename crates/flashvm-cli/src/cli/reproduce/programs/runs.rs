//! Replays of a recorded program on a device model.

use super::recorded::Recorded;
use flashvm_core::{Counters, EngineConfig, Nanos, Preset, Settings};
use flashvm_sim::replay::Figures;
use flashvm_sim::{Device, Replay, Step};

/// The paper's system.
pub(in crate::cli::reproduce) fn flashvm() -> Settings {
    Preset::Flashvm.settings()
}

/// A run of one program, with `frames` of memory.
pub(in crate::cli::reproduce) fn alone(
    program: &Recorded,
    frames: u32,
    device: &Device,
    settings: Settings,
) -> Figures {
    side_by_side(program, 1, frames, device, settings)
}

/// As [`alone`], with each step of the program changed.
pub(in crate::cli::reproduce) fn alone_with(
    program: &Recorded,
    frames: u32,
    device: &Device,
    settings: Settings,
    change: impl Fn(Step) -> Step + 'static,
) -> Figures {
    let steps = program.trace.steps(0).map(change);
    replay(program.trace.pages(), frames, device, settings)
        .program(Nanos(0), Box::new(steps))
        .run()
}

/// Runs of the same program side by side in the same memory, with staggered starts.
pub(in crate::cli::reproduce) fn side_by_side(
    program: &Recorded,
    instances: u32,
    frames: u32,
    device: &Device,
    settings: Settings,
) -> Figures {
    const APART: u64 = 20_000_000;
    let pages = program.trace.pages();
    let mut replay = replay(pages * instances, frames, device, settings);
    for i in 0..instances {
        let begin = Nanos(u64::from(i) * APART);
        replay = replay.program(begin, program.trace.steps(i * pages));
    }
    replay.run()
}

/// An engine for `pages` pages, with a store twice as large.
pub(in crate::cli::reproduce) fn replay<'a>(
    pages: u32,
    frames: u32,
    device: &Device,
    settings: Settings,
) -> Replay<'a> {
    let config = EngineConfig {
        pages,
        slots: (2 * pages).next_multiple_of(1024),
        frames,
        shadow: true,
        protects: true,
        copies_back: false,
        settings,
    };
    Replay::new(config, device).expect("every experiment's sizes are possible")
}

/// Hard faults as Linux counts them, which the paper's are: a fault on a page that is already being read finds it in the swap cache,
/// and is a minor fault.
pub(in crate::cli::reproduce) fn hard_faults(counters: &Counters) -> u64 {
    counters.faults_major
}

pub(in crate::cli::reproduce) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// `part` as a share of `whole`, in percent.
pub(in crate::cli::reproduce) fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", part * 100.0 / whole)
}

/// The decrease from `before` to `now`, in percent.
pub(in crate::cli::reproduce) fn less(now: f64, before: f64) -> String {
    format!("{:.1} %", (1.0 - now / before) * 100.0)
}

/// How far `ours` is from `paper`, both in percent.
pub(in crate::cli::reproduce) fn points(ours: f64, paper: f64) -> String {
    format!("{:+.1} points", ours - paper)
}
