//! The backend without userfaultfd: the region maps a memfd, and pages that the program must not touch are hidden in it.
//!
//! A page has its contents at one offset of the file. The shadow is the file itself, mapped nowhere. So moving a page
//! between region and shadow copies nothing: it hides the page in the region, or shows it again: by guard markers
//! ([`hide`]) or, where the kernel has none, by access rights ([`by_rights`]). A touch of a hidden page is SIGSEGV.
//! Contents come into the file before the page is shown: no thread sees half a page.
//!
//! # Invariants
//!
//! - A page is there in the region if its bit in `in_region` is set, and in the shadow if that in `in_shadow` is. It may
//!   be both only while a request works on its contents: then both are the same page, not two copies as with
//!   userfaultfd. A store to it counts: the engine knows that nothing stops it (`EngineConfig::protects`).
//! - A page that is in neither place has no contents in the file, or will soon have none ([`dropped`]).
//! - The region is opened by chunks, each when a page of it is first touched: until then a mapping of the program costs
//!   nothing. In an open chunk every page is hidden that is not in the region. Only open chunks have contents.
//! - The pages of a program that fits in RAM are not the file's, but private memory ([`private`]).
//! - The file is mapped in the region alone. A load through another mapping maps up to 16 pages around it
//!   (fault-around). A page that is mapped so while its contents are dropped loses its guard marker in the region (Linux
//!   6.18): a touch then reads zeros, without a fault. `eval/markers.c` shows it.
//! - All changes happen with the engine locked, except those of rights, of which `rights` is the lock. By access rights
//!   it is that of what the program can touch as well: `shown` is locked after it.

