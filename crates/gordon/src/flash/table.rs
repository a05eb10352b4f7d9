//! The segment table: the flash operating system's crash-safe metadata (section 4.1), the map from
//! persistent keys to segments, with the wear of each.
//!
//! It has two slots, each with a sequence number and a checksum. A store overwrites the older slot
//! and syncs it, so one slot is always intact.

use super::identity::{Identity, PAGE};
use super::medium::Medium;
use crate::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a segment's line.
pub(super) const ENTRY: u64 = 24;
/// Bytes before the lines.
pub(super) const SLOT_HEADER: u64 = 24;

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// In the pool, all ones.
    Erased,
    /// Mapped at this address, for this key.
    Allocated {
        /// The persistent key.
        key: u64,
        /// Its address.
        address: u64,
        /// Whether it was allocated together with the previous segment: they are one buffer.
        continues: bool,
    },
    /// Freed, to be erased.
    Dirty,
    /// Takes too long to erase.
    Retired,
}

/// One segment's line in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its use.
    pub state: SegmentState,
    /// Number of erases.
    pub erases: u32,
}

/// The segment table. Its sequence number selects the slot.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) segments: Vec<Segment>,
    sequence: u64,
    /// The application's number: see [`super::Bank::note_stable`].
    pub(crate) stable: u64,
}

impl Table {
    pub(crate) fn new(identity: &Identity) -> Self {
        let fresh = Segment {
            state: SegmentState::Erased,
            erases: 0,
        };
        Self {
            segments: vec![fresh; identity.segments as usize],
            sequence: 0,
            stable: 0,
        }
    }

    /// Writes the table over its older slot, and waits until it is stable.
    pub(crate) fn store(&mut self, identity: &Identity, medium: &dyn Medium) -> Result<()> {
        self.sequence += 1;
        let mut body = self.sequence.to_le_bytes().to_vec();
        body.extend_from_slice(&self.stable.to_le_bytes());
        for segment in &self.segments {
            let (state, key, address) = match segment.state {
                SegmentState::Erased => (0_u32, 0, 0),
                SegmentState::Allocated {
                    key,
                    address,
                    continues,
                } => (if continues { 4 } else { 1 }, key, address),
                SegmentState::Dirty => (2, 0, 0),
                SegmentState::Retired => (3, 0, 0),
            };
            body.extend_from_slice(&state.to_le_bytes());
            body.extend_from_slice(&segment.erases.to_le_bytes());
            body.extend_from_slice(&key.to_le_bytes());
            body.extend_from_slice(&address.to_le_bytes());
        }
        let mut slot = xxh3_64(&body).to_le_bytes().to_vec();
        slot.append(&mut body);
        let at = PAGE + self.sequence % 2 * identity.slot_bytes();
        let write = || medium.write(at, &slot).and_then(|()| medium.sync());
        write().map_err(|error| Error::io("writing the segment table", error))
    }

    /// Adds erased segments, and stores the table for a bank of `grown`, whose slots are longer: the newest table of `old`
    /// stays intact, in the slot that begins where it did. The new one counts once the identity is that of `grown`.
    pub(crate) fn grow(
        &mut self,
        old: &Identity,
        grown: &Identity,
        medium: &dyn Medium,
    ) -> Result<()> {
        if !self.sequence.is_multiple_of(2) {
            self.store(old, medium)?;
        }
        let fresh = Segment {
            state: SegmentState::Erased,
            erases: 0,
        };
        self.segments.resize(grown.segments as usize, fresh);
        self.store(grown, medium)
    }

    /// The newest intact slot.
    pub(crate) fn load(identity: &Identity, medium: &dyn Medium) -> Result<Self> {
        let mut best: Option<Self> = None;
        for slot in 0..2 {
            let mut bytes = vec![0; (SLOT_HEADER + identity.segments * ENTRY) as usize];
            medium
                .read(PAGE + slot * identity.slot_bytes(), &mut bytes)
                .map_err(|error| Error::io("reading the segment table", error))?;
            if let Some(table) = Self::decode(&bytes)
                && best
                    .as_ref()
                    .is_none_or(|best| best.sequence < table.sequence)
            {
                best = Some(table);
            }
        }
        best.ok_or_else(|| Error::corrupted("both copies of the segment table are damaged"))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if u64_at(0) != xxh3_64(&bytes[8..]) {
            return None;
        }
        let segments = (SLOT_HEADER as usize..bytes.len())
            .step_by(ENTRY as usize)
            .map(|at| {
                let state = match u64_at(at) as u32 {
                    0 => SegmentState::Erased,
                    code @ (1 | 4) => SegmentState::Allocated {
                        key: u64_at(at + 8),
                        address: u64_at(at + 16),
                        continues: code == 4,
                    },
                    2 => SegmentState::Dirty,
                    3 => SegmentState::Retired,
                    _ => return None,
                };
                Some(Segment {
                    state,
                    erases: (u64_at(at) >> 32) as u32,
                })
            })
            .collect::<Option<_>>()?;
        Some(Self {
            segments,
            sequence: u64_at(8),
            stable: u64_at(16),
        })
    }
}
