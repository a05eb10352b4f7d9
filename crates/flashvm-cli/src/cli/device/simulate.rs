//! `flashvm device simulate`: a translation layer alone.

use super::args::SimulateArgs;
use super::model;
use crate::cli::refusal::Refusal;
use crate::cli::units::count;
use crate::cli::write_out;
use flashvm_sim::device::nand::{
    Geometry, NandOptions, Settled, Workload, read_trace, simulate as settle,
};
use flashvm_sim::{Device, ModelKind};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::ExitCode;

#[derive(Serialize)]
struct Report {
    write_amplification: f64,
    erase_min: u32,
    erase_mean: f64,
    erase_max: u32,
    free_blocks: u32,
}

pub(super) fn simulate(args: &SimulateArgs) -> Result<ExitCode, Refusal> {
    let Device {
        model, mut nand, ..
    } = model::named("--model", &args.model)?;
    if !matches!(model, ModelKind::Nand | ModelKind::RawNand) {
        return Err(Refusal::new(format!(
            "--model {model}: it has no translation layer: nand and raw-nand have one"
        )));
    }
    override_with(&mut nand, args);
    let geometry = nand
        .geometry_of_blocks(args.blocks)
        .map_err(|e| Refusal::new(e.to_string()))?;
    let workload = workload(&args.workload, &geometry)?;
    let bar = ProgressBar::new(1).with_style(
        ProgressStyle::with_template("overwriting {bar:30} {pos}/{len} at most, {elapsed}")
            .expect("a valid template"),
    );
    let settled = settle(
        geometry,
        nand.strategy(),
        &workload,
        args.seed,
        |done, of| {
            bar.set_length(of.into());
            bar.set_position(done.into());
        },
    );
    bar.finish_and_clear();
    let settled = settled.map_err(|e| {
        Refusal::new(format!(
            "--model {}: {e} before it has settled: give it more endurance than {}",
            args.model, nand.endurance
        ))
    })?;
    write_out(&if args.json {
        let report = Report {
            write_amplification: settled.write_amplification,
            erase_min: settled.erase_min,
            erase_mean: settled.erase_mean,
            erase_max: settled.erase_max,
            free_blocks: settled.free_blocks,
        };
        serde_json::to_string(&report).expect("five numbers") + "\n"
    } else {
        lines(&geometry, &settled)
    })
}

fn lines(geometry: &Geometry, settled: &Settled) -> String {
    let counts = &settled.counts;
    let shown = f64::from(geometry.logical_pages);
    let physical = f64::from(geometry.blocks) * f64::from(geometry.pages_per_block);
    format!(
        "device                {} blocks of {} pages, {} pages shown, {:.1} % over-provisioned\n\
         write amplification   {:.3}\n\
         erases                {} to {}, mean {:.1}\n\
         free blocks           {}, {} bad\n\
         written               {} pages by the host, {} copied in all\n",
        geometry.blocks,
        geometry.pages_per_block,
        count(geometry.logical_pages.into()),
        (physical / shown - 1.0) * 100.0,
        settled.write_amplification,
        settled.erase_min,
        settled.erase_max,
        settled.erase_mean,
        settled.free_blocks,
        settled.bad_blocks,
        count(counts.host_writes),
        count(counts.copies),
    )
}

fn override_with(nand: &mut NandOptions, args: &SimulateArgs) {
    if let Some(share) = args.over_provisioning {
        nand.over_provisioning = share.0;
    }
    if let Some(pages) = args.pages_per_block {
        nand.pages_per_block = pages;
    }
    if let Some(name) = &args.frontiers {
        nand.frontiers = by_name(name);
    }
    if let Some(name) = &args.cleaning {
        nand.cleaning = by_name(name);
    }
    if let Some(name) = &args.levelling {
        nand.levelling = by_name(name);
    }
}

/// A value of an enum by the name that model files have for it; clap has checked the name.
fn by_name<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(name.into()).expect("a name that the command line offers")
}

fn workload(name: &str, geometry: &Geometry) -> Result<Workload, Refusal> {
    match name {
        "uniform" => return Ok(Workload::Uniform),
        "hot-cold" => return Ok(Workload::HotCold),
        "sequential" => return Ok(Workload::Sequential),
        _ => {}
    }
    let refuse = |why: &dyn std::fmt::Display| {
        Refusal::new(format!(
            "--workload {name}: {why}; known are uniform, hot-cold, sequential, or a trace's file"
        ))
    };
    let text = std::fs::read_to_string(name).map_err(|e| refuse(&e))?;
    let trace = read_trace(&text, geometry.logical_pages);
    Ok(Workload::Trace(trace.map_err(|e| refuse(&e))?))
}
