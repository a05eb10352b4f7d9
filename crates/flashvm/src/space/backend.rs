//! What can be done with the pages of an address space: the contract that each backend keeps.

use super::PageBuffer;
use flashvm_core::space::{Done, Mapping, Stop};
use flashvm_core::{PageId, Place, Run};

/// Where contents come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Zeros.
    Zeros,
    /// Pages of this address space, from this one on. They have to be there.
    Page(Place, PageId),
    /// Memory of the pager's own, as long as the run.
    Bytes(&'a [u8]),
}

/// What can be done with the pages of an address space.
///
/// # What holds for all operations
///
/// - A page is *there* in the region or in the shadow if it has contents in that place. It is never
///   there in both, except between a `copy` out of the shadow and the `zap` of its source.
/// - A touch of a page that is not there, and a store to one that is protected, becomes a fault of the
///   pager's. Nothing but these operations, and what the program does to its own mappings, makes a
///   page come, go, or change its protection.
/// - Operations on runs work from the first page on. They stop at the first page that they cannot do;
///   what they did before stays done, and [`Done::pages`] counts it. Only if that is zero does [`Done::stop`]
///   say why; otherwise it is [`Stop::Again`], and a second call from that page on gives the reason.
/// - [`Stop::Again`] also means that a page is locked for the moment, or that the program is changing its
///   mappings. In handler mode everything that reaches the region is put off until the kernel's report of
///   that change is read; a move into the shadow is not.
/// - [`Stop::Missing`] and [`Stop::Invalid`]: the program has no such mapping, or the run reaches beyond
///   it. Then nothing of a copy or a move is done, not even what lies within.
/// - [`Stop::Exiting`]: the process is ending. Nobody will ask for the page.
/// - The caller has locked the engine, so that no two operations work on one page at a time.
///
/// # Panics
/// All operations panic for pages beyond the managed range.
pub(crate) trait Backend {
    /// Whether pages can be moved, so that a page on its way out is in the shadow and every touch of it
    /// is a fault. Without a shadow it stays in the region, protected, and `Place::Shadow`,
    /// [`Self::shift`] and [`Self::is_zero`] must not be asked for.
    fn has_shadow(&self) -> bool;

    /// Maps copies of contents.
    ///
    /// *Before:* no page of the run is there in `place`. Poisoned ones may be.
    /// *After:* the pages done are there with the contents. In the region whoever waits for them goes on,
    /// and with `protect` the next store to each is a fault; without, there is none.
    /// *Stops:* [`Stop::Exists`] at a page that is there; it keeps its contents and its protection.
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done;

    /// Takes pages away from the program, into the shadow, or takes them back into the region.
    ///
    /// *Before:* the pages are there in the other place, and not in `to`; the program may load and store
    /// there.
    /// *After:* the pages done are there in `to` and nowhere else, with the contents of their last store:
    /// no store falls in between. In the region they are not protected. Nobody is woken.
    /// *Stops:* [`Stop::Exists`] at a page that is at its destination, and at its source or not; it
    /// keeps its contents. *Or this very call has moved it* (see [`Stop::Exists`]).
    /// [`Stop::Missing`] at one that is in neither place;
    /// [`Stop::Busy`] at one that is pinned, or shared after a fork; [`Stop::Invalid`] where the
    /// program may not store.
    fn shift(&self, to: Place, run: Run) -> Done;

    /// Moves a page to another page's address, as [`Self::shift`] does between two places.
    /// [`Stop::Invalid`] without a shadow.
    fn relocate(&self, place: Place, from: PageId, to: PageId) -> Done;

    /// Stops the next store to each page that is there in the region, or no longer, and then wakes whoever was
    /// stopped. A page that is as it should be stays so.
    ///
    /// *After:* of an error, pages before the one that could not be done may have changed: stores to
    /// them are stopped that nobody wanted stopped, or go on. None has been woken.
    fn protect(&self, run: Run, on: bool) -> Result<(), Stop>;

    /// Lets every touch of a page of the region fail with SIGBUS, and wakes. A `copy` ends that.
    ///
    /// *Before:* the page is not there.
    /// *After:* of [`Stop::Exists`], it is there as it was.
    fn poison(&self, page: PageId) -> Result<(), Stop>;

    /// Wakes whoever waits for pages of the region. They try again.
    fn wake(&self, run: Run);

    /// Throws pages away. No page of the runs is there in `place` afterwards; poison and protection are gone.
    /// Pages that are not there stay so.
    ///
    /// # Errors
    /// Some may be there still. There is nothing to try again.
    fn zap(&self, place: Place, runs: &[Run]) -> Result<(), Stop>;

    /// Whether a page is there. It is not touched. A poisoned one may seem to be.
    fn holds(&self, place: Place, page: PageId) -> bool;

    /// Makes a page of the region this process' own that it shares with another after a fork; its
    /// protection stays. Whether it is there and could be.
    fn unshare(&self, page: PageId) -> bool;

    /// Copies a page out that is on its way to flash: from the shadow, or from the region without one.
    ///
    /// *Before:* it is there. In the shadow nobody stores to it. Without a shadow the engine is locked, so
    /// that it is not given up meanwhile: a look at a page that is gone could bring one back.
    ///
    /// # Errors
    /// The page cannot be read.
    fn copy_out(&self, page: PageId, into: &mut PageBuffer) -> Result<(), Stop>;

    /// Whether a page in the shadow has only zeros. *Before:* as [`Self::copy_out`].
    fn is_zero(&self, page: PageId) -> bool;

    /// The program's mapping around a page of the region.
    fn mapping(&self, page: PageId) -> Option<Mapping>;

    /// Changes what the program may do with pages of the region, as `PROT_*` bits. `None`: load and store.
    ///
    /// # Errors
    /// `Stop::Failed(ENOMEM)` where that makes too many mappings.
    fn set_protection(&self, run: Run, protection: Option<u32>) -> Result<(), Stop>;
}
