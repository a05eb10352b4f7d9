//! Small objects on small pages: Chameleon's allocator (Badam, Pai and Nellans, TRIOS 2013, 3.4).
//!
//! A *page* here is an SVMP: 4 KiB of addresses that use one range of 0.5 to 4 KiB. A request is
//! rounded up to a power of two, its *class*. An object of more than half the smallest page has a
//! page of its own; smaller objects share a smallest page, which is *divided*. Requests larger than
//! a page, or aligned to more than 512 bytes, are refused.
//!
//! Pages come from a [`PageSource`] in runs of one shape and return to it. The allocator never
//! touches them: its metadata is in `columns`, so that freeing a cold object reads nothing from
//! flash. A free object is in the cache of a thread (`caches`) or in a page that an arena lists
//! (`arenas`). `classes` has the arithmetic of sizes. Modules import each other in one direction:
//! `caches`, `arenas`, `columns`, `classes`.
//!
//! ```
//! use flashvm_malloc::testing::Pages;
//! use flashvm_malloc::{Allocator, Heap, Misuse};
//!
//! let pages = Pages::new(1024);
//! let (base, bytes) = pages.range();
//! let heap = Heap { base, bytes, smallest_page: 512, padding: 0, budget: 1 << 20 };
//! let allocator = Allocator::start(heap, Box::new(pages))?;
//! let object = allocator.allocate(100, 16).expect("there is room");
//! // SAFETY: an object of 128 bytes that nobody else uses, and that is not used after it is freed.
//! unsafe {
//!     object.write_bytes(1, 100);
//!     allocator.release(object.as_ptr())?;
//!     let again = allocator.release(object.as_ptr());
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

/// Most pages in a run.
pub const RUN_PAGES: usize = 64;

/// The source of pages.
///
/// # Safety
/// A page that is handed out lies in the [`Heap`] and is not handed out again before it is
/// returned. Until then its range is readable and writable memory that nobody else uses. The
/// methods do not call the allocator back.
pub unsafe trait PageSource: Debug + Send + Sync {
    /// Hands out pages of `bytes` each: 512, 1024, 2048 or 4096. `None`: there is no room.
    fn take(&self, bytes: usize) -> Option<Run>;

    /// Takes up to [`RUN_PAGES`] pages back, with any contents.
    ///
    /// # Safety
    /// The pages were handed out, and nobody uses them any more.
    unsafe fn give(&self, pages: &[u32]);
}

/// Pages handed out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first sector (of 512 bytes) of each page's range. A multiple of the page's size.
    pub first_sector: u32,
    /// The pages, numbered from the heap's base; at most [`RUN_PAGES`].
    pub pages: Vec<u32>,
}

/// The addresses and limits of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// The address of page 0: a multiple of 4096, and not 0.
    pub base: usize,
    /// Bytes of addresses, a multiple of 4096.
    pub bytes: usize,
    /// Bytes of the smallest page: 512, 1024, 2048 or 4096.
    pub smallest_page: usize,
    /// Bytes added to every request, for programs that write beyond the end of their objects.
    pub padding: usize,
    /// Bytes of RAM for all pages. Each class may keep budget / 64 in free pages, clamped to
    /// 256..=16384 pages.
    pub budget: usize,
}

/// Why an allocator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel gave no addresses for the columns.
    #[error("no address space for the heap of small pages: {0}")]
    Columns(#[source] rustix::io::Errno),
    /// The process has no keys of thread-specific data left.
    #[error("no thread-specific data for the heap of small pages")]
    NoKey,
}

/// What is wrong with an address passed as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Its page is not handed out.
    #[error("is not an allocated object")]
    NotAllocated,
    /// It is inside an object, or outside of its page's range.
    #[error("is not the start of an object")]
    NotAStart,
    /// The object is free. Concurrent double frees go undetected, as with the C library.
    #[error("is free already")]
    FreeAlready,
}

/// An address that was freed or queried, and is no object of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:#x} {misuse}")]
pub struct NotAnObject {
    /// The address.
    pub address: usize,
    /// What is wrong with it.
    pub misuse: Misuse,
}

/// Small objects for all threads of the process. It lives as long as the process, since threads use
/// it until they end.
#[derive(Debug)]
pub struct Allocator {
    base: usize,
    bytes: usize,
    padding: usize,
    caches: Caches,
}

impl Allocator {
    /// Starts an allocator over a heap.
    ///
    /// # Errors
    /// [`StartError`]: the process is out of addresses or keys.
    ///
    /// # Panics
    /// If the heap violates the constraints of [`Heap`].
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

    /// An object of at least `size` bytes, aligned to `align` (a power of two), with any contents.
    /// `None`: the request is refused (larger than a page, or aligned to more than 512 bytes), or
    /// there is no room.
    #[inline]
    #[must_use]
    pub fn allocate(&'static self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let bytes = size.checked_add(self.padding)?.max(align);
        if align > SECTOR || bytes > PAGE {
            return None;
        }
        let object = self.caches.allocate(Class::of(bytes))?;
        NonNull::new(object as *mut u8)
    }

    /// Frees an object.
    ///
    /// # Errors
    /// [`NotAnObject`] if the address is not that of an allocated object; nothing is changed then.
    ///
    /// # Safety
    /// If an object of the program begins here, the program does not use it any more: the
    /// next [`Allocator::allocate`] may hand it out again.
    #[inline]
    pub unsafe fn release(&'static self, object: *mut u8) -> Result<(), NotAnObject> {
        let address = object as usize;
        let wrong = |misuse| NotAnObject { address, misuse };
        self.caches.release(address).map_err(wrong)
    }

    /// Usable bytes of an object.
    ///
    /// # Errors
    /// [`NotAnObject`] if its page is not handed out.
    pub fn room(&self, object: *mut u8) -> Result<usize, NotAnObject> {
        let address = object as usize;
        let wrong = |misuse| NotAnObject { address, misuse };
        let columns = self.caches.arenas().columns();
        let class = columns.class_of(address).map_err(wrong)?;
        Ok(columns.classes().object_bytes(class) - self.padding)
    }

    /// Whether an object can stay in place at another size: it fits, and an object of 64 bytes or
    /// more wastes at most 3/4 of its bytes.
    ///
    /// # Errors
    /// As [`Allocator::room`].
    pub fn fits(&self, object: *mut u8, size: usize) -> Result<bool, NotAnObject> {
        let room = self.room(object)?;
        Ok(size <= room && (size > room / 4 || room < 64))
    }

    /// Before a fork: takes all locks, so that the child's copy is consistent.
    pub fn lock_for_fork(&self) {
        self.caches.arenas().lock_for_fork();
    }

    /// After a fork, in parent and child: releases all locks.
    ///
    /// # Safety
    /// The forking thread called [`Allocator::lock_for_fork`] before.
    pub unsafe fn unlock_after_fork(&self) {
        // SAFETY: the caller guarantees that this thread took these locks in `lock_for_fork`, or is
        // a copy of the thread that did.
        unsafe { self.caches.arenas().unlock_after_fork() }
    }

    /// In a forked child, unlocked: frees the cached objects of the parent's other threads.
    ///
    /// # Safety
    /// No other thread uses the allocator, now or later, unless it starts after this call.
    pub unsafe fn only_this_thread(&self) {
        // SAFETY: the caller guarantees that no other thread uses the allocator, and so the caches.
        unsafe { self.caches.only_this_thread() }
    }
}
