//! Managed memory for collections that take an allocator: `&Arena` for objects of any size, [`Flash`] for few large blocks.
//!
//! Unsafe code: the two implementations of the trait. Blocks stay where they are until they are given up: those of an arena as long as
//! it is borrowed, those of [`Flash`] as pages without an owner.
#![allow(unsafe_code, reason = "the trait of allocators is unsafe")]

use crate::Result;
use crate::arena::Arena;
use crate::pages::{Managed, PAGE, Pages};
use crate::preloaded::functions;
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::ptr::NonNull;

// SAFETY: an object of the arena stays until it is freed or the arena goes, which outlives the reference; all copies of the
// reference are the same arena.
unsafe impl Allocator for &Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Arena::allocate(self, layout).map_err(|_| AllocError)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller gives up a block of this arena. Its layout fits, and so has the same place.
        unsafe { self.free(block, layout) };
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as `deallocate`, unless the result is an error.
        unsafe { self.resize(block, old, new) }.map_err(|_| AllocError)
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as `deallocate`, unless the result is an error.
        unsafe { self.resize(block, old, new) }.map_err(|_| AllocError)
    }
}

/// An allocator of zero size that maps each block by itself: whole pages, which go back to the run when the block is freed, and move
/// when it grows. For few large blocks, such as the one of a vector or a map; small ones belong into an [`Arena`].
///
/// Threads may share it. To have one is to be in a run.
///
/// ```
/// use flashvm::allocator_api2::vec::Vec;
/// use flashvm::{Error, Flash};
///
/// # fn sample() -> flashvm::Result<()> {
/// let mut table = Vec::new_in(Flash::new()?);
/// table.extend(0..100_000);
/// assert_eq!(table[99_999], 99_999);
/// # Ok(())
/// # }
/// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash(());

impl Flash {
    /// The allocator of this run.
    ///
    /// # Errors
    /// [`Error::NotARun`](crate::Error::NotARun).
    ///
    /// ```
    /// assert_eq!(flashvm::Flash::new().is_ok(), flashvm::is_run());
    /// ```
    pub fn new() -> Result<Self> {
        functions()?;
        Ok(Self(()))
    }
}

/// The pages of a block that is not empty.
///
/// # Safety
/// `Flash` has returned the block, for a layout that fits `layout`, and its owner gives it up, unless the pages are forgotten.
unsafe fn pages_of(block: NonNull<u8>, layout: Layout) -> Pages<Managed> {
    // SAFETY: `allocate` and `resize` have given these pages up.
    unsafe { Pages::from_start(Managed, block, layout.size()) }
}

/// Hands pages out as a block.
fn block_of(pages: Pages<Managed>) -> NonNull<[u8]> {
    let bytes = pages.bytes();
    NonNull::slice_from_raw_parts(pages.into_start(), bytes)
}

impl Flash {
    /// Makes a block longer or shorter.
    ///
    /// # Safety
    /// As `deallocate` for `old`, unless the result is an error.
    unsafe fn resize(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if new.size() == 0 {
            let empty = self.allocate(new)?;
            // SAFETY: the caller gives the block up.
            unsafe { self.deallocate(block, old) };
            return Ok(empty);
        }
        if new.align() > PAGE {
            return Err(AllocError);
        }
        // SAFETY: the pages become a block again in either case.
        let mut pages = unsafe { pages_of(block, old) };
        let resized = pages.resize(new.size());
        let block = block_of(pages);
        resized.map(|()| block).map_err(|_| AllocError)
    }
}

// SAFETY: a block is pages that nobody else owns, until it is freed. All copies of the allocator are the same run.
unsafe impl Allocator for Flash {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.align() > PAGE {
            return Err(AllocError);
        }
        if layout.size() == 0 {
            return Ok(crate::arena::empty(layout));
        }
        let pages = Pages::map(Managed, layout.size()).map_err(|_| AllocError)?;
        Ok(block_of(pages))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller gives the block up.
            drop(unsafe { pages_of(block, layout) });
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as the caller says.
        unsafe { self.resize(block, old, new) }
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as the caller says.
        unsafe { self.resize(block, old, new) }
    }
}
