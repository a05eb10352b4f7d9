//! How a new bank is laid out: the size of its segments, and the addresses at which the heap lives. And
//! what an emulated one reaches (Table 3).

use super::recover;
use crate::error::{Error, Result};
use crate::flash::{
    Bank, Erase, Identity, MAX_SEGMENT, MAX_SEGMENTS, MIN_SEGMENT, MemoryMedium, Model,
};
use crate::region::Area;
use std::sync::Arc;

/// Segments that a heap needs at least.
const LEAST_SEGMENTS: u64 = 8;

/// A size of segments that divides `size` into a good number of them.
pub(super) fn segment_bytes(size: u64) -> u64 {
    (size / 256)
        .max(1)
        .next_power_of_two()
        .clamp(MIN_SEGMENT, MAX_SEGMENT)
}

pub(super) fn identity_for(size: u64, ways: u32, segment_bytes: u64) -> Result<Identity> {
    let segments = size / segment_bytes;
    if segments < LEAST_SEGMENTS {
        let least = LEAST_SEGMENTS * segment_bytes;
        return Err(Error::TooSmall { found: size, least });
    }
    if segments > MAX_SEGMENTS {
        return Err(Error::TooLarge {
            found: size,
            most: MAX_SEGMENTS * segment_bytes,
        });
    }
    let mut random = [0_u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io("choosing a key", errno))?;
    let (key, place) = random.split_at(8);
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut identity = Identity {
        segment_bytes,
        segments,
        base: 0,
        key: number(key).max(1),
        ways,
    };
    // Between what sanitizers use below and where Linux puts programs and libraries above.
    const LOWEST: u64 = 0x2000_0000_0000;
    const HIGHEST: u64 = 0x5000_0000_0000;
    let stride = 16 << recover::area_shift(&identity);
    identity.base = LOWEST + number(place) % ((HIGHEST - LOWEST) / stride) * stride;
    Ok(identity)
}

/// What an emulated bank reaches, in bytes a second of its modelled time (Table 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidths {
    /// Writing a segment from front to back.
    pub write_bytes_per_s: f64,
    /// Erasing a segment.
    pub erase_bytes_per_s: f64,
}

/// Writes a segment of an emulated bank and erases it, and looks at the bank's clock.
///
/// # Errors
/// There is not enough memory.
pub fn bandwidths(model: Model) -> Result<Bandwidths> {
    let model = model.with_erase(Erase::Waiting);
    let segment = model.segment_bytes();
    let identity = identity_for(LEAST_SEGMENTS * segment, model.ways as u32, segment)?;
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
