//! The errors of a trace: one line with the file, the place and the remedy.

use super::registry::Format;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A place in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line, from 1.
    Line(u64),
    /// A byte, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why a trace cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file does not exist or cannot be opened.
    #[error("{}: {source}: name a trace that can be read", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The trace has no reference.
    #[error("{}: there is no reference in it: record or copy it again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The content matches no format.
    #[error("{}: byte 0: no format begins like this: name its format with --format: {}", path.display(), Format::names())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// Reading failed: an error of the disk, or damaged compression.
    #[error("{}: {place}: {source}: copy it again, it is damaged or cut short", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        place: Position,
        /// Why.
        source: io::Error,
    },
    /// A part of the content is invalid in the trace's format.
    #[error("{}: {place}: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// Where.
        place: Position,
        /// The problem, and the remedy.
        why: String,
    },
}

/// A [`TraceError`] whose file is not known yet.
#[derive(Debug)]
pub(super) struct Fault {
    place: Position,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Bad(String),
}

impl Fault {
    pub(super) fn bad(place: Position, why: impl Into<String>) -> Self {
        Self {
            place,
            why: Why::Bad(why.into()),
        }
    }

    pub(super) fn io(place: Position, source: io::Error) -> Self {
        Self {
            place,
            why: Why::Io(source),
        }
    }

    pub(super) fn of(self, path: &Path) -> TraceError {
        let (path, place) = (path.to_owned(), self.place);
        match self.why {
            Why::Io(source) => TraceError::Read {
                path,
                place,
                source,
            },
            Why::Bad(why) => TraceError::Bad { path, place, why },
        }
    }
}
