//! Faults that a test asks for (`--inject`). A seed and a running number decide for each request.
//!
//! A read or write that is to fail is carried out, and all its pages are reported as failed. A read that is to be
//! changed has one bit flipped in every sector.

use super::layer::Layer;
use super::store::{Failed, Part, Store};
use crate::control::Inject;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Rates are in parts of this many requests (ppm).
const ALL: u64 = 1_000_000;
/// A changed read has one bit flipped in each `SECTOR_BYTES` bytes, so that every page of the request differs.
const SECTOR_BYTES: usize = 512;

/// A store that makes the faults asked for, if any.
#[derive(Debug)]
pub(crate) struct Injected<B> {
    pub(super) below: B,
    inject: Inject,
    /// Decisions so far: the running number.
    count: AtomicU64,
}

impl<B: Store> Injected<B> {
    /// Faults at the rates of `inject`; without it no faults.
    pub(crate) fn new(below: B, inject: Option<Inject>) -> Self {
        Self {
            below,
            inject: inject.unwrap_or_default(),
            count: AtomicU64::new(0),
        }
    }

    fn roll(&self, rate: u32) -> bool {
        rate > 0 && {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let dice = xxh3_64_with_seed(&count.to_ne_bytes(), self.inject.seed);
            dice % ALL < u64::from(rate)
        }
    }
}

impl<B: Store> Layer for Injected<B> {
    type Below = B;

    fn below(&self) -> &B {
        &self.below
    }

    unsafe fn after_read(&self, _at: u64, to: Part, failed: Failed) -> Failed {
        if self.roll(self.inject.flip_ppm) {
            for address in (to.address..to.address + to.len).step_by(SECTOR_BYTES) {
                // SAFETY: a byte of `to`. The caller guarantees that `to` is writable and that nobody else uses it
                // before the read is answered.
                unsafe { *(address as *mut u8) ^= 1 };
            }
        }
        if self.roll(self.inject.read_error_ppm) {
            return Failed::all(to.len);
        }
        failed
    }

    fn after_write(&self, _at: u64, len: usize, failed: Failed) -> Failed {
        if self.roll(self.inject.write_error_ppm) {
            return Failed::all(len);
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::super::testing::Pages;
    use super::*;

    const PAGES: usize = 64;
    const BYTES: u64 = 1 << 20;

    fn store(inject: Inject) -> Injected<MemoryStore> {
        Injected::new(MemoryStore::new(BYTES), Some(inject))
    }

    fn read(store: &impl Store, to: &Pages) -> u64 {
        // SAFETY: the pages live over the call, and this thread alone uses them.
        unsafe { store.read(0, to.all()) }.bits()
    }

    fn write(store: &impl Store, from: &Pages) -> u64 {
        // SAFETY: `from` lives over the call, and nobody stores to it meanwhile.
        unsafe { store.write(0, &[from.all()]) }.bits()
    }

    /// Which of a thousand requests fail; each has many pages, which fail together.
    fn failures(inject: Inject, request: impl Fn(&Injected<MemoryStore>) -> u64) -> Vec<bool> {
        let store = store(inject);
        let failed = (0..1000).map(|_| match request(&store) {
            0 => false,
            u64::MAX => true,
            some => panic!("a part of a request failed: {some:b}"),
        });
        failed.collect()
    }

    #[test]
    fn faults_come_at_their_rate_and_by_request() {
        let pages = Pages::new(PAGES, 1);
        let count = |failed: &[bool]| failed.iter().filter(|&&failed| failed).count();
        for (ppm, least, most) in [(0, 0, 0), (250_000, 200, 300), (1_000_000, 1000, 1000)] {
            let reads = |seed| {
                let inject = Inject {
                    read_error_ppm: ppm,
                    seed,
                    ..Inject::default()
                };
                failures(inject, |store| {
                    assert_eq!(write(store, &pages), 0, "writes have a rate of their own");
                    read(store, &pages)
                })
            };
            let writes = Inject {
                write_error_ppm: ppm,
                ..Inject::default()
            };
            let writes = failures(writes, |store| {
                assert_eq!(read(store, &pages), 0, "reads have a rate of their own");
                write(store, &pages)
            });
            for failed in [&reads(1), &writes] {
                let failed = count(failed);
                assert!((least..=most).contains(&failed), "{failed} at {ppm} ppm");
            }
            assert_eq!(reads(1), reads(1), "the seed decides");
            assert_eq!(reads(1) == reads(2), least == most);
        }
    }

    #[test]
    fn a_changed_read_differs_by_a_bit_in_every_sector() {
        let store = store(Inject {
            flip_ppm: 1_000_000,
            ..Inject::default()
        });
        let (from, to) = (Pages::new(2, 1), Pages::new(2, 2));
        // SAFETY: the pages live over the calls, and this thread alone uses them.
        unsafe {
            assert!(store.write(0, &[from.all()]).is_none());
            assert!(store.read(0, to.all()).is_none());
        }
        for page in 0..2 {
            let sectors = from.bytes(page).chunks(SECTOR_BYTES);
            for (written, read) in sectors.zip(to.bytes(page).chunks(SECTOR_BYTES)) {
                let bits = written.iter().zip(read).map(|(a, b)| (a ^ b).count_ones());
                assert_eq!(bits.sum::<u32>(), 1);
            }
        }
    }
}
