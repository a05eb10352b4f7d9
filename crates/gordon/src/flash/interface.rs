//! Table 2: the operating system's interface to flash, for programs that use flash without a heap.
//!
//! | Table 2 | here |
//! | --- | --- |
//! | `Flash_alloc` | [`Flash::alloc`] |
//! | `Flash_free` | [`Flash::free`] |
//! | `Flash_erase` | [`Flash::erase`] |
//! | `Flash_recover` | [`Flash::recover`] |
//!
//! Safety: a slice lies in segments that are mapped in the window, and borrows the `Flash`;
//! unmapping and writing take `&mut Flash`. A medium belongs to the bank that is opened on it: the
//! argument assumes that nobody else writes to it.
#![allow(unsafe_code, reason = "slices of what is mapped")]

use super::bank::{Bank, BankCounters};
use super::identity::{Holds, Identity};
use super::medium::{FileMedium, Medium, MemoryMedium};
use super::model::Model;
use super::{Addresses, Segment};
use crate::error::{Error, Result};
use crate::window::{Window, pointer};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// A bank of flash, mapped into the address space (section 4.1).
///
/// Reads are plain memory accesses. A write can only clear bits: setting one fails until the
/// segment is erased. Buffers are kept under the bank's persistent key, which recovers them at the
/// same addresses.
///
/// ```
/// use gordon::Error;
/// use gordon::flash::{Flash, Model};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("bank");
/// // Segments as of four chips side by side, without their times.
/// let model = Model::intel(4).fast();
/// let mut flash = Flash::create(&path, model, 8)?;
/// let at = flash.addresses().start;
/// let key = flash.alloc(2, at)?;
/// flash.write(at, &[0b1010])?;
/// flash.write(at, &[0b0010])?; // Clears a bit more.
/// assert!(matches!(flash.write(at, &[0b0100]), Err(Error::WriteOnce { .. })));
/// flash.sync()?;
/// drop(flash);
///
/// let mut flash = Flash::open(&path, model)?;
/// assert_eq!(flash.recover(key)?, [at..at + 2 * flash.segment_bytes()]);
/// assert_eq!(flash.bytes(at, 2)?, [0b0010, 0xFF]);
/// flash.erase(at, 1)?;
/// flash.write(at, &[0b0100])?;
/// flash.free(at)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Flash {
    bank: Bank,
    mapped: Mapped,
}

/// The window of a bank, and the segments mapped in it.
#[derive(Debug)]
struct Mapped {
    window: Window,
    segment_bytes: u64,
    segments: BTreeSet<u64>,
}

impl Addresses for Mapped {
    fn accepts(&self, address: u64, length: u64) -> bool {
        let Range { start, end } = self.window.addresses();
        address >= start && length <= end.saturating_sub(address)
    }

    fn map(
        &mut self,
        address: u64,
        medium: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        assert_eq!(length, self.segment_bytes, "a segment at a time");
        self.window.map(address, medium, offset, length)?;
        self.segments.insert(address);
        Ok(())
    }
}

impl Flash {
    /// Makes a bank of `segments` segments in memory.
    ///
    /// # Errors
    /// There is not enough memory, or there are too many segments.
    pub fn emulated(model: Model, segments: u64) -> Result<Self> {
        Self::create_in(
            |length| Ok(Arc::new(MemoryMedium::new(length)?)),
            model,
            segments,
        )
    }

    /// Creates a bank of `segments` segments in a new file, or on a block device. The model gives
    /// their size, and charges its times to the modelled clock: [`Model::fast`] charges nothing.
    ///
    /// # Errors
    /// The file exists or cannot be written, or there are too many segments.
    pub fn create(path: &Path, model: Model, segments: u64) -> Result<Self> {
        let make = |length| Ok(Arc::new(FileMedium::create(path, length, &mut |_| {})?) as _);
        Self::create_in(make, model, segments)
    }

    /// Creates a bank on any medium of this length, all ones.
    ///
    /// # Errors
    /// As for [`Flash::create`].
    pub fn create_in(
        make: impl FnOnce(u64) -> Result<Arc<dyn Medium>>,
        model: Model,
        segments: u64,
    ) -> Result<Self> {
        let identity = Identity::new(Holds::Buffers, segments, model.segment_bytes(), model.ways)?;
        let bank = Bank::create(make(identity.length())?, identity, Some(model))?;
        Self::start(bank)
    }

    /// Opens the bank in a file or on a block device. Nothing is mapped before
    /// [`Flash::recover`].
    ///
    /// # Errors
    /// There is no bank, it is of another version or machine, damaged, or in use; its
    /// addresses are in use; or its segments differ from the model's.
    pub fn open(path: &Path, model: Model) -> Result<Self> {
        Self::open_on(Arc::new(FileMedium::open(path)?), model)
    }

    /// Opens the bank on a medium.
    ///
    /// # Errors
    /// As for [`Flash::open`].
    pub fn open_on(medium: Arc<dyn Medium>, model: Model) -> Result<Self> {
        let bank = Bank::open(medium, Holds::Buffers, Some(model))?;
        if bank.identity().segment_bytes != model.segment_bytes() {
            return Err(Error::NotABank(format!(
                "the bank has segments of {} bytes, not {}: open it with the model that made it",
                bank.identity().segment_bytes,
                model.segment_bytes()
            )));
        }
        Self::start(bank)
    }

    fn start(bank: Bank) -> Result<Self> {
        let identity = bank.identity();
        let mapped = Mapped {
            window: Window::reserve(identity.base, 1 << identity.area_shift())?,
            segment_bytes: identity.segment_bytes,
            segments: BTreeSet::new(),
        };
        Ok(Self { bank, mapped })
    }

