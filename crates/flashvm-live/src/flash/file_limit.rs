//! The limit on file sizes (`RLIMIT_FSIZE`, `ulimit -f`). A write beyond it ends the process by a signal. The limit is
//! the program's, as the pager writes the store and the frames of small pages from inside it.
//!
//! A run whose files would not fit is refused at its start. Later the guard refuses calls of the program that lower
//! the limit too far ([`set_by`]), so the check at the start stays valid.

use super::store::Geometry;
use crate::sys::discard::StoreKind;
use rustix::process::{Resource, getrlimit};

/// Bytes of the largest file that the pager writes: the store, unless that is a device, or another file of `other` bytes.
///
/// # Errors
/// One line for the user if this process's limit is lower.
pub(crate) fn needed(store: Geometry, other: u64) -> Result<u64, String> {
    needed_under(store, other, getrlimit(Resource::Fsize).current)
}

fn needed_under(store: Geometry, other: u64, limit: Option<u64>) -> Result<u64, String> {
    let (needed, option) = match store.kind {
        StoreKind::File if store.bytes > other => (store.bytes, "--flash-size"),
        _ => (other, "--ram"),
    };
    match limit {
        Some(limit) if limit < needed => Err(format!(
            "the limit on file sizes (ulimit -f) is {limit} bytes, and the pager's files take {needed}: raise it, \
             or ask for a smaller {option}"
        )),
        _ => Ok(needed),
    }
}

/// The limit of `resource` that a system call of the program would set for itself. `None` if it sets none, or `read` cannot read it at
/// the address that the program gave.
pub(crate) fn set_by(
    resource: Resource,
    number: i64,
    args: &[usize; 6],
    read: impl Fn(usize) -> Option<u64>,
) -> Option<u64> {
    let (set, new) = match number {
        libc::SYS_prlimit64 if is_own(args[0]) => (args[1], args[2]),
        libc::SYS_setrlimit => (args[0], args[1]),
        _ => return None,
    };
    if set != resource as usize || new == 0 {
        return None;
    }
    read(new)
}

fn is_own(pid: usize) -> bool {
    pid == 0 || pid == rustix::process::getpid().as_raw_nonzero().get() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_to_fit_and_a_device_need_not() {
        const BYTES: u64 = 1 << 20;
        let under = |kind, other, limit| {
            let store = Geometry {
                bytes: BYTES,
                unit: 512,
                kind,
                threads: 1,
            };
            needed_under(store, other, limit)
        };
        assert_eq!(under(StoreKind::File, 0, None), Ok(BYTES));
        assert_eq!(under(StoreKind::File, 0, Some(BYTES)), Ok(BYTES));
        assert_eq!(under(StoreKind::File, 2 * BYTES, None), Ok(2 * BYTES));
        assert_eq!(under(StoreKind::Device, 4096, Some(4096)), Ok(4096));
        for (kind, other, option) in [
            (StoreKind::File, 0, "--flash-size"),
            (StoreKind::File, 2 * BYTES, "--ram"),
            (StoreKind::Device, BYTES, "--ram"),
        ] {
            let line = under(kind, other, Some(BYTES - 1)).unwrap_err();
            assert!(
                line.contains("ulimit -f") && line.contains(option),
                "{line}"
            );
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn only_calls_that_set_this_limit_are_read() {
        let fsize = libc::RLIMIT_FSIZE as usize;
        let read = |at: usize| Some(at as u64 + 1);
        let set = |number, args| set_by(Resource::Fsize, number, &args, read);
        assert_eq!(set(libc::SYS_prlimit64, [0, fsize, 7, 0, 0, 0]), Some(8));
        let own = std::process::id() as usize;
        assert_eq!(set(libc::SYS_prlimit64, [own, fsize, 7, 0, 0, 0]), Some(8));
        assert_eq!(set(libc::SYS_prlimit64, [own + 1, fsize, 7, 0, 0, 0]), None);
        assert_eq!(set(libc::SYS_setrlimit, [fsize, 7, 0, 0, 0, 0]), Some(8));
        assert_eq!(set(libc::SYS_prlimit64, [0, fsize, 0, 9, 0, 0]), None);
        assert_eq!(set(libc::SYS_setrlimit, [fsize + 1, 7, 0, 0, 0, 0]), None);
        assert_eq!(set(libc::SYS_getrlimit, [fsize, 7, 0, 0, 0, 0]), None);
    }
}
