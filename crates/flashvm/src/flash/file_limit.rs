//! The limit on file sizes (`RLIMIT_FSIZE`, `ulimit -f`): a write beyond it ends the process by a signal, and the
//! pager writes the store and the frames of small pages from inside the program.

use super::FlashStore;
use flashvm_core::PAGE_SIZE;
use rustix::process::{Resource, getrlimit};

/// Bytes of the largest file that the pager writes: the store, unless it is a device, or the frames of small
/// pages.
pub(crate) fn needed(store: &FlashStore, store_bytes: u64, small_pages: Option<u32>) -> u64 {
    let frames = u64::from(small_pages.unwrap_or(0)) * PAGE_SIZE as u64;
    frames.max(if store.is_file() { store_bytes } else { 0 })
}

/// What is wrong with the limit of this process, if anything is.
pub(crate) fn too_low(needed: u64) -> Option<String> {
    let limit = getrlimit(Resource::Fsize).current?;
    (limit < needed).then(|| {
        format!(
            "the limit on file sizes (ulimit -f) is {limit} bytes, and the pager's files take {needed}: raise it, \
             or ask for a smaller --flash-size"
        )
    })
}

/// The limit in bytes that a system call of the program's would set, if it sets one.
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
