//! Figure 15: how CRAW divides memory between reads and writes while a program runs.

use super::programs::{device, refusal, spec};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::Material;
use flashvm_sim::sweep::{Job, Observation, observe};
use indicatif::ProgressBar;

/// Memory in percent of the footprint; the paper does not give its own.
const PERCENTS: [u32; 3] = [10, 30, 50];
/// Points per curve.
const POINTS: usize = 250;

pub(super) fn figure_15(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let program = programs.iter().find(|program| program.paper == "xmms");
    let program = program.unwrap_or(&programs[0]);
    let mut table = Table::new(&[
        "memory", "frames", "faults", "area", "least", "mean", "most",
    ]);
    let mut charts = Vec::new();
    for percent in PERCENTS {
        bar.set_message(format!("{}: areas at {percent} %", program.name));
        let job = Job {
            policy: spec("craw"),
            frames: (program.references.pages() * percent).div_ceil(100),
            observation: Observation::Full,
        };
        let mut areas: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
        let figures = observe(&program.references, job, &device(), |_, policy| {
            for (at, area) in policy.areas().into_iter().enumerate() {
                if at == areas.len() {
                    areas.push((area.name, Vec::new()));
                }
                let fault = areas[at].1.len() as f64;
                areas[at].1.push((fault, area.desired));
            }
        });
        let figures = figures.map_err(|e| refusal(&e))?;
        for (name, points) in &areas {
            let sizes = points.iter().map(|point| point.1);
            table.row([
                format!("{percent} %"),
                job.frames.to_string(),
                figures.counts.misses.to_string(),
                (*name).to_owned(),
                format!("{:.0}", sizes.clone().fold(f64::INFINITY, f64::min)),
                format!("{:.1}", sizes.clone().sum::<f64>() / points.len() as f64),
                format!("{:.0}", sizes.fold(0.0, f64::max)),
            ]);
        }
        let series = areas.into_iter().map(|(name, points)| {
            let every = points.len().div_ceil(POINTS).max(1);
            Series::new(name, points.into_iter().step_by(every).collect())
        });
        charts.push(Chart {
            name: format!("{percent}"),
            title: format!(
                "{}, memory of {} frames: desired sizes",
                program.name, job.frames
            ),
            x: Axis::linear("page fault"),
            y: Axis::linear("pages"),
            series: series.collect(),
        });
    }
    Ok(Report {
        tables: vec![table],
        charts,
        notes: vec![format!(
            "Desired sizes at each page fault of {}. The paper draws xmms and says that memory is allocated \
                 dynamically as the pattern of references changes; it does not say its memory size.",
            program.name
        )],
    })
}
