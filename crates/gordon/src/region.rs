//! The addresses of a heap: one window at a recorded base, divided into areas of equal size, so
//! that plain pointers keep their meaning after recovery. Segments of the medium are mapped into
//! flash areas, read-only; the others are anonymous memory. All accesses of the collectors go
//! through here and are checked against the mapped ranges.
//!
//! Safety: `lengths` has the length of each area's mapped prefix, and every access asserts that it
//! is inside. A slice borrows the region, and stores need `&mut`. Flash pages change only through
//! [`crate::flash::Bank`], which writes bytes that no object covers yet.
#![allow(unsafe_code, reason = "loads and stores at addresses")]

use crate::error::{Error, Result};
use crate::flash::Addresses;
use crate::window::{Window, pointer};
use std::os::fd::BorrowedFd;

/// Bytes of a word: all objects are made of words.
pub(crate) const WORD: u64 = 8;

/// The parts of a heap's range (Figures 2 and 3 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Area {
    MiniLog0,
    MiniLog1,
    Log0,
    Log1,
    ImmutableA,
    ImmutableB,
    MutableA,
    MutableB,
    New,
    OldA,
    OldB,
}

impl Area {
    /// All of them, in order of address.
    pub(crate) const ALL: [Self; 11] = [
        Self::MiniLog0,
        Self::MiniLog1,
        Self::Log0,
        Self::Log1,
        Self::ImmutableA,
        Self::ImmutableB,
        Self::MutableA,
        Self::MutableB,
        Self::New,
        Self::OldA,
        Self::OldB,
    ];

    /// Whether the area has segments of flash.
    pub(crate) fn is_flash(self) -> bool {
        self <= Self::ImmutableB
    }

    /// Whether its contents are lost with the process.
    pub(crate) fn is_transitory(self) -> bool {
        self >= Self::New
    }

    /// The other half of a pair.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::MiniLog0 => Self::MiniLog1,
            Self::MiniLog1 => Self::MiniLog0,
            Self::Log0 => Self::Log1,
            Self::Log1 => Self::Log0,
            Self::ImmutableA => Self::ImmutableB,
            Self::ImmutableB => Self::ImmutableA,
            Self::MutableA => Self::MutableB,
            Self::MutableB => Self::MutableA,
            Self::OldA => Self::OldB,
            Self::OldB => Self::OldA,
            Self::New => unreachable!("new space has no other half"),
        }
    }
}

/// A heap's addresses.
#[derive(Debug)]
pub(crate) struct Region {
    window: Window,
    shift: u32,
    lengths: [u64; Area::ALL.len()],
}

impl Region {
    /// Reserves the range at `base`, with areas of `1 << shift` bytes.
    pub(crate) fn reserve(base: u64, shift: u32) -> Result<Self> {
        Ok(Self {
            window: Window::reserve(base, (Area::ALL.len() as u64) << shift)?,
            shift,
            lengths: [0; Area::ALL.len()],
        })
    }

    /// First address of `area`.
    pub(crate) fn start(&self, area: Area) -> u64 {
        self.window.addresses().start + ((area as u64) << self.shift)
    }

    /// One past the mapped part of `area`.
    pub(crate) fn end(&self, area: Area) -> u64 {
        self.start(area) + self.lengths[area as usize]
    }

    /// Bytes of addresses in an area.
    pub(crate) fn extent(&self) -> u64 {
        1 << self.shift
    }

    /// The area of `address`, if it is in the range.
    pub(crate) fn area(&self, address: u64) -> Option<Area> {
        let index = address.checked_sub(self.window.addresses().start)? >> self.shift;
        Area::ALL.get(usize::try_from(index).ok()?).copied()
    }

    /// Unmaps flash of `area`, except the first `keep` bytes.
    pub(crate) fn unmap_flash(&mut self, area: Area, keep: u64) -> Result<()> {
        assert!(area.is_flash());
        let length = self.lengths[area as usize];
        if length <= keep {
            return Ok(());
        }
        self.lengths[area as usize] = keep;
        self.window.unmap(self.start(area) + keep, length - keep)
    }

    /// Extends `area`, of DRAM, to at least `length` bytes. New memory is zero.
    pub(crate) fn grow(&mut self, area: Area, length: u64) -> Result<()> {
        const STEP: u64 = 1 << 20;
        assert!(!area.is_flash());
        let old = self.lengths[area as usize];
        if length <= old {
            return Ok(());
        }
        let wanted = length
            .max(old + old / 2)
            .next_multiple_of(STEP)
            .min(self.extent());
        if wanted < length {
            return Err(Error::Full {
                live: length,
                capacity: self.extent(),
            });
        }
        self.window.open(self.start(area) + old, wanted - old)?;
        self.lengths[area as usize] = wanted;
        Ok(())
    }

    /// Zaps `area`, of DRAM, beyond `keep` bytes: it reads as zeros again.
    pub(crate) fn zap(&mut self, area: Area, keep: u64) {
        self.zap_from(area, keep, self.lengths[area as usize]);
    }

