//! The statistics of a run: one JSON object in the file of `--stats`.

use super::figures::{Figures, figures};
use super::{Names, Several, totals};
use crate::cli::outcome::Outcome;
use flashvm_core::Gauges;
use flashvm_live::control::{Control, MirrorCounters, SideCounters, TierCounters};
use flashvm_sim::device::Wear;
use serde::Serialize;

/// The object in the file of `--stats`.
#[derive(Debug, Serialize)]
struct Stats<'a> {
    ram_budget_pages: u64,
    processes: Vec<EndedProcess<'a>>,
    totals: Totals<'a>,
}

#[derive(Debug, Serialize)]
struct EndedProcess<'a> {
    pid: u32,
    command: &'a str,
    /// Why the pager ended the process, if it did.
    ended_by_pager: Option<&'a str>,
    /// The first system call that the pager refused, and why.
    refused_call: Option<&'a str>,
    /// The last decisions of its pager.
    decisions: Vec<Decision<'a>>,
    /// What the process held at its end.
    gauges: Gauges,
    #[serde(flatten)]
    figures: Figures,
}

/// A decision of the pager.
#[derive(Debug, Serialize)]
struct Decision<'a> {
    at_s: f64,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct Totals<'a> {
    processes: u64,
    elapsed_s: f64,
    device_model: Option<DeviceModel<'a>>,
    mirror: Option<MirrorCounters>,
    stripe: Option<SideCounters>,
    tier: Option<Tier>,
    #[serde(flatten)]
    figures: Figures,
}

/// What a tier did.
#[derive(Debug, Serialize)]
struct Tier {
    #[serde(flatten)]
    sides: SideCounters,
    #[serde(flatten)]
    moved: TierCounters,
}

/// The device model, and its wear if it has any.
#[derive(Debug, Serialize)]
struct DeviceModel<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    #[serde(flatten)]
    wear: Option<&'a Wear>,
}

/// The object of `--stats`.
pub(crate) fn stats_json(
    outcome: &Outcome,
    control: Control,
    names: &Names,
) -> serde_json::Result<Vec<u8>> {
    let stats = Stats {
        ram_budget_pages: control.budget_frames().into(),
        processes: outcome
            .records
            .iter()
            .map(|record| EndedProcess {
                pid: record.pid,
                command: &record.command,
                ended_by_pager: record.ended.as_deref(),
                refused_call: record.refused.as_deref(),
                decisions: record
                    .decisions
                    .iter()
                    .map(|line| Decision {
                        at_s: line.at_ns as f64 / 1e9,
                        text: &line.text,
                    })
                    .collect(),
                gauges: record.stats.gauges,
                figures: figures(&record.stats, names.preset, names.policy),
            })
            .collect(),
        totals: Totals {
            processes: outcome.records.processes(),
            elapsed_s: outcome.elapsed.as_secs_f64(),
            device_model: names.device.as_deref().map(|model| DeviceModel {
                model,
                write_amplification: outcome.wear.as_ref().map(Wear::write_amplification),
                wear: outcome.wear.as_ref(),
            }),
            mirror: (names.several == Some(Several::Mirror)).then(|| control.mirror().counters()),
            stripe: match names.several {
                Some(Several::Stripe(sides)) => Some(control.sides().counters(sides)),
                _ => None,
            },
            tier: (names.several == Some(Several::Tier)).then(|| Tier {
                sides: control.sides().counters(2),
                moved: control.tier().counters(),
            }),
            figures: figures(&totals(outcome, control), names.preset, names.policy),
        },
    };
    let mut json = serde_json::to_vec(&stats)?;
    json.push(b'\n');
    Ok(json)
}