use super::bits::Bits;
use super::rights::{Rights, Use};
use super::{Backend, ManagedRange, PageBuffer, Source, is_zero, stop};
use crate::Error;
use crate::sys::descriptors::PagerFd;
use crate::sys::own::{self, OwnMemory};
use crate::sys::{hide, map};
use flashvm_core::space::{AddressSpace, Done, Mapping, Stop};
use flashvm_core::{HUGE_PAGES, PAGE_SIZE, PageId, Place, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use rustix_futex_sync::Mutex;

mod by_rights;
mod changes;
mod dropped;
mod fork;
mod private;
mod shown;
#[cfg(test)]
mod tests;

use dropped::Dropped;
use private::Private;
use shown::Shown;

pub(crate) use fork::ForkedMemory;

/// Pages of a chunk: those of one page table.
const CHUNK_PAGES: u32 = 512;

/// Shortest run of zeros that is put into the page table at once. Runs are long while frames are plentiful.
const POPULATE_MIN: u32 = 64;

/// The address space of this process, without userfaultfd.
#[derive(Debug)]
pub(crate) struct Aliased {
    range: ManagedRange,
    file: PagerFd,
    rights: Mutex<Rights>,
    in_region: Bits,
    in_shadow: Bits,
    /// Chunks of the region whose pages can be shown.
    open: Bits,
    own: OwnMemory,
    dropped: Mutex<Dropped>,
    private: Mutex<Private>,
    /// What the program can touch, where access rights hide pages. `None`: guard markers do.
    shown: Option<Mutex<Shown>>,
}

fn new_file(bytes: usize) -> Result<PagerFd, Errno> {
    PagerFd::open(|| map::memory_file("flashvm-memory", bytes as u64))
}

/// The chunks of a run.
fn chunks(run: Run) -> impl Iterator<Item = u32> {
    let end = run.end().0.div_ceil(CHUNK_PAGES);
    let first = if run.count == 0 {
        end
    } else {
        run.first.0 / CHUNK_PAGES
    };
    first..end
}

/// The part of a run in a chunk.
fn part_in(run: Run, chunk: u32) -> Run {
    let first = run.first.0.max(chunk * CHUNK_PAGES);
    let end = run.end().0.min((chunk + 1) * CHUNK_PAGES);
    Run::new(PageId(first), end - first)
}

/// Pages of the run's start that satisfy a condition.
fn prefix(run: Run, holds: impl Fn(PageId) -> bool) -> Run {
    let count = run.pages().take_while(|&page| holds(page)).count();
    Run::new(run.first, count as u32)
}

/// The outcome of a call that has done this part of a run, from its start.
fn done(part: Run, run: Run) -> Done {
    Done {
        pages: part.count,
        stop: (part.count < run.count).then_some(Stop::Again),
    }
}

impl Aliased {
    /// Reserves addresses for `pages` pages and their shadow. `mappings`: access rights hide pages, and may take this
    /// many; `None`: guard markers hide them.
    pub(crate) fn open(pages: u32, mappings: Option<u32>) -> Result<Self, Error> {
        let failed = Error::memory("address space");
        let range = ManagedRange::reserve(pages).map_err(failed)?;
        let bytes = range.all().bytes();
        if let Some(limit) = file_limit_below(bytes) {
            // Making the file longer would end the process by SIGXFSZ.
            return Err(Error::Settings(format!(
                "the limit on file sizes (ulimit -f) is {limit} bytes, and memory without userfaultfd is a file of \
                 {bytes}: raise it, or allow userfaultfd"
            )));
        }
        let file =
            new_file(bytes).map_err(Error::memory("a memfd of the size of the address space"))?;
        let bits = |count| Bits::new(count).map_err(Error::memory("bits of pages"));
        let shown = mappings
            .map(|mappings| Shown::new(pages, mappings).map(Mutex::new))
            .transpose()
            .map_err(Error::memory("bits of pages"))?;
        if shown.is_none() {
            // Part of a huge page would stay in RAM for as long as the rest of it.
            range
                .reserve_anew(range.all())
                .map_err(Error::memory("address space"))?;
        }
        Ok(Self {
            shown,
            rights: Mutex::default(),
            dropped: Mutex::default(),
            private: Mutex::new(Private::new(pages).map_err(Error::memory("bits of pages"))?),
            in_region: bits(pages)?,
            in_shadow: bits(pages)?,
            open: bits(pages.div_ceil(CHUNK_PAGES))?,
            own: OwnMemory::open().map_err(Error::memory("/proc"))?,
            range,
            file,
        })
    }

    /// The addresses of its pages.
    pub(crate) fn range(&self) -> &ManagedRange {
        &self.range
    }

    /// Bytes of its file. A fork makes another, so a limit on file sizes must not be lower.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.range.all().bytes() as u64
    }

    /// The program has touched a page and got SIGSEGV. Whether the pager has to bring the page in; otherwise whether the
    /// thread can repeat its access at once.
    pub(crate) fn judge(&self, page: PageId, wanted: Use) -> Touch {
        let rights = self.rights.lock().get(page);
        match rights {
            Some((rights, _)) if wanted.is_allowed(rights) => {
                if !self.in_region.get(page.0) {
                    Touch::Absent
                } else if self.is_withdrawn(page) {
                    Touch::Withdrawn
                } else {
                    Touch::Again
                }
            }
            _ => Touch::Forbidden,
        }
    }

    /// The program's mapping at any address of this process.
    pub(crate) fn mapping_at(&self, address: usize) -> Option<own::Mapping> {
        let Some(page) = self.range.page_at(address) else {
            return self.own.mapping_at(address);
        };
        let (prot, end) = self.rights.lock().get(page)?;
        Some(own::Mapping {
            start: self.range.at(Place::Region, page).get(),
            end: self.range.at(Place::Region, end).get(),
            prot,
        })
    }

    /// A system call works on these pages: shown ones stay shown, and private ones private. Or no longer.
    pub(crate) fn pin(&self, run: Run, on: bool) {
        match (&self.shown, on) {
            (Some(shown), true) => shown.lock().pin(run),
            (Some(shown), false) => shown.lock().unpin(run),
            (None, true) => self.private.lock().pin(run),
            (None, false) => self.private.lock().unpin(run),
        }
    }

    fn offset(&self, page: PageId) -> u64 {
        page.0 as u64 * PAGE_SIZE as u64
    }

    fn region(&self, run: Run) -> usize {
        self.range.start(Place::Region, run).get()
    }

    fn bits(&self, place: Place) -> &Bits {
        match place {
            Place::Region => &self.in_region,
            Place::Shadow => &self.in_shadow,
        }
    }

    /// Opens the chunks of a run, so that its pages can be shown.
    fn open_chunks(&self, run: Run) -> Result<(), Errno> {
        for chunk in chunks(run).filter(|&chunk| !self.open.get(chunk)) {
            let rights = self.rights.lock();
            self.map_chunk(&rights, chunk)?;
            self.open.put(Run::one(PageId(chunk)), true);
        }
        Ok(())
    }

    /// Open chunks, in order.
    fn all_open(&self) -> impl Iterator<Item = u32> {
        self.open
            .within(0, self.range.all().count.div_ceil(CHUNK_PAGES))
    }

    /// The parts of a run that lie in open chunks.
    fn open_parts(&self, run: Run) -> impl Iterator<Item = Run> {
        let open = chunks(run).filter(|&chunk| self.open.get(chunk));
        open.map(move |chunk| part_in(run, chunk))
    }

    /// Maps fresh pages in what the program has mapped of a chunk.
    fn map_chunk(&self, rights: &Rights, chunk: u32) -> Result<(), Errno> {
        let mut parts = rights.within(part_in(self.range.all(), chunk));
        parts.try_for_each(|(part, prot)| self.map_part(part, prot))
    }

    /// Maps fresh pages, all hidden, in a part of the region to which nobody has rights.
    fn map_part(&self, part: Run, prot: ProtFlags) -> Result<(), Errno> {
        let is_private = self.shown.is_none() && !self.private.lock().is_over();
        // Private memory reserves the addresses already.
        if !is_private {
            self.map_file(part)?;
        }
        if self.shown.is_some() {
            // Each page gets the program's rights when it is shown.
            return Ok(());
        }
        self.give_rights(part, prot, [part])?;
        if is_private {
            self.private.lock().insert(part);
        }
        Ok(())
    }

    /// Maps a part of the region to the file, without rights.
    fn map_file(&self, part: Run) -> Result<(), Errno> {
        let (at, offset) = (self.region(part), self.offset(part.first));
        // SAFETY: `region` has checked the part: it lies in the region, to which no Rust code refers.
        unsafe { hide::map_inaccessible(&self.file, at, part.bytes(), offset) }
    }

    /// Gives the program its rights to a part to which nobody has any, once markers hide these pages of it.
    fn give_rights(
        &self,
        part: Run,
        prot: ProtFlags,
        hidden: impl IntoIterator<Item = Run>,
    ) -> Result<(), Errno> {
        for run in hidden {
            // SAFETY: `region` has checked the run: it lies in the region, to which no Rust code refers.
            unsafe { hide::hide(self.region(run), run.bytes())? };
        }
        let prot = MprotectFlags::from_bits_retain(prot.bits());
        self.range.set_protection(part, prot)
    }

    /// Hides pages that the program has mapped. What private ones have is lost.
    fn hide(&self, run: Run) -> Result<(), Errno> {
        match &self.shown {
            Some(shown) => self.hide_by_rights(&self.rights.lock(), &mut shown.lock(), run),
            // SAFETY: `region` has checked the run: it lies in the region, to which no Rust code refers.
            None => unsafe { hide::hide(self.region(run), run.bytes()) },
        }
    }

    /// Shows pages that the program has mapped. Where the kernel has no mapping for them, they stay withdrawn.
    fn show(&self, run: Run) -> Result<(), Errno> {
        self.open_chunks(run)?;
        match &self.shown {
            Some(shown) => match self.show_by_rights(&self.rights.lock(), &mut shown.lock(), run) {
                Err(Errno::NOMEM) => Ok(()),
                shown => shown,
            },
            // SAFETY: as for `hide`.
            None => unsafe { hide::show(self.region(run), run.bytes()) },
        }
    }

    /// Puts a long run of zeros into the page table with one call, as stores to it follow. With short ones the engine would
    /// be locked for too long. (Of pages with contents, the first load puts up to 16 into the page table, for less.)
    fn populate(&self, run: Run) {
        if run.count >= POPULATE_MIN {
            // SAFETY: as for `hide`.
            unsafe { hide::populate(self.region(run), run.bytes()) };
        }
    }

    /// Frees the contents of pages that are in neither place.
    fn punch(&self, run: Run) {
        // SAFETY: the pages are hidden in the region, and not in the shadow: nobody refers to their contents.
        let punched = unsafe { map::punch(&self.file, self.offset(run.first), run.bytes() as u64) };
        // What is left would be read where zeros are due.
        punched.expect("a memfd gives up its contents");
    }

    /// Reads pages of the file.
    fn read(&self, run: Run, into: &mut [u8]) -> Result<(), Errno> {
        match rustix::io::pread(&*self.file, into, self.offset(run.first))? {
            bytes if bytes == run.bytes() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Puts contents into the file, for pages that nobody can touch.
    fn write(&self, run: Run, bytes: &[u8]) -> Result<(), Errno> {
        let (from, len) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the bytes are borrowed.
        unsafe { map::write_all(&self.file, self.offset(run.first), from, len) }
    }

    /// Shows absent pages, private ones and pages of the file: without contents both read as zeros.
    fn place_zeros(&self, run: Run) -> Result<(), Errno> {
        self.show(run)?;
        self.populate(run);
        Ok(())
    }

    /// Puts contents into the file, and shows them in the region.
    fn place(&self, place: Place, run: Run, from: Source<'_>) -> Result<(), Errno> {
        // A fork looks for contents in open chunks alone.
        self.open_chunks(run)?;
        self.settle(run)?;
        self.fill(run, from)?;
        match place {
            Place::Region => self.show(run),
            Place::Shadow => Ok(()),
        }
    }

    fn fill(&self, run: Run, from: Source<'_>) -> Result<(), Errno> {
        match from {
            // Without contents a page reads as zeros.
            Source::Zeros => Ok(()),
            Source::Bytes(bytes) => self.write(run, bytes),
            // The contents are there already.
            Source::Page(_, first) if first == run.first => Ok(()),
            Source::Page(_, first) => {
                self.settle(Run::new(first, run.count))?;
                let mut page = PageBuffer::new();
                (0..run.count).try_for_each(|index| {
                    self.read(Run::one(first.plus(index)), &mut page.0)?;
                    self.write(Run::one(run.first.plus(index)), &page.0)
                })
            }
        }
    }
}

/// The limit on file sizes, in bytes, if it is lower than this.
fn file_limit_below(bytes: usize) -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.filter(|&limit| limit < bytes as u64)
}

/// What a SIGSEGV at a page of the region means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// The page is hidden: the pager has to bring it in.
    Absent,
    /// The page has come meanwhile.
    Again,
    /// The page is there, hidden to save mappings: it has to be shown ([`Aliased::reveal`]).
    Withdrawn,
    /// The program has no right to this access.
    Forbidden,
}

