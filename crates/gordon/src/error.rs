//! The error type of the crate: each variant names the problem and the remedy.

use std::io;

/// Why an operation on a heap or a bank failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on the bank.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The answer.
        source: io::Error,
    },
    /// The file or device does not begin with the identity of the expected kind of bank.
    #[error("{0}")]
    NotABank(String),
    /// The bank was written in a format that this version does not know.
    #[error("the heap's format {found} is unknown (known: {known}): use the version that wrote it")]
    Version {
        /// The format found.
        found: u32,
        /// The format of this version.
        known: u32,
    },
    /// The bank was written on a machine with another byte order, word or page size.
    #[error("the heap was written on another kind of machine ({0}): open it on such a machine")]
    Machine(String),
    /// The persistent key given is not the bank's.
    #[error("wrong persistent key {given:016x}: the bank holds data of another application")]
    WrongKey {
        /// The key that was given.
        given: u64,
    },
    /// The bank's contents contradict themselves.
    #[error("corrupted heap: {0}")]
    Corrupted(String),
    /// The file is shorter than its identity says.
    #[error("truncated heap: {found} bytes of {expected}")]
    Truncated {
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// Another process has opened the heap.
    #[error("{0} is in use by another process: close it there first")]
    Locked(String),
    /// A block device intended for a bank holds other data.
    #[error(
        "{0} holds data: if nobody needs it, clear its first MiB with 'dd if=/dev/zero of={0} bs=1M count=1'"
    )]
    Occupied(String),
    /// The heap's addresses are in use in this process.
    #[error(
        "addresses {base:#x} to {end:#x}, where the heap lives, are taken: open it before they are used, or in a process of its own"
    )]
    AddressTaken {
        /// First address.
        base: u64,
        /// One past the last.
        end: u64,
    },
    /// The bank is too small for a heap.
    #[error("a bank of {found} bytes is too small: {least} bytes is the least")]
    TooSmall {
        /// Bytes given.
        found: u64,
        /// Bytes needed.
        least: u64,
    },
    /// The requested size exceeds the maximum of a bank.
    #[error("a bank of {found} bytes is too large: {most} bytes is the most")]
    TooLarge {
        /// Bytes given.
        found: u64,
        /// Most bytes.
        most: u64,
    },
    /// The heap cannot have this size.
    #[error(
        "this heap can have {found} to {most} bytes, not {asked}: for more, make a new one and copy the data"
    )]
    Growth {
        /// Bytes of its segments.
        found: u64,
        /// Bytes asked for.
        asked: u64,
        /// Most bytes.
        most: u64,
    },
    /// Segments of this size cannot be.
    #[error("segments of {found} bytes: choose a power of two from {least} to {most}")]
    SegmentSize {
        /// Bytes given.
        found: u64,
        /// Least bytes.
        least: u64,
        /// Most bytes.
        most: u64,
    },
    /// No erased segment is left and none can be erased.
    #[error(
        "the bank is full: {live} of {capacity} bytes are in use; drop data or use a larger bank"
    )]
    Full {
        /// Bytes in allocated segments.
        live: u64,
        /// Bytes of all usable segments.
        capacity: u64,
    },
    /// Like [`Error::Full`], because segments were retired.
    #[error(
        "the bank is worn out: {retired} of {segments} segments are retired; copy the data to a new bank"
    )]
    WornOut {
        /// Segments retired.
        retired: u64,
        /// Segments of the bank.
        segments: u64,
    },
    /// A write would have set a bit of flash from zero to one without an erase.
    #[error("write at {address:#x} sets bits that are zero: flash must be erased first")]
    WriteOnce {
        /// Address of the first byte that cannot be written.
        address: u64,
    },
    /// An address that is not part of an allocated buffer.
    #[error("address {0:#x} is not in an allocated flash buffer")]
    NotAllocated(u64),
    /// An address at which no segment can be mapped.
    #[error(
        "no segment can be mapped at {address:#x}: choose a multiple of {segment_bytes} bytes from {first:#x}, below {end:#x}"
    )]
    BadAddress {
        /// The address given.
        address: u64,
        /// Bytes of a segment.
        segment_bytes: u64,
        /// First address of the bank.
        first: u64,
        /// One past the last.
        end: u64,
    },
    /// An address that is part of a buffer already.
    #[error("address {0:#x} is in an allocated flash buffer: free it first")]
    Overlap(u64),
    /// The root refers to a value of another type: what differs.
    #[error("the root is a value of another type: {0}")]
    RootType(String),
    /// A root of another type cannot be converted: what is missing.
    #[error("the heap cannot be migrated: {0}")]
    Migration(String),
    /// The heap has no root.
    #[error("the heap has no root: nothing was stored in it")]
    NoRoot,
    /// The root was set by an earlier version, which stored no types.
    #[error(
        "the heap does not know its types, as an earlier version has set its root: let its program call `Tx::migrate` or `Tx::set_root` once"
    )]
    NoTypes,
    /// The root cannot be written as one nested value.
    #[error("the root is no tree: {0}: export it without --root, an object a line")]
    NotATree(String),
    /// Something that this kind of heap cannot do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A commit, abort or update inside another one of the same thread.
    #[error("{0} inside an update or a view of the same heap: finish that first")]
    Nested(&'static str),
    /// An earlier write, sync or collection failed; only reopening tells which state is stable.
    #[error("the heap has failed ({0}): reopen it to go on from the last commit")]
    Failed(String),
    /// The program aborted its changes.
    #[error("aborted: {0}")]
    Aborted(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }

    pub(crate) fn corrupted(what: impl Into<String>) -> Self {
        Self::Corrupted(what.into())
    }

    /// An error for a closure to return in order to undo its changes.
    #[must_use]
    pub fn abort(why: impl Into<String>) -> Self {
        Self::Aborted(why.into())
    }
}

/// The result of most operations here.
pub type Result<T, E = Error> = std::result::Result<T, E>;
