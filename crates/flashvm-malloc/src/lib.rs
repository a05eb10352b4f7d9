//! Small blocks on small pages: Chameleon's allocator (Badam, Pai and Nellans, TRIOS 2013, 3.4).
//!
//! A *page* here is an SVMP: 4 KiB of addresses, of which one range of 0.5 to 4 KiB is used. A request is rounded up to
//! a power of two, its *class*. Of more than half the smallest page it gets a page of its own; smaller ones are packed
//! into a smallest page, which is *divided*. Larger requests, and those aligned to more than 512 bytes, are not served
//! here.
//!
//! Pages come from a [`PageSource`] in runs of one shape and go back to it. The allocator never touches them: all that
//! it knows lies in `columns`, so that freeing a cold block brings nothing in. A block is free in one of two places: in
//! the cache of a thread (`caches`), or in a page that an arena lists (`arenas`). `classes` has the arithmetic of
//! sizes. Modules import each other in one direction: `caches`, `arenas`, `columns`, `classes`.
//!
//! ```
//! use flashvm_malloc::testing::Pages;
//! use flashvm_malloc::{Allocator, Heap, Misuse};
//!
//! let pages = Pages::new(1024);
//! let (base, bytes) = pages.range();
//! let heap = Heap { base, bytes, smallest_page: 512, padding: 0, budget: 1 << 20 };
//! let allocator = Allocator::start(heap, Box::new(pages))?;
//! let block = allocator.allocate(100, 16).expect("there is room");
//! // SAFETY: a block of 128 bytes that nobody else has, and that is not used after it is given back.
//! unsafe {
//!     block.write_bytes(1, 100);
//!     allocator.release(block.as_ptr())?;
//!     let again = allocator.release(block.as_ptr());
//!     assert_eq!(again.unwrap_err().misuse, Misuse::FreeAlready);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arenas;
mod caches;
mod classes;
mod columns;
mod lock;
pub mod testing;

pub use lock::ForkLock;

use arenas::Arenas;
use caches::Caches;
use classes::{Class, Classes, PAGE, SECTOR};
use columns::Columns;
use std::fmt::Debug;
use std::ptr::NonNull;

/// Pages that are handed out at once, at most.
pub const RUN_PAGES: usize = 64;

/// Where pages come from, and where they go.
///
/// # Safety
/// A page that is handed out lies in the [`Heap`] and is not handed out again before it is given back. Its range is memory
/// that can be read and written, and that nobody else uses meanwhile. The methods do not call the allocator back.
pub unsafe trait PageSource: Debug + Send + Sync {
    /// Hands out pages of `bytes` each: 512, 1024, 2048 or 4096. `None`: there is no room.
    fn take(&self, bytes: usize) -> Option<Run>;

    /// Takes up to [`RUN_PAGES`] pages back, whatever is in them.
    ///
    /// # Safety
    /// They were handed out, and nobody uses them any more.
    unsafe fn give(&self, pages: &[u32]);
}

/// Pages that are handed out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where in its 4 KiB of addresses each page begins, in sectors of 512 bytes. It is a multiple of the page's
    /// size.
    pub first_sector: u32,
    /// The pages, by number from the heap's base on; [`RUN_PAGES`] at most.
    pub pages: Vec<u32>,
}

/// What an allocator is put over.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Where page 0 lies: a multiple of 4096, and not 0.
    pub base: usize,
    /// Bytes of addresses, a multiple of 4096.
    pub bytes: usize,
    /// Bytes of the smallest page: 512, 1024, 2048 or 4096.
    pub smallest_page: usize,
    /// Bytes that are added to every request, for programs that overrun theirs.
    pub padding: usize,
    /// Bytes of RAM for all pages: a 64th of it may be kept in free pages of each class.
    pub budget: usize,
}

/// Why there is no allocator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel gave no addresses for the columns.
    #[error("no address space for the heap of small pages: {0}")]
    Columns(#[source] rustix::io::Errno),
    /// The process has no keys of thread-specific data left.
    #[error("no thread-specific data for the heap of small pages")]
    NoKey,
}