    /// The same up to `end`, beyond which nothing has been stored.
    pub(crate) fn zap_from(&mut self, area: Area, keep: u64, end: u64) {
        const STEP: u64 = 1 << 16;
        assert!(!area.is_flash());
        let keep = keep.next_multiple_of(STEP);
        let end = end.next_multiple_of(STEP).min(self.lengths[area as usize]);
        if keep < end {
            self.window.zap(self.start(area) + keep, end - keep);
        }
    }

    #[track_caller]
    fn check(&self, address: u64, bytes: u64) -> Area {
        let area = self.area(address);
        let inside = area.is_some_and(|area| {
            address
                .checked_add(bytes)
                .is_some_and(|end| end <= self.end(area))
        });
        assert!(inside, "{bytes} bytes at {address:#x} are not mapped");
        area.expect("just tested")
    }

    /// The word at `address`.
    #[track_caller]
    pub(crate) fn load(&self, address: u64) -> u64 {
        self.check(address, WORD);
        assert!(address.is_multiple_of(WORD));
        // SAFETY: mapped and aligned, as just asserted; any bits are a u64.
        unsafe { pointer(address).cast::<u64>().read() }
    }

    /// Sets the word at `address`, in DRAM.
    #[track_caller]
    pub(crate) fn store(&mut self, address: u64, word: u64) {
        assert!(!self.check(address, WORD).is_flash());
        assert!(address.is_multiple_of(WORD));
        // SAFETY: mapped, in DRAM, so writable, and aligned, as just asserted; `&mut self` excludes
        // this region's slices.
        unsafe { pointer(address).cast::<u64>().write(word) }
    }

    /// The `count` words from `address` on.
    #[track_caller]
    pub(crate) fn words(&self, address: u64, count: u64) -> &[u64] {
        self.check(
            address,
            count.checked_mul(WORD).expect("a count of words in memory"),
        );
        assert!(address.is_multiple_of(WORD));
        // SAFETY: mapped and aligned, as just asserted. DRAM changes only through `&mut self`. The
        // bank writes flash only where no object is yet; recovery reads there too, but drops the
        // slice before the next write.
        unsafe { std::slice::from_raw_parts(pointer(address).cast::<u64>(), count as usize) }
    }

    /// The `count` bytes from `address` on.
    #[track_caller]
    pub(crate) fn bytes(&self, address: u64, count: u64) -> &[u8] {
        self.check(address, count);
        // SAFETY: mapped, as just checked; bytes need no alignment. DRAM changes only through `&mut self`, and no caller
        // keeps bytes of flash until the bank writes there.
        unsafe { std::slice::from_raw_parts(pointer(address).cast::<u8>(), count as usize) }
    }

    /// The `count` words of DRAM from `address` on, mutable.
    #[track_caller]
    pub(crate) fn words_mut(&mut self, address: u64, count: u64) -> &mut [u64] {
        let bytes = count.checked_mul(WORD).expect("a count of words in memory");
        assert!(!self.check(address, bytes).is_flash());
        assert!(address.is_multiple_of(WORD));
        // SAFETY: mapped, in DRAM, and aligned, as just asserted; borrowed exclusively through
        // `&mut self`. The program's slices cover immutable objects, and callers request words of
        // mutable or new objects only.
        unsafe { std::slice::from_raw_parts_mut(pointer(address).cast::<u64>(), count as usize) }
    }

    /// Copies `count` words from `from` to `to`, in DRAM; the two do not overlap.
    #[track_caller]
    pub(crate) fn copy(&mut self, from: u64, to: u64, count: u64) {
        let bytes = count.checked_mul(WORD).expect("a count of words in memory");
        self.check(from, bytes);
        assert!(!self.check(to, bytes).is_flash());
        assert!(from.is_multiple_of(WORD) && to.is_multiple_of(WORD));
        assert!(
            from + bytes <= to || to + bytes <= from,
            "copies do not overlap"
        );
        // SAFETY: as just asserted, both are mapped and aligned, the target is in DRAM, so
        // writable, and they do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                pointer(from).cast::<u64>(),
                pointer(to).cast::<u64>(),
                count as usize,
            );
        }
    }
}

impl Addresses for Region {
    /// Accepts addresses in the mapped part of a flash area, and the one at its end.
    fn accepts(&self, address: u64, length: u64) -> bool {
        self.area(address).is_some_and(|area| {
            area.is_flash()
                && address <= self.end(area)
                && address + length <= self.start(area) + self.extent()
        })
    }

    fn map(
        &mut self,
        address: u64,
        medium: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        assert!(self.accepts(address, length));
        self.window.map(address, medium, offset, length)?;
        let area = self.area(address).expect("an area that accepts");
        let length = address + length - self.start(area);
        self.lengths[area as usize] = self.lengths[area as usize].max(length);
        Ok(())
    }
}
