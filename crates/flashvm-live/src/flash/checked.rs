//! Checksums: flash that returns other bytes than were written is an error, never data.
//!
//! A slot's checksum is set before the slot is written and compared whenever it is read. A page that differs or
//! whose read failed is read again, alone; after [`READ_TRIES`] it is lost. From a mirror both copies are read then, and
//! a copy that is wrong beside a right one is mended. Checksums live in private memory: a
//! forked child gets a copy, which holds for the slots that both share.

use super::layer::Layer;
use super::store::{Failed, Geometry, Part, Store};
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Reads of a page before it counts as lost.
pub(super) const READ_TRIES: u32 = 3;

/// A store that verifies the pages it reads.
#[derive(Debug)]
pub(crate) struct Checked<B> {
    pub(super) below: B,
    /// One for each slot; takes no RAM before first use.
    checksums: &'static [AtomicU64],
}

/// The checksum of a page's contents.
pub(crate) fn checksum(page: &[u8]) -> u64 {
    xxh3_64(page)
}

impl<B: Store> Checked<B> {
    /// Reserves checksums for all pages of `below`.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub(crate) fn new(below: B) -> Result<Self, Errno> {
        let slots = below.geometry().bytes / PAGE_SIZE as u64;
        let checksums = map::own_counters(slots as usize)?;
        Ok(Self { below, checksums })
    }

    /// Whether the page that was last written at `at` has the checksum of these contents. Reads nothing.
    pub(crate) fn holds(&self, at: u64, page: &[u8; PAGE_SIZE]) -> bool {
        self.of(at).load(Ordering::Relaxed) == checksum(page)
    }

    fn of(&self, at: u64) -> &AtomicU64 {
        &self.checksums[(at / PAGE_SIZE as u64) as usize]
    }

    /// Whether `page` has the checksum of what was last written at `at`.
    ///
    /// # Safety
    /// The page is readable, and nobody changes it until the call returns.
    unsafe fn verify(&self, at: u64, page: Part) -> bool {
        // SAFETY: the page is readable, and nobody changes it until this function returns, as the caller guarantees.
        let contents = unsafe { map::bytes(page.address, page.len) };
        self.of(at).load(Ordering::Relaxed) == checksum(contents)
    }

    /// Reads all copies of a page, and leaves a right one in `page`, if there is one. Copies that are wrong beside it are
    /// mended.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn read_again(&self, at: u64, page: Part) -> bool {
        let copies = self.below.copies();
        let (mut right, mut wrong) = (None, Failed::NONE);
        for copy in 0..copies {
            // SAFETY: the caller guarantees for the page what these calls ask for.
            let good =
                unsafe { self.below.read_copy(copy, at, page).is_none() && self.verify(at, page) };
            match good {
                true => right = Some(copy),
                false => wrong.add(copy),
            }
        }
        let Some(right) = right else {
            return false;
        };
        for copy in (0..copies).filter(|&copy| wrong.holds(copy)) {
            self.below.mend(copy, at, page.len);
        }
        // A wrong copy that was read later lies there now.
        // SAFETY: the caller guarantees for the page what these calls ask for.
        right + 1 == copies
            || unsafe { self.below.read_copy(right, at, page).is_none() && self.verify(at, page) }
    }
}

impl<B: Store> Layer for Checked<B> {
    type Below = B;

    fn below(&self) -> &B {
        &self.below
    }

    fn limit(&self, below: Geometry) -> Geometry {
        Geometry {
            unit: PAGE_SIZE,
            ..below
        }
    }

    unsafe fn before_write(&self, at: u64, parts: &[Part]) {
        let mut at = at;
        for part in parts {
            self.geometry().admit(at, part.len);
            for address in (part.address..part.address + part.len).step_by(PAGE_SIZE) {
                // A part may lie in the shadow, which Rust code must not reference: hash a copy.
                let mut copy = [0; PAGE_SIZE];
                // SAFETY: `address` is a page of a part; `admit` has checked that the part consists of whole pages.
                // The caller guarantees that it is readable and that nobody changes it before the write has ended.
                // `copy` is a local.
                unsafe { map::copy(address, copy.as_mut_ptr() as usize, PAGE_SIZE) };
                self.of(at).store(checksum(&copy), Ordering::Relaxed);
                at += PAGE_SIZE as u64;
            }
        }
    }