/// What is wrong with an address that is said to be a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Its page is not handed out.
    #[error("is not an allocated block")]
    NotAllocated,
    /// It lies inside a block, or outside of its page's range.
    #[error("is not the start of a block")]
    NotAStart,
    /// The block is free. Two threads that free a block at the same moment go undetected, as with the C library.
    #[error("is free already")]
    FreeAlready,
}

/// An address that was given back, or asked about, and is no block of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:#x} {misuse}")]
pub struct NotABlock {
    /// The address.
    pub address: usize,
    /// What is wrong with it.
    pub misuse: Misuse,
}

/// Small blocks for all threads of the process. It lives as long as the process does, as threads come back to it when
/// they end.
#[derive(Debug)]
pub struct Allocator {
    base: usize,
    bytes: usize,
    padding: usize,
    caches: Caches,
}

impl Allocator {
    /// Puts an allocator over a heap.
    ///
    /// # Errors
    /// [`StartError`]: the process is out of addresses or keys.
    ///
    /// # Panics
    /// If the heap is not as [`Heap`] says.
    pub fn start(heap: Heap, source: Box<dyn PageSource>) -> Result<&'static Self, StartError> {
        let Heap { base, bytes, .. } = heap;
        assert!(
            base != 0 && base.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE),
            "{heap:?}"
        );
        let classes = Classes::new(heap.smallest_page);
        let columns = Columns::new(base, bytes, classes).map_err(StartError::Columns)?;
        let arenas = Arenas::new(columns, source, heap.budget);
        Ok(Box::leak(Box::new(Self {
            base,
            bytes,
            padding: heap.padding,
            caches: Caches::new(arenas).ok_or(StartError::NoKey)?,
        })))
    }

    /// Whether an address is one of the heap's.
    #[inline]
    #[must_use]
    pub fn owns(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    /// A block of at least `size` bytes, aligned to `align` (a power of two), with any contents. `None`: such requests
    /// are not served here, or there is no room.
    #[inline]
    #[must_use]
    pub fn allocate(&'static self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let bytes = size.checked_add(self.padding)?.max(align);
        if align > SECTOR || bytes > PAGE {
            return None;
        }
        let block = self.caches.allocate(Class::of(bytes))?;
        NonNull::new(block as *mut u8)
    }

    /// Takes a block back.
    ///
    /// # Errors
    /// [`NotABlock`]: nothing was changed.
    ///
    /// # Safety
    /// If the program has a block that begins here, it does not use that any more: the next [`Allocator::allocate`]
    /// may give it to somebody else.
    #[inline]
    pub unsafe fn release(&'static self, block: *mut u8) -> Result<(), NotABlock> {
        let address = block as usize;
        let wrong = |misuse| NotABlock { address, misuse };
        self.caches.release(address).map_err(wrong)
    }

    /// Bytes that a block has room for.
    ///
    /// # Errors
    /// [`NotABlock`] if its page is not handed out.
    pub fn room(&self, block: *mut u8) -> Result<usize, NotABlock> {
        let address = block as usize;
        let wrong = |misuse| NotABlock { address, misuse };
        let columns = self.caches.arenas().columns();
        let class = columns.class_of(address).map_err(wrong)?;
        Ok(columns.classes().block_bytes(class) - self.padding)
    }

    /// Whether a block can stay where it is at another size: it fits, and no more than three quarters of a block of 64
    /// bytes or more are wasted.
    ///
    /// # Errors
    /// As [`Allocator::room`].
    pub fn fits(&self, block: *mut u8, size: usize) -> Result<bool, NotABlock> {
        let room = self.room(block)?;
        Ok(size <= room && (size > room / 4 || room < 64))
    }

    /// Before a fork: takes all locks, so that the child's copy is whole.
    pub fn lock_for_fork(&self) {
        self.caches.arenas().lock_for_fork();
    }

    /// After a fork, in parent and child: releases all locks.
    ///
    /// # Safety
    /// The thread that forked called [`Allocator::lock_for_fork`] before.
    pub unsafe fn unlock_after_fork(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.caches.arenas().unlock_after_fork() }
    }

    /// In a forked child, unlocked: frees what the parent's other threads had in their caches.
    ///
    /// # Safety
    /// No thread but the caller uses the allocator, now or later, unless it starts after this call.
    pub unsafe fn only_this_thread(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.caches.only_this_thread() }
    }
}
