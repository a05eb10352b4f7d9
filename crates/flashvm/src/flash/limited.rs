//! The limit on file sizes (`RLIMIT_FSIZE`, `ulimit -f`). A write beyond it ends the process by a signal. The limit is
//! the program's, as the pager writes the store and the frames of small pages from inside it.
//!
//! A run whose files would not fit is refused at its start. Later the guard refuses calls of the program that lower
//! the limit too far ([`set_by`]), so the check at the start stays valid.

use super::layer::Layer;
use super::store::{Geometry, Part, Store, bytes_of};
use crate::sys::discard::StoreKind;
use rustix::process::{Resource, getrlimit};

/// A store that is written only below the limit.
#[derive(Debug)]
pub(crate) struct Limited<B> {
    pub(super) below: B,
    /// Bytes of the largest file that the pager writes.
    needed: u64,
    /// Bytes of the store that may be written.
    most: u64,
}

impl<B: Store> Limited<B> {
    /// Reads the limit of this process. It must admit the store, unless that is a device, and another file of `other`
    /// bytes.
    ///
    /// # Errors
    /// One line for the user if the limit is too low.
    pub(crate) fn new(below: B, other: u64) -> Result<Self, String> {
        Self::under(below, other, getrlimit(Resource::Fsize).current)
    }

    fn under(below: B, other: u64, limit: Option<u64>) -> Result<Self, String> {
        let Geometry { bytes, kind, .. } = below.geometry();
        let (needed, most) = match kind {
            StoreKind::File => (other.max(bytes), limit.unwrap_or(u64::MAX)),
            StoreKind::Device => (other, u64::MAX),
        };
        match limit {
            Some(limit) if limit < needed => Err(format!(
                "the limit on file sizes (ulimit -f) is {limit} bytes, and the pager's files take {needed}: raise it, \
                 or ask for a smaller --flash-size"
            )),
            _ => Ok(Self {
                below,
                needed,
                most,
            }),
        }
    }

    /// Bytes of the largest file that the pager writes.
    pub(crate) fn needed(&self) -> u64 {
        self.needed
    }
}

impl<B: Store> Layer for Limited<B> {
    type Below = B;

    fn below(&self) -> &B {
        &self.below
    }

    fn limit(&self, below: Geometry) -> Geometry {
        Geometry {
            bytes: below.bytes.min(self.most),
            ..below
        }
    }

    /// Panics at a write beyond the limit: the kernel's signal would give no reason.
    unsafe fn before_write(&self, at: u64, parts: &[Part]) {
        self.geometry().admit(at, bytes_of(parts));
    }
}

/// The limit in bytes that a system call of the program would set. `None` if it sets none, or `read` cannot read it at
/// the address that the program gave.
pub(crate) fn set_by(
    number: i64,
    args: &[usize; 6],
    read: impl Fn(usize) -> Option<u64>,
) -> Option<u64> {
    let (resource, new) = match number {
        libc::SYS_prlimit64 => (args[1], args[2]),
        libc::SYS_setrlimit => (args[0], args[1]),
        _ => return None,
    };
    if resource != libc::RLIMIT_FSIZE as usize || new == 0 {
        return None;
    }
    read(new)
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::*;

    const BYTES: u64 = 1 << 20;

    fn store(kind: StoreKind) -> MemoryStore {
        MemoryStore::of_kind(BYTES, kind)
    }

    #[test]
    fn a_file_has_to_fit_and_a_device_need_not() {
        let fits = |kind, other, limit| Limited::under(store(kind), other, limit);
        let needed = |kind, other, limit| fits(kind, other, limit).map(|limited| limited.needed());
        assert_eq!(needed(StoreKind::File, 0, None), Ok(BYTES));
        assert_eq!(needed(StoreKind::File, 0, Some(BYTES)), Ok(BYTES));
        assert_eq!(needed(StoreKind::File, 2 * BYTES, None), Ok(2 * BYTES));
        assert_eq!(needed(StoreKind::Device, 4096, Some(4096)), Ok(4096));
        for (kind, other) in [
            (StoreKind::File, 0),
            (StoreKind::File, 2 * BYTES),
            (StoreKind::Device, BYTES),
        ] {
            let line = fits(kind, other, Some(BYTES - 1)).unwrap_err();
            assert!(line.contains("ulimit -f") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    #[should_panic(expected = "a request of 4096 bytes")]
    fn a_write_beyond_the_store_is_a_bug() {
        let limited = Limited::under(store(StoreKind::File), 0, Some(BYTES)).unwrap();
        let page = vec![0; 4096];
        let part = Part {
            address: page.as_ptr() as usize,
            len: page.len(),
        };
        // SAFETY: the page outlives the call, and nobody changes it.
        let _ = unsafe { limited.write(BYTES, &[part]) };
    }

    #[test]
    fn only_calls_that_set_this_limit_are_read() {
        let fsize = libc::RLIMIT_FSIZE as usize;
        let read = |at: usize| Some(at as u64 + 1);
        let set = |number, args| set_by(number, &args, read);
        assert_eq!(set(libc::SYS_prlimit64, [0, fsize, 7, 0, 0, 0]), Some(8));
        assert_eq!(set(libc::SYS_setrlimit, [fsize, 7, 0, 0, 0, 0]), Some(8));
        assert_eq!(set(libc::SYS_prlimit64, [0, fsize, 0, 9, 0, 0]), None);
        assert_eq!(set(libc::SYS_setrlimit, [fsize + 1, 7, 0, 0, 0, 0]), None);
        assert_eq!(set(libc::SYS_getrlimit, [fsize, 7, 0, 0, 0, 0]), None);
    }
}
