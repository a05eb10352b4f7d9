//! The command line of `flashvm device`.

use super::model::ModelName;
use crate::cli::units::Size;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use flashvm_sim::device::nand::{Cleaning, Frontiers, Levelling};
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

const SIMULATE_EXAMPLES: &str = "\
Examples:
  flashvm device simulate --over-provisioning 7% --pages-per-block 128 --json
  flashvm device simulate --workload hot-cold --cleaning cost-benefit --frontiers separate
  flashvm device simulate --model chips.toml --workload writes.txt

The device is written full, then overwritten until its write amplification changes by no more than
0.3 % from one overwrite to the next; the result is that of the four overwrites after. A trace
has one page a line: 'w PAGE' or 'PAGE' writes it, 'd PAGE' discards it.

A model file has any of these keys (values are the defaults):
  model = \"nand\"              # or \"raw-nand\"
  over-provisioning = 0.07
  pages-per-block = 64
  frontiers = \"shared\"        # or \"separate\": host and cleaner fill different blocks
  reserve = 0                 # erased blocks kept beside the cleaner's
  cleaning = \"greedy\"         # or \"cost-benefit\"
  levelling = \"dynamic\"       # or \"none\", \"static\"
  levelling-gap = 64          # erases by which a block may lag behind
  endurance = 10000           # erases of a block
  channels = 4
  queue-depth = 32
  read-us = 25.0
  program-us = 200.0
  erase-us = 2000.0
  transfer-us = 30.8
  program-failure-ppm = 0
  open-blocks = 1             # of block-nand: blocks half rewritten at once
  aged = false";

const PROBE_EXAMPLES: &str = "\
Examples:
  flashvm device probe /mnt/nvme
  flashvm device probe /dev/nvme1n1 --size 4G --json

A folder is measured through a nameless file and stays as it was. For a file, its folder is measured.
A block device is overwritten after a confirmation (--yes gives it).";

/// The commands of `flashvm device`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List the device models
    Models(ModelsArgs),
    /// Simulate a flash translation layer, and show its write amplification and wear
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Time reads, writes, mixed streams and discards of a real device, as in FlashVM's Table 2 and Figure 4
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(ProbeArgs),
}

/// `flashvm device models`.
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share: 0.07 or 7%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (text, 1.0),
        };
        let share = number.parse::<f64>().ok().filter(|share| share.is_finite());
        share
            .map(|share| Self(share / unit))
            .ok_or_else(|| format!("'{text}' is not a share: write 0.07 or 7%"))
    }
}

/// The value of `--workload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadName {
    Uniform,
    HotCold,
    Sequential,
    /// A trace of page writes.
    File(PathBuf),
}

impl FromStr for WorkloadName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "uniform" => Self::Uniform,
            "hot-cold" => Self::HotCold,
            "sequential" => Self::Sequential,
            file => Self::File(file.into()),
        })
    }
}

/// Parses one of some words into its value.
fn one_of<T, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> + use<T, N>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(values.map(|(word, _)| word)).map(move |text| {
        let found = values.iter().find(|(word, _)| *word == text);
        found.expect("clap accepts only these words").1
    })
}

/// `flashvm device simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// nand, raw-nand, or a model file (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "nand")]
    pub(crate) model: ModelName,
    /// Over-provisioning: (physical - logical pages) / logical pages
    #[arg(long, value_name = "R")]
    pub(crate) over_provisioning: Option<Share>,
    /// Pages per block
    #[arg(long, value_name = "N")]
    pub(crate) pages_per_block: Option<u32>,
    /// Blocks of the device
    #[arg(long, value_name = "N", default_value = "1024")]
    pub(crate) blocks: u32,
    /// Who fills which block
    #[arg(long, value_parser = one_of([
        ("shared", Frontiers::Shared),
        ("separate", Frontiers::Separate),
    ]))]
    pub(crate) frontiers: Option<Frontiers>,
    /// Which block is cleaned next
    #[arg(long, value_parser = one_of([
        ("greedy", Cleaning::Greedy),
        ("cost-benefit", Cleaning::CostBenefit),
    ]))]
    pub(crate) cleaning: Option<Cleaning>,
    /// How erases are spread
    #[arg(long, value_parser = one_of([
        ("none", Levelling::None),
        ("dynamic", Levelling::Dynamic),
        ("static", Levelling::Static),
    ]))]
    pub(crate) levelling: Option<Levelling>,
    /// uniform, hot-cold (80 % of the writes to 20 % of the pages), sequential, or a trace
    #[arg(
        long,
        value_name = "uniform|hot-cold|sequential|FILE",
        default_value = "uniform"
    )]
    pub(crate) workload: WorkloadName,
    /// Seed of the workload
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `flashvm device probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A folder, a file (its folder is measured) or a block device (it is overwritten)
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Bytes to write and read
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) size: Size,
    /// Longest time of each measurement, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    pub(crate) seconds: u64,
    /// Overwrite a block device without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
