//! The command line: commands, options and their help. A mistake in it becomes one line.

use super::device::DeviceCommand;
use super::documents::{COMPLETIONS_EXAMPLES, CompletionsArgs, MAN_EXAMPLES, ManArgs};
use super::options::RunOptions;
use super::probes::{PROBES_EXAMPLES, ProbesArgs};
use super::refusal::Refusal;
use super::reproduce::ReproduceCommand;
use super::run_report::{REPORT_EXAMPLES, ReportArgs};
use super::sim::{SIM_EXAMPLES, SimArgs};
use super::size::{SIZE_EXAMPLES, SizeArgs};
use super::top::{TOP_EXAMPLES, TopArgs};
use super::trace::TraceCommand;
use super::units::Size;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Gives unmodified programs more memory than RAM, by paging to flash.
#[derive(Debug, Parser)]
#[command(
    name = "flashvm",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program with its memory on flash, within a budget of RAM
    #[command(after_help = RUN_EXAMPLES, override_usage = "flashvm run [OPTIONS] -- PROGRAM [ARGS]...")]
    Run(Box<RunArgs>),
    /// Give a process that runs already memory on flash: for libraries
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Show what runs are doing: memory, faults, latencies, I/O
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Show where bpftrace and gdb find the pager's static probes, and what they tell
    #[command(after_help = PROBES_EXAMPLES)]
    Probes(ProbesArgs),
    /// Make the page of a run from its record: faults, memory, code, writes
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Show what this machine supports, and how to enable the rest
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Create and maintain persistent heaps
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Heap(HeapCommand),
    /// List device models, simulate a flash translation layer, measure real devices
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Record, convert and measure traces of memory references
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Simulate page replacement policies over a trace, for many policies and memory sizes at once
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Find out how much RAM a program needs: seconds by RAM, from a few runs of it
    #[command(after_help = SIZE_EXAMPLES, override_usage = "flashvm size [OPTIONS] -- PROGRAM [ARGS]...\n       flashvm size [OPTIONS] --from TRACE")]
    Size(Box<SizeArgs>),
    /// Repeat a paper's tables and figures, beside the paper's values
    #[command(subcommand)]
    Reproduce(ReproduceCommand),
    /// Write manual pages
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Write completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
}

/// `flashvm heap`.
#[derive(Debug, Subcommand)]
pub(crate) enum HeapCommand {
    /// Create a heap in a new file, or on a block device (overwritten)
    #[command(after_help = HEAP_INIT_EXAMPLES)]
    Init(HeapInitArgs),
    /// Show what a heap holds, and the wear of its segments
    #[command(after_help = HEAP_INFO_EXAMPLES)]
    Info(HeapPathArgs),
    /// Check every object, pointer and checksum; the exit code is 1 if something is damaged
    #[command(after_help = HEAP_CHECK_EXAMPLES)]
    Check(HeapPathArgs),
    /// Write a heap as JSON: a line for every object, or with --root one nested value
    #[command(after_help = HEAP_EXPORT_EXAMPLES)]
    Export(HeapExportArgs),
    /// Copy a heap as of its last commit, also while a program has it open
    #[command(after_help = HEAP_BACKUP_EXAMPLES)]
    Backup(HeapBackupArgs),
    /// Make a heap's file larger
    #[command(after_help = HEAP_GROW_EXAMPLES)]
    Grow(HeapGrowArgs),
    /// Collect a heap's persistent space
    #[command(after_help = HEAP_COLLECT_EXAMPLES)]
    Collect(HeapPathArgs),
    /// Measure durable commits of a small update
    #[command(after_help = HEAP_BENCH_EXAMPLES)]
    Bench(HeapBenchArgs),
}

