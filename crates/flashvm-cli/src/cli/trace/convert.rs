//! `flashvm trace convert`: any format into our own.

use super::args::ConvertArgs;
use super::bar;
use super::output::Output;
use super::pipeline::{Pipeline, Wanted};
use crate::cli::refusal::Refusal;
use crate::cli::units::{Size, count};
use crate::cli::write_out;
use flashvm_sim::trace::{Format, Provenance, Trace, open};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct ConvertReport {
    format: &'static str,
    references_read: u64,
    references: u64,
    bytes: u64,
}

pub(super) fn convert(args: &ConvertArgs) -> Result<ExitCode, Refusal> {
    let mut trace = open(&args.input, args.format)?;
    let wanted = Wanted {
        caches: args.filter.then(|| args.caches.options()),
        data: args.data,
        pages: args.pages,
        skip: args.skip,
        take: args.take,
    };
    let provenance = provenance(&trace, &wanted);
    let mut pipeline = Pipeline::new(wanted, trace.granularity())?;
    let mut output = Output::create(&args.output, pipeline.granularity(), &provenance)?;
    let (bar, progress) = (bar(&trace), trace.progress());
    'trace: loop {
        let batch = trace.batch()?;
        if batch.is_empty() {
            break;
        }
        for &reference in batch {
            if !pipeline.feed(reference, &mut output)? {
                break 'trace;
            }
        }
        bar.set_position(progress.read());
    }
    bar.finish_and_clear();
    let references = output.references();
    if references == 0 {
        return Err(Refusal::new(format!(
            "{}: none of its {} references is left: skip fewer, or take --data away",
            args.input.display(),
            count(pipeline.seen())
        )));
    }
    let bytes = output.finish()?;
    let report = ConvertReport {
        format: trace.format().info().name,
        references_read: pipeline.seen(),
        references,
        bytes,
    };
    write_out(&match args.json {
        true => serde_json::to_string(&report).expect("numbers and a name") + "\n",
        false => format!(
            "{}: {} of {} references ({}), {}\n",
            args.output.display(),
            count(references),
            count(report.references_read),
            report.format,
            Size(bytes)
        ),
    })
}

/// The trace's provenance, with the steps of this conversion.
fn provenance(trace: &Trace, wanted: &Wanted) -> Provenance {
    let mut provenance = trace.provenance().clone();
    if trace.format() != Format::Flashvm {
        let name = trace.path().file_name().unwrap_or_default();
        provenance.source = format!("{} ({})", name.to_string_lossy(), trace.format());
    }
    provenance.steps.extend(wanted.steps());
    provenance
}
