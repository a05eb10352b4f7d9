//! The program's small objects on small pages (`--granularity 512`): `flashvm-malloc` over the
//! pager's pages.
//!
//! The guard takes and gives the pages, by calls of its own: the caller's stack may be managed
//! memory.

use crate::state::guard_call;
use flashvm_live::PageList;
use flashvm_live::control::ChameleonSettings;
use flashvm_live::guard::Own;
use flashvm_malloc::{Allocator, Heap, NotAnObject, PageSource, RUN_PAGES, Run};
use std::ffi::c_void;
use std::sync::OnceLock;

const _: () = assert!(
    RUN_PAGES == flashvm_live::RUN_PAGES as usize,
    "a list holds a run"
);

/// Empty without `--granularity 512`.
static ALLOCATOR: OnceLock<&'static Allocator> = OnceLock::new();

#[inline]
fn allocator() -> Option<&'static Allocator> {
    ALLOCATOR.get().copied()
}

/// The pager's small pages.
#[derive(Debug)]
struct PagerPages;

// SAFETY: the pager hands out pages of this allocator's heap, and none twice before it was given back. Guard and pager
// allocate with the pager's own allocator, so they do not call this one back.
unsafe impl PageSource for PagerPages {
    fn take(&self, bytes: usize) -> Option<Run> {
        // In a box: the guard stores to it, and the stack may be managed memory.
        let mut list = Box::new(PageList::default());
        let address = std::ptr::from_mut(&mut *list) as usize;
        // SAFETY: the list is this call's own, and lies in the pager's memory.
        unsafe { guard_call(Own::TakePages, address, bytes) }.ok()?;
        Some(Run {
            first_sector: list.first_sector(),
            pages: list.pages().to_vec(),
        })
    }

    unsafe fn give(&self, pages: &[u32]) {
        let mut list = Box::new(PageList::default());
        list.set(pages);
        let address = std::ptr::from_mut(&mut *list) as usize;
        // SAFETY: the list is this function's own, and outside of managed memory; the caller guarantees that nobody uses
        // the pages.
        if let Err(error) = unsafe { guard_call(Own::GivePages, address, 0) } {
            flashvm_live::end(&format!("small pages cannot be freed: {error}"));
        }
    }
}

/// Starts the allocator over the heap at `base`.
pub(crate) fn start(
    base: usize,
    bytes: usize,
    budget: usize,
    settings: ChameleonSettings,
) -> Result<(), String> {
    let heap = Heap {
        base,
        bytes,
        smallest_page: settings.smallest as usize,
        padding: settings.padding as usize,
        budget,
    };
    let allocator = Allocator::start(heap, Box::new(PagerPages));
    let allocator = allocator.map_err(|error| error.to_string())?;
    ALLOCATOR.set(allocator).expect("the object starts once");
    Ok(())
}

/// The allocator, if the address is one of its heap.
#[inline]
pub(crate) fn owner(address: usize) -> Option<&'static Allocator> {
    allocator().filter(|allocator| allocator.owns(address))
}

/// An object; `None`: the allocator refuses the request or has no room, and mimalloc must serve it.
#[inline]
pub(crate) fn allocate(size: usize, align: usize) -> Option<*mut c_void> {
    let object = allocator()?.allocate(size, align)?;
    Some(object.as_ptr().cast())
}

/// The result; ends the process if the program has passed an address that is none of its objects.
#[inline]
pub(crate) fn checked<T>(result: Result<T, NotAnObject>) -> T {
    result.unwrap_or_else(|wrong| no_object(&wrong))
}

#[cold]
fn no_object(wrong: &NotAnObject) -> ! {
    flashvm_live::end(&format!("free(): {wrong}"))
}

/// Before a fork: holds all locks, so that the child's copy is consistent.
pub(crate) fn lock_for_fork() {
    if let Some(allocator) = allocator() {
        allocator.lock_for_fork();
    }
}

/// After a fork, in the parent.
///
/// # Safety
/// This thread called [`lock_for_fork`] before.
pub(crate) unsafe fn unlock_in_parent() {
    if let Some(allocator) = allocator() {
        // SAFETY: the caller guarantees that this thread called `lock_for_fork`.
        unsafe { allocator.unlock_after_fork() };
    }
}

/// After a fork, in the child: frees the cached objects of the parent's other threads.
///
/// # Safety
/// This thread is a copy of the one that called [`lock_for_fork`], and the only one of its process.
pub(crate) unsafe fn unlock_in_child() {
    if let Some(allocator) = allocator() {
        // SAFETY: the caller guarantees that this thread is the copy of the one that locked, and
        // the only one of its process.
        unsafe {
            allocator.unlock_after_fork();
            allocator.only_this_thread();
        }
    }
}