/// `flashvm heap init`.
#[derive(Debug, Args)]
pub(crate) struct HeapInitArgs {
    /// The file to create, or a block device
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Size of the heap, at least 512K
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

/// `flashvm heap export`.
#[derive(Debug, Args)]
pub(crate) struct HeapExportArgs {
    /// The heap; it may be open in another process
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Write the root's value as one nested value, with maps as objects and vectors as lists
    #[arg(long)]
    pub(crate) root: bool,
}

/// `flashvm heap backup`.
#[derive(Debug, Args)]
pub(crate) struct HeapBackupArgs {
    /// The heap; it may be open in another process
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// The file to create, or an empty block device
    #[arg(value_name = "COPY")]
    pub(crate) copy: PathBuf,
}

/// `flashvm heap grow`.
#[derive(Debug, Args)]
pub(crate) struct HeapGrowArgs {
    /// The heap
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Its new size: up to 1G, for a larger heap up to the next power of two; made with up to 16M up to 74M, with up to 32M up to 319M
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Size,
}

/// `flashvm heap bench`.
#[derive(Debug, Args)]
pub(crate) struct HeapBenchArgs {
    /// The folder for a heap of 64 MiB, which is removed at the end
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

The exit code is the program's; 2 if nothing was run, 127 if the program does not exist, 126 if it
cannot be executed. A folder stays as it was; an empty file is unlinked at once and is the store
until the run ends; a block device is overwritten.

A configuration file has the same names as keys:
  ram = \"512M\"
  flash = \"/mnt/nvme\"
  zero-sharing = \"on\"";

const SERVE_EXAMPLES: &str = "\
Libraries start this command: in Python, flashvm.start(\"2G\") does. The command writes two lines to
standard output: the object that a process loads, and the address that the process passes to
flashvm_join. Then it goes into the background, until standard input has ended and no process of
the run is left.

Example:
  sleep 60 | flashvm serve --ram 64M";

const HEAP_INIT_EXAMPLES: &str = "\
Example:
  flashvm heap init notes.heap --size 64M";

const HEAP_INFO_EXAMPLES: &str = "\
Examples:
  flashvm heap info notes.heap
  flashvm heap info --json notes.heap";

const HEAP_CHECK_EXAMPLES: &str = "\
Example:
  flashvm heap check notes.heap && flashvm heap backup notes.heap notes.backup";

const HEAP_EXPORT_EXAMPLES: &str = "\
Examples:
  flashvm heap export notes.heap | grep '\"type\":\"Ref<Note>\"'
  flashvm heap export --root notes.heap > notes.json";

const HEAP_GROW_EXAMPLES: &str = "\
Example:
  flashvm heap grow notes.heap --size 256M";

const HEAP_BACKUP_EXAMPLES: &str = "\
Example:
  flashvm heap backup notes.heap notes.backup";

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
    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// `flashvm serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

/// `flashvm doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The flash path to check [default: as for run]
    #[arg(long, value_name = "PATH")]
    pub(crate) flash: Option<PathBuf>,
}

/// The command line, for help, manual pages and completions.
pub(crate) fn command() -> clap::Command {
    CommandLine::command()
}

/// Parses a command line. `None`: it asked for help or the version, which this function has printed.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Command>, Refusal> {
    match CommandLine::try_parse_from(args) {
        Ok(line) => Ok(Some(line.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // An error means a closed pipe: the help has no reader.
                let _ = error.print();
                Ok(None)
            }
            _ => Err(Refusal::new(one_line(&error))),
        },
    }
}

/// The names of all commands, each with its subcommands in parentheses.
fn commands() -> String {
    let line = command();
    let commands = line.get_subcommands().map(|command| {
        let names = command.get_subcommands().map(clap::Command::get_name);
        let of_it = Vec::from_iter(names).join(", ");
        match of_it.is_empty() {
            true => command.get_name().to_owned(),
            false => format!("{} ({of_it})", command.get_name()),
        }
    });
    Vec::from_iter(commands).join(", ")
}

/// clap's error as one line, which names the value and the remedy.
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
            similar => format!("unknown option '{arg}': did you mean '{similar}'?"),
        },
        ErrorKind::InvalidSubcommand => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command '{command}': known are {}", commands())
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
