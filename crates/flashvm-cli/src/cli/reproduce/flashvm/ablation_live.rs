//! Ablation: each mechanism of the paper alone, live, with the real programs on the models of the paper's drives.

use super::ablation::Ablation;
use super::mechanisms::{System, options, systems};
use crate::cli::report::Report;
use crate::cli::reproduce::programs::live::{Case, LONG, Live, Run};
use crate::cli::reproduce::programs::{ALL, Failure, Info, Name};
use indicatif::ProgressBar;

/// The paper's sizes are divided by this.
const SCALE: u32 = 64;
/// Runs of each system: the medians are shown. Fewer, if they have taken [`LONG`].
const ROUNDS: usize = 5;
/// Table 4's memory, and a smaller one, in permille of it.
const MEMORIES: [u32; 2] = [1000, 750];

pub(super) fn ablation(is_quick: bool, bar: &ProgressBar) -> Report {
    let systems = systems();
    let rounds = if is_quick { 1 } else { ROUNDS };
    let memories = if is_quick { &MEMORIES[..1] } else { &MEMORIES };
    let mut ablation = Ablation::new();
    let mut notes = vec![format!(
        "Live, the medians of up to {rounds} runs, fewer where these take more than {} s; the systems take turns. The paper's inputs and Table 4's \
         memory are divided by {SCALE}. Without Spin: a run in Table 4's memory takes half a minute here, and there are twenty systems. Seconds \
         vary with what else the machine does: compare the counts.",
        LONG.as_secs()
    )];
    for info in ALL.iter().filter(|info| info.name != Name::Spin) {
        for &memory in memories {
            match program(info, memory, rounds, &systems, bar) {
                Ok((mb, runs)) => ablation.add(info.title, mb, &systems, &runs),
                Err(why) => notes.push(format!(
                    "Not measured: {why}. Fix that and measure again with --again."
                )),
            }
        }
    }
    ablation.report(notes)
}

fn program(
    info: &Info,
    memory: u32,
    rounds: usize,
    systems: &[System],
    bar: &ProgressBar,
) -> Result<(f64, Vec<Run>), Failure> {
    let live = Live::prepare(info, SCALE)?;
    let ram_kib = u64::from(info.frames(SCALE) * memory / 1000) * 4;
    let cases = systems.iter().map(|system| Case {
        name: system.name.clone(),
        model: system.model.to_string(),
        options: options(&system.settings),
    });
    let progress = |text| bar.set_message(format!("{}, {text}", info.title));
    let medians = live.in_turn(ram_kib, &Vec::from_iter(cases), rounds, progress)?;
    Ok((ram_kib as f64 / 1024.0, medians))
}
