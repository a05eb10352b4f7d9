//! What the flash operating system remembers through a crash (section 4.1): the bank's identity,
//! and the map from persistent keys to segments, with the wear of each.
//!
//! The identity is one page, written once. The segment table has two slots with a sequence number
//! and a checksum each; the older one is overwritten, then synced, so one is always whole.

use super::medium::Medium;
use crate::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// The format of heaps of this version.
pub const FORMAT: u32 = 1;
const MAGIC: &[u8; 16] = b"FlashVM gordon\r\n";
const ENDIAN: u32 = 0x0102_0304;
/// Bytes of a page, of which identity and table slots are multiples.
pub(crate) const PAGE: u64 = 4096;
/// Least bytes of a segment: one erase block.
pub(crate) const MIN_SEGMENT: u64 = 64 << 10;
/// Most bytes of a segment.
pub(crate) const MAX_SEGMENT: u64 = 64 << 20;
/// Most segments of a bank.
pub(crate) const MAX_SEGMENTS: u64 = 1 << 14;
const ENTRY: u64 = 24;
const SLOT_HEADER: u64 = 24;

/// What never changes of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// First of the addresses at which the heap lives.
    pub base: u64,
    /// The persistent key.
    pub key: u64,
    /// Chips side by side in an emulated bank; 0 for a real one.
    pub ways: u32,
}

impl Identity {
    fn slot_bytes(&self) -> u64 {
        (SLOT_HEADER + self.segments * ENTRY).next_multiple_of(PAGE)
    }

    fn first_segment(&self) -> u64 {
        (PAGE + 2 * self.slot_bytes()).next_multiple_of(self.segment_bytes.min(1 << 20))
    }

    /// Offset of a segment on the medium.
    pub(crate) fn offset(&self, segment: usize) -> u64 {
        self.first_segment() + segment as u64 * self.segment_bytes
    }

    /// Bytes of the whole bank.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.offset(self.segments as usize)
    }

    fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE as usize);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&FORMAT.to_le_bytes());
        page.extend_from_slice(&ENDIAN.to_ne_bytes());
        page.extend_from_slice(&(usize::BITS).to_le_bytes());
        page.extend_from_slice(&(rustix::param::page_size() as u32).to_le_bytes());
        for field in [
            self.segment_bytes,
            self.segments,
            self.base,
            self.key,
            self.ways.into(),
        ] {
            page.extend_from_slice(&field.to_le_bytes());
        }
        let hash = xxh3_64(&page);
        page.extend_from_slice(&hash.to_le_bytes());
        page.resize(PAGE as usize, 0);
        page
    }

    pub(crate) fn write(&self, medium: &dyn Medium) -> Result<()> {
        medium
            .write(0, &self.encode())
            .map_err(|error| Error::io("writing the bank's identity", error))
    }

    pub(crate) fn read(medium: &dyn Medium) -> Result<Self> {
        let mut page = [0_u8; PAGE as usize];
        let found = medium
            .length()
            .map_err(|error| Error::io("measuring the bank", error))?;
        if found < PAGE {
            return Err(Error::NotABank(format!("{found} bytes are too few")));
        }
        medium
            .read(0, &mut page)
            .map_err(|error| Error::io("reading the bank's identity", error))?;
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        if &page[..16] != MAGIC {
            return Err(Error::NotABank("it does not begin as one".to_owned()));
        }
        if u32_at(16) != FORMAT {
            return Err(Error::Version {
                found: u32_at(16),
                known: FORMAT,
            });
        }
        if u64_at(72) != xxh3_64(&page[..72]) {
            return Err(Error::corrupted("the identity page has a wrong checksum"));
        }
        let native = u32::from_ne_bytes(page[20..24].try_into().expect("4 bytes"));
        let page_size = rustix::param::page_size() as u32;
        if (native, u32_at(24), u32_at(28)) != (ENDIAN, usize::BITS, page_size) {
            let order = if native == ENDIAN { "same" } else { "other" };
            return Err(Error::Machine(format!(
                "{order} byte order, {}-bit words, pages of {} bytes",
                u32_at(24),
                u32_at(28)
            )));
        }
        let identity = Self {
            segment_bytes: u64_at(32),
            segments: u64_at(40),
            base: u64_at(48),
            key: u64_at(56),
            ways: u64_at(64) as u32,
        };
        let segment_ok = identity.segment_bytes.is_power_of_two()
            && (MIN_SEGMENT..=MAX_SEGMENT).contains(&identity.segment_bytes);
        if !segment_ok
            || !(1..=MAX_SEGMENTS).contains(&identity.segments)
            || !identity.base.is_multiple_of(PAGE)
            || identity.base >= 1 << 47
        {
            return Err(Error::corrupted(format!(
                "impossible identity {identity:?}"
            )));
        }
        if found < identity.length() {
            return Err(Error::Truncated {
                found,
                expected: identity.length(),
            });
        }
        Ok(identity)
    }
}

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the pool, all ones.
    Erased,
    /// Shows at this address, for this key.
    Allocated {
        /// The persistent key.
        key: u64,
        /// Where it is mapped.
        address: u64,
    },
    /// Given up, to be erased.
    Dirty,
    /// Takes too long to erase.
    Retired,
}

/// One segment's line in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is used for.
    pub state: State,
    /// How often it was erased.
    pub erases: u32,
}

/// The segment table and where it was stored last.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) segments: Vec<Segment>,
    sequence: u64,
    /// A number of the application's: see [`super::Bank::note_stable`].
    pub(crate) stable: u64,
}

impl Table {
    pub(crate) fn new(identity: &Identity) -> Self {
        let fresh = Segment {
            state: State::Erased,
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
                State::Erased => (0_u32, 0, 0),
                State::Allocated { key, address } => (1, key, address),
                State::Dirty => (2, 0, 0),
                State::Retired => (3, 0, 0),
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

    /// The newest whole slot.
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
                    0 => State::Erased,
                    1 => State::Allocated {
                        key: u64_at(at + 8),
                        address: u64_at(at + 16),
                    },
                    2 => State::Dirty,
                    3 => State::Retired,
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
