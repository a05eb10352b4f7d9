//! The command line: its options, their help, and how a mistake in it becomes one line.

use super::device::DeviceCommand;
use super::refusal::Refusal;
use super::reproduce::ReproduceCommand;
use super::sim::{SIM_EXAMPLES, SimArgs};
use super::trace::TraceCommand;
use super::units::{Micros, PerDay, Size, Switch};
use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use flashvm_core::policy::PolicyError;
use flashvm_core::{ConfigError, PolicyKind, PolicySpec, Preset};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// Gives unmodified programs more memory than they may use of RAM, by paging to flash.
#[derive(Debug, Parser)]
#[command(
    name = "flashvm",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program with its memory on flash, within a budget of RAM
    #[command(after_help = RUN_EXAMPLES, override_usage = "flashvm run [OPTIONS] -- PROGRAM [ARGS]...")]
    Run(Box<RunArgs>),
    /// Show what this machine allows, and how to allow the rest
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Make and look after persistent heaps
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Heap(HeapCommand),
    /// Device models, a flash translation layer alone, measurements of real devices
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Record, convert and measure traces of memory references
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run page replacement policies over a trace, many policies and sizes of memory at once
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Measure a paper's tables and figures again, beside what it says
    #[command(subcommand)]
    Reproduce(ReproduceCommand),
}

/// `flashvm heap`.
#[derive(Debug, Subcommand)]
pub(crate) enum HeapCommand {
    /// Make a heap in a new file, or on a block device (overwritten)
    #[command(after_help = HEAP_INIT_EXAMPLES)]
    Init(HeapInitArgs),
    /// Show what a heap holds, and the wear of its segments
    #[command(after_help = HEAP_INFO_EXAMPLES)]
    Info(HeapPathArgs),
    /// Check every object, pointer and checksum; the exit code is 1 if something is damaged
    #[command(after_help = HEAP_CHECK_EXAMPLES)]
    Check(HeapPathArgs),
    /// Collect a heap's persistent space now
    #[command(after_help = HEAP_COLLECT_EXAMPLES)]
    Collect(HeapPathArgs),
    /// Measure durable commits of a small update in a folder
    #[command(after_help = HEAP_BENCH_EXAMPLES)]
    Bench(HeapBenchArgs),
}

/// `flashvm heap init`.
#[derive(Debug, Args)]
pub(crate) struct HeapInitArgs {
    /// The file to make, or a block device
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Size of the heap: 512K at least
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Size,
}

