//! What memory actions need beside the kernel: the contents of pages, and somebody to tell what happened.

use super::{AddressSpace, Done};
use crate::event::{Packed, Place};
use crate::ids::{IoId, PageId, Run};

/// The source of a page's contents.
#[derive(Debug)]
pub enum Contents<'a, K> {
    /// Zeros.
    Zeros,
    /// A page of the address space, which is there. A run takes as many pages, from this one on.
    Page(Place, PageId),
    /// Compressed contents: those of the run's pages, and perhaps of more behind them.
    Packed(&'a [Packed]),
    /// Pages of a read that has just ended, from this index on.
    Read(IoId, u32),
    /// What [`Executor::keep`] or [`Executor::inflate`] kept, from this page on.
    Kept(&'a K, u32),
}

/// Carries out memory actions in a process, live or simulated: it has the address space, and the contents that are not
/// in it.
pub trait Executor {
    /// The address space of the process.
    type Space: AddressSpace;
    /// Contents of a read, kept beyond its end.
    type Kept;

    /// The address space.
    fn space(&mut self) -> &mut Self::Space;

    /// Maps copies of contents.
    ///
    /// *Before:* no page of the run is there in `place`; it may hold poisoned pages.
    /// *After:* the pages done are there with the contents. In the region their waiters are woken; with
    /// `protect` the next store to each page is a fault, without it no access is.
    /// *Stops:* [`Stop::Exists`](super::Stop::Exists) at a page that is there; it keeps its contents and its protection.
    fn copy(
        &mut self,
        place: Place,
        run: Run,
        from: &Contents<'_, Self::Kept>,
        protect: bool,
    ) -> Done;

    /// These pages have left their shared frames.
    fn leave_frames(&mut self, run: Run);

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
