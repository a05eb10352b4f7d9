//! The flash store: slots in a file or block device, and the checksum of every slot.
//!
//! A checksum is set when a slot is written and verified whenever it is read: flash that returns
//! other bytes than were written is an error, never data. Checksums live in memory that only
//! this process changes; a forked child inherits those of the slots that it shares.

use crate::control::Inject;
use crate::pace;
use crate::sys::discard::Ground;
use crate::sys::map;
use flashvm_core::{PAGE_SIZE, SlotId};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The store as one process sees it.
#[derive(Debug)]
pub(crate) struct FlashStore {
    file: OwnedFd,
    ground: Ground,
    /// One a slot, in untouched memory until first use.
    checksums: &'static [AtomicU64],
    faults: Option<FaultInjection>,
}

/// Faults that a test asks for, decided by a seed and a running number.
#[derive(Debug)]
struct FaultInjection {
    inject: Inject,
    count: AtomicU64,
}

impl FlashStore {
    pub(crate) fn new(file: OwnedFd, slots: u32, inject: Option<Inject>) -> Result<Self, Errno> {
        Ok(Self {
            ground: Ground::of(&file)?,
            file,
            checksums: map::own_counters(slots as usize)?,
            faults: inject.map(|inject| FaultInjection {
                inject,
                count: AtomicU64::new(0),
            }),
        })
    }

    /// The descriptor, for the request queues.
    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether it lies in a file, and not on a device.
    pub(crate) fn is_file(&self) -> bool {
        rustix::fs::fstat(&self.file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Byte offset of a slot.
    pub(crate) fn offset(slot: SlotId) -> u64 {
        u64::from(slot.0) * PAGE_SIZE as u64
    }

    /// Tells the device that these slots hold nothing of use: range after range, as the kernel has no
    /// list of them.
    pub(crate) fn discard(&self, ranges: &[(SlotId, u32)]) -> Result<(), Errno> {
        if pace::pace().is_some_and(|pace| !pace.discard(ranges)) {
            return Err(Errno::OPNOTSUPP);
        }
        for &(first, count) in ranges {
            let len = u64::from(count) * PAGE_SIZE as u64;
            self.ground.discard(&self.file, Self::offset(first), len)?;
        }
        Ok(())
    }

    /// The checksum of a page's contents.
    pub(crate) fn checksum(page: &[u8]) -> u64 {
        xxh3_64(page)
    }

    /// Notes what a slot is going to hold.
    pub(crate) fn set_checksum(&self, slot: SlotId, checksum: u64) {
        self.checksums[slot.0 as usize].store(checksum, Ordering::Relaxed);
    }

    /// Whether a page that was read from a slot is what was written there.
    pub(crate) fn verify(&self, slot: SlotId, page: &[u8]) -> bool {
        self.checksums[slot.0 as usize].load(Ordering::Relaxed) == Self::checksum(page)
    }

    /// Whether a test wants this read to fail.
    pub(crate) fn fail_read(&self) -> bool {
        self.roll(|inject| inject.read_error_ppm)
    }

    /// Whether a test wants this write to fail.
    pub(crate) fn fail_write(&self) -> bool {
        self.roll(|inject| inject.write_error_ppm)
    }

    /// Whether a test wants a bit of this page flipped on its way from flash.
    pub(crate) fn flip_read(&self) -> bool {
        self.roll(|inject| inject.flip_ppm)
    }

    fn roll(&self, rate: impl Fn(&Inject) -> u32) -> bool {
        let Some(faults) = &self.faults else {
            return false;
        };
        let rate = rate(&faults.inject);
        if rate == 0 {
            return false;
        }
        let count = faults.count.fetch_add(1, Ordering::Relaxed);
        let dice = xxh3_64_with_seed(&count.to_ne_bytes(), faults.inject.seed);
        dice % 1_000_000 < u64::from(rate)
    }
}

/// Buffers for pages on their way from flash: 64 pages a word, runs within a word.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    base: usize,
    /// A set bit is a free page.
    free: Vec<u64>,
}

impl ReadBuffers {
    /// Pages of a word: the longest run.
    pub(crate) const RUN: u32 = u64::BITS;

    pub(crate) fn new(words: usize) -> Result<Self, Errno> {
        let base = map::own(words * Self::RUN as usize * PAGE_SIZE)?;
        Ok(Self {
            base,
            free: vec![u64::MAX; words],
        })
    }

    /// Address and length, for registration.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.base, self.free.len() * Self::RUN as usize * PAGE_SIZE)
    }

    /// Pages of all buffers.
    pub(crate) fn pages(&self) -> u32 {
        self.free.len() as u32 * Self::RUN
    }

    /// Address of `count` contiguous free pages.
    pub(crate) fn take(&mut self, count: u32) -> Option<usize> {
        debug_assert!((1..=Self::RUN).contains(&count));
        for (word, free) in self.free.iter_mut().enumerate() {
            let mut runs = *free;
            // After step k a set bit starts a run of at least k + 1 free pages.
            let mut have = 1;
            while have < count && runs != 0 {
                let step = have.min(count - have);
                runs &= runs >> step;
                have += step;
            }
            if runs != 0 {
                let bit = runs.trailing_zeros();
                *free &= !(mask(count) << bit);
                return Some(self.base + (word * Self::RUN as usize + bit as usize) * PAGE_SIZE);
            }
        }
        None
    }

    /// Gives pages back.
    pub(crate) fn give(&mut self, address: usize, count: u32) {
        let page = (address - self.base) / PAGE_SIZE;
        let (word, bit) = (page / Self::RUN as usize, page % Self::RUN as usize);
        let run = mask(count) << bit;
        assert_eq!(self.free[word] & run, 0, "read buffer given back twice");
        self.free[word] |= run;
    }
}

fn mask(count: u32) -> u64 {
    u64::MAX >> (u64::BITS - count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffers_never_overlap(requests in prop::collection::vec((1u32..=64, any::<bool>()), 1..200)) {
            let mut buffers = ReadBuffers::new(3).unwrap();
            let mut taken: Vec<(usize, u32)> = Vec::new();
            for (count, give) in requests {
                if give && !taken.is_empty() {
                    let (address, count) = taken.swap_remove(count as usize % taken.len());
                    buffers.give(address, count);
                } else if let Some(address) = buffers.take(count) {
                    let end = address + count as usize * PAGE_SIZE;
                    for &(other, pages) in &taken {
                        let other_end = other + pages as usize * PAGE_SIZE;
                        prop_assert!(end <= other || other_end <= address);
                    }
                    let (start, len) = buffers.range();
                    prop_assert!(address >= start && end <= start + len);
                    taken.push((address, count));
                }
            }
            for (address, count) in taken {
                buffers.give(address, count);
            }
            for _ in 0..3 {
                prop_assert!(buffers.take(64).is_some());
            }
            prop_assert!(buffers.take(1).is_none());
        }
    }
}
