//! The reference trace of a run (`flashvm run --trace`): what live pagers see of their programs' references, faults and
//! first stores, one after the other, of all processes, in one file that each of them appends to.
//!
//! A record is written whole by one `write` to a file that is open for appending, so records of
//! different processes never mix, and none is lost when a process is killed.

use flashvm_core::PageId;

/// Bytes of a record: process, page, kind, little-endian.
pub const RECORD_BYTES: usize = 12;

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A process begins: its own pages follow, whatever was seen of the same number before.
    Begin,
    /// A load of a page that was not mapped.
    Load(PageId),
    /// A store to a page that was not mapped, or the first to one that was write-protected.
    Store(PageId),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process.
    pub pid: u32,
    /// What was seen of it.
    pub sight: Observation,
}

impl Record {
    /// As it stands in the file.
    ///
    /// ```
    /// use flashvm::control::reference_trace::{Record, Observation};
    /// use flashvm_core::PageId;
    /// let record = Record { pid: 7, sight: Observation::Store(PageId(42)) };
    /// assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (kind, page) = match self.sight {
            Observation::Begin => (0_u32, 0),
            Observation::Load(page) => (1, page.0),
            Observation::Store(page) => (2, page.0),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.pid.to_le_bytes());
        bytes[4..8].copy_from_slice(&page.to_le_bytes());
        bytes[8..].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// Reads a record. `None`: there is no such record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("a word"));
        let page = PageId(word(4));
        let sight = match word(8) {
            0 => Observation::Begin,
            1 => Observation::Load(page),
            2 => Observation::Store(page),
            _ => return None,
        };
        Some(Self {
            pid: word(0),
            sight,
        })
    }
}
