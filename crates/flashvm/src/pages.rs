//! Owned pages: mapped, resized and unmapped in one place, over a [`Source`] that is the run's pager or, in tests, ordinary memory.
//!
//! Unsafe code: [`Pages`] alone calls a source. It has one range, which it unmaps once; the range changes in `resize` alone, which
//! borrows the pages exclusively.
#![allow(unsafe_code, reason = "pages are mapped and unmapped by address")]

use crate::preloaded::functions;
use crate::{Error, Result};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Where pages come from.
///
/// # Safety
/// `map` and `remap` return the start of readable and writable memory of so many bytes, aligned to a page, that nobody else uses until
/// it is unmapped. It contains zeros, after `remap` beyond the contents that it had. A copy of a source is the same source.
pub(crate) unsafe trait Source: Copy {
    /// Memory of `bytes`, a multiple of a page and not 0.
    fn map(self, bytes: usize) -> Result<NonNull<u8>>;

    /// Gives memory back.
    ///
    /// # Safety
    /// The source has returned this range, and nobody uses it any more.
    unsafe fn unmap(self, start: NonNull<u8>, bytes: usize);

    /// Makes memory longer or shorter: its first bytes stay, perhaps at another address. After an error all is as before.
    ///
    /// # Safety
    /// As `unmap`; `new_bytes` is a multiple of a page and not 0.
    unsafe fn remap(
        self,
        start: NonNull<u8>,
        bytes: usize,
        new_bytes: usize,
    ) -> Result<NonNull<u8>>;
}

/// The pager of this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Managed;

// SAFETY: the pager maps fresh pages of zeros, and moves pages with their contents.
unsafe impl Source for Managed {
    fn map(self, bytes: usize) -> Result<NonNull<u8>> {
        let start = (functions()?.map)(bytes);
        NonNull::new(start.cast())
            .ok_or_else(|| Error::of_mapping(bytes, io::Error::last_os_error()))
    }

    unsafe fn unmap(self, start: NonNull<u8>, bytes: usize) {
        if let Ok(functions) = functions() {
            // SAFETY: the caller gives the range up. If the pager keeps it all the same, nobody else gets it.
            unsafe { (functions.unmap)(start.as_ptr().cast(), bytes) };
        }
    }

    unsafe fn remap(
        self,
        start: NonNull<u8>,
        bytes: usize,
        new_bytes: usize,
    ) -> Result<NonNull<u8>> {
        let may_move = libc::MREMAP_MAYMOVE;
        // SAFETY: the caller gives the old range up, and nothing else is overwritten. The preloaded object answers the call.
        let moved = unsafe { libc::mremap(start.as_ptr().cast(), bytes, new_bytes, may_move) };
        if moved == libc::MAP_FAILED {
            return Err(Error::of_mapping(new_bytes, io::Error::last_os_error()));
        }
        NonNull::new(moved.cast()).ok_or(Error::NoRoom { bytes: new_bytes })
    }
}

/// `bytes` rounded up to whole pages.
pub(crate) fn whole_pages(bytes: usize) -> Result<usize> {
    let rounded = bytes.checked_next_multiple_of(PAGE);
    let rounded = rounded.filter(|&rounded| rounded <= isize::MAX as usize);
    rounded.ok_or(Error::NoRoom { bytes })
}

/// Pages of one owner, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pages<S: Source> {
    start: NonNull<u8>,
    /// A multiple of a page, not 0.
    bytes: usize,
    source: S,
}

// SAFETY: pages are memory of one owner. Nothing about them belongs to a thread.
unsafe impl<S: Source + Send> Send for Pages<S> {}
// SAFETY: a shared reference gives the address and the size alone.
unsafe impl<S: Source + Sync> Sync for Pages<S> {}

impl<S: Source> Pages<S> {
    /// At least `bytes`, which are not 0: zeros.
    pub(crate) fn map(source: S, bytes: usize) -> Result<Self> {
        let bytes = whole_pages(bytes)?;
        let start = source.map(bytes)?;
        Ok(Self {
            start,
            bytes,
            source,
        })
    }