/// The heap commands that take a heap.
#[derive(Debug, Args)]
pub(crate) struct HeapPathArgs {
    /// The heap
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `flashvm heap bench`.
#[derive(Debug, Args)]
pub(crate) struct HeapBenchArgs {
    /// The folder in which a heap of 64 MiB is made, and removed at the end
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Commits to make
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) commits: u64,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  flashvm run --ram 128M -- sort --buffer-size=2G -o sorted.txt words.txt
  flashvm run --ram 2G --flash /mnt/nvme -- python3 train.py
  flashvm run --ram 1G --flash /dev/nvme1n1 --stats run.json -- java -Xmx8g -jar app.jar
  flashvm run --ram 256M --granularity 512 -- ./key-value-store
  flashvm run --config flashvm.toml --preset flashvm -- ./simulate

The exit code is the program's; 2 if nothing was run, 127 or 126 if there is no such program or
it cannot be executed. A folder is left as it was found; an empty file given as --flash is removed
at once and lives on as the store until the run ends; a block device is overwritten.

A configuration file holds the same keys:
  ram = \"512M\"
  flash = \"/mnt/nvme\"
  zero-sharing = \"on\"";

const HEAP_INIT_EXAMPLES: &str = "\
Example:
  flashvm heap init notes.heap --size 64M";

const HEAP_INFO_EXAMPLES: &str = "\
Examples:
  flashvm heap info notes.heap
  flashvm heap info --json notes.heap";

const HEAP_CHECK_EXAMPLES: &str = "\
Example:
  flashvm heap check notes.heap && cp notes.heap backup.heap";

const HEAP_COLLECT_EXAMPLES: &str = "\
Example:
  flashvm heap collect notes.heap";

const HEAP_BENCH_EXAMPLES: &str = "\
Examples:
  flashvm heap bench
  flashvm heap bench --commits 100000 --json /mnt/nvme";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  flashvm doctor
  flashvm doctor --flash /mnt/nvme --json

The exit code is 0 if programs can be run, else 1.";

/// `flashvm run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// Read options from a TOML file; the command line wins
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// The options of a run: one table for the command line and the configuration file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct RunOptions {
    /// RAM that the program and all its children may use [default: half of what is available]
    #[arg(long, value_name = "SIZE")]
    pub(crate) ram: Option<Size>,
    /// Where the flash store lies: a folder, an empty file or a block device [default: the
    /// temporary folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) flash: Option<PathBuf>,
    /// Most that may be stored on flash [default: all of a device; elsewhere 80 % of what is free, or
    /// 8 x ram if that is more, but 95 % of what is free at most. Space is taken as it is needed;
    /// what is asked for here is taken at once]
    #[arg(long, value_name = "SIZE")]
    pub(crate) flash_size: Option<Size>,
    /// Settings to start from: today's best, the paper's, or Linux 2.6.28's [default: modern]
    #[arg(long, value_name = "NAME", value_parser = presets())]
    pub(crate) preset: Option<String>,
    #[arg(long, value_name = "NAME", value_parser = live_policy, help = live_policies())]
    pub(crate) policy: Option<String>,
    /// Most pages that are read ahead at once
    #[arg(long, value_name = "N")]
    pub(crate) readahead: Option<u32>,
    /// Most pages that are read ahead by stride
    #[arg(long, value_name = "N")]
    pub(crate) stride: Option<u32>,
    /// Pages that are cleaned in one batch
    #[arg(long, value_name = "N")]
    pub(crate) preclean: Option<u32>,
    /// Size of a cluster: 8K to 4M
    #[arg(long, value_name = "SIZE")]
    pub(crate) cluster: Option<Size>,
    /// Size of the device's erase blocks, to which clusters are aligned
    #[arg(long, value_name = "SIZE")]
    pub(crate) erase_block: Option<Size>,
    /// Keep pages that hold only zeros off the flash
    #[arg(long, value_name = "on|off")]
    pub(crate) zero_sharing: Option<Switch>,
    /// Pass over dirty pages in the search for victims: off, uniform:N (one in N) or adaptive:N (more
    /// while little is written)
    #[arg(long, value_name = "HOW")]
    pub(crate) sampling: Option<String>,
    /// Tell the device which clusters are free: off, native, merged:SIZE, dummy or auto
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) discard: Option<String>,
    /// How long to wait for a congested device before looking again
    #[arg(long, value_name = "DURATION")]
    pub(crate) congestion_timeout: Option<Micros>,
    /// Who resolves page faults: inline (the faulting thread), handler (a thread of the pager's, needs
    /// privilege) or auto (inline where it works) [default: auto]
    #[arg(long, value_name = "MODE")]
    pub(crate) fault: Option<String>,
    /// Write no more than this in any 24 hours, such as 20G/day; a 24th of it may go at once. Where it
    /// runs short dirty pages are passed over as victims and written by whole erase blocks, and
    /// in the end writes are held back
    #[arg(long, value_name = "SIZE/day")]
    pub(crate) write_limit: Option<PerDay>,
    /// Let the store behave like a device that is not here: a name of flashvm device models, or a model
    /// file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) device_model: Option<String>,
    /// Size of the smallest pages: 4096, or 512 for programs with many small objects: those up to 4 KiB
    /// then lie on pages of 512 bytes to 4 KiB, packed in RAM and read alone [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    pub(crate) granularity: Option<String>,
    /// Bytes that are added to every request for a small object, for programs that overrun theirs: 0 to
    /// 1024 [default: 0]
    #[arg(long, value_name = "BYTES")]
    pub(crate) padding: Option<u32>,
    /// With --granularity 512: write changed pages to a log. off: to where they were, for devices that remap
    /// sectors of 512 bytes themselves; nothing is cleaned then, and the store has to hold all pages
    /// [default: on]
    #[arg(long, value_name = "on|off")]
    pub(crate) log_structuring: Option<Switch>,
    /// Write counters and latencies to a file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Record the page references that the pager sees (faults and first stores) as a trace
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Show a live line on standard error
    #[arg(long)]
    pub(crate) progress: bool,
    /// No summary at the end; a run that fails still says what the pager had to do with it
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) test: TestOptions,
}

/// Options for tests and studies; not shown in the help.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TestOptions {
    /// Prefetcher, apart from the preset's
    #[arg(long, hide = true)]
    pub(crate) prefetcher: Option<String>,
    /// Faults to make in the store, in parts per million of all pages: read=PPM,write=PPM,flip=PPM,seed=N
    #[arg(long, hide = true)]
    pub(crate) inject: Option<String>,
    /// Record the engine's events into files that begin like this
    #[arg(long, hide = true)]
    pub(crate) record: Option<PathBuf>,
    /// Do as on a kernel without UFFDIO_MOVE
    #[arg(long, hide = true)]
    pub(crate) no_move: bool,
    /// Let the store lie in RAM: what is measured is the software alone
    #[arg(long, hide = true)]
    pub(crate) flash_in_ram: bool,
    /// Do as where io_uring is blocked
    #[arg(long, hide = true)]
    pub(crate) no_uring: bool,
    /// Check all invariants again and again: slow
    #[arg(long, hide = true)]
    pub(crate) check: bool,
    /// Most mappings that small pages may take
    #[arg(long, hide = true)]
    pub(crate) overlays: Option<u32>,
    /// A peer of Chameleon's as a mode of it: log-swap, or ssdalloc:N with N percent of page buffer
    #[arg(long, hide = true)]
    pub(crate) peer: Option<String>,
}

