//! `flashvm size`: how much RAM a program needs, from its miss curve.
//!
//! One run observes a sample of the pages ([`flashvm_core::shards`]) and gives the curve. A second one gives the seconds in RAM, and
//! up to five with less RAM give the price of a miss. From all follow the seconds for any RAM.
//!
//! - `runs`: runs of the program, by `flashvm run`; `touches`: the curve of a trace;
//! - `forecast`: seconds by RAM, and advice; `text`: the table and the sentence; `json`: the object.

mod forecast;
mod json;
mod runs;
mod text;
mod touches;

use super::device::ModelName;
use super::refusal::Refusal;
use super::report::{Axis, Chart, Series, write_chart};
use super::sim::Policies;
use super::trace::formats;
use super::units::Size;
use super::{doctor, write_out};
use clap::Args;
use flashvm_core::PAGE_SIZE;
use flashvm_sim::device::page_costs;
use flashvm_sim::sweep::SweepError;
use flashvm_sim::trace::Format;
use forecast::{Forecast, Price, Run, Tried};
use runs::Runs;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use touches::Touches;

pub(crate) const SIZE_EXAMPLES: &str = "\
Examples:
  flashvm size -- python3 train.py
  flashvm size --try --plot train.svg -- python3 train.py
  flashvm size --keep train.fvt --json -- python3 train.py
  flashvm size --from train.fvt --compare lru,clock,s3-fifo,opt
  flashvm size --device-model nvme -- ./simulate

The program runs twice with all its RAM, and up to five times with less; with --once it runs once, with
--try three times more. It reads nothing on standard input, and what it prints on standard output is
dropped; standard error is shown.";

/// A read's time where it cannot be measured, as on a block device.
const READ_TIME: Duration = Duration::from_micros(80);

/// `flashvm size`.
#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// RAM for the first run; better all that the program wants [default: as for run]
    #[arg(long, value_name = "SIZE", conflicts_with = "from")]
    ram: Option<Size>,
    /// The flash store, as for run
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    flash: Option<PathBuf>,
    /// Other options of the runs, as for run
    #[arg(long, value_name = "FILE.toml", conflicts_with = "from")]
    config: Option<PathBuf>,
    /// Only the first run: take the flash's read time for the price of a miss
    #[arg(long, conflicts_with = "from")]
    once: bool,
    /// Run it with three of the sizes as well, and show what they gave
    #[arg(long = "try", conflicts_with = "from")]
    try_sizes: bool,
    /// Forecast for this device in place of the one here: one of 'flashvm device models', or a file.toml
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["from", "try_sizes"])]
    device_model: Option<ModelName>,
    /// Keep the touches that the first run saw, as a trace
    #[arg(long, value_name = "FILE.fvt", conflicts_with = "from")]
    keep: Option<PathBuf>,
    /// The curve of a trace, in place of a program's: one that --keep kept, or any that sim reads
    #[arg(long, value_name = "TRACE", conflicts_with = "program")]
    from: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", requires = "from", help = formats())]
    format: Option<Format>,
    /// Misses of these replacement policies as well, separated by commas: on the touches seen, in RAM as much smaller
    /// as the sample
    #[arg(long, value_name = "LIST")]
    compare: Option<Policies>,
    /// Draw the curve
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// The program to run, and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "PROGRAM",
        required_unless_present = "from"
    )]
    program: Vec<OsString>,
}

/// What `flashvm size` has found out.
struct Found {
    touches: Touches,
    /// `None`: a trace has no seconds.
    forecast: Option<Forecast>,
    tried: Vec<Tried>,
}

/// Finds out how much RAM a program needs.
pub(crate) fn size(args: &SizeArgs) -> Result<ExitCode, Refusal> {
    let found = match &args.from {
        Some(trace) => Found {
            touches: Touches::read(trace, args.format)?,
            forecast: None,
            tried: Vec::new(),
        },
        None => run(args)?,
    };
    let policies = args.compare.as_ref().map_or(&[][..], Policies::specs);
    let sizes = found.sizes();
    let compared = found.touches.compare(policies, &sizes)?;
    if let Some(file) = &args.plot {
        let renamed = |refusal: Refusal| refusal.renamed(&[("--out", "--plot")]);
        write_chart(file, &chart(&found)).map_err(renamed)?;
    }
    write_out(&match args.json {
        true => json::object(args, &found, &sizes, &compared),
        false => text::page(args, &found, &sizes, &compared),
    })
}

