//! The backend of today: userfaultfd, in two kinds of kernels.
//!
//! With `UFFDIO_MOVE` (Linux 6.8) there are two descriptors, as they must report different things: the
//! region's reports faults and what the program does to its mappings; the shadow's reports nothing, so that
//! the pager may drop pages there with the engine locked. Without, or with `--no-move`, there is no shadow.

use super::{Backend, ManagedRange, PageBuffer, Source, stop};
use crate::Error;
use crate::sys::map;
use crate::sys::own::{self, OwnMemory};
use crate::sys::uffd::{Features, Message, Uffd, probe, probe_user_mode};
use flashvm_core::space::{Done, Mapping, Stop};
use flashvm_core::{PAGE_SIZE, PageId, Place, RUN_PAGES_MAX, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// How faults come to the pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// The faulting thread resolves them itself, in a signal handler.
    Inline,
    /// A thread of the pager's reads them from the userfaultfd.
    Handler,
}

impl Delivery {
    /// Features that the region's userfaultfd cannot do without: faults in this way, and what the program
    /// does to its mappings where only the kernel can tell.
    fn region_features(self) -> u64 {
        Features::WRITE_PROTECT
            | match self {
                Self::Inline => Features::SIGBUS,
                // Only a move tells memory that the kernel works on (direct I/O) from memory that it
                // does not. In inline mode the guard knows.
                Self::Handler => Features::EVENT_FORK | Features::EVENTS | Features::MOVE,
            }
    }

    /// Features of the shadow's. Nobody touches the shadow but the pager, where pages are.
    fn shadow_features(self) -> u64 {
        match self {
            // For user mode only, which needs no privilege.
            Self::Inline => Features::MOVE | Features::SIGBUS,
            Self::Handler => Features::MOVE,
        }
    }

    fn probe(self) -> Result<Features, Error> {
        match self {
            Self::Inline => probe_user_mode(),
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
    /// Absent where the kernel cannot move pages.
    shadow: Option<Uffd>,
    /// Zeros to copy from, a run of the longest.
    zeros: &'static [u8],
    own: OwnMemory,
}

/// The region's descriptor with every useful feature of this kernel, and whether the kernel moves pages.
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

/// What a call did of its bytes, and how it ended.
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
        let zeros = map::own_zeros(RUN_PAGES_MAX as usize * PAGE_SIZE);
        Ok(Self {
            range,
            region,
            shadow,
            zeros: zeros.map_err(Error::memory("zeros"))?,
            own: open_own()?,
        })
    }

    /// The address space of a forked child, whose copies of the descriptors have been closed by number.
    /// `region` came through the kernel's fork event; without one nothing is registered.
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
    /// Where its pages are.
    pub(crate) fn range(&self) -> &ManagedRange {
        &self.range
    }

    /// The region's descriptor, for whoever waits for it.
    pub(crate) fn region(&self) -> &Uffd {
        &self.region
    }

    /// Appends what the kernel reports of the region.
    pub(crate) fn read(&self, messages: &mut Vec<Message>) -> Result<(), Errno> {
        self.region.read(messages)
    }

    /// Registers a run of the region: from here on touches of absent pages are faults of the pager's.
    pub(crate) fn register(&self, run: Run) -> Result<(), Errno> {
        let start = self.range.start(Place::Region, run).get();
        self.region.register(start, run.bytes(), true)
    }

    /// The mapping of any address of this process.
    pub(crate) fn mapping_at(&self, address: usize) -> Option<own::Mapping> {
        self.own.mapping_at(address)
    }

    /// Ends a fault at a page that came through `descriptor`: this process' own, or that of a forked child,
    /// whose addresses are the same. `None`: the page is poisoned. What is there stays.
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
            // There already, or the child is gone.
            let _ = descriptor.wake(at, PAGE_SIZE);
        }
    }

    /// Lets a store go on that was stopped, and reported through `descriptor`.
    pub(crate) fn unprotect_through(&self, descriptor: &Uffd, page: PageId) {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        // Fails where the child is gone.
        let _ = descriptor.write_protect(at, PAGE_SIZE, false);
    }

    fn descriptor(&self, place: Place) -> &Uffd {
        match place {
            Place::Region => &self.region,
            Place::Shadow => self.shadow.as_ref().expect("there is a shadow"),
        }
    }

    /// Where to copy a run from.
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
        // SAFETY: the destination is managed memory, which no Rust code refers to, in this process or in a
        // child of it; the source is as long as the run.
        done(unsafe { descriptor.copy(at, source, run.bytes(), protect) })
    }

    /// A page in the shadow, to be read through this pointer alone.
    fn shadow_page(&self, page: PageId) -> *const u8 {
        assert!(self.has_shadow(), "there is a shadow");
        let run = Run::one(page);
        self.range.start(Place::Shadow, run).get() as *const u8
    }
}

