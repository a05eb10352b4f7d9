//! Handing pages out to the allocator, and taking them back.
//!
//! Pages are handed out in runs of one shape: neighbours are then one mapping as long as their frames are
//! neighbours. From run to run the shapes of a size take turns, so that all ranges of the frames are
//! in use alike (paper, 3.4).

use super::{Chameleon, Core};
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::table::PAGES_MAX;
use flashvm_core::chameleon::{BLOCK_BYTES, Organization, Place, SIZES, Shape, Svmp};
use rustix::io::Errno;
use rustix_futex_sync::MutexGuard;

/// Pages that are handed out at once, at most.
pub const RUN_PAGES: u32 = 64;
/// Bytes in which budget and store are asked for room.
const COMMIT_BYTES: u64 = 1 << 20;

/// Pages on their way between allocator and heap.
#[derive(Clone, Copy, Debug)]
pub struct PageList {
    count: u32,
    shape: Shape,
    pages: [u32; RUN_PAGES as usize],
}

impl Default for PageList {
    fn default() -> Self {
        Self {
            count: 0,
            shape: Shape::WHOLE,
            pages: [0; RUN_PAGES as usize],
        }
    }
}

impl PageList {
    /// The pages: indices among the heap's addresses.
    #[must_use]
    pub fn pages(&self) -> &[u32] {
        &self.pages[..self.count as usize]
    }

    /// The first sector of the range that all of them use.
    #[must_use]
    pub fn first_sector(&self) -> u32 {
        self.shape.first_sector()
    }

    /// Hands pages of one shape out.
    ///
    /// # Panics
    /// With more than [`RUN_PAGES`].
    pub fn hand_out(&mut self, shape: Shape, pages: impl ExactSizeIterator<Item = u32>) {
        self.shape = shape;
        self.count = pages.len() as u32;
        let to = &mut self.pages[..self.count as usize];
        to.iter_mut().zip(pages).for_each(|(to, page)| *to = page);
    }

    /// Names pages to be given back.
    ///
    /// # Panics
    /// With more than [`RUN_PAGES`].
    pub fn set(&mut self, pages: &[u32]) {
        self.count = pages.len() as u32;
        self.pages[..pages.len()].copy_from_slice(pages);
    }
}

/// Which addresses are in use.
#[derive(Debug)]
pub(super) struct Addresses {
    /// By size, the shape whose turn it is.
    turn: [Shape; SIZES.len()],
    /// By shape, pages that were taken back.
    free: [Vec<Svmp>; 16],
    /// Pages from here on were never handed out.
    next: u32,
    /// The set of shapes that were ever handed out.
    shapes: u16,
    /// Bytes of the pages that are handed out, and bytes for which there is room.
    bytes: u64,
    committed: u64,
}

impl Addresses {
    pub(super) fn new() -> Self {
        Self {
            turn: SIZES.map(|size| Shape::new(size, 0).expect("a size of Table 2")),
            free: Default::default(),
            next: 0,
            shapes: 0,
            bytes: 0,
            committed: 0,
        }
    }

    /// Pages that were ever handed out.
    pub(super) fn high(&self) -> u32 {
        self.next
    }

    /// Whether pages of this shape were ever handed out.
    pub(super) fn in_use(&self, shape: Shape) -> bool {
        self.shapes & shape.bit() != 0
    }
}

impl Chameleon {
    /// Hands out pages of one shape of `size` bytes: all zeros.
    ///
    /// # Errors
    /// `ENOMEM` if budget and store have no room, the addresses are used up, or the budget of mappings is:
    /// the caller goes to the page pager then.
    pub(crate) fn take_pages(
        &self,
        pager: &Pager,
        size: usize,
        list: &mut PageList,
    ) -> Result<(), Errno> {
        let at = SIZES.iter().position(|&s| s == size).ok_or(Errno::INVAL)?;
        let mut core = self.lock();
        if core.overlays.used_up() && core.frames.used_sectors() > 0 && self.settings.spill {
            return Err(Errno::NOMEM);
        }
        let shape = core.pages.turn[at];
        let free = core.pages.free[shape.number() as usize].len() as u32;
        let is_new = free == 0;
        let count = if is_new {
            RUN_PAGES
        } else {
            free.min(RUN_PAGES)
        };
        if is_new && core.pages.next + RUN_PAGES > PAGES_MAX {
            return Err(Errno::NOMEM);
        }
        core.reserve(pager, shape, count)?;
        let Addresses {
            turn, free, next, ..
        } = &mut core.pages;
        turn[at] = shape.next();
        if is_new {
            list.hand_out(shape, *next..*next + RUN_PAGES);
            *next += RUN_PAGES;
        } else {
            let free = &mut free[shape.number() as usize];
            let from = free.len() - count as usize;
            // Runs that were taken back together go out together.
            list.hand_out(shape, free.drain(from..).map(|page| page.0));
        }
        core.pages.shapes |= shape.bit();
        for &page in list.pages() {
            core.table.set(Svmp(page), shape, Place::Fresh);
        }
        Ok(())
    }

