//! The backend of userfaultfd, on two kinds of kernels.
//!
//! With `UFFDIO_MOVE` (Linux 6.8) there are two descriptors, as they must report different things: the
//! region's reports faults and the program's changes of its mappings; the shadow's reports nothing, so that
//! the pager may drop pages there with the engine locked. Without `UFFDIO_MOVE`, or with `--no-move`, there
//! is no shadow.

use super::{Backend, Delivery, ManagedRange, Source, stop};
use crate::Error;
use crate::sys::map;
use crate::sys::own::{self, OwnMemory};
use crate::sys::uffd::{Features, Message, Uffd, probe, probe_user_mode};
use flashvm_core::space::{AddressSpace, Done, Mapping, Stop};
use flashvm_core::{HUGE_PAGES, PAGE_SIZE, PageId, Place, RUN_PAGES_MAX, Run};
use nest::Nest;
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};

mod nest;
#[cfg(test)]
mod tests;

impl Delivery {
    /// Required features of the region's userfaultfd: this way of delivery, and reports of the program's changes
    /// of its mappings where only the kernel knows them.
    fn region_features(self) -> u64 {
        Features::WRITE_PROTECT
            | match self {
                Self::Inline | Self::Protect => Features::SIGBUS,
                // Only a move fails for memory that the kernel works on (direct I/O). In inline mode
                // the guard knows such memory.
                Self::Handler => Features::EVENT_FORK | Features::EVENTS | Features::MOVE,
            }
    }

    /// Features of the shadow's userfaultfd. Only the pager touches the shadow, and only pages that are there.
    fn shadow_features(self) -> u64 {
        match self {
            // `SIGBUS` makes `Uffd::open` ask for user mode only, which needs no privilege.
            Self::Inline | Self::Protect => Features::MOVE | Features::SIGBUS,
            Self::Handler => Features::MOVE,
        }
    }

    fn probe(self) -> Result<Features, Error> {
        match self {
            Self::Inline | Self::Protect => probe_user_mode(),
            Self::Handler => probe(),
        }
        .map_err(Error::Userfaultfd)
    }
}

/// The address space of this process, by userfaultfd.
#[derive(Debug)]
pub(crate) struct Userfaultfd {
    range: ManagedRange,
    region: Uffd,
    /// `None` if the kernel cannot move pages, or must not.
    shadow: Option<Uffd>,
    /// Where huge pages come from. `None` without a shadow.
    nest: Option<Nest>,
    /// Zeros to copy from, as long as the longest run.
    zeros: &'static [u8],
    own: OwnMemory,
}

/// Opens the region's descriptor with every useful feature of this kernel. Also returns whether the kernel can move
/// pages.
fn open_region(delivery: Delivery) -> Result<(Uffd, bool), Error> {
    let offered = delivery.probe()?;
    let wanted = delivery.region_features();
    if !offered.has(wanted) {
        return Err(Error::KernelTooOld);
    }
    let optional = offered.0 & (Features::POISON | Features::MOVE);
    let region = Uffd::open(wanted | optional).map_err(Error::Userfaultfd)?;
    Ok((region, offered.has(Features::MOVE)))
}

fn open_shadow(range: &ManagedRange, delivery: Delivery) -> Result<Uffd, Error> {
    let shadow = Uffd::open(delivery.shadow_features()).map_err(Error::Userfaultfd)?;
    let (start, len) = (
        range.start(Place::Shadow, range.all()).get(),
        range.all().bytes(),
    );
    shadow
        .register(start, len, false)
        .map_err(Error::Userfaultfd)?;
    Ok(shadow)
}

fn open_own() -> Result<OwnMemory, Error> {
    OwnMemory::open().map_err(Error::memory("/proc"))
}

/// Translates the bytes that a call has done, and its result.
fn done((bytes, result): (usize, Result<(), Errno>)) -> Done {
    Done {
        pages: (bytes / PAGE_SIZE) as u32,
        stop: result.err().map(stop),
    }
}

impl Userfaultfd {
    /// Reserves addresses for `pages` pages, and a shadow if the kernel can move pages and `may_move` allows it.
    pub(crate) fn open(pages: u32, delivery: Delivery, may_move: bool) -> Result<Self, Error> {
        let (region, moves) = open_region(delivery)?;
        let range = ManagedRange::reserve(pages).map_err(Error::memory("address space"))?;
        let shadow = if moves && may_move {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            range.map_shadow(prot).map_err(Error::memory("shadow"))?;
            Some(open_shadow(&range, delivery)?)
        } else {
            None
        };
        let nest = shadow.as_ref().map(|_| Nest::new()).transpose();
        let zeros = map::own_zeros(RUN_PAGES_MAX as usize * PAGE_SIZE);
        Ok(Self {
            range,
            region,
            shadow,
            nest: nest.map_err(Error::memory("a huge page"))?,
            zeros: zeros.map_err(Error::memory("zeros"))?,
            own: open_own()?,
        })
    }

