//! The reports at the end of a run.
//!
//! - `text`: lines for people; `causes`: the lines on what the pager did to the program; `decisions`: what it
//!   did last;
//! - `json`: one object for programs; `figures`: the names in it.

mod causes;
mod decisions;
mod figures;
mod json;
mod text;

use super::outcome::Outcome;
use super::units::Size;
use flashvm_core::{PolicySpec, Preset};
use flashvm_live::control::{Control, StatsSnapshot, StorePlace};

pub(crate) use causes::complaints;
pub(crate) use decisions::decision_lines;
pub(crate) use figures::{Figures, bytes_read, bytes_written, figures};
pub(crate) use json::stats_json;
pub(crate) use text::lines;

pub(crate) const PAGE: u64 = 4096;

/// What the reports call the program and its settings.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The program as given on the command line, without arguments.
    pub(crate) program: String,
    pub(crate) preset: Preset,
    pub(crate) policy: PolicySpec,
    /// The server that holds the store, or its sides, if there are any.
    pub(crate) store: Option<String>,
    /// Its kind, if it has several sides.
    pub(crate) several: Option<Several>,
    /// The device model, if any.
    pub(crate) device: Option<String>,
    /// Where changed small pages go: `log` or `in place`.
    pub(crate) organization: &'static str,
}

/// A store of several sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    Mirror,
    /// A stripe over so many sides.
    Stripe(usize),
    Tier,
}

impl Several {
    /// The kind of a store.
    pub(crate) fn of(store: &StorePlace) -> Option<Self> {
        match store {
            StorePlace::Here | StorePlace::Server(_) => None,
            StorePlace::Mirror(_) => Some(Self::Mirror),
            StorePlace::Stripe(sides) => Some(Self::Stripe(sides.len())),
            StorePlace::Tier { .. } => Some(Self::Tier),
        }
    }
}

impl Names {
    /// What describes a run with this much RAM in the provenance of its traces.
    pub(crate) fn settings(&self, ram_bytes: u64) -> String {
        format!(
            "with {} of RAM, preset {}, policy {}",
            Size(ram_bytes),
            self.preset,
            self.policy
        )
    }
}

/// A text of a process record, with spaces for control characters.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// Faults on small pages of zeros: all that were neither major nor soft.
pub(crate) fn svmp_zero_faults(stats: &StatsSnapshot) -> u64 {
    stats
        .svmp_faults
        .saturating_sub(stats.svmp_major + stats.svmp_soft)
}

/// Bytes written to the log / bytes of changed pages; 0 without changed pages.
fn write_amplification(stats: &StatsSnapshot) -> f64 {
    match stats.log_bytes_changed {
        0 => 0.0,
        changed => stats.log_bytes_written as f64 / changed as f64,
    }
}

/// The sums over all processes; `resident_pages_max` is not a sum, but the maximum for the run as a whole.
pub(crate) fn totals(outcome: &Outcome, control: Control) -> StatsSnapshot {
    let mut sum = StatsSnapshot::default();
    let mut resident_pages_max = u64::from(control.used_frames_max());
    for record in outcome.records.iter() {
        resident_pages_max = resident_pages_max.max(record.stats.resident_pages_max);
        sum.add(&record.stats);
    }
    StatsSnapshot {
        resident_pages_max,
        ..sum
    }
}
