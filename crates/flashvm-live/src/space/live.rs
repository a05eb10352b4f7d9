//! The address space of this process, by whichever backend the run has chosen.

use super::{
    Aliased, Backend, Delivery, ForkedMemory, ManagedRange, Source, Touch, Use, Userfaultfd,
};
use crate::Error;
use crate::sys::hide;
use crate::sys::own;
use crate::sys::uffd::Uffd;
use flashvm_core::space::{AddressSpace, Done, Mapping, Stop};
use flashvm_core::{PageId, Place, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::os::fd::RawFd;

/// The address space.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub(crate) enum Space {
    /// By userfaultfd.
    Userfaultfd(Userfaultfd),
    /// By hidden pages.
    Aliased(Aliased),
}

/// What the address space does without, as on an older kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Older {
    /// `UFFDIO_MOVE`.
    pub(crate) no_move: bool,
    /// Guard regions in shared memory.
    pub(crate) no_markers: bool,
}

/// What a forked child gets its address space from.
pub(crate) enum Inherited {
    /// The region's userfaultfd, from the kernel's fork event. Without it no memory of the region is registered.
    Region(Option<Uffd>),
    /// Copies of all pages.
    Memory(ForkedMemory),
}

impl Inherited {
    /// The descriptor that the child keeps of its parent's, if there is one.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Region(_) => None,
            Self::Memory(memory) => Some(memory.descriptor()),
        }
    }
}

impl Space {
    /// Reserves addresses for `pages` pages. `mappings`: how many pages hidden by access rights may take.
    pub(crate) fn open(
        pages: u32,
        delivery: Delivery,
        older: Older,
        mappings: u32,
    ) -> Result<Self, Error> {
        Ok(match delivery {
            Delivery::Protect => {
                let by_rights = older.no_markers || hide::probe().is_err();
                Self::Aliased(Aliased::open(pages, by_rights.then_some(mappings))?)
            }
            _ => Self::Userfaultfd(Userfaultfd::open(pages, delivery, !older.no_move)?),
        })
    }

    /// The address space of a forked child, in which the parent's descriptors have been closed by number.
    pub(crate) fn for_child(self, from: Inherited, delivery: Delivery) -> Result<Self, Error> {
        Ok(match (self, from) {
            (Self::Userfaultfd(space), Inherited::Region(region)) => {
                Self::Userfaultfd(space.for_child(region, delivery)?)
            }
            (Self::Aliased(space), Inherited::Memory(memory)) => {
                Self::Aliased(space.for_child(memory)?)
            }
            _ => unreachable!("the child inherits what its parent's backend has made"),
        })
    }

    /// Before a fork that the guard makes, with the engine frozen: what the child gets its address space from. Pages in
    /// `pinned` (sorted) stay as they are; others may be hidden until [`Self::resume`].
    ///
    /// # Errors
    /// The kernel has no file or no memory for a copy of the pages.
    pub(crate) fn prepare_fork(&self, pinned: &[PageId]) -> Result<Inherited, Errno> {
        match self {
            Self::Userfaultfd(_) => Ok(Inherited::Region(None)),
            Self::Aliased(space) => space.prepare_fork(pinned).map(Inherited::Memory),
        }
    }

