//! Encrypts pages, one by one: AES-256 in Galois/Counter Mode, each page with its place and its generation.
//!
//! The *generation* of a page is the number of its write, which no other write under the same key has, wherever it goes:
//! processes that share a key share the counter. Place and generation are the nonce and the associated data. The last
//! generation and tag of each slot, its *seal*, stay in RAM: what is read from a slot opens only if it is what was
//! last written there. Bytes of another slot, or older ones of the same slot, fail as damaged ones do.
//!
//! Seals live in private memory: a forked child gets a copy, which holds for the slots that both share.

use super::key::Key;
use crate::Error;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use ring::aead::{Aad, NONCE_LEN, Nonce, Tag};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot's seal: its generation, and the tag's two halves. Generation 0: never written.
const SEAL_WORDS: usize = 3;

/// A key, and the seals of a store.
#[derive(Debug)]
pub(super) struct Cipher {
    key: Key,
    /// The last generation; one counter for all processes that descend from the one that made the key.
    generations: &'static AtomicU64,
    /// [`SEAL_WORDS`] for each slot; takes no RAM before first use.
    seals: &'static [AtomicU64],
}

impl Cipher {
    /// Makes a key, and seals for a store of so many pages.
    ///
    /// # Errors
    /// There is no memory, or the kernel does not protect the key's.
    pub(super) fn new(slots: usize) -> Result<Self, Error> {
        let memory = Error::memory("tags of encrypted pages");
        Ok(Self {
            key: Key::random()?,
            generations: map::shared_counter().map_err(&memory)?,
            seals: map::own_counters(slots * SEAL_WORDS).map_err(&memory)?,
        })
    }

    /// In a forked child: protects its copy of the key as the parent's is.
    ///
    /// # Errors
    /// The kernel does not lock the key.
    pub(super) fn become_child(&self) -> Result<(), Error> {
        self.key.lock()
    }

    /// Encrypts a page on its way to `slot`.
    pub(super) fn seal(&self, slot: usize, page: &mut [u8; PAGE_SIZE]) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let place = place(slot, generation);
        let nonce = Nonce::assume_unique_for_key(place);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(place), page)
            .expect("a page is shorter than what one nonce covers");
        let (halves, _) = tag.as_ref().as_chunks::<8>();
        let [number, low, high] = self.seal_of(slot);
        number.store(generation, Ordering::Relaxed);
        low.store(u64::from_ne_bytes(halves[0]), Ordering::Relaxed);
        high.store(u64::from_ne_bytes(halves[1]), Ordering::Relaxed);
    }

    /// Decrypts a page that was read from `slot`. Returns whether it is what was last written there; otherwise the page
    /// holds anything.
    pub(super) fn open(&self, slot: usize, page: &mut [u8; PAGE_SIZE]) -> bool {
        let [generation, low, high] = self
            .seal_of(slot)
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        if generation == 0 {
            return false;
        }
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&low.to_ne_bytes());
        tag[8..].copy_from_slice(&high.to_ne_bytes());
        let place = place(slot, generation);
        let nonce = Nonce::assume_unique_for_key(place);
        self.key
            .open_in_place_separate_tag(nonce, Aad::from(place), Tag::from(tag), page, 0..)
            .is_ok()
    }

    fn seal_of(&self, slot: usize) -> &[AtomicU64; SEAL_WORDS] {
        let (seals, _) = self.seals.as_chunks();
        &seals[slot]
    }
}

/// Place and generation in bytes.
fn place(slot: usize, generation: u64) -> [u8; NONCE_LEN] {
    let slot = u32::try_from(slot).expect("slots have numbers of 32 bits");
    let mut place = [0; NONCE_LEN];
    place[..4].copy_from_slice(&slot.to_le_bytes());
    place[4..].copy_from_slice(&generation.to_le_bytes());
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: usize = 8;

    /// A page of a running number.
    fn page(seed: u64) -> [u8; PAGE_SIZE] {
        std::array::from_fn(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 57)) as u8)
    }

    fn sealed(cipher: &Cipher, slot: usize, page: &[u8; PAGE_SIZE]) -> [u8; PAGE_SIZE] {
        let mut sealed = *page;
        cipher.seal(slot, &mut sealed);
        sealed
    }

    fn opens(cipher: &Cipher, slot: usize, bytes: &[u8; PAGE_SIZE]) -> Option<[u8; PAGE_SIZE]> {
        let mut page = *bytes;
        cipher.open(slot, &mut page).then_some(page)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn only_the_last_bytes_of_the_same_place_open(
            slot in 0..SLOTS,
            other in 0..SLOTS,
            seed: u64,
            bit in 0..PAGE_SIZE * 8,
        ) {
            prop_assume!(slot != other);
            let cipher = Cipher::new(SLOTS).unwrap();
            let first = page(seed);
            prop_assert_eq!(opens(&cipher, slot, &first), None, "never written");
            let old = sealed(&cipher, slot, &first);
            prop_assert_ne!(old, first);
            prop_assert_eq!(opens(&cipher, slot, &old), Some(first));
            // A flipped bit, any.
            let mut flipped = old;
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(opens(&cipher, slot, &flipped), None);
            // Swapped: the same contents elsewhere are other bytes, and open only there.
            let there = sealed(&cipher, other, &first);
            prop_assert_ne!(there, old);
            prop_assert_eq!(opens(&cipher, slot, &there), None);
            prop_assert_eq!(opens(&cipher, other, &old), None);
            prop_assert_eq!(opens(&cipher, other, &there), Some(first));
            // Replayed: the same contents at the same place are other bytes, and only the last open.
            let new = sealed(&cipher, slot, &first);
            prop_assert_ne!(new, old);
            prop_assert_eq!(opens(&cipher, slot, &old), None);
            prop_assert_eq!(opens(&cipher, slot, &new), Some(first));
            // Another key.
            prop_assert_eq!(opens(&Cipher::new(SLOTS).unwrap(), slot, &new), None);
        }
    }

    /// A fork copies key and seals. What either process writes to a place afterwards has a number of its own.
    #[test]
    fn parent_and_child_never_use_a_generation_twice() {
        const WRITES: u64 = 1000;
        let cipher = Cipher::new(SLOTS).unwrap();
        let shared = page(1);
        let before = sealed(&cipher, 1, &shared);
        // SAFETY: the child calls nothing but the cipher, which takes no lock and does not allocate, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let mine = page(2);
            let good = cipher.become_child().is_ok()
                && opens(&cipher, 1, &before) == Some(shared)
                && (0..WRITES).all(|_| opens(&cipher, 1, &sealed(&cipher, 1, &mine)) == Some(mine));
            // SAFETY: the child ends.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        for _ in 0..WRITES {
            sealed(&cipher, 1, &shared);
        }
        let mut status = 0;
        // SAFETY: `status` is a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child's pages open");
        let last = cipher.generations.load(Ordering::Relaxed);
        assert_eq!(
            last,
            2 * WRITES + 1,
            "each write has taken its number from one counter"
        );
    }
}
