//! The operations on the pages of an address space: the contract of each.

use super::{Done, Mapping, Stop};
use crate::event::Place;
use crate::ids::{PageId, Run};

/// The operations on the pages of an address space.
///
/// # What holds for all operations
///
/// - A page is *there* in the region or in the shadow if it has contents in that place. It is never
///   there in both, except between an [`Executor::copy`](super::Executor::copy) from the shadow and the [`Self::zap`] of
///   its source, which may come much later ([`Pages::is_stale`](super::Pages::is_stale)).
/// - A touch of a page that is not there, or a store to a protected page, becomes a fault, which the pager
///   resolves. Only these operations, copies, and the program's changes of its own mappings, make a page come, go,
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
/// - The caller has locked the engine, so that no two operations work on one page at a time.
///
/// # Panics
/// All operations panic for pages beyond the managed range.
pub trait AddressSpace {
    /// Whether there is a shadow: pages can be moved, so a page on its way out is in the shadow, and every touch
    /// of it is a fault. Without a shadow such a page stays in the region, protected; then `Place::Shadow` and
    /// [`Self::shift`] must not be used.
    fn has_shadow(&self) -> bool;

    /// Moves pages from the region into the shadow, where the program cannot touch them, or back.
    ///
    /// *Before:* the pages are there in the other place, and not in `to`; the program may load and store
    /// in the region, and region and shadow have the same rights.
    /// *After:* the pages done are there in `to` and nowhere else, with every store made before: none is
    /// lost. In the region they are not protected. Nobody is woken.
    /// *Stops:* [`Stop::Exists`] at a page that is at its destination, whether or not it is at its source; it
    /// keeps its contents. *Or this very call has moved it* (see [`Stop::Exists`]).
    /// [`Stop::Missing`] at a page that is in neither place;
    /// [`Stop::Busy`] at a page that is pinned, or shared after a fork; [`Stop::Invalid`] where the
    /// program may not store, or has other rights than the shadow ([`Self::open_to_moves`]).
    fn shift(&mut self, to: Place, run: Run) -> Done;

    /// Moves a page to another page's address in the same place; otherwise as [`Self::shift`].
    /// [`Stop::Invalid`] without a shadow, and where contents are bound to their page: they have to be copied.
    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done;

    /// Maps a huge page of zeros in the region: `first` is a multiple of [`HUGE_PAGES`](crate::HUGE_PAGES), and so many
    /// pages are filled. They are ordinary pages to all other operations.
    ///
    /// *Before:* none of the pages is there.
    /// *After:* the pages done are there, and nobody is woken. The kernel may have given them small frames.
    /// *Stops:* as for a copy. [`Stop::Invalid`] where there are no huge pages.
    fn zero_huge(&mut self, first: PageId) -> Done;

    /// Protects each page of the run that is there in the region (`on`): its next store is a fault. Or ends the
    /// protection and wakes the threads that it stopped. Pages that are already in the wanted state stay so.
    /// Not where nothing can stop stores ([`EngineConfig::protects`](crate::EngineConfig::protects)).
    ///
    /// # Errors
    /// Why the call stopped at a page. Pages before it may have changed; the caller must expect both states.
    /// Nobody has been woken.
    fn protect(&mut self, run: Run, on: bool) -> Result<(), Stop>;

    /// Makes every touch of a page of the region fail with SIGBUS, until a copy or a `zap`, and wakes its waiters.
    ///
    /// *Before:* the page is not there.
    ///
    /// # Errors
    /// [`Stop::Exists`]: the page is there, or was poisoned already, and is unchanged. Of a page that was poisoned
    /// already, an address space may also say that it is done. Or why else it could not.
    fn poison(&mut self, page: PageId) -> Result<(), Stop>;

    /// Wakes the threads that wait for pages of the region; they repeat their access.
    fn wake(&mut self, run: Run);

    /// Throws pages away. Afterwards no page of the runs is there in `place`; poison and protection are gone.
    /// The runs may hold pages that are not there.
    ///
    /// # Errors
    /// Some pages may still be there. Trying again does not help.
    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop>;

    /// Whether a page is there. Does not touch it. May also be true of a poisoned page, or if the kernel does not
    /// answer.
    fn holds(&self, place: Place, page: PageId) -> bool;

    /// [`Self::holds`] for the first `there.len()` pages from `first` on, with one answer of the kernel.
    fn held(&self, place: Place, first: PageId, there: &mut [bool]) {
        for (page, there) in (first.0..).map(PageId).zip(there) {
            *there = self.holds(place, page);
        }
    }

    /// Ends the sharing of a page of the region with another process after a fork: this process gets its own copy.
    /// The protection stays. Returns false if the page is not there or the kernel refuses.
    fn unshare(&mut self, page: PageId) -> bool;

    /// The program's mapping that contains a page of the region.
    fn mapping(&self, page: PageId) -> Option<Mapping>;

    /// Prepares a move of read-only or executable pages of one mapping into the shadow: the region
    /// gets `protection`, the program's rights there (`PROT_*` bits), with those to load and store, and the shadow gets
    /// the same. So no thread lacks a right meanwhile: it may be executing one of the pages.
    ///
    /// # Errors
    /// `Stop::Failed(ENOMEM)` if the process would have too many mappings.
    fn open_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop>;

    /// Gives pages of the region the program's rights back, which [`Self::open_to_moves`] has extended.
    ///
    /// # Errors
    /// As for [`Self::open_to_moves`].
    fn close_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop>;
}