    /// In the parent, after [`Self::prepare_fork`], whether or not there is a child.
    pub(crate) fn resume(&self) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(_) => Ok(()),
            Self::Aliased(space) => space.resume(),
        }
    }

    /// From now on the pager gets the faults of a mapped run, in a forked child as well.
    pub(crate) fn register(&self, run: Run) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(space) => space.register(run),
            // Its pages are hidden from the start.
            Self::Aliased(_) => Ok(()),
        }
    }

    /// The userfaultfd backend of a pager in handler mode.
    ///
    /// # Panics
    /// In another mode.
    pub(crate) fn userfaultfd(&self) -> &Userfaultfd {
        match self {
            Self::Userfaultfd(space) => space,
            Self::Aliased(_) => unreachable!("no userfaultfd in this mode"),
        }
    }

    /// The backend of hidden pages, if that is the one.
    pub(crate) fn aliased(&self) -> Option<&Aliased> {
        match self {
            Self::Userfaultfd(_) => None,
            Self::Aliased(space) => Some(space),
        }
    }

    /// The addresses of its pages.
    pub(crate) fn range(&self) -> &ManagedRange {
        match self {
            Self::Userfaultfd(space) => space.range(),
            Self::Aliased(space) => space.range(),
        }
    }

    /// Bytes of the file that has the pages' contents. 0: no file has them.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.aliased().map_or(0, Aliased::file_bytes)
    }

    /// Whether pages scattered over the region take mappings.
    pub(crate) fn takes_mappings(&self) -> bool {
        self.aliased().is_some_and(Aliased::hides_by_rights)
    }

    /// Whether stores to a page of the region can be stopped.
    pub(crate) fn protects(&self) -> bool {
        self.aliased().is_none()
    }

    /// Whether pages are moved into the shadow (`UFFDIO_MOVE`). The kernel refuses to move a page that it works on (direct
    /// I/O, say), and a move interrupts the other processors.
    pub(crate) fn moves_pages(&self) -> bool {
        matches!(self, Self::Userfaultfd(space) if space.has_shadow())
    }

    /// Whether a page on its way out is in the shadow.
    pub(crate) fn has_shadow(&self) -> bool {
        AddressSpace::has_shadow(&self)
    }

    /// The program maps fresh memory over a run. From now on the pager gets its faults.
    pub(crate) fn map_anew(&self, run: Run, prot: ProtFlags) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(space) => {
                space.range().map_anew(run, prot)?;
                space.register(run)
            }
            Self::Aliased(space) => space.map_anew(run, Some(prot)),
        }
    }

    /// The program unmaps a run. Its addresses stay reserved.
    pub(crate) fn unmap(&self, run: Run) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(space) => space.range().map_anew(run, ProtFlags::empty()),
            Self::Aliased(space) => space.map_anew(run, None),
        }
    }

    /// The kernel has mapped memory of its own over a run, which is no longer the pager's.
    pub(crate) fn give_up(&self, run: Run) {
        if let Self::Aliased(space) = self {
            space.give_up(run);
        }
    }

    /// The program throws away the contents of a run. The engine is locked, or hears of it from the kernel.
    pub(crate) fn zap(&self, run: Run) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(space) => space.range().zap(run),
            Self::Aliased(space) => space.zap(run),
        }
    }

    /// The program changes its rights to a run.
    pub(crate) fn set_rights(&self, run: Run, prot: MprotectFlags) -> Result<(), Errno> {
        match self {
            Self::Userfaultfd(space) => space.range().set_protection(run, prot),
            Self::Aliased(space) => space.set_rights(run, prot),
        }
    }

    /// The program's mapping at any address of this process.
    pub(crate) fn mapping_at(&self, address: usize) -> Option<own::Mapping> {
        match self {
            Self::Userfaultfd(space) => space.mapping_at(address),
            Self::Aliased(space) => space.mapping_at(address),
        }
    }

    /// The program touches a page that [`Touch::Withdrawn`] names: shows it.
    ///
    /// # Errors
    /// `ENOMEM`: the kernel allows no more mappings.
    pub(crate) fn reveal(&self, page: PageId) -> Result<(), Errno> {
        self.aliased().map_or(Ok(()), |space| space.reveal(page))
    }

    /// Whether dropped pages may be freed by the next [`Self::finish_drops`], without the engine locked.
    pub(crate) fn defer_drops(&self, may_wait: bool) {
        if let Self::Aliased(space) = self {
            space.defer_drops(may_wait);
        }
    }

    /// Frees the pages that were dropped meanwhile.
    pub(crate) fn finish_drops(&self) {
        if let Self::Aliased(space) = self {
            space.finish_drops();
        }
    }

    /// A system call works on the pages of a run, or (`on` is false) no longer does. Of those in the region, none is
    /// withdrawn meanwhile.
    pub(crate) fn pin(&self, run: Run, on: bool) {
        if let Self::Aliased(space) = self {
            space.pin(run, on);
        }
    }

    /// What a SIGSEGV at a page means. `None`: no page of this backend gives SIGSEGV.
    pub(crate) fn judge(&self, page: PageId, wanted: Use) -> Option<Touch> {
        self.aliased().map(|space| space.judge(page, wanted))
    }
}

/// Calls the same method of either backend.
macro_rules! either {
    ($self:ident, $space:ident => $call:expr) => {
        match $self {
            Space::Userfaultfd($space) => {
                #[allow(unused_mut, reason = "only some methods take the space mutably")]
                let mut $space = $space;
                $call
            }
            Space::Aliased($space) => {
                #[allow(unused_mut, reason = "only some methods take the space mutably")]
                let mut $space = $space;
                $call
            }
        }
    };
}

impl AddressSpace for &Space {
    fn has_shadow(&self) -> bool {
        either!(self, space => AddressSpace::has_shadow(&space))
    }

    fn shift(&mut self, to: Place, run: Run) -> Done {
        either!(self, space => space.shift(to, run))
    }

    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done {
        either!(self, space => space.relocate(place, from, to))
    }

    fn zero_huge(&mut self, first: PageId) -> Done {
        either!(self, space => space.zero_huge(first))
    }

    fn protect(&mut self, run: Run, on: bool) -> Result<(), Stop> {
        either!(self, space => space.protect(run, on))
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        either!(self, space => space.poison(page))
    }

    fn wake(&mut self, run: Run) {
        either!(self, space => space.wake(run));
    }

    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        either!(self, space => AddressSpace::zap(&mut space, place, runs))
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        either!(self, space => space.holds(place, page))
    }

    fn held(&self, place: Place, first: PageId, there: &mut [bool]) {
        either!(self, space => space.held(place, first, there));
    }

    fn unshare(&mut self, page: PageId) -> bool {
        either!(self, space => space.unshare(page))
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        either!(self, space => space.mapping(page))
    }

    fn open_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop> {
        either!(self, space => space.open_to_moves(run, protection))
    }

    fn close_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop> {
        either!(self, space => space.close_to_moves(run, protection))
    }
}

impl Backend for Space {
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done {
        either!(self, space => space.copy(place, run, from, protect))
    }

    fn writes_in_place(&self) -> bool {
        either!(self, space => space.writes_in_place())
    }

    unsafe fn copy_out(&self, run: Run, into: &mut [u8]) -> Result<(), Stop> {
        // SAFETY: the caller guarantees what the backend demands.
        either!(self, space => unsafe { space.copy_out(run, into) })
    }

    unsafe fn is_zero(&self, page: PageId) -> bool {
        // SAFETY: the caller guarantees what the backend demands.
        either!(self, space => unsafe { space.is_zero(page) })
    }
}