/// `flashvm doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The flash path to look at [default: as for run]
    #[arg(long, value_name = "PATH")]
    pub(crate) flash: Option<PathBuf>,
}

impl RunOptions {
    /// These options, and those of `file` where they say nothing.
    pub(crate) fn or(self, file: Self) -> Self {
        Self {
            ram: self.ram.or(file.ram),
            flash: self.flash.or(file.flash),
            flash_size: self.flash_size.or(file.flash_size),
            preset: self.preset.or(file.preset),
            policy: self.policy.or(file.policy),
            readahead: self.readahead.or(file.readahead),
            stride: self.stride.or(file.stride),
            preclean: self.preclean.or(file.preclean),
            cluster: self.cluster.or(file.cluster),
            erase_block: self.erase_block.or(file.erase_block),
            zero_sharing: self.zero_sharing.or(file.zero_sharing),
            sampling: self.sampling.or(file.sampling),
            discard: self.discard.or(file.discard),
            congestion_timeout: self.congestion_timeout.or(file.congestion_timeout),
            fault: self.fault.or(file.fault),
            write_limit: self.write_limit.or(file.write_limit),
            device_model: self.device_model.or(file.device_model),
            granularity: self.granularity.or(file.granularity),
            padding: self.padding.or(file.padding),
            log_structuring: self.log_structuring.or(file.log_structuring),
            stats: self.stats.or(file.stats),
            trace: self.trace.or(file.trace),
            progress: self.progress || file.progress,
            quiet: self.quiet || file.quiet,
            test: self.test,
        }
    }
}

fn presets() -> PossibleValuesParser {
    PossibleValuesParser::new(Preset::ALL.map(|(_, name)| name))
}

fn live_policies() -> String {
    let live = PolicyKind::ALL
        .iter()
        .filter(|info| !info.kind.is_offline());
    let names: Vec<_> = live.map(|info| info.name).collect();
    format!(
        "Page replacement, such as clock(insert=clear): {}",
        names.join(", ")
    )
}

/// A policy that a live pager can have, as it was written.
fn live_policy(text: &str) -> Result<String, String> {
    let policy: PolicySpec = text.parse().map_err(|e: PolicyError| e.to_string())?;
    match policy.kind().is_offline() {
        true => Err(ConfigError::Offline(policy).to_string()),
        false => Ok(text.to_owned()),
    }
}

/// Parses a command line. `None`: help or version were asked for, and have been shown.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Command>, Refusal> {
    match Line::try_parse_from(args) {
        Ok(line) => Ok(Some(line.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // A reader that has gone away does not need the help any more.
                let _ = error.print();
                Ok(None)
            }
            _ => Err(Refusal::new(one_line(&error))),
        },
    }
}

/// What is wrong with the command line, in one line.
fn one_line(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let list = |kind| match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let arg = context(ContextKind::InvalidArg).unwrap_or_default();
    let option = arg.split_ascii_whitespace().next().unwrap_or(arg);
    match error.kind() {
        ErrorKind::UnknownArgument => match list(ContextKind::SuggestedArg) {
            similar if similar.is_empty() => {
                format!("unknown option '{arg}': see flashvm run --help")
            }
            similar => format!("unknown option '{arg}': is '{similar}' meant?"),
        },
        ErrorKind::InvalidSubcommand => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!(
                "unknown command '{command}': known are run, doctor, device (models, simulate, probe), heap (init, info, check, collect, bench), trace (record, convert, stat), sim, reproduce (flashvm, craw, chameleon, gordon)"
            )
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "no command: write flashvm run [OPTIONS] -- PROGRAM [ARGS]..., or see flashvm --help"
                .to_owned()
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = list(ContextKind::InvalidArg);
            let usage = match error.get(ContextKind::Usage) {
                Some(ContextValue::StyledStr(usage)) => usage.to_string(),
                _ => String::new(),
            };
            let usage = usage.lines().next().unwrap_or_default();
            let usage = usage.trim_start_matches("Usage: ");
            match missing.contains("PROGRAM") {
                true => format!("no program: write {usage}"),
                false => format!("{missing} is missing: write {usage}"),
            }
        }
        ErrorKind::InvalidValue => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            match list(ContextKind::ValidValue) {
                _ if value.is_empty() => format!("{option} needs a value: see flashvm run --help"),
                known if known.is_empty() => format!("{option}: '{value}' cannot be used"),
                known => format!(
                    "unknown {} '{value}': known are {known}",
                    option.trim_start_matches('-')
                ),
            }
        }
        ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            let why = std::error::Error::source(error).map(ToString::to_string);
            match why {
                Some(why) if why.contains(value) => format!("{option}: {why}"),
                Some(why) => format!("{option}: '{value}': {why}"),
                None => format!("{option}: '{value}' cannot be used"),
            }
        }
        ErrorKind::ArgumentConflict => format!("{option} is given more than once"),
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or("bad command line");
            format!(
                "{}: see flashvm run --help",
                line.trim_start_matches("error: ")
            )
        }
    }
}
