//! The operations on the pages of an address space: the contract of each backend.

use super::PageBuffer;
use flashvm_core::space::{Done, Mapping, Stop};
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

/// The operations on the pages of an address space.
///
/// # What holds for all operations
///
/// - A page is *there* in the region or in the shadow if it has contents in that place. It is never
///   there in both, except between a `copy` from the shadow and the `zap` of its source.
/// - A touch of a page that is not there, or a store to a protected page, becomes a fault, which the pager
///   resolves. Only these operations, and the program's changes of its own mappings, make a page come, go,
///   or change its protection.
/// - Operations on runs work from the first page on. They stop at the first page that they cannot process.
///   Pages before it stay done, and [`Done::pages`] counts them. If it is 0, [`Done::stop`] says why;
///   otherwise it is [`Stop::Again`], and a second call from the failing page on gives the reason.
/// - [`Stop::Again`] also means that a page is locked for the moment, or that the program is changing its
///   mappings. In handler mode every copy, move, protection and poisoning in the region stops so until the
///   kernel's report of that change is read; a move into the shadow does not.
/// - [`Stop::Missing`] and [`Stop::Invalid`]: the program has no such mapping, or the run reaches beyond
///   it. Then no page of a copy or a move is done, not even those within the mapping.
/// - [`Stop::Exiting`]: the process is ending. Nobody will ask for the page.
/// - The caller has locked the engine, so that no two operations work on one page at a time. Only
///   [`Self::copy_out`] and [`Self::is_zero`] of a page in the shadow need no lock.
///
/// # Panics
/// All operations panic for pages beyond the managed range.
pub(crate) trait Backend {
    /// Whether there is a shadow: pages can be moved, so a page on its way out is in the shadow, and every touch
    /// of it is a fault. Without a shadow such a page stays in the region, protected; then `Place::Shadow`,
    /// [`Self::shift`] and [`Self::is_zero`] must not be used.
    fn has_shadow(&self) -> bool;

    /// Maps copies of contents.
    ///
    /// *Before:* no page of the run is there in `place`; it may hold poisoned pages.
    /// *After:* the pages done are there with the contents. In the region their waiters are woken; with
    /// `protect` the next store to each page is a fault, without it no access is.
    /// *Stops:* [`Stop::Exists`] at a page that is there; it keeps its contents and its protection.
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done;

    /// Moves pages from the region into the shadow, where the program cannot touch them, or back.
    ///
    /// *Before:* the pages are there in the other place, and not in `to`; the program may load and store
    /// in the region.
    /// *After:* the pages done are there in `to` and nowhere else, with every store made before: none is
    /// lost. In the region they are not protected. Nobody is woken.
    /// *Stops:* [`Stop::Exists`] at a page that is at its destination, whether or not it is at its source; it
    /// keeps its contents. *Or this very call has moved it* (see [`Stop::Exists`]).
    /// [`Stop::Missing`] at a page that is in neither place;
    /// [`Stop::Busy`] at a page that is pinned, or shared after a fork; [`Stop::Invalid`] where the
    /// program may not store.
    fn shift(&self, to: Place, run: Run) -> Done;

    /// Moves a page to another page's address in the same place; otherwise as [`Self::shift`].
    /// [`Stop::Invalid`] without a shadow.
    fn relocate(&self, place: Place, from: PageId, to: PageId) -> Done;

    /// Protects each page of the run that is there in the region (`on`): its next store is a fault. Or ends the
    /// protection and wakes the threads that it stopped. Pages that are already in the wanted state stay so.
    ///
    /// *After an error:* pages before the failing one may have changed; the caller must expect both states.
    /// Nobody has been woken.
    fn protect(&self, run: Run, on: bool) -> Result<(), Stop>;

    /// Makes every touch of a page of the region fail with SIGBUS, until a `copy` or a `zap`, and wakes its waiters.
    ///
    /// *Before:* the page is not there.
    /// *After [`Stop::Exists`]:* the page is there, or was poisoned already, and is unchanged.
    fn poison(&self, page: PageId) -> Result<(), Stop>;

    /// Wakes the threads that wait for pages of the region; they repeat their access.
    fn wake(&self, run: Run);

    /// Throws pages away. Afterwards no page of the runs is there in `place`; poison and protection are gone.
    /// The runs may hold pages that are not there.
    ///
    /// # Errors
    /// Some pages may still be there. Trying again does not help.
    fn zap(&self, place: Place, runs: &[Run]) -> Result<(), Stop>;

    /// Whether a page is there. Does not touch it. May also be true of a poisoned page, or if the kernel does not
    /// answer.
    fn holds(&self, place: Place, page: PageId) -> bool;

    /// Ends the sharing of a page of the region with another process after a fork: this process gets its own copy.
    /// The protection stays. Returns false if the page is not there or the kernel refuses.
    fn unshare(&self, page: PageId) -> bool;

    /// Copies out a page that is on its way to flash: from the shadow, or without a shadow from the region.
    ///
    /// *Before:* the page is there. Without a shadow the engine is locked, so that nobody zaps the page before the call
    /// returns: reading an absent page could map one that the engine does not know of.
    ///
    /// # Errors
    /// The page cannot be read.
    ///
    /// # Safety
    /// In the shadow the page stays until the call returns, and nobody stores to it.
    unsafe fn copy_out(&self, page: PageId, into: &mut PageBuffer) -> Result<(), Stop>;

    /// Whether a page in the shadow has only zeros.
    ///
    /// # Safety
    /// As for [`Self::copy_out`].
    unsafe fn is_zero(&self, page: PageId) -> bool;

    /// The program's mapping that contains a page of the region.
    fn mapping(&self, page: PageId) -> Option<Mapping>;

    /// Changes the program's access rights to pages of the region: `PROT_*` bits. `None`: load and store.
    ///
    /// # Errors
    /// `Stop::Failed(ENOMEM)` if the process would have too many mappings.
    fn set_protection(&self, run: Run, protection: Option<u32>) -> Result<(), Stop>;
}
