//! The registry of trace formats: name, reader and one line of help each. The command line, the
//! guess from the content, the documentation and the fuzzers walk it.

use super::error::Fault;
use super::input::Input;
use super::{Opened, blkparse, drcachesim, flashvm, keys, lackey, msr, oracle_general, tagged};
use std::fmt;
use std::str::FromStr;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own.
    Flashvm,
    /// Valgrind's lackey.
    Lackey,
    /// Tagged addresses.
    Tagged,
    /// Keys.
    Keys,
    /// libCacheSim's.
    OracleGeneral,
    /// Microsoft Research Cambridge's.
    Msr,
    /// blktrace's.
    Blkparse,
    /// DynamoRIO's.
    Drcachesim,
}

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct FormatInfo {
    /// The format.
    pub format: Format,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// Whether a file with this head, or this whole content, is in the format.
    looks_like: fn(&[u8], bool) -> bool,
    read: fn(Input) -> Result<Opened, Fault>,
}

impl Format {
    /// All formats, in the order in which a content is matched.
    pub const ALL: &[FormatInfo] = &[
        FormatInfo {
            format: Self::Flashvm,
            name: "flashvm",
            help: "FlashVM's own: zstd, fetches, loads and stores, with provenance",
            looks_like: flashvm::looks_like,
            read: flashvm::open,
        },
        FormatInfo {
            format: Self::Lackey,
            name: "lackey",
            help: "valgrind --tool=lackey --trace-mem=yes: ' L 1fff000678,8'",
            looks_like: lackey::looks_like,
            read: |input| Ok(lackey::open(input)),
        },
        FormatInfo {
            format: Self::Tagged,
            name: "tagged",
            help: "tagged addresses: 'l|s 0xADDRESS n'",
            looks_like: tagged::looks_like,
            read: |input| Ok(tagged::open(input)),
        },
        FormatInfo {
            format: Self::Keys,
            name: "keys",
            help: "one key a line: a page that is read",
            looks_like: keys::looks_like,
            read: |input| Ok(keys::open(input)),
        },
        FormatInfo {
            format: Self::Msr,
            name: "msr",
            help: "CSV of Microsoft Research Cambridge's block traces",
            looks_like: msr::looks_like,
            read: |input| Ok(msr::open(input)),
        },
        FormatInfo {
            format: Self::Blkparse,
            name: "blkparse",
            help: "blkparse's default output: requests as they are queued",
            looks_like: blkparse::looks_like,
            read: |input| Ok(blkparse::open(input)),
        },
        FormatInfo {
            format: Self::Drcachesim,
            name: "drcachesim",
            help: "DynamoRIO's drmemtrace as its view tool prints it",
            looks_like: drcachesim::looks_like,
            read: |input| Ok(drcachesim::open(input)),
        },
        FormatInfo {
            format: Self::OracleGeneral,
            name: "oracle-general",
            help: "libCacheSim's binary traces with next accesses",
            looks_like: oracle_general::looks_like,
            read: |input| Ok(oracle_general::open(input)),
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If a format is missing from the list: a bug.
    #[must_use]
    pub fn info(self) -> &'static FormatInfo {
        let info = Self::ALL.iter().find(|info| info.format == self);
        info.expect("every format is in the list")
    }

    /// All names, for a message.
    #[must_use]
    pub fn names() -> String {
        Vec::from_iter(Self::ALL.iter().map(|info| info.name)).join(", ")
    }

    /// The format of a content that begins with `head`, or is `head` if `whole`.
    pub(super) fn guess(head: &[u8], whole: bool) -> Option<Self> {
        let found = Self::ALL.iter().find(|info| (info.looks_like)(head, whole));
        found.map(|info| info.format)
    }

    pub(super) fn read(self, input: Input) -> Result<Opened, Fault> {
        (self.info().read)(input)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// An unknown format name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown trace format '{name}': known are {}", Format::names())]
pub struct UnknownFormat {
    name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.iter().find(|info| info.name == name);
        found.map(|info| info.format).ok_or_else(|| UnknownFormat {
            name: name.to_owned(),
        })
    }
}
