//! The operations on the contents of pages: the contract of each backend.

use flashvm_core::space::{AddressSpace, Done, Stop};
use flashvm_core::{PageId, Place, Run};

/// The source of a run's contents.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Zeros.
    Zeros,
    /// As many pages of this address space as the run has, from this one on. They have to be there.
    Page(Place, PageId),
    /// Memory of the pager's own, exactly as long as the run.
    Bytes(&'a [u8]),
}

/// An address space that threads of the pager share, and whose pages have bytes.
///
/// [`AddressSpace`] says what holds for all operations. Only [`Self::copy_out`] and [`Self::is_zero`] of a page in the
/// shadow need no lock.
pub(crate) trait Backend
where
    for<'a> &'a Self: AddressSpace,
{
    /// Maps copies of contents, as [`Executor::copy`](flashvm_core::space::Executor::copy) does.
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done;

    /// Whether pages in the shadow can be written to flash from their addresses there. Otherwise [`Self::copy_out`]
    /// copies them first.
    fn writes_in_place(&self) -> bool;

    /// Copies out pages that are on their way to flash: from the shadow, or without a shadow from the region.
    ///
    /// *Before:* the pages are there, and `into` is as long as the run. Without a shadow the engine is locked, so that nobody zaps a page before the call
    /// returns: reading an absent page could map one that the engine does not know of.
    ///
    /// # Errors
    /// A page cannot be read.
    ///
    /// # Safety
    /// In the shadow the pages stay until the call returns. If they are written in place, nobody stores to them.
    unsafe fn copy_out(&self, run: Run, into: &mut [u8]) -> Result<(), Stop>;

    /// Whether a page in the shadow has only zeros. Not without a shadow.
    ///
    /// # Safety
    /// As for [`Self::copy_out`].
    unsafe fn is_zero(&self, page: PageId) -> bool;
}
