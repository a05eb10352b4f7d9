//! The layout of a new bank: the size of its segments and the addresses of the heap. Also the
//! bandwidths of an emulated bank (Table 3).

use super::recover;
use crate::error::{Error, Result};
use crate::flash::{Bank, Erase, Holds, Identity, MAX_SEGMENT, MIN_SEGMENT, MemoryMedium, Model};
use crate::region::Area;
use std::sync::Arc;

/// Segments that a heap needs at least.
const LEAST_SEGMENTS: u64 = 8;

/// A segment size that divides `size` into about 256 segments, as far as the bounds allow.
pub(super) fn segment_bytes(size: u64) -> u64 {
    (size / 256)
        .max(1)
        .next_power_of_two()
        .clamp(MIN_SEGMENT, MAX_SEGMENT)
}

/// The identity of a heap of about `size` bytes.
pub(super) fn identity_for(
    holds: Holds,
    size: u64,
    ways: u64,
    segment_bytes: u64,
) -> Result<Identity> {
    // `Identity::new` refuses segments of no bytes.
    let segments = size.checked_div(segment_bytes);
    if segments.is_some_and(|segments| segments < LEAST_SEGMENTS) {
        let least = LEAST_SEGMENTS * segment_bytes;
        return Err(Error::TooSmall { found: size, least });
    }
    Identity::new(holds, segments.unwrap_or(0), segment_bytes, ways)
}

/// The bandwidths of an emulated bank, in bytes a second of its modelled time (Table 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidths {
    /// Writing a segment from front to back.
    pub write_bytes_per_s: f64,
    /// Erasing a segment.
    pub erase_bytes_per_s: f64,
}

/// Measures both on an emulated bank: writes a segment and erases it, by the bank's clock.
///
/// # Errors
/// There is not enough memory.
pub fn bandwidths(model: Model) -> Result<Bandwidths> {
    let model = model.with_erase(Erase::Waiting);
    let segment = model.segment_bytes();
    let identity = Identity::new(Holds::Heap, LEAST_SEGMENTS, segment, model.ways)?;
    let medium = Arc::new(MemoryMedium::new(identity.length())?);
    let mut bank = Bank::create(medium, identity, Some(model))?;
    let mut region = recover::region_for(&identity)?;
    let start = region.start(Area::ImmutableA);
    bank.alloc(&mut region, 1, start)?;
    bank.write(start, &vec![0; segment as usize])?;
    let written = bank.now();
    bank.erase(&mut region, start, 1)?;
    let per_s = |ns: u64| segment as f64 / (ns as f64 / 1e9);
    Ok(Bandwidths {
        write_bytes_per_s: per_s(written),
        erase_bytes_per_s: per_s(bank.now() - written),
    })
}
