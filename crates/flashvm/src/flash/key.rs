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
    use std::os::unix::fs::FileExt;

    /// The bytes of the key of these tests: no other memory has them, unless it was copied from the key.
    fn byte(at: usize) -> u8 {
        (std::hint::black_box(at) as u8 + 3).wrapping_mul(0x6b) ^ 0x35
    }

    fn known() -> Key {
        Key::make(|raw| {
            (0..KEY_BYTES).for_each(|at| raw[at] = byte(at));
            Ok(())
        })
        .unwrap()
    }

    /// Addresses of the first half of the key's bytes in this process' memory, except within `except`.
    fn copies(except: usize) -> Vec<usize> {
        const CHUNK: usize = 1 << 20;
        let buffer = map::own(CHUNK + KEY_BYTES).unwrap();
        // SAFETY: fresh memory that only this function uses.
        let chunk = unsafe { map::bytes_mut(buffer, CHUNK + KEY_BYTES) };
        let memory = fs::File::open("/proc/self/mem").unwrap();
        let mut found = Vec::new();
        for line in fs::read_to_string("/proc/self/maps").unwrap().lines() {
            let (range, rest) = line.split_once(' ').unwrap();
            if !rest.starts_with("rw") {
                continue;
            }
            let (start, end) = range.split_once('-').unwrap();
            let parse = |at| usize::from_str_radix(at, 16).unwrap();
            for start in (parse(start)..parse(end)).step_by(CHUNK) {
                let len = (parse(end) - start).min(CHUNK + KEY_BYTES);
                let Ok(read) = memory.read_at(&mut chunk[..len], start as u64) else {
                    continue;
                };
                let is_key = |at: &usize| (0..KEY_BYTES / 2).all(|i| chunk[at + i] == byte(i));
                let hits = (0..read.saturating_sub(KEY_BYTES / 2)).filter(is_key);
                let outside = |&at: &usize| {
                    at.wrapping_sub(buffer) >= CHUNK + KEY_BYTES
                        && at / PAGE_SIZE != except / PAGE_SIZE
                };
                found.extend(hits.map(|at| start + at).filter(outside));
            }
        }
        // SAFETY: this function alone uses the memory, no longer from here on.
        unsafe { map::unmap(buffer, CHUNK + KEY_BYTES).unwrap() };
        found
    }

    #[test]
    fn a_key_is_in_its_page_alone_and_gone_after_it() {
        let key = known();
        let page = key.page;
        assert_eq!(copies(page), [0; 0], "copies outside of its page");
        // The search finds what is there: the expanded key begins with the key's bytes.
        assert_ne!(copies(0), [0; 0]);
        drop(key);
        assert_eq!(copies(0), [0; 0]);
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