    /// The address space of a forked child, in which the parent's descriptors have been closed by number.
    /// `region` came through the kernel's fork event; without it no memory of the region is registered.
    pub(crate) fn for_child(self, region: Option<Uffd>, delivery: Delivery) -> Result<Self, Error> {
        let has_shadow = self.shadow.is_some();
        std::mem::forget((self.region, self.shadow, self.own));
        let region = match region {
            Some(region) => region,
            None => open_region(delivery)?.0,
        };
        let shadow = has_shadow.then(|| open_shadow(&self.range, delivery));
        Ok(Self {
            region,
            shadow: shadow.transpose()?,
            own: open_own()?,
            ..self
        })
    }
}

impl Userfaultfd {
    /// The addresses of its pages.
    pub(crate) fn range(&self) -> &ManagedRange {
        &self.range
    }

    /// The region's descriptor, to wait for messages, or to resolve faults through it.
    pub(crate) fn region(&self) -> &Uffd {
        &self.region
    }

    /// Appends the kernel's messages about the region. Does not wait for any.
    pub(crate) fn read(&self, messages: &mut Vec<Message>) -> Result<(), Errno> {
        self.region.read(messages)
    }

    /// Registers a run of the region: from now on the pager gets its faults.
    pub(crate) fn register(&self, run: Run) -> Result<(), Errno> {
        let start = self.range.start(Place::Region, run).get();
        self.region.register(start, run.bytes(), true)
    }

    /// The mapping at any address of this process.
    pub(crate) fn mapping_at(&self, address: usize) -> Option<own::Mapping> {
        self.own.mapping_at(address)
    }

    /// Ends a fault at a page, reported through `descriptor`: this process' own, or that of a forked child, which has
    /// the same addresses. Without `from` the page is poisoned. A page that is there stays unchanged.
    pub(crate) fn resolve_through(
        &self,
        descriptor: &Uffd,
        page: PageId,
        from: Option<Source<'_>>,
    ) {
        let run = Run::one(page);
        let at = self.range.start(Place::Region, run).get();
        let resolved = match from {
            Some(from) => self
                .copy_by(descriptor, Place::Region, run, from, false)
                .stop
                .is_none(),
            None => descriptor.poison(at, PAGE_SIZE).is_ok(),
        };
        if !resolved {
            // The page is there already, or the child is gone: waiters repeat their access.
            let _ = descriptor.wake(at, PAGE_SIZE);
        }
    }

    /// Ends the protection of a page at which a store was stopped, and reported through `descriptor`.
    pub(crate) fn unprotect_through(&self, descriptor: &Uffd, page: PageId) {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        // Fails if the child is gone.
        let _ = descriptor.write_protect(at, PAGE_SIZE, false);
    }

    fn descriptor(&self, place: Place) -> &Uffd {
        match place {
            Place::Region => &self.region,
            Place::Shadow => self.shadow.as_ref().expect("no shadow"),
        }
    }

    /// The first of the `run.bytes()` bytes to copy.
    fn source(&self, from: Source<'_>, run: Run) -> *const u8 {
        match from {
            Source::Zeros => {
                assert!(run.bytes() <= self.zeros.len(), "a run of zeros");
                self.zeros.as_ptr()
            }
            Source::Page(place, first) => {
                let run = Run::new(first, run.count);
                self.range.start(place, run).get() as *const u8
            }
            Source::Bytes(bytes) => {
                assert_eq!(bytes.len(), run.bytes(), "contents of the run");
                bytes.as_ptr()
            }
        }
    }

    fn copy_by(
        &self,
        descriptor: &Uffd,
        place: Place,
        run: Run,
        from: Source<'_>,
        protect: bool,
    ) -> Done {
        let at = self.range.start(place, run).get();
        let source = self.source(from, run);
        // SAFETY: the destination is managed memory of this process or a child; `start` has checked the run, and
        // no Rust code refers to it. `source` has checked that there are `run.bytes()` bytes at its result; they
        // are borrowed, or in the managed range, where the kernel checks its accesses itself.
        done(unsafe { descriptor.copy(at, source, run.bytes(), protect) })
    }

    /// Whether pages can be moved: a page on its way out is in the shadow.
    pub(crate) fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The program's whole mapping around a run.
    fn mapping_around(&self, run: Run) -> Run {
        let mapping = self
            .own
            .mapping_at(self.range.start(Place::Region, run).get());
        let whole =
            mapping.and_then(|around| self.range.pages_of(around.start, around.end - around.start));
        whole.unwrap_or(run)
    }

    /// A pointer to a page in the shadow; no reference may be made of it.
    fn shadow_page(&self, page: PageId) -> *const u8 {
        assert!(self.has_shadow(), "no shadow");
        let run = Run::one(page);
        self.range.start(Place::Shadow, run).get() as *const u8
    }
}

