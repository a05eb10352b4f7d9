//! The reference trace of a run (`flashvm run --trace`): the references that live pagers observe,
//! which are faults and first stores, or with `--shards` the touches of a sample. All processes append them to one
//! file, in order.
//!
//! One `write` to a file open for appending writes a whole record. So records of different
//! processes never mix, and none is lost when a process is killed.

use flashvm_core::PageId;

/// Bytes of a record: process, page, kind, little-endian.
pub const RECORD_BYTES: usize = 12;

/// An observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A process begins: from here on, pages with this process id are its own, not those of an
    /// earlier process with the same id.
    Begin,
    /// A load of a page that was not mapped.
    Load(PageId),
    /// A store to a page that was not mapped, or the first to one that was write-protected.
    Store(PageId),
    /// A page of the sample has no contents any more: its next touch finds zeros.
    Gone(PageId),
    /// From here on only pages of this sample are observed, but at each of their touches: 2^-bits of all
    /// ([`flashvm_core::shards`]).
    Sample {
        /// The logarithm of the share.
        bits: u32,
    },
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The process id, as the supervisor sees it.
    pub pid: u32,
    /// The observation.
    pub observation: Observation,
}

impl Observed {
    /// The record's bytes in the file.
    ///
    /// ```
    /// use flashvm_live::control::reference_trace::{Observed, Observation};
    /// use flashvm_core::PageId;
    /// let record = Observed { pid: 7, observation: Observation::Store(PageId(42)) };
    /// assert_eq!(Observed::from_bytes(&record.to_bytes()), Some(record));
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (kind, page) = match self.observation {
            Observation::Begin => (0_u32, 0),
            Observation::Load(page) => (1, page.0),
            Observation::Store(page) => (2, page.0),
            Observation::Sample { bits } => (3, bits),
            Observation::Gone(page) => (4, page.0),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.pid.to_le_bytes());
        bytes[4..8].copy_from_slice(&page.to_le_bytes());
        bytes[8..].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if its kind is unknown.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("a word"));
        let page = PageId(word(4));
        let observation = match word(8) {
            0 => Observation::Begin,
            1 => Observation::Load(page),
            2 => Observation::Store(page),
            3 => Observation::Sample { bits: word(4) },
            4 => Observation::Gone(page),
            _ => return None,
        };
        Some(Self {
            pid: word(0),
            observation,
        })
    }
}
