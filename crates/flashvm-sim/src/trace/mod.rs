//! Traces: the references of a program, in order, from a file in any of the known formats.
//!
//! A [`Reference`] is an address, a number of bytes and a [`Kind`]. [`open`] detects the
//! compression (gzip, zstd) and the [`Format`] of a file, and returns a [`Trace`], which streams:
//! ten billion references take as much memory as ten. A format is one file here and
//! one line in [`Format::ALL`]; `flashvm` is our own, and the only one that can be written.
//!
//! - `input`: files and their compression; `lines`: shared by text formats; `spaces`: several
//!   devices in one trace;
//! - `blkparse`, `drcachesim`, `flashvm`, `keys`, `lackey`, `msr`, `oracle_general`, `tagged`: the
//!   formats;
//! - `cpu_cache`: filters a program's references by CPU caches.

pub(crate) mod blkparse;
pub mod cpu_cache;
mod drcachesim;
mod error;
pub mod flashvm;
mod input;
mod keys;
mod lackey;
mod lines;
mod msr;
mod oracle_general;
mod registry;
mod spaces;
mod tagged;

pub use error::{Position, TraceError};
pub use input::Progress;
pub use lackey::LackeyLine;
pub use registry::{Format, FormatInfo, UnknownFormat};
pub use spaces::SPACE_BITS;

use error::Fault;
use flashvm_core::PAGE_SIZE;
use input::Input;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The kind of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A load of data.
    Read,
    /// A store.
    Write,
    /// A fetch of an instruction.
    Instruction,
}

/// One reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// A byte address; a page number (or key) where the trace's granularity is pages.
    pub address: u64,
    /// Length in bytes, at least one; 0 where the granularity is pages.
    pub bytes: u32,
    /// Load, store or fetch.
    pub kind: Kind,
}

/// The unit of a trace's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Bytes.
    Bytes,
    /// Pages, or the keys of a cache whose entries all have the same size.
    Pages,
}

impl Granularity {
    /// The pages that a reference touches, first to last.
    ///
    /// ```
    /// use flashvm_sim::trace::{Granularity, Kind, Reference};
    /// let reference = Reference { address: 4090, bytes: 8, kind: Kind::Read };
    /// assert_eq!(Granularity::Bytes.pages(reference), 0..=1);
    /// assert_eq!(Granularity::Pages.pages(reference), 4090..=4090);
    /// ```
    #[must_use]
    #[inline]
    pub fn pages(self, reference: Reference) -> RangeInclusive<u64> {
        let first = reference.address;
        match self {
            Self::Pages => first..=first,
            Self::Bytes => {
                let last = first.saturating_add(u64::from(reference.bytes.saturating_sub(1)));
                first / PAGE_SIZE as u64..=last / PAGE_SIZE as u64
            }
        }
    }
}

/// The origin of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provenance {
    /// Its source: a program and its arguments, or another trace.
    pub source: String,
    /// Its processing since, in order.
    pub steps: Vec<String>,
    /// If not 0: it has the references to a hashed sample of 2^-`shard_bits` of the pages alone
    /// ([`flashvm_core::shards`]).
    #[serde(skip_serializing_if = "is_zero")]
    pub shard_bits: u32,
}

fn is_zero(bits: &u32) -> bool {
    *bits == 0
}

/// Most references that a source appends at a time; a line that stands for two may add one more.
const BATCH: usize = 16 * 1024;

/// A source of references in one format.
trait Source: Send {
    /// Appends about [`BATCH`] references at most; nothing at the end.
    fn fill(&mut self, batch: &mut Vec<Reference>) -> Result<(), Fault>;
}

/// What a format's reader returns: facts about the trace, and the source of its references.
struct Opened {
    granularity: Granularity,
    provenance: Provenance,
    source: Box<dyn Source>,
}

/// A trace that is being read: an iterator over its references. It ends after an error.
pub struct Trace {
    path: PathBuf,
    format: Format,
    granularity: Granularity,
    provenance: Provenance,
    progress: Progress,
    source: Box<dyn Source>,
    batch: Vec<Reference>,
    /// Index of the next reference in the batch.
    at: usize,
    /// Number of references in the batches before this one.
    before: u64,
    ended: bool,
}

/// Opens a trace. `-` is standard input. Without a format, it is guessed from the content.
///
/// # Errors
/// If the file cannot be read, is empty, or is in another format.
///
/// # Examples
/// ```no_run
/// use flashvm_sim::trace::{Kind, open};
/// let mut writes = 0;
/// for reference in open("gcc.trace.gz".as_ref(), None)? {
///     writes += u64::from(reference?.kind == Kind::Write);
/// }
/// # Ok::<(), flashvm_sim::trace::TraceError>(())
/// ```
pub fn open(path: &Path, format: Option<Format>) -> Result<Trace, TraceError> {
    let (input, progress) = Input::open(path)?;
    begin(path, input, progress, format)
}

/// Reads a trace from any reader, such as bytes in memory; `name` is for errors.
///
/// # Errors
/// As [`open`].
pub fn read(
    name: &Path,
    reader: impl Read + Send + 'static,
    format: Option<Format>,
) -> Result<Trace, TraceError> {
    let (input, progress) = Input::of(name, Box::new(reader), 0)?;
    begin(name, input, progress, format)
}

fn begin(
    path: &Path,
    input: Input,
    progress: Progress,
    format: Option<Format>,
) -> Result<Trace, TraceError> {
    let path = path.to_owned();
    if input.head().is_empty() {
        return Err(TraceError::Empty { path });
    }
    let guess = || Format::guess(input.head(), input.is_whole());
    let Some(format) = format.or_else(guess) else {
        return Err(TraceError::Unknown { path });
    };
    let opened = format.read(input).map_err(|fault| fault.of(&path))?;
    Ok(Trace {
        path,
        format,
        granularity: opened.granularity,
        provenance: opened.provenance,
        progress,
        source: opened.source,
        batch: Vec::with_capacity(BATCH),
        at: 0,
        before: 0,
        ended: false,
    })
}

impl Trace {
    /// The file it is read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format, as named or guessed.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The unit of its addresses.
    #[must_use]
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Its origin; empty for foreign formats.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// How far the file has been read. Advances while the trace is read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next references, some thousands at a time: faster than one by one. Empty at the end.
    ///
    /// # Errors
    /// If the next part is damaged or cannot be read, or the trace has no reference at all.
    pub fn batch(&mut self) -> Result<&[Reference], TraceError> {
        if self.at == self.batch.len() && !self.ended {
            self.refill()?;
        }
        let at = std::mem::replace(&mut self.at, self.batch.len());
        Ok(&self.batch[at..])
    }

    fn refill(&mut self) -> Result<(), TraceError> {
        self.before += self.batch.len() as u64;
        self.batch.clear();
        self.at = 0;
        if let Err(fault) = self.source.fill(&mut self.batch) {
            // This batch's references before the fault are withheld, so that the error comes first.
            self.batch.clear();
            self.ended = true;
            return Err(fault.of(&self.path));
        }
        if self.batch.is_empty() {
            self.ended = true;
            if self.before == 0 {
                return Err(TraceError::Empty {
                    path: self.path.clone(),
                });
            }
        }
        Ok(())
    }
}

impl Iterator for Trace {
    type Item = Result<Reference, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.batch.len() {
            if self.ended {
                return None;
            }
            if let Err(error) = self.refill() {
                return Some(Err(error));
            }
        }
        let reference = *self.batch.get(self.at)?;
        self.at += 1;
        Some(Ok(reference))
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("granularity", &self.granularity)
            .finish_non_exhaustive()
    }
}
