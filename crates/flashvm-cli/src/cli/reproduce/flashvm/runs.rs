//! Runs of a program on a device.

use flashvm_core::{EngineConfig, Nanos, Preset, Settings};
use flashvm_sim::replay::Figures;
use flashvm_sim::{Device, Replay, WorkloadKind};

/// Memory and footprints are the paper's divided by this.
pub(super) const SCALE: u32 = 16;

/// The paper's system.
pub(super) fn flashvm() -> Settings {
    Preset::Flashvm.settings()
}

/// A run of one program, with `frames` of memory.
pub(super) fn alone(
    kind: WorkloadKind,
    frames: u32,
    device: &Device,
    settings: Settings,
) -> Figures {
    side_by_side(kind, 1, frames, device, settings)
}

/// Runs of the same program side by side in the same memory, with staggered starts.
pub(super) fn side_by_side(
    kind: WorkloadKind,
    instances: u32,
    frames: u32,
    device: &Device,
    settings: Settings,
) -> Figures {
    const APART: u64 = 20_000_000;
    let pages = kind.pages(SCALE);
    let mut replay = replay(pages * instances, frames, device, settings);
    for i in 0..instances {
        let begin = Nanos(u64::from(i) * APART);
        let program = kind.program(i * pages, SCALE, u64::from(i) + 1);
        replay = replay.program(begin, program);
    }
    replay.run()
}

/// An engine for `pages` pages, with a store twice as large.
pub(super) fn replay<'a>(
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
        settings,
    };
    Replay::new(config, device).expect("every experiment's sizes are possible")
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// `part` as a share of `whole`, in percent.
pub(super) fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", part * 100.0 / whole)
}

/// The decrease from `before` to `now`, in percent.
pub(super) fn less(now: f64, before: f64) -> String {
    format!("{:.1} %", (1.0 - now / before) * 100.0)
}