    /// The addresses at which buffers can be mapped. They belong to the bank, in this process and
    /// in every process that opens it later.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        self.mapped.window.addresses()
    }

    /// Bytes of a segment: 64 KiB for each chip.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.mapped.segment_bytes
    }

    /// `Flash_alloc`: maps a buffer of `num` erased segments, the least worn ones, at `addr`, and
    /// returns the persistent key. The map is stable when this returns.
    ///
    /// # Errors
    /// [`Error::BadAddress`]: `addr` is no multiple of a segment, or the buffer leaves
    /// [`Flash::addresses`]; [`Error::Overlap`]: a part is in another buffer; [`Error::Full`] or
    /// [`Error::WornOut`]: too few segments; or the medium failed.
    pub fn alloc(&mut self, num: u64, addr: u64) -> Result<u64> {
        let bytes = num.checked_mul(self.segment_bytes());
        let Range { start: first, end } = self.addresses();
        let fits = addr.wrapping_sub(first) % self.segment_bytes() == 0
            && bytes.is_some_and(|bytes| self.mapped.accepts(addr, bytes));
        if !fits {
            return Err(Error::BadAddress {
                address: addr,
                segment_bytes: self.segment_bytes(),
                first,
                end,
            });
        }
        let buffer = addr..addr + num * self.segment_bytes();
        if let Some(&taken) = self.mapped.segments.range(buffer).next() {
            return Err(Error::Overlap(taken));
        }
        self.bank.alloc(&mut self.mapped, num, addr)
    }

    /// `Flash_free`: frees the buffer that was allocated at `addr`. Its segments are erased later.
    ///
    /// # Errors
    /// [`Error::NotAllocated`]: no buffer begins there; or the medium failed.
    pub fn free(&mut self, addr: u64) -> Result<()> {
        let count = self.bank.buffer(addr)?;
        let segment_bytes = self.segment_bytes();
        self.mapped.window.unmap(addr, count * segment_bytes)?;
        for index in 0..count {
            self.mapped.segments.remove(&(addr + index * segment_bytes));
        }
        self.bank.free(addr, count)
    }

    /// `Flash_erase`: the `num` segments from `addr` on become all ones. Erased segments replace
    /// them; the call takes the time of an erase only if there are none.
    ///
    /// # Errors
    /// [`Error::NotAllocated`]: one of them is not in a buffer; then nothing is erased.
    /// [`Error::WornOut`]: too many have been retired; or the medium failed.
    pub fn erase(&mut self, addr: u64, num: u64) -> Result<()> {
        let erased = self.bank.erase(&mut self.mapped, addr, num);
        if erased.is_err() {
            // A segment that was freed without a replacement is in no buffer any more.
            let lost = |at: &u64| !self.bank.is_mapped(*at);
            let lost: Vec<_> = self.mapped.segments.iter().copied().filter(lost).collect();
            for at in lost {
                self.mapped.window.unmap(at, self.mapped.segment_bytes)?;
                self.mapped.segments.remove(&at);
            }
        }
        erased
    }

    /// `Flash_recover`: maps all segments of `key` at their addresses. Returns the addresses,
    /// contiguous ones as one range.
    ///
    /// # Errors
    /// [`Error::WrongKey`]: `key` is not the bank's; [`Error::Overlap`]: a segment is mapped
    /// already; [`Error::Corrupted`]: the table has impossible addresses.
    pub fn recover(&mut self, key: u64) -> Result<Vec<Range<u64>>> {
        if let Some(&first) = self.mapped.segments.first() {
            return Err(Error::Overlap(first));
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for address in self.bank.recover(&mut self.mapped, key)? {
            let end = address + self.mapped.segment_bytes;
            match ranges.last_mut() {
                Some(last) if last.end == address => last.end = end,
                _ => ranges.push(address..end),
            }
        }
        Ok(ranges)
    }

    /// Writes `bytes` at `address`, in one or more buffers: stable after [`Flash::sync`]. Bits can
    /// be cleared, not set.
    /// # Errors
    /// [`Error::WriteOnce`]: a bit would be set; [`Error::NotAllocated`]: a part is in no buffer.
    /// In both cases nothing has been written. Or the medium failed.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.bank.write(address, bytes)
    }

    /// The `count` bytes from `address` on, in place.
    ///
    /// # Errors
    /// [`Error::NotAllocated`]: a part is in no buffer.
    pub fn bytes(&self, address: u64, count: usize) -> Result<&[u8]> {
        let segment_bytes = self.segment_bytes();
        let first = self.addresses().start;
        let mut at = address - address.wrapping_sub(first) % segment_bytes;
        let end = address.saturating_add(count as u64);
        while at < end.max(address + 1) {
            if !self.mapped.segments.contains(&at) {
                return Err(Error::NotAllocated(at.max(address)));
            }
            at += segment_bytes;
        }
        // SAFETY: the loop found every segment of the range in `segments`, so all of it is mapped
        // and readable. Unmapping and writing take `&mut self`, which the slice excludes.
        Ok(unsafe { std::slice::from_raw_parts(pointer(address).cast::<u8>(), count) })
    }

    /// Returns when all writes are stable.
    ///
    /// # Errors
    /// The medium failed.
    pub fn sync(&mut self) -> Result<()> {
        self.bank.sync()
    }

    /// Lets `ns` of modelled time pass: background erases continue.
    ///
    /// # Errors
    /// The medium failed.
    pub fn pass(&mut self, ns: u64) -> Result<()> {
        self.bank.pass(ns)
    }

    /// The segment table: the use of each segment, and its erases.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        self.bank.segments()
    }

    /// Counters of the bank since it was opened.
    #[must_use]
    pub fn counters(&self) -> BankCounters {
        self.bank.counters()
    }
}