/// All threads of the pager share the file, so a shared reference is the address space.
impl AddressSpace for &Aliased {
    fn has_shadow(&self) -> bool {
        true
    }

    fn shift(&mut self, to: Place, run: Run) -> Done {
        if !self.rights.lock().cover(run) {
            return Done::stopped(0, Stop::Invalid);
        }
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let moves = |page: PageId| self.bits(from).get(page.0) && !self.bits(to).get(page.0);
        let part = prefix(run, moves);
        if part.count == 0 {
            let exists = self.bits(to).get(run.first.0);
            return Done::stopped(0, if exists { Stop::Exists } else { Stop::Missing });
        }
        let changed = self.settle(part).and_then(|()| match to {
            Place::Region => self.show(part),
            Place::Shadow => self.hide(part),
        });
        if let Err(error) = changed {
            return Done::stopped(0, stop(error));
        }
        self.bits(from).put(part, false);
        self.bits(to).put(part, true);
        done(part, run)
    }

    fn relocate(&mut self, _: Place, _: PageId, _: PageId) -> Done {
        // A page is bound to its offset in the file: it is copied.
        Done::stopped(0, Stop::Invalid)
    }

    /// So many pages with few calls. The kernel's are small: a huge one could not be hidden in part.
    fn zero_huge(&mut self, first: PageId) -> Done {
        self.copy(
            Place::Region,
            Run::new(first, HUGE_PAGES),
            Source::Zeros,
            false,
        )
    }

