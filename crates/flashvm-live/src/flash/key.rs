//! The key of a process' pages on flash: made at the start, kept in one page of RAM, and nowhere else.
//!
//! The page is locked, so that it never reaches swap, and core dumps leave it out. What making the key left on the
//! stack is wiped. A forked child inherits the page: it has to read what its parent wrote.

use crate::Error;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use rustix::io::Errno;
use std::ops::Deref;
use zeroize::Zeroize;

/// Bytes of a key of AES-256.
const KEY_BYTES: usize = 32;
/// Where the key's own bytes lie in its page until it is expanded.
const RAW_AT: usize = PAGE_SIZE - KEY_BYTES;
/// More stack than the expansion of a key uses.
const STACK_BYTES: usize = 16 << 10;

const _: () = assert!(size_of::<LessSafeKey>() <= RAW_AT && !std::mem::needs_drop::<LessSafeKey>());

/// A key, in a page of its own.
#[derive(Debug)]
pub(super) struct Key {
    /// Address of the page.
    page: usize,
}

impl Key {
    /// Makes a key of random bytes.
    ///
    /// # Errors
    /// The kernel gives no page, does not lock it, or does not keep it out of core dumps.
    pub(super) fn random() -> Result<Self, Error> {
        Self::make(|raw| {
            let mut filled = 0;
            while filled < KEY_BYTES {
                let flags = rustix::rand::GetRandomFlags::empty();
                filled += rustix::rand::getrandom(&mut raw[filled..], flags)?;
            }
            Ok(())
        })
    }

    /// Makes the key that `fill` gives the bytes of.
    fn make(fill: impl FnOnce(&mut [u8; KEY_BYTES]) -> Result<(), Errno>) -> Result<Self, Error> {
        let key = Self {
            page: map::own(PAGE_SIZE).map_err(Error::memory("the key of --encrypt"))?,
        };
        key.lock()?;
        map::leave_out_of_dumps(key.page, PAGE_SIZE).map_err(|error| {
            Error::Settings(format!(
                "the kernel does not keep the key of --encrypt out of core dumps ({error}): leave --encrypt out"
            ))
        })?;
        key.expand(fill)
            .map_err(Error::memory("random bytes for the key of --encrypt"))?;
        wipe_stack();
        Ok(key)
    }

    /// Keeps the page in RAM. A fork does not inherit that.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn lock(&self) -> Result<(), Error> {
        map::lock(self.page, PAGE_SIZE).map_err(|error| {
            Error::Settings(format!(
                "--encrypt locks its key in RAM, 4 KiB a process, which the kernel refuses ({error}): raise ulimit -l, \
                 or leave --encrypt out"
            ))
        })
    }

    /// Fills the page. A frame of its own, below which [`wipe_stack`] reaches.
    #[inline(never)]
    fn expand(
        &self,
        fill: impl FnOnce(&mut [u8; KEY_BYTES]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let raw = (self.page + RAW_AT) as *mut [u8; KEY_BYTES];
        // SAFETY: the last bytes of the page, which only `self` knows of; the key itself does not reach them, as checked
        // above. Bytes need no alignment.
        let raw = unsafe { &mut *raw };
        fill(raw)?;
        let key = UnboundKey::new(&AES_256_GCM, raw).expect("a key of 32 bytes");
        // SAFETY: the start of the page, aligned and large enough for a key, as checked above. Only `self` knows of it.
        unsafe { (self.page as *mut LessSafeKey).write(LessSafeKey::new(key)) };
        raw.zeroize();
        Ok(())
    }
}

impl Deref for Key {
    type Target = LessSafeKey;

