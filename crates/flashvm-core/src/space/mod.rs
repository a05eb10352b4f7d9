//! The address space of a process: a *region* that the program sees, and its *shadow*, which only
//! the pager sees.
//!
//! [`AddressSpace`] is what a kernel does with pages and how it may answer, including partial
//! success. [`Placement`] carries out the engine's memory actions on it, and interprets the
//! answers. The live pager implements the trait with kernel calls; the simulator with a model that
//! misbehaves by a seed, so that tests meet every answer.
//!
//! # Invariants
//!
//! - A managed page has its contents in one place: region, shadow, flash, or nowhere (zeros).
//! - Only the pager, with the engine locked, puts pages into region or shadow and removes them. The
//!   program can only zap pages, and every zap is reported or counts as zeros.
//! - So a second copy of a page, or a copy where the engine has none, is a bug of the pager or the
//!   kernel. [`Placement`] never guesses which copy is right: it calls [`AddressSpace::fail`].

mod changes;
mod pins;
mod placement;
mod trace;

pub use changes::{Changes, Range};
pub use pins::PinnedRanges;
pub use placement::{Host, Pages, Placement};
pub use trace::{Entry, Trace};

use crate::event::{Packed, Place};
use crate::ids::{IoId, PageId};

/// The source of a page's contents.
#[derive(Debug)]
pub enum Contents<'a, K> {
    /// Zeros.
    Zeros,
    /// Its own copy in the shadow.
    Shadow,
    /// Compressed contents of one page.
    Packed(Packed),
    /// Pages of a read that has just ended, from this index on.
    Read(IoId, u32),
    /// What [`AddressSpace::keep`] or [`AddressSpace::inflate`] kept, from this page on.
    Kept(&'a K, u32),
}

/// The extent of a call: pages done from the start of its run, and why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Pages that the kernel reports as done. More may be done: see [`Stop::Exists`].
    pub pages: u32,
    /// Why it stopped before the end of the run; `None`: it did not.
    pub stop: Option<Stop>,
}

impl Done {
    /// The whole run is done.
    #[must_use]
    pub fn all(pages: u32) -> Self {
        Self { pages, stop: None }
    }

    /// Stopped after this many pages.
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
    /// For a move this may concern a page that the same call has moved: Linux 6.18 keeps the
    /// `EAGAIN` of an earlier try, retries although the page has been moved, and finds it at the
    /// destination ("userfaultfd: reset err to be 0 when move_pages_ptes succeeded", August 2026).
    Exists,
    /// `ENOENT`: no page at the source, or, for a copy, no mapping at the destination.
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

/// The program's mapping at a page, from that page on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Pages from the page to the end of the mapping.
    pub pages: u32,
    /// The program's access rights there, as `PROT_*` bits.
    pub protection: u32,
    /// The program may load and store there.
    pub writable: bool,
}

/// The operations on the pages of an address space.
///
/// A call on a run works from the first page on and stops at the first page that it cannot process;
/// its work on the pages before stays done.
pub trait AddressSpace {
    /// Contents of a read, kept beyond its end.
    type Kept;

    /// Whether there is a shadow. Without one the kernel cannot move pages: a leaving page stays in
    /// the region, write-protected.
    fn has_shadow(&self) -> bool;

    /// Copies contents to where no pages are. In the region this wakes the threads that wait for
    /// them; with `protect` the first store to each page is reported.
    fn copy(
        &mut self,
        place: Place,
        first: PageId,
        count: u32,
        from: &Contents<'_, Self::Kept>,
        protect: bool,
    ) -> Done;

    /// Moves pages from the region into the shadow, or back; back they are writable. The
    /// destination must be empty.
    fn shift(&mut self, to: Place, first: PageId, count: u32) -> Done;

    /// Moves one page to another page's address, in the region or in the shadow.
    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done;

    /// Copies one page to another page's address, in the region or in the shadow; with `zeros`,
    /// puts zeros there instead.
    fn relocate_copy(
        &mut self,
        place: Place,
        from: PageId,
        to: PageId,
        protect: bool,
        zeros: bool,
    ) -> Done;

    /// Starts or stops the reporting of stores to pages in the region; when it stops, wakes the
    /// stopped threads.
    ///
    /// # Errors
    /// Why the call stopped at a page. Earlier pages of the run may have changed.
    fn protect(&mut self, first: PageId, count: u32, on: bool) -> Result<(), Stop>;

    /// Makes every touch of an absent page in the region fail, and wakes.
    ///
    /// # Errors
    /// Why it could not.
    fn poison(&mut self, page: PageId) -> Result<(), Stop>;

    /// Wakes the threads that wait for pages of the region.
    fn wake(&mut self, first: PageId, count: u32);

    /// Frees the frames of runs of pages.
    fn drop_runs(&mut self, place: Place, runs: &[(PageId, u32)]);

    /// Whether there is a page. Does not touch it.
    fn holds(&self, place: Place, page: PageId) -> bool;

    /// Makes a page in the region that is shared after a fork this process's own; returns whether
    /// it could.
    fn unshare(&mut self, page: PageId) -> bool;

    /// These pages have left their shared frames.
    fn leave_frames(&mut self, first: PageId, count: u32);

    /// The program's mapping at a page.
    fn mapping(&self, page: PageId) -> Option<Mapping>;

    /// Changes the program's access rights to pages. `None`: load and store.
    ///
    /// # Errors
    /// Why it could not be done.
    fn set_protection(
        &mut self,
        first: PageId,
        count: u32,
        protection: Option<u32>,
    ) -> Result<(), Stop>;

    /// Keeps pages of a read that has just ended.
    fn keep(&self, io: IoId, index: u32, count: u32) -> Self::Kept;

    /// Decompresses a page, to be kept.
    fn inflate(&self, from: &Packed) -> Self::Kept;

    /// A part of kept pages, by its own index.
    fn part(kept: &Self::Kept, index: u32, count: u32) -> Self::Kept;

    /// The address of a page in the region.
    fn address(&self, page: PageId) -> usize;

    /// The contents of a page are lost for good: tells the user.
    fn tell_lost(&mut self, page: PageId);

    /// Ends the process: it must not read data that may be wrong.
    fn fail(&self, why: &str) -> !;
}
