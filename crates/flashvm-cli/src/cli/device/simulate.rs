//! `flashvm device simulate`: a flash translation layer without a pager.

use super::args::{SimulateArgs, WorkloadName};
use crate::cli::refusal::Refusal;
use crate::cli::units::count;
use crate::cli::write_out;
use flashvm_sim::device::nand::{
    Geometry, NandOptions, Settled, Workload, read_trace, simulate as settle,
};
use flashvm_sim::{Device, ModelKind};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct SimulateReport {
    write_amplification: f64,
    erase_min: u32,
    erase_mean: f64,
    erase_max: u32,
    free_blocks: u32,
}

pub(super) fn simulate(args: &SimulateArgs) -> Result<ExitCode, Refusal> {
    let Device {
        model, mut nand, ..
    } = args.model.device("--model")?;
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
        ProgressStyle::with_template("overwriting {bar:30} {pos} of at most {len}, {elapsed}")
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
        let report = SimulateReport {
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
    nand.frontiers = args.frontiers.unwrap_or(nand.frontiers);
    nand.cleaning = args.cleaning.unwrap_or(nand.cleaning);
    nand.levelling = args.levelling.unwrap_or(nand.levelling);
}

fn workload(name: &WorkloadName, geometry: &Geometry) -> Result<Workload, Refusal> {
    let path = match name {
        WorkloadName::Uniform => return Ok(Workload::Uniform),
        WorkloadName::HotCold => return Ok(Workload::HotCold),
        WorkloadName::Sequential => return Ok(Workload::Sequential),
        WorkloadName::File(path) => path,
    };
    let refuse = |why: &dyn std::fmt::Display| {
        Refusal::new(format!(
            "--workload {}: {why}; known are uniform, hot-cold, sequential, or a trace's file",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|e| refuse(&e))?;
    let trace = read_trace(&text, geometry.logical_pages);
    Ok(Workload::Trace(trace.map_err(|e| refuse(&e))?))
}
