//! The address space of a process: a *region* that the program sees, and a *shadow* of it that only
//! the pager sees.
//!
//! [`AddressSpace`] is what a kernel does with pages and what it may answer, partial success
//! included. [`Placement`] carries out the engine's memory actions on it, and decides what each
//! answer means. The live pager has the kernel behind the trait; the simulator a model that
//! misbehaves by a seed, so that every answer is met in a test.
//!
//! # Invariants
//!
//! - A page of managed memory has its contents in one place: region, shadow, flash, or nowhere (zeros).
//! - Only the pager, with the engine locked, puts pages into region or shadow and takes them away.
//!   The program can only give pages up, and each way of doing so is reported or counts as zeros.
//! - So two copies of a page, or a copy where the engine has none, is a bug of the pager or the
//!   kernel. [`Placement`] never guesses which copy is right: it calls [`AddressSpace::fail`].

mod changes;
mod pins;
mod placement;
mod trace;

pub use changes::{Changes, Range};
pub use pins::PinnedRanges;
pub use placement::{Host, Pages, Placement};
pub use trace::{Entry, Trace};

use crate::event::Place;
use crate::ids::{IoId, PageId};

/// Where the contents of a page come from that is put into an address space.
#[derive(Debug)]
pub enum Contents<'a, K> {
    /// Zeros.
    Zeros,
    /// Its own copy in the shadow.
    Shadow,
    /// Pages of a read that has just ended, from this index on.
    Read(IoId, u32),
    /// What [`AddressSpace::keep`] kept of a read, without its first so many pages.
    Kept(&'a K, u32),
}

/// How far a call came: pages done from the start of its run, and why it stopped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Pages that the kernel reports as done. It may have done more: see [`Stop::Exists`].
    pub pages: u32,
    /// Why it did not do all of the run; `None`: it did.
    pub stop: Option<Stop>,
}

impl Done {
    /// The whole run is done.
    #[must_use]
    pub fn all(pages: u32) -> Self {
        Self { pages, stop: None }
    }

    /// It stopped after so many pages.
    #[must_use]
    pub fn stopped(pages: u32, stop: Stop) -> Self {
        Self {
            pages,
            stop: Some(stop),
        }
    }
}

/// Why a call stopped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `EAGAIN`: the program is changing its mappings, or the page is locked for the moment.
    Again,
    /// `EEXIST`: there is a page at the destination.
    ///
    /// Of a move this may be said of a page that this very call has moved: Linux 6.18 keeps the
    /// `EAGAIN` of an earlier try, tries again although the page has been moved, and finds it at
    /// the destination ("userfaultfd: reset err to be 0 when move_pages_ptes succeeded", August 2026).
    Exists,
    /// `ENOENT`: there is no page at the source, or for a copy no mapping at the destination.
    Missing,
    /// `EINVAL`: the run reaches beyond a mapping, or the mapping may not be stored to.
    Invalid,
    /// `EBUSY`: the page is pinned, or shared with another process after a fork.
    Busy,
    /// `ESRCH`: the process is exiting.
    Exiting,
    /// Another error number.
    Failed(i32),
}

/// The program's mapping around a page, from the page on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Pages from the page to the end of the mapping.
    pub pages: u32,
    /// What the program may do there, as `PROT_*` bits.
    pub protection: u32,
    /// It may load and store there.
    pub writable: bool,
}

/// What can be done with the pages of an address space.
///
/// Calls on runs work from the first page on and stop at the first page that they cannot do; what
/// they have done before stays done.
pub trait AddressSpace {
    /// Contents of a read, kept beyond its end.
    type Kept;

    /// Whether there is a shadow. Without one the kernel cannot move pages: what is on its way out
    /// stays in the region, write-protected.
    fn has_shadow(&self) -> bool;

    /// Puts copies of contents where no pages are. In the region this wakes whoever waits for
    /// them; `protect` stops the first store to each.
    fn copy(
        &mut self,
        place: Place,
        first: PageId,
        count: u32,
        from: &Contents<'_, Self::Kept>,
        protect: bool,
    ) -> Done;

    /// Moves pages from the region into the shadow, or back; back they are writable. The
    /// destination must hold none.
    fn shift(&mut self, to: Place, first: PageId, count: u32) -> Done;

    /// Moves one page to another page's address, in the region or in the shadow.
    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done;

    /// Copies one page to another page's address, in the region or in the shadow; `zeros` in its stead.
    fn relocate_copy(
        &mut self,
        place: Place,
        from: PageId,
        to: PageId,
        protect: bool,
        zeros: bool,
    ) -> Done;

    /// Stops the next store to each page in the region, or no longer and wakes who was stopped.
    ///
    /// # Errors
    /// Why nothing changed.
    fn protect(&mut self, first: PageId, count: u32, on: bool) -> Result<(), Stop>;

    /// Lets every touch of an absent page in the region fail, and wakes.
    ///
    /// # Errors
    /// Why it does not.
    fn poison(&mut self, page: PageId) -> Result<(), Stop>;

    /// Wakes whoever waits for pages of the region.
    fn wake(&mut self, first: PageId, count: u32);

    /// Frees the frames of runs of pages.
    fn drop_runs(&mut self, place: Place, runs: &[(PageId, u32)]);

    /// Whether there is a page. Touches nothing.
    fn holds(&self, place: Place, page: PageId) -> bool;

    /// Makes a page in the region this process's own that is shared after a fork. Whether it could.
    fn unshare(&mut self, page: PageId) -> bool;

    /// These pages have left the frames that they shared.
    fn leave_frames(&mut self, first: PageId, count: u32);

    /// The program's mapping around a page.
    fn mapping(&self, page: PageId) -> Option<Mapping>;

    /// Changes what the program may do with pages. `None`: load and store.
    ///
    /// # Errors
    /// Why it did not.
    fn set_protection(
        &mut self,
        first: PageId,
        count: u32,
        protection: Option<u32>,
    ) -> Result<(), Stop>;

    /// Keeps pages of a read that has just ended.
    fn keep(&self, io: IoId, index: u32, count: u32) -> Self::Kept;

    /// Some of the kept pages, by their own index.
    fn part(kept: &Self::Kept, index: u32, count: u32) -> Self::Kept;

    /// The address of a page in the region.
    fn address(&self, page: PageId) -> usize;

    /// The contents of a page are lost for good: tells the user.
    fn tell_lost(&mut self, page: PageId);

    /// Ends the process: it must not read what may be wrong.
    fn fail(&self, why: &str) -> !;
}