    /// Takes pages back: their contents are of no use to anybody. Nothing is brought in for it.
    pub(crate) fn give_pages(&self, pager: &Pager, list: &mut PageList) {
        let pages = &mut list.pages[..list.count as usize];
        pages.sort_unstable();
        let mut core = self.lock();
        let reading = |core: &MutexGuard<'_, Core>| {
            let mut pages = pages.iter();
            pages.any(|&page| matches!(core.table.get(Svmp(page)).1, Place::Reading(..)))
        };
        while reading(&core) {
            core = self.await_change(core);
        }
        for run in pages.chunk_by(|one, other| one + 1 == *other) {
            self.lift_run(&mut core, pager, run[0]..run[0] + run.len() as u32);
        }
        for &page in pages.iter() {
            let page = Svmp(page);
            let (shape, place) = core.table.get(page);
            if place == Place::Absent {
                pager.die(&format!(
                    "free(): the page at {:#x} was given back twice",
                    self.address(page)
                ));
            }
            if let Some(frame) = place.frame() {
                core.frames.release(frame, shape);
            }
            if let Some(location) = place.location() {
                let Core {
                    flash, clusters, ..
                } = &mut *core;
                flash.release(clusters, location, shape);
            }
            core.table.set(page, shape, Place::Absent);
            core.pages.free[shape.number() as usize].push(page);
            core.forgo(shape, 1);
        }
        core.uncommit(pager);
        // Frames that nobody needs any more are of use elsewhere; a few stay for what comes next.
        let idle = core.frames.free_frames();
        if idle > core.held / 2 && idle > 1024 {
            let mut returned = 0;
            while returned < idle / 2
                && let Some(frame) = core.frames.shrink()
            {
                map::punch(&self.frames_file, frame.0);
                returned += 1;
            }
            core.held -= returned;
            pager.take_back_frames(returned);
        }
        self.publish(&core, pager);
    }
}

impl Core {
    /// Sees to it that budget and store have room for so many pages more.
    ///
    /// # Errors
    /// `ENOMEM` if they have not.
    fn reserve(&mut self, pager: &Pager, shape: Shape, count: u32) -> Result<(), Errno> {
        let bytes = u64::from(count) * shape.size() as u64;
        if let Organization::InPlace(in_place) = &mut self.flash {
            let promised = in_place.promise(&mut self.clusters, shape, count);
            promised.map_err(|_| Errno::NOMEM)?;
        }
        self.pages.bytes += bytes;
        while self.room_needed(pager) > self.pages.committed {
            if !pager.commit_pages(self.pages_to_commit()) {
                self.forgo(shape, count);
                self.uncommit(pager);
                return Err(Errno::NOMEM);
            }
            self.pages.committed += COMMIT_BYTES;
        }
        Ok(())
    }

    /// So many pages need no room any more.
    fn forgo(&mut self, shape: Shape, count: u32) {
        self.pages.bytes -= u64::from(count) * shape.size() as u64;
        if let Organization::InPlace(in_place) = &mut self.flash {
            in_place.forget(&mut self.clusters, shape, count);
        }
    }

    /// Gives back what has been asked for too much.
    fn uncommit(&mut self, pager: &Pager) {
        while self.pages.committed > self.room_needed(pager) + 2 * COMMIT_BYTES {
            self.pages.committed -= COMMIT_BYTES;
            pager.uncommit_pages(self.pages_to_commit());
        }
    }

    /// Bytes for which budget and store must have room: those of what is handed out, or of the blocks with
    /// slots for it. As a page keeps its slot while it lies in a frame, what frames there can be for it come
    /// on top.
    fn room_needed(&self, pager: &Pager) -> u64 {
        match &self.flash {
            Organization::Log(_) => self.pages.bytes,
            Organization::InPlace(in_place) => {
                let slots = u64::from(in_place.held()) * BLOCK_BYTES as u64;
                slots + slots.min(pager.budget_bytes() as u64 / 2)
            }
        }
    }

    /// Pages that [`COMMIT_BYTES`] need. In the log a quarter more: headers of blocks, and what the cleaner
    /// needs to gain by its work.
    fn pages_to_commit(&self) -> u64 {
        let pages = COMMIT_BYTES / PAGE_SIZE as u64;
        match self.flash {
            Organization::Log(_) => pages * 5 / 4,
            Organization::InPlace(_) => pages,
        }
    }
}