    /// What [`Pages::into_start`] gave up.
    ///
    /// # Safety
    /// `start` is from there, once, and the pages had `bytes` when rounded up.
    pub(crate) unsafe fn from_start(source: S, start: NonNull<u8>, bytes: usize) -> Self {
        Self {
            start,
            bytes: bytes.next_multiple_of(PAGE),
            source,
        }
    }

    /// The pages without their owner: nobody unmaps them.
    pub(crate) fn into_start(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the size to at least `bytes`, which are not 0. Contents stay, at another address perhaps.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<()> {
        let bytes = whole_pages(bytes)?;
        if bytes != self.bytes {
            // SAFETY: these are the source's pages, borrowed exclusively.
            self.start = unsafe { self.source.remap(self.start, self.bytes, bytes)? };
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl<S: Source> Drop for Pages<S> {
    fn drop(&mut self) {
        // SAFETY: the owner goes, and with it all who borrow from it.
        unsafe { self.source.unmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pages in ordinary memory, with a limit.

    use super::{PAGE, Source};
    use crate::{Error, Result};
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::cell::Cell;
    use std::ptr::NonNull;

    /// Room for `limit` bytes.
    #[derive(Debug)]
    pub(crate) struct Memory {
        pub(crate) limit: Cell<usize>,
        pub(crate) mapped: Cell<usize>,
    }

    impl Memory {
        pub(crate) fn new(limit: usize) -> Self {
            let (limit, mapped) = (Cell::new(limit), Cell::new(0));
            Self { limit, mapped }
        }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE).expect("whole pages")
    }

    // SAFETY: the allocator's memory is fresh, aligned and of zeros.
    unsafe impl Source for &Memory {
        fn map(self, bytes: usize) -> Result<NonNull<u8>> {
            assert!(bytes > 0 && bytes.is_multiple_of(PAGE), "{bytes}");
            let mapped = self.mapped.get() + bytes;
            if mapped > self.limit.get() {
                return Err(Error::NoRoom { bytes });
            }
            self.mapped.set(mapped);
            // SAFETY: the size is not 0.
            let start = unsafe { alloc_zeroed(layout(bytes)) };
            Ok(NonNull::new(start).expect("the test has memory"))
        }

        unsafe fn unmap(self, start: NonNull<u8>, bytes: usize) {
            self.mapped.set(self.mapped.get() - bytes);
            // SAFETY: `map` has returned it with this layout.
            unsafe { dealloc(start.as_ptr(), layout(bytes)) };
        }

        unsafe fn remap(
            self,
            start: NonNull<u8>,
            bytes: usize,
            new_bytes: usize,
        ) -> Result<NonNull<u8>> {
            if self.mapped.get() - bytes + new_bytes > self.limit.get() {
                return Err(Error::NoRoom { bytes: new_bytes });
            }
            self.mapped.set(self.mapped.get() - bytes);
            let new = self.map(new_bytes)?;
            // SAFETY: both have the bytes; the old ones go.
            unsafe {
                new.copy_from_nonoverlapping(start, bytes.min(new_bytes));
                dealloc(start.as_ptr(), layout(bytes));
            }
            Ok(new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Memory;
    use super::*;

    #[test]
    fn sizes_are_whole_pages_and_overflow_is_no_room() {
        assert_eq!(whole_pages(1).expect("a page"), PAGE);
        assert_eq!(whole_pages(PAGE).expect("a page"), PAGE);
        for bytes in [usize::MAX, isize::MAX as usize] {
            let error = whole_pages(bytes).expect_err("too many");
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        }
    }

    #[test]
    fn pages_keep_their_contents_and_go_with_their_owner() {
        let memory = Memory::new(4 * PAGE);
        let mut pages = Pages::map(&memory, 1).expect("room");
        // SAFETY: a page of this test's own.
        unsafe { pages.start().write(7) };
        pages.resize(2 * PAGE + 1).expect("room");
        // SAFETY: three pages of this test's own.
        let found = unsafe { (pages.start().read(), pages.start().add(2 * PAGE).read()) };
        assert_eq!(found, (7, 0));
        assert!(matches!(pages.resize(5 * PAGE), Err(Error::NoRoom { .. })));
        assert_eq!((pages.bytes(), memory.mapped.get()), (3 * PAGE, 3 * PAGE));
        drop(pages);
        assert_eq!(memory.mapped.get(), 0);
    }
}
