//! `flashvm sim`: replacement policies over a trace.

use super::device::ModelName;
use super::refusal::Refusal;
use super::report::{Axis, Chart, Series, write_chart};
use super::shard::Shard;
use super::trace::{bar, formats};
use super::units::{count, latency};
use super::write_out;
use clap::{Args, ValueEnum};
use flashvm_core::PolicySpec;
use flashvm_core::policy::PolicyError;
use flashvm_sim::sweep::{
    Figures, Job, MemorySize, Observation, References, Row, SizeError, SweepError, Watch, sweep,
};
use flashvm_sim::trace::{Format, Reference, Trace, TraceError, open};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const SIM_EXAMPLES: &str = "\
Examples:
  flashvm sim --trace gcc.trace.gz --policy lru,clock,craw --frames 32,64,10%
  flashvm sim --trace hm_0.csv.gz --policy 'clock(insert=clear),cfclock(window=0.25),opt' --frames 64M,1G --json
  flashvm sim --trace tar.fvt --policy clock,car,cfclock,craw --frames 10%,20%,40%,80% --plot tar.svg
  flashvm sim --trace tar.fvt --frames 10%,20%,40%,80% --shard $SLURM_ARRAY_TASK_ID/8 --json > part$SLURM_ARRAY_TASK_ID.jsonl

A reference to a page that is not in memory is a miss and reads the page; a dirty page is written when it
is evicted, not at the end. I/O time is the device model's time, one request at a time. The trace is read
once; references are kept in RAM up to 256 MiB, then in a temporary file ($TMPDIR, else /var/tmp).

The column observed counts references to pages in memory that the policy sees: with --sight live,
a fault of the live pager each.

With --json, one object a line: trace, policy, frames, requests, misses, observed, page_reads,
page_writes, io_time_us, wall_s, requests_per_s.";

/// Interval of progress updates.
const WATCH: Duration = Duration::from_millis(100);

/// Policies, separated by commas.
#[derive(Clone, Debug)]
pub(crate) struct Policies(Vec<PolicySpec>);

impl Policies {
    pub(crate) fn specs(&self) -> &[PolicySpec] {
        &self.0
    }
}

/// Sizes of memory, separated by commas.
#[derive(Clone, Debug)]
pub(crate) struct Sizes(Vec<MemorySize>);

impl FromStr for Policies {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        PolicySpec::list(text).map(Self)
    }
}

impl FromStr for Sizes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        MemorySize::list(text).map(Self)
    }
}

/// The curve to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Curve {
    /// Milliseconds of I/O.
    IoTime,
    /// Misses in a hundred references.
    MissRatio,
    /// Pages read.
    PageReads,
    /// Pages written.
    PageWrites,
}

/// The references that policies see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sight {
    /// All references.
    Full,
    /// Those that a live pager would see.
    Live,
    /// Those that access rights show, with a read and a write bit (CRAW, VI.B).
    Protected,
}

/// `flashvm sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The trace; '-' is standard input
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    #[arg(long, value_name = "FORMAT", help = formats())]
    format: Option<Format>,
    #[arg(long, value_name = "LIST", default_value = "clock,car,cfclock,craw,craw-a", help = policies())]
    policy: Policies,
    /// Sizes of memory: frames (400), bytes (8M) or shares of the footprint (10%), separated by commas
    #[arg(long, value_name = "LIST")]
    frames: Sizes,
    /// Device model for I/O time: one of 'flashvm device models', or a file.toml
    #[arg(long, value_name = "MODEL", default_value = "slc-nand")]
    device_model: ModelName,
    /// References that policies see: all, those that a live pager would see, or those that access rights show
    #[arg(long, value_name = "full|live|protected", default_value = "full")]
    sight: Sight,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Draw the curves
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// The curve to draw
    #[arg(long, value_name = "WHAT", default_value = "io-time")]
    plot_of: Curve,
    /// Run part I (1 to N) of N: every N-th pair of policy and size. All parts together give all results
    #[arg(long, value_name = "I/N", conflicts_with = "plot")]
    shard: Option<Shard>,
    /// Write one JSON object a line
    #[arg(long)]
    json: bool,
}

fn policies() -> String {
    let lines = flashvm_core::PolicyKind::ALL.iter().map(|info| {
        let (name, parameters) = (info.name, info.parameters);
        match parameters {
            [] => name.to_owned(),
            [parameter] => format!("{name}({})", parameter.range()),
            // Too long for a line; an error names the words.
            _ => {
                let names: Vec<_> = parameters.iter().map(|p| p.name()).collect();
                format!("{name}({}=...)", names.join("|"))
            }
        }
    });
    let lines: Vec<_> = lines.collect();
    format!("Policies, separated by commas: {}", lines.join(", "))
}

