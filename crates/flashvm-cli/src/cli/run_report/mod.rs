//! `flashvm run --report FILE` and `flashvm report`: a run as one page for people.
//!
//! The supervisor watches the run (`Watch`): counters over time (`timeline`), what happened to which pages (`heat`,
//! `what_if`), stacks of major faults (`stacks`), who asked for memory that waits (`allocations`), the order in
//! which pages were waited for (`waited`). At the end this is a `record`; `page` and `charts` show it, and
//! `advice` says the main points in sentences (`--profile`). Everything
//! that is kept is bounded, so an hour's report is as small as a second's.

mod advice;
mod allocations;
mod charts;
mod heat;
mod page;
mod record;
mod stacks;
mod timeline;
mod waited;
mod what_if;

use super::outcome::{End, Outcome, Records};
use super::refusal::Refusal;
use super::result_file::ResultFile;
use super::summary::{Names, bytes_read, bytes_written, totals};
use allocations::AllocationCounter;
use clap::Args;
use flashvm_core::PAGE_SIZE;
use flashvm_live::control::{Control, JournalReader, ProcessRecord, Sampled};
use heat::HeatMap;
pub(crate) use record::Record;
use record::{About, FORMAT, Latency, Totals};
use stacks::StackCounter;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use timeline::{Point, Timeline};
pub(crate) use waited::OrderOfProcess;
use waited::WaitedPages;
use what_if::Refaults;

pub(crate) const REPORT_EXAMPLES: &str = "\
Examples:
  flashvm run --ram 128M --report run.json -- sort --buffer-size=2G -o sorted.txt words.txt
  flashvm report run.json -o run.html

The page is one file, without scripts. flashvm run --report run.html makes it at once.";

/// `flashvm report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The record that flashvm run --report FILE.json has written
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html")]
    out: PathBuf,
}

/// Makes the page of a record.
pub(crate) fn report(args: &ReportArgs) -> Result<ExitCode, Refusal> {
    let out = ResultFile::check("--out", &args.out)?;
    let record = Record::read(&args.record)?;
    let written = page_of(&record).and_then(|page| out.write(page.as_bytes()));
    written.map_err(|e| Refusal::new(format!("--out {}: {e}", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
}

fn page_of(record: &Record) -> std::io::Result<String> {
    page::page(record).map_err(|e| std::io::Error::other(e.to_string()))
}

/// The form of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Page,
    Record,
}

/// The file of `--report`, checked before the run.
#[derive(Debug)]
pub(crate) struct ReportFile {
    file: ResultFile,
    form: Form,
}

impl ReportFile {
    pub(crate) fn check(path: &Path) -> Result<Self, Refusal> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let form = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("html" | "htm") => Form::Page,
            Some("json") => Form::Record,
            _ => {
                return Err(Refusal::new(format!(
                    "--report {}: name a file that ends with .html, for the page, or with .json, for a record of which \
                     flashvm report makes the page",
                    path.display()
                )));
            }
        };
        let file = ResultFile::check("--report", path)?;
        Ok(Self { file, form })
    }

    /// Writes the record, or its page.
    pub(crate) fn write(&self, record: &Record) -> std::io::Result<()> {
        match self.form {
            Form::Record => self.file.write(&record.to_json()),
            Form::Page => self.file.write(page_of(record)?.as_bytes()),
        }
    }
}

/// The lines of `--profile`, as those of the summary.
pub(crate) fn profile_lines(record: &Record) -> String {
    let names = std::iter::once("profile").chain(std::iter::repeat(""));
    let lines = names.zip(advice::advice(record));
    lines
        .map(|(name, sentence)| format!("  {name:<9} {sentence}\n"))
        .collect()
}

/// Watches a run for its report.
pub(crate) struct Watch {
    control: Control,
    journal: JournalReader,
    timeline: Timeline,
    heat: HeatMap,
    refaults: Refaults,
    stacks: StackCounter,
    allocations: AllocationCounter,
    /// With `--save-pages`.
    waited: Option<WaitedPages>,
}

impl Watch {
    /// `saves`: for `--save-pages` as well.
    pub(crate) fn new(control: Control, saves: bool) -> Self {
        Self {
            control,
            waited: saves.then(WaitedPages::default),
            journal: control.journal(),
            timeline: Timeline::default(),
            heat: HeatMap::default(),
            refaults: Refaults::new(control.budget_frames().into()),
            stacks: StackCounter::default(),
            allocations: AllocationCounter::default(),
        }
    }

