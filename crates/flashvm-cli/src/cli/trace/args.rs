//! The command line of `flashvm trace`.

use clap::{Args, Subcommand};
use flashvm_sim::trace::Format;
use flashvm_sim::trace::cpu_cache::{CacheShape, CpuCacheOptions, WriteMiss};
use std::ffi::OsString;
use std::path::PathBuf;

const RECORD_EXAMPLES: &str = "\
Examples:
  flashvm trace record -o tar.trace -- tar -czf /tmp/a.tar.gz /usr/share/doc
  flashvm trace record --references 2000000 -o player.trace -- mpg123 -q -w /tmp/a.wav song.mp3
  flashvm trace record --no-filter --pages -o all.trace -- sort words.txt

The program and its children run under Valgrind's lackey (Debian: apt install valgrind), some
hundred times slower than alone. Their references pass a model of CPU caches; those that reach memory
are recorded. Ctrl-C ends the program, and the trace is complete up to there. The exit code is the
program's.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  flashvm trace convert gcc.trace.gz gcc.fvt
  flashvm trace convert --filter --pages lackey.log.zst program.fvt
  flashvm trace convert --format msr --skip 1000000 --take 500000 hm_0.csv.gz part.fvt

The content decides format and compression (gzip, zstd), whatever the name; --format overrides it.
'-' is standard input. The output has FlashVM's own format.";

const STAT_EXAMPLES: &str = "\
Examples:
  flashvm trace stat gcc.trace.gz
  flashvm trace stat --out pictures mpg123.fvt
  flashvm trace stat --json hm_0.csv.gz

Ranks are CRAW's (section III): the place of a page, before each reference, in the list by recency of
all references (Figure 2), of reads (Figure 3), of writes (Figure 4), and by number of past writes
(Figure 5). Instruction fetches count as reads. --out draws the four figures.";

/// The commands of `flashvm trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Run a program, and record its memory references that miss the CPU caches
    #[command(after_help = RECORD_EXAMPLES, override_usage = "flashvm trace record [OPTIONS] -- PROGRAM [ARGS]...")]
    Record(RecordArgs),
    /// Convert a trace of any format into FlashVM's own, whole or in part
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
    /// Count a trace's references, and rank them by recency and frequency as CRAW does
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArgs),
}

/// The CPU caches that filter a trace.
#[derive(Args, Clone, Debug)]
pub(super) struct CacheArgs {
    /// First-level cache for instructions
    #[arg(long, value_name = "BYTES,WAYS,LINE", default_value_t = CpuCacheOptions::default().instruction)]
    i1: CacheShape,
    /// First-level cache for data
    #[arg(long, value_name = "BYTES,WAYS,LINE", default_value_t = CpuCacheOptions::default().data)]
    d1: CacheShape,
    /// Last-level cache
    #[arg(long, value_name = "BYTES,WAYS,LINE", default_value_t = CpuCacheOptions::default().last)]
    ll: CacheShape,
    /// Let a store that misses all caches read its line first; the paper's does not
    #[arg(long)]
    fetch_on_write: bool,
}

impl CacheArgs {
    pub(super) fn options(&self) -> CpuCacheOptions {
        CpuCacheOptions {
            instruction: self.i1,
            data: self.d1,
            last: self.ll,
            write_miss: match self.fetch_on_write {
                true => WriteMiss::Fetch,
                false => WriteMiss::Allocate,
            },
        }
    }
}

/// `flashvm trace record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "program.fvt")]
    pub(super) output: PathBuf,
    /// End the program after this many recorded references
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) references: Option<u64>,
    /// Record page numbers only, for a smaller trace
    #[arg(long)]
    pub(super) pages: bool,
    /// Record every reference, cache hits too
    #[arg(long)]
    pub(super) no_filter: bool,
    #[command(flatten)]
    pub(super) caches: CacheArgs,
    /// Print no line at the end
    #[arg(long)]
    pub(super) quiet: bool,
    /// Write the line at the end as a JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(super) program: Vec<OsString>,
}

/// The help of `--format`.
pub(crate) fn formats() -> String {
    format!(
        "The trace's format: {} [default: detected]",
        Format::names()
    )
}

/// `flashvm trace convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The trace, '-' for standard input
    #[arg(value_name = "IN")]
    pub(super) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    pub(super) output: PathBuf,
    #[arg(long, value_name = "NAME", help = formats())]
    pub(super) format: Option<Format>,
    /// Filter by CPU caches, as record does
    #[arg(long)]
    pub(super) filter: bool,
    #[command(flatten)]
    pub(super) caches: CacheArgs,
    /// Leave out instruction fetches
    #[arg(long)]
    pub(super) data: bool,
    /// Write page numbers only, for a smaller trace
    #[arg(long)]
    pub(super) pages: bool,
    /// Leave out this many references at the start
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) skip: u64,
    /// Keep at most this many references
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) take: Option<u64>,
    /// Write one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// `flashvm trace stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// The trace, '-' for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[arg(long, value_name = "NAME", help = formats())]
    pub(super) format: Option<Format>,
    /// Draw the figures into this folder (SVG, and CSV with the values)
    #[arg(long, value_name = "FOLDER")]
    pub(super) out: Option<PathBuf>,
    /// Write one JSON object
    #[arg(long)]
    pub(super) json: bool,
}