    fn protect(&mut self, _: Run, _: bool) -> Result<(), Stop> {
        unreachable!("the engine knows that nothing stops stores")
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        // It is hidden, and the engine knows it as poisoned.
        match self.in_region.get(page.0) {
            true => Err(Stop::Exists),
            false => Ok(()),
        }
    }

    fn wake(&mut self, _: Run) {
        // A faulting thread waits for the pager, not for the kernel.
    }

    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        runs.iter().for_each(|&run| self.drop_from(place, run));
        Ok(())
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        self.bits(place).get(page.0)
    }

    fn unshare(&mut self, _: PageId) -> bool {
        // No page is shared: a fork copies them.
        false
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        let (rights, end) = self.rights.lock().get(page)?;
        Some(Mapping {
            pages: end.0 - page.0,
            protection: rights.bits(),
            writable: rights.contains(ProtFlags::READ | ProtFlags::WRITE),
        })
    }

    fn open_to_moves(&mut self, _: Run, _: u32) -> Result<(), Stop> {
        unreachable!("pages are moved whatever the program's rights to them")
    }

    fn close_to_moves(&mut self, _: Run, _: u32) -> Result<(), Stop> {
        unreachable!("pages are moved whatever the program's rights to them")
    }
}

impl Backend for Aliased {
    fn copy(&self, place: Place, run: Run, from: Source<'_>, protect: bool) -> Done {
        assert!(!protect, "nothing stops stores");
        if place == Place::Region && !self.rights.lock().cover(run) {
            return Done::stopped(0, Stop::Missing);
        }
        let from_shadow = matches!(from, Source::Page(Place::Shadow, first) if first == run.first);
        let vacant = |page: PageId| {
            let there = [Place::Region, Place::Shadow].map(|place| self.bits(place).get(page.0));
            match place {
                Place::Region if from_shadow => there == [false, true],
                _ => there == [false, false],
            }
        };
        let part = prefix(run, vacant);
        if part.count == 0 {
            return Done::stopped(0, Stop::Exists);
        }
        let from = match from {
            Source::Bytes(bytes) => Source::Bytes(&bytes[..part.bytes()]),
            from => from,
        };
        self.await_drops(part);
        let placed = match (place, from) {
            (Place::Region, Source::Zeros) => self.place_zeros(part),
            _ => self.place(place, part, from),
        };
        if let Err(error) = placed {
            return Done::stopped(0, stop(error));
        }
        self.bits(place).put(part, true);
        done(part, run)
    }

    fn writes_in_place(&self) -> bool {
        // The shadow is mapped nowhere: see the invariants.
        false
    }

    unsafe fn copy_out(&self, run: Run, into: &mut [u8]) -> Result<(), Stop> {
        self.read(run, into).map_err(stop)
    }

    unsafe fn is_zero(&self, page: PageId) -> bool {
        let mut copy = PageBuffer::new();
        // A page that cannot be read is written, which fails with a message.
        self.read(Run::one(page), &mut copy.0).is_ok() && is_zero(&copy.0)
    }
}
