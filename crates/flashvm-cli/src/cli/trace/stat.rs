//! `flashvm trace stat`: counts, footprint, and CRAW's Figures 2 to 5.

use super::args::StatArgs;
use super::bar;
use super::figures::{self, FIGURES};
use crate::cli::refusal::Refusal;
use crate::cli::report;
use crate::cli::units::{Size, count};
use crate::cli::write_out;
use flashvm_core::PAGE_SIZE;
use flashvm_sim::locality::{Locality, Ranks};
use flashvm_sim::trace::{Format, Granularity, Trace, open};
use serde::Serialize;
use std::process::ExitCode;

/// Longest bar of the text chart.
const BAR_CHARS: f64 = 24.0;

#[derive(Serialize)]
struct StatReport<'a> {
    trace: String,
    format: &'static str,
    granularity: Granularity,
    source: &'a str,
    steps: &'a [String],
    references: u64,
    reads: u64,
    writes: u64,
    instructions: u64,
    pages: u64,
    pages_read: u64,
    pages_written: u64,
    figures: Vec<RankCurve>,
}

#[derive(Serialize)]
struct RankCurve {
    figure: u32,
    ranks: &'static str,
    first: u64,
    inverted_percent: f64,
    octaves: Vec<Octave>,
}

#[derive(Serialize)]
struct Octave {
    from: usize,
    to: usize,
    references: u64,
}

pub(super) fn stat(args: &StatArgs) -> Result<ExitCode, Refusal> {
    let mut trace = open(&args.file, args.format)?;
    let locality = measure(&mut trace)?;
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|e| report::cannot(folder, &e))?;
        let name = args.file.file_name().unwrap_or_default().to_string_lossy();
        for figure in &FIGURES {
            let mut chart = figures::chart(figure, &[(&name, &locality)]);
            chart.title = format!("{name}: {}", chart.title);
            let file = folder.join(format!("figure-{}.svg", figure.number));
            report::write_chart(&file, &chart)?;
        }
        let csv = figures::table(&locality).csv();
        report::write_whole(&folder.join("ranks.csv"), csv.as_bytes())?;
    }
    let report = report(&trace, &locality);
    write_out(&match args.json {
        true => serde_json::to_string(&report).expect("numbers and texts") + "\n",
        false => lines(&report, &locality),
    })
}

/// Reads a trace to its end.
pub(crate) fn measure(trace: &mut Trace) -> Result<Locality, Refusal> {
    let (bar, progress) = (bar(trace), trace.progress());
    let granularity = trace.granularity();
    let mut locality = Locality::default();
    loop {
        let batch = trace.batch()?;
        if batch.is_empty() {
            break;
        }
        for &reference in batch {
            locality.add(granularity, reference);
        }
        bar.set_position(progress.read());
    }
    bar.finish_and_clear();
    Ok(locality)
}

fn report<'a>(trace: &'a Trace, locality: &Locality) -> StatReport<'a> {
    let counts = locality.counts();
    let curve = |figure: &figures::Figure| {
        let ranks = (figure.ranks)(locality);
        let octaves = ranks.octaves().into_iter().map(|octave| Octave {
            from: octave.from,
            to: octave.to,
            references: octave.count,
        });
        RankCurve {
            figure: figure.number,
            ranks: figure.short,
            first: ranks.first,
            inverted_percent: ranks.inverted_percent(),
            octaves: octaves.collect(),
        }
    };
    StatReport {
        trace: trace.path().display().to_string(),
        format: trace.format().info().name,
        granularity: trace.granularity(),
        source: &trace.provenance().source,
        steps: &trace.provenance().steps,
        references: counts.all(),
        reads: counts.reads,
        writes: counts.writes,
        instructions: counts.instructions,
        pages: locality.pages(),
        pages_read: locality.pages_read(),
        pages_written: locality.pages_written(),
        figures: FIGURES.iter().map(curve).collect(),
    }
}

fn lines(report: &StatReport, locality: &Locality) -> String {
    let by = match report.granularity {
        Granularity::Bytes => "bytes",
        Granularity::Pages => "pages",
    };
    let mut text = format!("{}: {}, by {by}\n", report.trace, report.format);
    if report.format == Format::Flashvm.info().name {
        text.push_str(&format!("  source      {}\n", report.source));
        text.extend(
            report
                .steps
                .iter()
                .map(|step| format!("              {step}\n")),
        );
    }
    text.push_str(&format!(
        "  references  {}: {} reads, {} writes, {} instruction fetches\n  \
         footprint   {} pages ({}): {} read, {} written\n",
        count(report.references),
        count(report.reads),
        count(report.writes),
        count(report.instructions),
        count(report.pages),
        Size(report.pages * PAGE_SIZE as u64),
        count(report.pages_read),
        count(report.pages_written),
    ));
    for figure in &FIGURES {
        let ranks = (figure.ranks)(locality);
        if ranks.ranked() > 0 {
            let inverted = ranks.inverted_percent();
            text.push_str(&format!(
                "\n  {} (Figure {}), {} first, {inverted:.1} % at inverted ranks\n",
                figure.title,
                figure.number,
                count(ranks.first)
            ));
            text.push_str(&picture(ranks));
        }
    }
    text
}

/// References per rank by octaves, as bars of logarithmic length.
fn picture(ranks: &Ranks) -> String {
    let octaves = ranks.octaves();
    let all = ranks.ranked() as f64;
    let length = |mean: f64| (1.0 + mean).log2();
    let most = octaves
        .iter()
        .map(|octave| length(octave.mean()))
        .fold(1.0, f64::max);
    let line = |octave: &flashvm_sim::locality::Octave| {
        let named = match octave.from == octave.to {
            true => octave.from.to_string(),
            false => format!("{} to {}", octave.from, octave.to),
        };
        let chars = (length(octave.mean()) / most * BAR_CHARS).round() as usize;
        format!(
            "    {named:>18} {:>14} {:>6.2} % {:>14.1} a rank {}\n",
            count(octave.count),
            octave.count as f64 * 100.0 / all,
            octave.mean(),
            "#".repeat(chars)
        )
    };
    octaves.iter().map(line).collect()
}
