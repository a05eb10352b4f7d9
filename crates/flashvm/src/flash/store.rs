//! The flash store: slots in a file or block device, and the checksum of every slot.
//!
//! A checksum is set when a slot is written and verified whenever it is read: flash that returns
//! other bytes than were written is an error, never data. Checksums live in memory that only
//! this process changes; a forked child inherits those of the slots that it shares.

use super::model_client;
use crate::control::Inject;
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
        if model_client::client().is_some_and(|model| !model.discard(ranges)) {
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