    /// Reads the journal, and the counters if they are due. `gone` are the records of ended processes; `alive` gives
    /// those of the others.
    pub(crate) fn look(
        &mut self,
        elapsed: Duration,
        gone: &Records,
        alive: impl FnOnce() -> Vec<ProcessRecord>,
    ) {
        self.read_journal(elapsed);
        if self.timeline.is_due(elapsed) {
            let point = self.point(gone, &alive());
            self.timeline.push(elapsed, point);
        }
    }

    fn read_journal(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        for sample in self.journal.samples() {
            let stack = self.stacks.stack_of(&sample);
            match sample.sampled {
                Sampled::Faults(faults) => self.stacks.add(stack, faults),
                Sampled::Memory { first, pages } => {
                    self.allocations.ask(sample.pid, stack, first.0, pages);
                }
            }
        }
        self.journal.sightings(|seen| {
            self.heat.add(&seen, seconds);
            self.refaults.add(&seen);
            self.allocations.add(&seen);
            if let Some(waited) = &mut self.waited {
                waited.add(&seen);
            }
        });
    }

    fn point(&self, gone: &Records, alive: &[ProcessRecord]) -> Point {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let mut point = Point {
            ram_used: bytes(self.control.used_frames().into()),
            ..Point::default()
        };
        for process in alive {
            let stats = &process.stats;
            let resolved = stats.prefetch_used + stats.prefetch_wasted;
            point.ram_compressed += bytes(stats.gauges.pool_frames);
            point.ram_ahead += bytes(stats.prefetch_issued.saturating_sub(resolved));
        }
        // Pages whose end nobody saw, because the program freed them, are not in RAM any more.
        let room = point.ram_used.saturating_sub(point.ram_compressed);
        point.ram_ahead = point.ram_ahead.min(room);
        let sum = gone.sum_with(alive);
        point.count(&sum);
        point.bytes_read = bytes_read(&sum);
        point.bytes_written = bytes_written(&sum);
        point
    }

    /// Reads the rest, after the run has ended.
    pub(crate) fn finish(&mut self, outcome: &Outcome) {
        self.read_journal(outcome.elapsed);
        let point = self.point(&outcome.records, &[]);
        self.timeline.push(outcome.elapsed, point);
    }

    /// The order in which the main process of the ended run waited for pages.
    pub(crate) fn order(&mut self, outcome: &Outcome) -> Option<OrderOfProcess> {
        self.waited.take()?.finish(outcome)
    }

    /// The record of the ended run.
    pub(crate) fn record(self, outcome: &Outcome, names: &Names, program: &[OsString]) -> Record {
        let sum = totals(outcome, self.control);
        let words = program.iter().map(|word| word.to_string_lossy());
        let command: String = Vec::from_iter(words).join(" ").chars().take(400).collect();
        let latency = &sum.latency;
        let (heat, cold) = self.heat.finish(self.journal.lost());
        let mut names_of = self.stacks.names();
        Record {
            format: FORMAT,
            about: About {
                command,
                end: match outcome.end {
                    End::Exited(code) => format!("exit code {code}"),
                    End::Signalled(signal) => format!("ended by signal {signal}"),
                },
                seconds: outcome.elapsed.as_secs_f64(),
                ram_bytes: u64::from(self.control.budget_frames()) * PAGE_SIZE as u64,
                processes: outcome.records.processes(),
                mode: sum.deliveries.to_string(),
                preset: names.preset.to_string(),
                policy: names.policy.to_string(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            totals: Totals {
                faults: sum.faults_total + sum.svmp_faults,
                pages_in: sum.pages_in,
                pages_out: sum.pages_out,
                zero_pages_skipped: sum.zero_pages_skipped,
                pages_unchanged: sum.pages_unchanged,
                pool_pages: sum.pool_pages,
                pool_bytes: sum.pool_bytes,
                prefetch_issued: sum.prefetch_issued,
                prefetch_used: sum.prefetch_used,
                prefetch_wasted: sum.prefetch_wasted,
                resident_pages_max: sum.resident_pages_max,
            },
            latency: Latency {
                p50: latency.quantile(0.5),
                p99: latency.quantile(0.99),
                p999: latency.quantile(0.999),
                max: latency.max(),
                sum: latency.total().1,
                octaves: latency.octaves(),
            },
            timeline: self.timeline.points(),
            heat,
            cold,
            what_if: self.refaults.finish(),
            allocations: self.allocations.finish(&mut names_of),
            stacks: self.stacks.finish(&mut names_of),
        }
    }
}