/// All threads of the pager share the descriptors, so a shared reference is the address space.
impl AddressSpace for &Userfaultfd {
    fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    fn shift(&mut self, to: Place, run: Run) -> Done {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let target = self.range.start(to, run).get();
        let source = self.range.start(from, run).get();
        // SAFETY: `start` has checked both runs: they lie in the region and the shadow, to which no Rust code refers.
        done(unsafe { self.descriptor(to).relocate(target, source, run.bytes()) })
    }

    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done {
        if !self.has_shadow() {
            // No pages are moved without a shadow.
            return Done::stopped(0, Stop::Invalid);
        }
        let target = self.range.start(place, Run::one(to)).get();
        let source = self.range.start(place, Run::one(from)).get();
        // SAFETY: `start` has checked both pages: they lie in the region or the shadow, to which no Rust code refers.
        done(unsafe { self.descriptor(place).relocate(target, source, PAGE_SIZE) })
    }

    fn zero_huge(&mut self, first: PageId) -> Done {
        let Some(nest) = &self.nest else {
            return Done::stopped(0, Stop::Invalid);
        };
        let target = self.range.start(Place::Region, Run::new(first, HUGE_PAGES));
        // SAFETY: `start` has checked the run: it lies in the region, to which no Rust code refers.
        done(unsafe { nest.move_to(&self.region, target.get()) })
    }

    fn protect(&mut self, run: Run, on: bool) -> Result<(), Stop> {
        let at = self.range.start(Place::Region, run).get();
        self.region.write_protect(at, run.bytes(), on).map_err(stop)
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        self.region.poison(at, PAGE_SIZE).map_err(stop)
    }

    fn wake(&mut self, run: Run) {
        let at = self.range.start(Place::Region, run).get();
        // Fails only if the range is no longer registered: then nobody waits for it.
        let _ = self.region.wake(at, run.bytes());
    }

    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        let mut ranges = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; map::DROP_RANGES_MAX];
        runs.chunks(ranges.len()).try_for_each(|part| {
            for (range, &run) in ranges.iter_mut().zip(part) {
                range.iov_base = self.range.start(place, run).get() as *mut _;
                range.iov_len = run.bytes();
            }
            // SAFETY: `start` has checked each run: it lies in the region or the shadow, to which no Rust code refers.
            unsafe { map::drop_ranges(&ranges[..part.len()]) }.map_err(stop)
        })
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        let at = self.range.start(place, Run::one(page)).get();
        self.own.is_present(at)
    }

    fn held(&self, place: Place, first: PageId, there: &mut [bool]) {
        let run = Run::new(first, there.len() as u32);
        self.own
            .are_present(self.range.start(place, run).get(), there);
    }

    fn unshare(&mut self, page: PageId) -> bool {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        map::unshare(at).is_ok()
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        self.own.mapping_at(at).map(|mapping| Mapping {
            pages: ((mapping.end - at) / PAGE_SIZE) as u32,
            protection: mapping.prot.bits(),
            writable: mapping.prot.contains(ProtFlags::READ | ProtFlags::WRITE),
        })
    }

    fn open_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop> {
        let program = MprotectFlags::from_bits_retain(protection);
        let rights = program | MprotectFlags::READ | MprotectFlags::WRITE;
        // The shadow keeps these rights, for all of the mapping: so it has few mappings of its own, and the next pages
        // that the program may store to move as they are.
        let whole = self.mapping_around(run);
        (self.range.set_shadow_protection(whole, rights)).map_err(stop)?;
        if rights == program {
            return Ok(());
        }
        self.range.set_protection(run, rights).map_err(stop)
    }

    fn close_to_moves(&mut self, run: Run, protection: u32) -> Result<(), Stop> {
        let rights = MprotectFlags::from_bits_retain(protection);
        self.range.set_protection(run, rights).map_err(stop)
    }
}

impl Backend for Userfaultfd {
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done {
        self.copy_by(self.descriptor(place), place, run, from, protect)
    }

    fn writes_in_place(&self) -> bool {
        self.has_shadow()
    }

    unsafe fn copy_out(&self, run: Run, into: &mut [u8]) -> Result<(), Stop> {
        let (into, []) = into.as_chunks_mut::<PAGE_SIZE>() else {
            return Err(Stop::Invalid);
        };
        (run.pages().zip(into)).try_for_each(|(page, into)| {
            if !self.has_shadow() {
                let at = self.range.start(Place::Region, Run::one(page)).get();
                return self.own.read(at, into).map_err(stop);
            }
            // SAFETY: the page stays in the shadow and nobody stores to it, as the caller guarantees. `into` is borrowed
            // exclusively, and no part of the shadow.
            unsafe {
                std::ptr::copy_nonoverlapping(self.shadow_page(page), into.as_mut_ptr(), PAGE_SIZE)
            };
            Ok(())
        })
    }

    unsafe fn is_zero(&self, page: PageId) -> bool {
        let words = self.shadow_page(page).cast::<[u64; 8]>();
        (0..PAGE_SIZE / size_of::<[u64; 8]>()).all(|line| {
            // SAFETY: a line within the page, which is in the shadow and to which nobody stores, as the caller guarantees.
            // Its address is a multiple of 64.
            let line = unsafe { words.add(line).read() };
            line.iter().fold(0, |all, word| all | word) == 0
        })
    }
}