impl Backend for Userfaultfd {
    fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done {
        self.copy_by(self.descriptor(place), place, run, from, protect)
    }

    fn shift(&self, to: Place, run: Run) -> Done {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let target = self.range.start(to, run).get();
        let source = self.range.start(from, run).get();
        // SAFETY: both are managed memory or its shadow, which no Rust code refers to.
        done(unsafe { self.descriptor(to).relocate(target, source, run.bytes()) })
    }

    fn relocate(&self, place: Place, from: PageId, to: PageId) -> Done {
        if !self.has_shadow() {
            // This kernel cannot move pages.
            return Done::stopped(0, Stop::Invalid);
        }
        let target = self.range.start(place, Run::one(to)).get();
        let source = self.range.start(place, Run::one(from)).get();
        // SAFETY: as in `shift`.
        done(unsafe { self.descriptor(place).relocate(target, source, PAGE_SIZE) })
    }

    fn protect(&self, run: Run, on: bool) -> Result<(), Stop> {
        let at = self.range.start(Place::Region, run).get();
        self.region.write_protect(at, run.bytes(), on).map_err(stop)
    }

    fn poison(&self, page: PageId) -> Result<(), Stop> {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        self.region.poison(at, PAGE_SIZE).map_err(stop)
    }

    fn wake(&self, run: Run) {
        let at = self.range.start(Place::Region, run).get();
        // Fails only where nobody can wait: the range is not registered any more.
        let _ = self.region.wake(at, run.bytes());
    }

    fn zap(&self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        let mut ranges = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; map::DROP_RANGES_MAX];
        runs.chunks(ranges.len()).try_for_each(|part| {
            for (range, &run) in ranges.iter_mut().zip(part) {
                range.iov_base = self.range.start(place, run).get() as *mut _;
                range.iov_len = run.bytes();
            }
            // SAFETY: managed memory or its shadow, which no Rust code refers to.
            unsafe { map::drop_ranges(&ranges[..part.len()]) }.map_err(stop)
        })
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        let at = self.range.start(place, Run::one(page)).get();
        self.own.is_present(at)
    }

    fn unshare(&self, page: PageId) -> bool {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        map::unshare(at).is_ok()
    }

    fn copy_out(&self, page: PageId, into: &mut PageBuffer) -> Result<(), Stop> {
        if !self.has_shadow() {
            let at = self.range.start(Place::Region, Run::one(page)).get();
            return self.own.read(at, &mut into.0).map_err(stop);
        }
        // SAFETY: the page is in the shadow and nobody stores to it, which `Backend::copy_out` asks of its
        // callers; they hold it there by an unanswered request. The buffer is a page of the pager's own.
        unsafe {
            std::ptr::copy_nonoverlapping(self.shadow_page(page), into.0.as_mut_ptr(), PAGE_SIZE)
        };
        Ok(())
    }

    fn is_zero(&self, page: PageId) -> bool {
        let words = self.shadow_page(page).cast::<[u64; 8]>();
        (0..PAGE_SIZE / size_of::<[u64; 8]>()).all(|line| {
            // SAFETY: a line of a page that is in the shadow, and to which nobody stores (see `copy_out`). Pages
            // are aligned for `u64`.
            let line = unsafe { words.add(line).read() };
            line.iter().fold(0, |all, word| all | word) == 0
        })
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        let at = self.range.start(Place::Region, Run::one(page)).get();
        self.own.mapping_at(at).map(|mapping| Mapping {
            pages: ((mapping.end - at) / PAGE_SIZE) as u32,
            protection: mapping.prot.bits(),
            writable: mapping.prot.contains(ProtFlags::READ | ProtFlags::WRITE),
        })
    }

    fn set_protection(&self, run: Run, protection: Option<u32>) -> Result<(), Stop> {
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        let protection = protection.map_or(all, MprotectFlags::from_bits_retain);
        self.range.set_protection(run, protection).map_err(stop)
    }
}
