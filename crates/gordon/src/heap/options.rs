//! Options for opening a heap, and its report.

use super::verify::Census;
use crate::flash::{Identity, Model, Segment};

/// When collections begin (the limit pointers of section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of new space after which an uncommitted update is followed by a minor collection.
    pub new_bytes: u64,
    /// Bytes of old space after which that collection is a major one.
    pub old_bytes: u64,
    /// New bytes of immutable or mutable data after which persistent space is collected; for
    /// immutable data rounded up to a segment boundary. Default: max(live bytes, bank / 8).
    pub persistent_bytes: Option<u64>,
    /// Bytes of the persistent log after which it is compacted, rounded up to whole segments; at
    /// least twice its initial length. Default: bank / 16.
    pub log_bytes: Option<u64>,
    /// Bytes of objects that a commit processes for a persistent collection
    /// ([`Collector::AtCommit`]), and eight times the bytes that it has written itself. Default: 1
    /// MiB; on an emulated bank a slice ends within 5 ms, unless the bank is nearly full.
    pub slice_bytes: Option<u64>,
    /// Whether limits are rounded up to segment boundaries, so that every segment is full when it is erased. Otherwise, as
    /// in the paper (section 6.3, footnote 2), a limit is the number of new bytes, wherever they end. Default: true.
    pub whole_segments: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            new_bytes: 4 << 20,
            old_bytes: 16 << 20,
            persistent_bytes: None,
            log_bytes: None,
            slice_bytes: None,
            whole_segments: true,
        }
    }
}

/// Who runs persistent collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// A background thread, in slices, between updates.
    Beside,
    /// Every commit runs a slice: deterministic.
    AtCommit,
    /// The commit that reaches a limit runs all of it, as in the paper.
    Stop,
}

/// Options for opening a heap.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When collections begin.
    pub limits: Limits,
    /// Who runs them.
    pub collector: Collector,
    /// The persistent key that the bank must have.
    pub key: Option<u64>,
    /// Timing of an emulated bank; `None` for a durable one.
    pub model: Option<Model>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            collector: Collector::Beside,
            key: None,
            model: None,
        }
    }
}

/// The output of `info` and `check`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The constant properties of the bank.
    pub identity: Identity,
    /// The segment table.
    pub segments: Vec<Segment>,
    /// Number of the last state.
    pub sequence: u64,
    /// Bytes of immutable space in use, garbage included.
    pub immutable_bytes: u64,
    /// Bytes of mutable space in use, garbage included.
    pub mutable_bytes: u64,
    /// Bytes of the persistent log.
    pub log_bytes: u64,
    /// Whether the root has been set.
    pub has_root: bool,
    /// Objects and pointers, all of them checked.
    pub census: Census,
}