    unsafe fn after_read(&self, at: u64, to: Part, failed: Failed) -> Failed {
        self.geometry().admit(at, to.len);
        let mut lost = Failed::NONE;
        for index in 0..to.len / PAGE_SIZE {
            let at = at + (index * PAGE_SIZE) as u64;
            let page = Part {
                address: to.address + index * PAGE_SIZE,
                len: PAGE_SIZE,
            };
            // SAFETY: a page of `to`. The caller guarantees that `to` is writable and that nobody else uses it before the
            // read is answered.
            let good = unsafe {
                !failed.holds(index) && self.verify(at, page)
                    || (1..READ_TRIES).any(|_| self.read_again(at, page))
            };
            if !good {
                lost.add(index);
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::super::store::{Request, StoreQueue, Transfer};
    use super::super::testing::{Mishap, Pages, Scripted, leak};
    use super::*;
    use std::sync::Mutex;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BYTES: u64 = 64 * PAGE;

    fn read(store: &impl Store, at: u64, to: &Pages) -> u64 {
        // SAFETY: the pages live over the call, and this thread alone uses them.
        unsafe { store.read(at, to.all()) }.bits()
    }

    fn write(store: &impl Store, at: u64, from: &Pages) {
        // SAFETY: `from` lives over the call, and nobody stores to it meanwhile.
        assert!(unsafe { store.write(at, &[from.all()]) }.is_none());
    }

    /// A store whose reads go as `script` says, in its order.
    fn scripted(script: &[Option<Mishap>]) -> Checked<Scripted<MemoryStore>> {
        let next = script.iter().rev().copied().collect();
        Checked::new(Scripted {
            below: MemoryStore::new(BYTES),
            next: Mutex::new(next),
        })
        .unwrap()
    }

    #[test]
    fn a_flipped_bit_is_found_in_its_page_alone() {
        let store = leak(Checked::new(MemoryStore::new(BYTES)).unwrap());
        let (from, to) = (Pages::new(64, 1), Pages::new(64, 2));
        write(store, 0, &from);
        store.below().flip(3 * PAGE);
        store.below().flip(64 * PAGE - 1);
        assert_eq!(read(store, 0, &to), 1 << 63 | 1 << 3);
        assert!(
            (0..63)
                .filter(|&at| at != 3)
                .all(|at| to.bytes(at) == from.bytes(at))
        );
        // A queue gives the same answer.
        let mut queue = store.queue(1, None).unwrap();
        let transfer = Transfer::Read(to.all());
        // SAFETY: the pages live until `reap` returns the request, below.
        unsafe {
            queue.push(Request {
                tag: 5,
                at: 0,
                transfer,
            })
        };
        queue.submit();
        let mut ended = Vec::new();
        queue.reap(&mut ended);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].failed.bits(), 1 << 63 | 1 << 3);
        // A slot that is written again is good again.
        write(store, 0, &from);
        assert_eq!(read(store, 0, &to), 0);
    }

    #[test]
    fn what_was_never_written_fails() {
        let store = Checked::new(MemoryStore::new(BYTES)).unwrap();
        assert_eq!(read(&store, 0, &Pages::new(2, 1)), 0b11);
    }

    #[test]
    fn a_read_is_tried_again_and_then_lost() {
        use Mishap::{Fails, Flips};
        for (script, outcome, left) in [
            (&[Some(Fails), Some(Flips), None][..], 0, 0),
            (&[Some(Flips), Some(Fails), None, None][..], 0, 1),
            (&[Some(Flips), Some(Flips), Some(Fails), None][..], 1, 1),
            (&[None, None][..], 0, 1),
        ] {
            let store = scripted(script);
            let (from, to) = (Pages::new(1, 1), Pages::new(1, 2));
            write(&store, 0, &from);
            assert_eq!(read(&store, 0, &to), outcome, "{script:?}");
            assert_eq!(store.below().next.lock().unwrap().len(), left, "{script:?}");
            if outcome == 0 {
                assert_eq!(to.bytes(0), from.bytes(0));
            }
        }
    }

    #[test]
    fn only_pages_that_are_wrong_are_read_again() {
        let flip = Some(Mishap::Flips);
        // A read of four pages flips a bit in the first; that page alone is read twice more.
        let store = scripted(&[flip, flip, None, flip]);
        let (from, to) = (Pages::new(4, 1), Pages::new(4, 2));
        write(&store, 0, &from);
        assert_eq!(read(&store, 0, &to), 0);
        assert_eq!(store.below().next.lock().unwrap().len(), 1);
        assert!((0..4).all(|page| to.bytes(page) == from.bytes(page)));
    }
}