    fn deref(&self) -> &LessSafeKey {
        // SAFETY: `make` has put a key there, and nobody stores to it until `self` is dropped.
        unsafe { &*(self.page as *const LessSafeKey) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: only `self` knows of the page, so nobody refers to it any more. A key has no destructor.
        unsafe {
            map::bytes_mut(self.page, PAGE_SIZE).zeroize();
            let _ = map::unmap(self.page, PAGE_SIZE);
        }
    }
}

/// Clears the stack below the caller.
#[inline(never)]
fn wipe_stack() {
    let mut room = [1_u8; STACK_BYTES];
    room.zeroize();
    std::hint::black_box(&room);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;

    /// The bytes of the key of these tests: no other memory has them, unless it was copied from the key.
    fn byte(at: usize) -> u8 {
        (std::hint::black_box(at) as u8 + 3).wrapping_mul(0x6b) ^ 0x35
    }

    fn fill(raw: &mut [u8; KEY_BYTES]) -> Result<(), Errno> {
        (0..KEY_BYTES).for_each(|at| raw[at] = byte(at));
        Ok(())
    }

    /// Reads memory through a buffer on the heap: frames of a search must not cover what it looks for.
    struct Search {
        memory: fs::File,
        page: Vec<u8>,
    }

    impl Search {
        /// How often the first half of the key's bytes is in a range of pages, as far as they are mapped.
        fn copies(&mut self, range: &Range<usize>) -> usize {
            let mut found = 0;
            for page in range.clone().step_by(PAGE_SIZE) {
                let read = self
                    .memory
                    .read_at(&mut self.page, page as u64)
                    .unwrap_or(0);
                for at in (0..read.saturating_sub(KEY_BYTES / 2)).step_by(4) {
                    found += usize::from((0..KEY_BYTES / 2).all(|i| self.page[at + i] == byte(i)));
                }
            }
            self.page[..].zeroize();
            found
        }
    }

    /// Leaves the key's bytes on the stack, as far below the caller as a page.
    #[inline(never)]
    fn leave_a_copy() {
        let mut room = [0_u8; 2 * PAGE_SIZE];
        (0..KEY_BYTES).for_each(|at| room[PAGE_SIZE + at] = byte(at));
        std::hint::black_box(&room);
    }

    #[test]
    fn a_key_is_in_its_page_alone_and_gone_after_it() {
        let memory = fs::File::open("/proc/self/mem").unwrap();
        let mut search = Search {
            memory,
            page: vec![0; PAGE_SIZE],
        };
        let here = 0_u8;
        let top = (&raw const here as usize).next_multiple_of(PAGE_SIZE);
        let stack = top - 8 * STACK_BYTES..top;
        leave_a_copy();
        assert_ne!(search.copies(&stack), 0, "the search finds what is there");
        let key = Key::make(fill).unwrap();
        assert_eq!(search.copies(&stack), 0, "copies on the stack");
        // The expanded key begins with the key's bytes.
        let page = key.page..key.page + PAGE_SIZE;
        assert_eq!(search.copies(&page), 1);
        drop(key);
        assert_eq!(search.copies(&page), 0);
    }

    #[test]
    fn its_page_is_locked_and_not_dumped() {
        let key = Key::random().unwrap();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        // Neighbours with the same flags are one mapping: other tests have keys, too.
        let contains = |line: &str| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let bounds =
                range.map(|(start, end)| [start, end].map(|at| usize::from_str_radix(at, 16)));
            matches!(bounds, Some([Ok(start), Ok(end)]) if (start..end).contains(&key.page))
        };
        let flags = maps
            .lines()
            .skip_while(|line| !contains(line))
            .find_map(|line| line.strip_prefix("VmFlags:"))
            .expect("the mapping of the page");
        let has = |flag| flags.split(' ').any(|one| one == flag);
        assert!(has("lo") && has("dd"), "{flags}");
    }

    #[test]
    fn keys_differ() {
        let bytes = |key: &Key| {
            // SAFETY: the key's page, which nobody stores to while the key lives.
            unsafe { map::bytes(key.page, PAGE_SIZE) }.to_vec()
        };
        let keys = [Key::random().unwrap(), Key::random().unwrap()];
        assert_ne!(bytes(&keys[0]), bytes(&keys[1]));
    }
}
