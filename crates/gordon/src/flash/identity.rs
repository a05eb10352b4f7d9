//! The identity of a bank: its use, its size, its addresses and its key. One page, written once.

use super::medium::Medium;
use super::table::{ENTRY, SLOT_HEADER};
use crate::error::{Error, Result};
use crate::window::Window;
use xxhash_rust::xxh3::xxh3_64;

/// The format of heaps of this version.
pub const FORMAT: u32 = 1;
const ENDIAN: u32 = 0x0102_0304;
/// Bytes of a page: the identity takes one, a table slot a multiple.
pub(crate) const PAGE: u64 = 4096;
/// Least bytes of a segment: one erase block.
pub(crate) const MIN_SEGMENT: u64 = 64 << 10;
/// Most bytes of a segment.
pub(crate) const MAX_SEGMENT: u64 = 64 << 20;
/// Most segments of a bank.
pub(crate) const MAX_SEGMENTS: u64 = 1 << 14;
/// The use of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A whole heap.
    Heap,
    /// The redo log of a heap on recoverable virtual memory: see [`crate::sidney`].
    RedoLog,
    /// Buffers of a program that uses the flash interface itself: see [`super::Flash`].
    Buffers,
}

impl Holds {
    const ALL: [Self; 3] = [Self::Heap, Self::RedoLog, Self::Buffers];

    fn magic(self) -> &'static [u8; 16] {
        match self {
            Self::Heap => b"FlashVM gordon\r\n",
            Self::RedoLog => b"FlashVM sidney\r\n",
            Self::Buffers => b"FlashVM flash \r\n",
        }
    }

    fn missing(self, why: &str) -> Error {
        let remedy = match self {
            Self::Heap => ": make one with 'flashvm heap init'",
            Self::RedoLog | Self::Buffers => "",
        };
        Error::NotABank(format!("not {self}, {why}{remedy}"))
    }
}

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Heap => "a gordon heap",
            Self::RedoLog => "the redo log of a sidney heap",
            Self::Buffers => "a bank of flash buffers",
        })
    }
}

/// A random number.
fn random() -> Result<u64> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io("choosing a key", errno))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A random multiple of `stride` at which this process has no mapping of `stride` bytes. The range is kept for this
/// thread until it reserves it, or chooses another.
fn vacant_base(stride: u64) -> Result<u64> {
    // Below are the addresses of sanitizers, above those of Linux's programs and libraries.
    const LOWEST: u64 = 0x2000_0000_0000;
    const HIGHEST: u64 = 0x5000_0000_0000;
    const TRIES: u32 = 16;
    let mut tries = 0;
    loop {
        let base = LOWEST + random()? % ((HIGHEST - LOWEST) / stride) * stride;
        tries += 1;
        match Window::reserve(base, stride) {
            Ok(window) => {
                window.promise();
                return Ok(base);
            }
            Err(Error::AddressTaken { .. }) if tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_segment_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (MIN_SEGMENT..=MAX_SEGMENT).contains(&bytes)
}

/// The constant properties of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its use.
    pub holds: Holds,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// First address of the heap.
    pub base: u64,
    /// The persistent key.
    pub key: u64,
    /// Chips side by side in an emulated bank; 0 for a real one.
    pub ways: u32,
}

impl Identity {
    /// A bank of this many segments, with a key and addresses of its own.
    pub(crate) fn new(holds: Holds, segments: u64, segment_bytes: u64, ways: u64) -> Result<Self> {
        if !is_segment_size(segment_bytes) {
            return Err(Error::SegmentSize {
                found: segment_bytes,
                least: MIN_SEGMENT,
                most: MAX_SEGMENT,
            });
        }
        if segments > MAX_SEGMENTS {
            return Err(Error::TooLarge {
                found: segments.saturating_mul(segment_bytes),
                most: MAX_SEGMENTS * segment_bytes,
            });
        }
        let mut identity = Self {
            holds,
            segment_bytes,
            segments,
            base: 0,
            key: random()?.max(1),
            ways: ways as u32,
        };
        identity.base = vacant_base(16 << identity.area_shift())?;
        Ok(identity)
    }

    /// Log2 of an area's bytes: at least the whole bank, at least 1 GiB.
    pub(crate) fn area_shift(&self) -> u32 {
        let capacity = self.segment_bytes * self.segments;
        capacity.next_power_of_two().max(1 << 30).ilog2()
    }

    pub(super) fn slot_bytes(&self) -> u64 {
        (SLOT_HEADER + self.segments * ENTRY).next_multiple_of(PAGE)
    }

    fn first_segment(&self) -> u64 {
        (PAGE + 2 * self.slot_bytes()).next_multiple_of(self.segment_bytes.min(1 << 20))
    }

    /// The same bank with another number of segments.
    pub(super) fn with_segments(self, segments: u64) -> Self {
        Self { segments, ..self }
    }

    /// Most segments that the bank can grow to: its tables must fit before the first segment, and addresses must stay as they
    /// are.
    #[must_use]
    pub fn most_segments(&self) -> u64 {
        let is_possible = |segments: &u64| {
            let grown = self.with_segments(*segments);
            grown.first_segment() == self.first_segment() && grown.area_shift() == self.area_shift()
        };
        // Both are monotonic.
        let (mut most, mut step) = (self.segments, MAX_SEGMENTS);
        while step > 0 {
            let next = most + step;
            if next <= MAX_SEGMENTS && is_possible(&next) {
                most = next;
            } else {
                step /= 2;
            }
        }
        most
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
        page.extend_from_slice(self.holds.magic());
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

    pub(crate) fn read(medium: &dyn Medium, holds: Holds) -> Result<Self> {
        let mut page = [0_u8; PAGE as usize];
        let found = medium
            .length()
            .map_err(|error| Error::io("measuring the bank", error))?;
        if found < PAGE {
            return Err(holds.missing(&format!("{found} bytes are too few")));
        }
        medium
            .read(0, &mut page)
            .map_err(|error| Error::io("reading the bank's identity", error))?;
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        match Holds::ALL.iter().find(|known| &page[..16] == known.magic()) {
            Some(found) if *found == holds => {}
            Some(found) => return Err(holds.missing(&format!("it is {found}"))),
            None => return Err(holds.missing("it does not begin as one")),
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
            holds,
            segment_bytes: u64_at(32),
            segments: u64_at(40),
            base: u64_at(48),
            key: u64_at(56),
            ways: u64_at(64) as u32,
        };
        if !is_segment_size(identity.segment_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// There are 3072 places for such a range; the test takes 400.
    #[test]
    fn ranges_of_one_process_do_not_meet() {
        let stride = 16 << 30;
        let ranges = Vec::from_iter((0..400).map(|_| {
            let base = vacant_base(stride).expect("a place");
            Window::reserve(base, stride).expect("it is vacant")
        }));
        assert_eq!(ranges.len(), 400);
    }

    /// What a thread has chosen no other thread gets, although it is reserved later.
    #[test]
    fn ranges_of_threads_do_not_meet() {
        let stride = 16 << 30;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ranges = Vec::from_iter((0..100).map(|_| {
                        let base = vacant_base(stride).expect("a place");
                        std::thread::sleep(std::time::Duration::from_micros(200));
                        Window::reserve(base, stride / 2).expect("it was kept")
                    }));
                    assert_eq!(ranges.len(), 100);
                });
            }
        });
    }
}
