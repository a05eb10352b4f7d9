//! The pager's own allocator: memory in one range that is never managed.
//!
//! dlmalloc over pieces of one range: `free` tells the pager's memory from the program's by its
//! address. The range is reserved once, and nothing else is ever mapped there.

use dlmalloc::{Allocator, Dlmalloc};
use flashvm_malloc::ForkLock;
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space of the range: mostly the pager's page tables, which are sparse.
const RANGE_BYTES: usize = 64 << 30;
/// Requests of this size and more bypass dlmalloc, so that zeroed ones stay untouched.
const LARGE_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;

static BASE: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether an address was allocated here.
#[inline]
pub(crate) fn owns(address: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address.wrapping_sub(base) < RANGE_BYTES
}

/// Zeroed memory from the range that was never handed out; null when the range is used up.
fn fresh(bytes: usize) -> *mut u8 {
    let bytes = bytes.next_multiple_of(PAGE);
    let mut base = BASE.load(Ordering::Acquire);
    if base == 0 {
        // SAFETY: the kernel chooses a free place; no existing mapping changes.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                RANGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let Ok(reserved) = reserved else {
            return std::ptr::null_mut();
        };
        base = reserved as usize;
        // SAFETY: only a flag of the mapping changes.
        let _ = unsafe {
            rustix::mm::madvise(reserved, RANGE_BYTES, rustix::mm::Advice::LinuxDontDump)
        };
        BASE.store(base, Ordering::Release);
    }
    let offset = USED.fetch_add(bytes, Ordering::Relaxed);
    if offset + bytes > RANGE_BYTES {
        return std::ptr::null_mut();
    }
    (base + offset) as *mut u8
}

/// Returns the frames of a piece; its addresses are not used again.
///
/// # Safety
/// [`fresh`] has handed out the piece, and nobody uses it any more.
unsafe fn retire(address: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees that nobody uses the piece. `fresh` hands out whole pages, so
    // no other piece loses contents.
    let _ =
        unsafe { rustix::mm::madvise(address.cast(), bytes, rustix::mm::Advice::LinuxDontNeed) };
}

struct Range;

// SAFETY: `alloc` returns memory that `fresh` hands out once; nothing is ever moved or unmapped.
unsafe impl Allocator for Range {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (fresh(size), size.next_multiple_of(PAGE), 0)
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }
    fn can_release_part(&self, _: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        PAGE
    }
}

struct Heap(Dlmalloc<Range>);

// SAFETY: dlmalloc refers only to memory of the range, which all threads can use.
unsafe impl Send for Heap {}

/// The pager's allocator.
pub(crate) struct Internal(ForkLock<Heap>);

#[global_allocator]
static INTERNAL: Internal = Internal(ForkLock::new(Heap(Dlmalloc::new_with_allocator(Range))));

impl Internal {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc<Range>) -> T) -> T {
        // No handler may allocate while its thread holds the lock. The pager's threads have all
        // signals blocked anyway; handlers that interrupt the guard do not allocate.
        let inside = flashvm_live::on_pager_stack() || flashvm_live::on_guard_stack();
        let _uninterrupted = (!inside).then(flashvm_live::Uninterrupted::begin);
        self.0.with(|heap| work(&mut heap.0))
    }
}

// SAFETY: dlmalloc keeps the contract; a large request gets a piece of its own, aligned to a page.
unsafe impl GlobalAlloc for Internal {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE_BYTES && layout.align() <= PAGE {
            return fresh(layout.size());
        }
        // SAFETY: a `Layout` has a size and an alignment that dlmalloc takes; the caller guarantees that the size is not 0.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if layout.size() >= LARGE_BYTES && layout.align() <= PAGE {
            // SAFETY: for this layout `alloc` returned a piece of `fresh`; the caller no longer
            // uses it.
            return unsafe { retire(address, layout.size()) };
        }
        // SAFETY: the caller guarantees an address that `alloc` returned for this layout:
        // dlmalloc's, as the layout is not large.
        self.with(|heap| unsafe { heap.free(address, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE_BYTES && layout.align() <= PAGE {
            return fresh(layout.size());
        }
        // SAFETY: a `Layout` has a size and an alignment that dlmalloc takes; the caller guarantees that the size is not 0.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }
}

/// Holds the allocator's lock across a fork, so that the child's copy is consistent.
pub(crate) fn lock_for_fork() {
    INTERNAL.0.acquire();
}

/// Unlocks the allocator after a fork, in parent and child.
///
/// # Safety
/// This thread called [`lock_for_fork`] before, or is a copy of the thread that did.
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: the caller guarantees that this thread acquired the lock in `lock_for_fork`, or is a
    // copy of the thread that did.
    unsafe { INTERNAL.0.release() };
}

/// Bytes before each object that C symbols hand out: its size and its alignment.
const HEADER: usize = 16;

/// `malloc` for the pager; the object is zeroed.
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    let align = align.max(HEADER);
    let Some(total) = size.checked_add(align) else {
        return std::ptr::null_mut();
    };
    let Ok(layout) = Layout::from_size_align(total, align) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the layout is not empty. The allocation has `align` bytes, at least a header, before
    // the object's `size` bytes.
    unsafe {
        let start = INTERNAL.alloc_zeroed(layout);
        if start.is_null() {
            return start;
        }
        let object = start.add(align);
        object.sub(HEADER).cast::<usize>().write(size);
        object.sub(HEADER / 2).cast::<usize>().write(align);
        object
    }
}

/// The requested size of an object of [`allocate`].
///
/// # Safety
/// The object must come from [`allocate`] and not be freed.
pub(crate) unsafe fn size_of_object(object: *mut u8) -> usize {
    // SAFETY: the caller guarantees an object of `allocate`, which wrote the header before it.
    unsafe { object.sub(HEADER).cast::<usize>().read() }
}

/// `free` of an object of [`allocate`].
///
/// # Safety
/// As [`size_of_object`]; the object is not used afterwards.
pub(crate) unsafe fn release(object: *mut u8) {
    // SAFETY: the caller guarantees an object of `allocate`: size and alignment before it give the
    // layout with which it was allocated.
    unsafe {
        let size = size_of_object(object);
        let align = object.sub(HEADER / 2).cast::<usize>().read();
        let layout = Layout::from_size_align_unchecked(size + align, align);
        INTERNAL.dealloc(object.sub(align), layout);
    }
}
