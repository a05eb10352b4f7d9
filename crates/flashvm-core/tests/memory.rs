//! The memory of a policy, counted by the allocator: columns, histories, everything.
//!
//! A test binary of its own, since the count covers the whole process.

use flashvm_core::policy::{BLOCK_PAGES, Costs, PolicyContext, PolicySpec, Proposal};
use flashvm_core::{Access, PageId, PolicyKind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bound on the bytes of a policy's state per page.
const BYTES_MAX: usize = 40;
const PAGES: u32 = 1 << 16;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// Bytes allocated without `alloc_zeroed`: whoever allocates them writes to them.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches only static
// atomics, and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        WRITTEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: `layout` is passed on unchanged: `alloc` may be called with a size above zero only.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `at` came from `alloc` above with this layout, so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn policies_take_little_memory() {
    no_policy_takes_more_than_forty_bytes_a_page();
    a_new_policy_writes_to_no_column();
}

/// A live pager makes its policy for all pages of its region, 2^27, in each process that starts.
fn a_new_policy_writes_to_no_column() {
    for info in PolicyKind::ALL {
        if info.kind.is_offline() {
            continue;
        }
        let before = WRITTEN.load(Ordering::Relaxed);
        let policy = PolicySpec::new(info.kind).build(&PolicyContext::of_pages(1 << 24), PAGES);
        let written = WRITTEN.load(Ordering::Relaxed) - before;
        drop(policy);
        assert!(written < 1 << 16, "{}: {written} bytes", info.name);
    }
}

fn no_policy_takes_more_than_forty_bytes_a_page() {
    // Pages side by side, and the worst case: each in a block of its own.
    let apart = (0..PAGES).map(|page| page * BLOCK_PAGES).collect();
    for places in [None, Some(apart)] {
        for info in PolicyKind::ALL {
            let context = PolicyContext {
                places: places.clone(),
                ..PolicyContext::of_pages(PAGES)
            };
            let before = ALLOCATED.load(Ordering::Relaxed);
            let mut policy = PolicySpec::new(info.kind).build(&context, PAGES);
            for page in (0..PAGES).map(PageId) {
                policy.foresee(u64::from(page.0));
                policy.wanted(page, Access::Write, Costs::NAND.read);
                policy.inserted(page, Some(Access::Write));
                policy.dirtied(page);
            }
            let mut victims = 0;
            while victims < PAGES / 2 {
                victims += u32::from(matches!(policy.propose(), Some(Proposal::Evict(_))));
            }
            let bytes = ALLOCATED.load(Ordering::Relaxed) - before;
            let a_page = bytes.div_ceil(PAGES as usize);
            assert!(
                a_page <= BYTES_MAX,
                "{}: {a_page} bytes per page",
                info.name
            );
        }
    }
}