/// Runs all policies at all sizes of memory over the trace, and writes the results.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Refusal> {
    let device = args.device_model.device("--device-model")?;
    // Refuse a size that is invalid for any footprint before reading the trace.
    for size in &args.frames.0 {
        let refuse = |e| Refusal::new(format!("--frames: {e}"));
        if !matches!(size, MemorySize::Percent(_)) {
            size.frames(0).map_err(refuse)?;
        }
    }
    let references = read(open(&args.trace, args.format)?, |_| ())?;
    let frames = args
        .frames
        .0
        .iter()
        .map(|size| size.frames(references.pages()));
    let frames = frames.collect::<Result<Vec<_>, _>>();
    let frames = frames.map_err(|e| Refusal::new(format!("--frames: {e}")))?;
    let observation = match args.sight {
        Sight::Full => Observation::Full,
        Sight::Live => Observation::Live,
        Sight::Protected => Observation::Protected,
    };
    let mut jobs = Job::all(&args.policy.0, &frames, observation);
    if let Some(shard) = args.shard {
        jobs = shard.of(jobs);
    }
    let threads = match args.threads {
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(1, Into::into),
    };
    let figures = watched(&references, &jobs, |watch| {
        sweep(&references, &jobs, &device, threads, watch)
    })?;
    if let Some(file) = &args.plot {
        write_chart(file, &chart(args, &jobs, &figures))
            .map_err(|refusal| refusal.renamed(&[("--out", "--plot")]))?;
    }
    let name = args.trace.display().to_string();
    let rows = jobs.iter().zip(&figures);
    let rows = rows.map(|(job, figures)| Row::new(&name, job, figures));
    let rows: Vec<_> = rows.collect();
    write_out(&match args.json {
        true => rows.iter().map(|row| row.to_json() + "\n").collect(),
        false => table(&references, args, &rows),
    })
}

impl From<SweepError> for Refusal {
    fn from(error: SweepError) -> Self {
        Self::new(error.to_string())
    }
}

/// Reads a trace under a progress bar, and calls `see` with each reference.
pub(crate) fn read(trace: Trace, mut see: impl FnMut(Reference)) -> Result<References, Refusal> {
    const EVERY: u64 = 1 << 16;
    let (bar, progress) = (bar(&trace), trace.progress());
    let granularity = trace.granularity();
    let mut taken = 0;
    let references = References::read(
        granularity,
        trace.inspect(|reference: &Result<_, TraceError>| {
            if let Ok(reference) = reference {
                see(*reference);
            }
            taken += 1;
            if taken % EVERY == 0 {
                bar.set_position(progress.read());
            }
        }),
    );
    bar.finish_and_clear();
    Ok(references?)
}

/// Calls `run` under a progress bar; `run` counts the references that it has replayed in the `Watch`.
pub(crate) fn watched<T>(
    references: &References,
    jobs: &[Job],
    run: impl FnOnce(&Watch) -> T,
) -> T {
    let bar = ProgressBar::new(references.len() * jobs.len() as u64).with_style(
        ProgressStyle::with_template("{bar:30} {percent} %, {per_sec}, {eta} left")
            .expect("a valid template"),
    );
    let (watch, over) = (Watch::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                bar.set_position(watch.done());
                std::thread::park_timeout(WATCH);
            }
        });
        let result = run(&watch);
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    })
}

fn table(references: &References, args: &SimArgs, rows: &[Row]) -> String {
    let mut text = format!(
        "{}: {} references, {} pages, {} of them written; device {}\n\n{:>10} {:<24} {:>14} {:>8} {:>14} {:>14} {:>14} {:>10}\n",
        args.trace.display(),
        count(references.len()),
        count(references.pages().into()),
        count(references.pages_written().into()),
        args.device_model,
        "frames",
        "policy",
        "misses",
        "miss %",
        "observed",
        "page reads",
        "page writes",
        "I/O time",
    );
    let mut last = None;
    for row in rows {
        if last.is_some_and(|frames| frames != row.frames) {
            text.push('\n');
        }
        last = Some(row.frames);
        text.push_str(&format!(
            "{:>10} {:<24} {:>14} {:>8.3} {:>14} {:>14} {:>14} {:>10}\n",
            count(row.frames.into()),
            row.policy,
            count(row.misses),
            row.misses as f64 * 100.0 / row.requests as f64,
            count(row.observed),
            count(row.page_reads),
            count(row.page_writes),
            latency((row.io_time_us * 1e3) as u64),
        ));
    }
    text
}

fn chart(args: &SimArgs, jobs: &[Job], figures: &[Figures]) -> Chart {
    let (label, value): (_, fn(&Figures) -> f64) = match args.plot_of {
        Curve::IoTime => ("I/O time, ms", |f| f.counts.io_time.0 as f64 / 1e6),
        Curve::MissRatio => ("misses, % of references", |f| {
            f.counts.misses as f64 * 100.0 / f.requests as f64
        }),
        Curve::PageReads => ("pages read", |f| f.counts.page_reads as f64),
        Curve::PageWrites => ("pages written", |f| f.counts.page_writes as f64),
    };
    let series = args.policy.0.iter().map(|policy| {
        let points = jobs
            .iter()
            .zip(figures)
            .filter(|(job, _)| job.policy == *policy);
        let points = points.map(|(job, figures)| (f64::from(job.frames), value(figures)));
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            name: policy.to_string(),
            points,
            paper: false,
        }
    });
    let axis = |label: &str, logarithmic| Axis {
        label: label.to_owned(),
        logarithmic,
        places: Vec::new(),
    };
    Chart {
        name: String::new(),
        title: args
            .trace
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        x: axis("frames", true),
        y: axis(label, false),
        series: series.collect(),
    }
}