/// Runs the program, and forecasts from what the runs gave.
fn run(args: &SizeArgs) -> Result<Found, Refusal> {
    let model = args.device_model.as_ref();
    let device = model.map(|model| model.device("--device-model"));
    let device = device.transpose()?;
    let runs = Runs::new(args)?;
    let observed = runs.observed()?;
    let touches = Touches::read(runs.trace(), None)?;
    let here = doctor::read_time(args.flash.as_deref());
    let read_s = here.unwrap_or(READ_TIME).as_secs_f64();
    let curve = touches.curve();
    let first = match args.once {
        true => observed,
        // To be observed takes time.
        false => Run {
            seconds: runs.unobserved()?.seconds,
            ..observed
        },
    };
    let mut forecast = Forecast::new(curve, first, Price::assumed(read_s));
    if !args.once {
        while let Some(frames) = forecast.next_to_page(curve) {
            let run = runs.paged(frames, forecast.longest_run_s())?;
            forecast.learn(curve, run);
        }
    }
    if let Some(device) = device {
        // A device of the size of the footprint.
        let pages = u32::try_from(curve.footprint()).unwrap_or(u32::MAX);
        let pages = pages.max(1024);
        let mut model = device.bare(pages, 1).map_err(SweepError::from)?;
        let there = page_costs(&mut *model).read.0 as f64 / 1e9;
        forecast.change_read_time(curve, read_s, there);
    }
    let mut tried = Vec::new();
    if args.try_sizes {
        for frames in forecast.frames_to_try() {
            tried.push(Tried {
                forecast_s: forecast.seconds(curve, frames),
                run: runs.paged(frames, f64::INFINITY)?,
            });
        }
    }
    Ok(Found {
        touches,
        forecast: Some(forecast),
        tried,
    })
}

impl Found {
    /// The sizes of memory to show, in pages: shares of what the program uses at most.
    fn sizes(&self) -> Vec<u64> {
        let whole = match &self.forecast {
            Some(forecast) => forecast.whole(),
            None => self.touches.curve().footprint(),
        };
        forecast::sizes(whole)
    }

    /// The runs that were made.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        let forecast = self.forecast.iter().flat_map(Forecast::runs);
        forecast.chain(self.tried.iter().map(|tried| &tried.run))
    }
}

fn chart(found: &Found) -> Chart {
    let curve = found.touches.curve();
    let mib = |pages: u64| (pages * PAGE_SIZE as u64) as f64 / f64::from(1 << 20);
    let whole = found.sizes().first().copied().unwrap_or(1);
    let steps = (1..=200).map(|step| whole * step / 200);
    let steps = steps.filter(|&frames| frames >= forecast::FRAMES_MIN.min(whole));
    let (title, y, of): (_, _, Box<dyn Fn(u64) -> f64>) = match &found.forecast {
        Some(forecast) => (
            "Forecast by RAM",
            "seconds",
            Box::new(|frames| forecast.seconds(curve, frames)),
        ),
        None => (
            "Misses by RAM",
            "misses",
            Box::new(|frames| curve.misses(frames) as f64),
        ),
    };
    let mut series = vec![Series::new(
        "forecast",
        steps.map(|frames| (mib(frames), of(frames))).collect(),
    )];
    if found.forecast.is_none() {
        "LRU".clone_into(&mut series[0].name);
    }
    // A run that was cut short took longer: nobody knows how much.
    let runs = found.runs().filter(|run| !run.is_cut);
    let runs = runs.map(|run| (mib(run.frames), run.seconds));
    let runs = Vec::from_iter(runs);
    if !runs.is_empty() {
        series.push(Series::paper("measured", runs));
    }
    Chart {
        name: String::new(),
        title: title.to_owned(),
        x: Axis::linear("RAM, MiB"),
        y: Axis::linear(y),
        series,
    }
}
