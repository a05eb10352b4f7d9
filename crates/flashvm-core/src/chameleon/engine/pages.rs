//! Hands pages out to the allocator, and takes them back.
//!
//! Pages are handed out in runs of one shape: one mapping covers neighbours while their frames are
//! neighbours. The shapes of a size take turns from run to run, so that all ranges of the frames
//! are used evenly (paper, 3.4).

use super::super::table::PAGES_MAX;
use super::super::{BLOCK_BYTES, Organization, SIZES, Shape, Svmp, SvmpState};
use super::{Action, Engine, Failure, Host, Outcome};
use crate::{ClusterSource, PAGE_SIZE};
use serde::{Deserialize, Serialize};

/// Longest run that is handed out at once.
pub const RUN_PAGES: u32 = 64;
/// Unit in which budget and store are asked for room.
const COMMIT_BYTES: u64 = 1 << 20;

/// Pages on their way between allocator and heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Shape, Vec<u32>)", into = "(Shape, Vec<u32>)")]
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

impl From<PageList> for (Shape, Vec<u32>) {
    fn from(list: PageList) -> Self {
        (list.shape, list.pages().to_vec())
    }
}

impl From<(Shape, Vec<u32>)> for PageList {
    fn from((shape, pages): (Shape, Vec<u32>)) -> Self {
        let mut list = Self::default();
        list.hand_out(shape, pages.into_iter());
        list
    }
}

impl PageList {
    /// The pages: indices among the heap's addresses.
    #[must_use]
    pub fn pages(&self) -> &[u32] {
        &self.pages[..self.count as usize]
    }

    /// The range that each of them uses.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The first sector of that range.
    #[must_use]
    pub fn first_sector(&self) -> u32 {
        self.shape.first_sector()
    }

    /// Hands out pages of one shape.
    ///
    /// # Panics
    /// With more than [`RUN_PAGES`].
    pub fn hand_out(&mut self, shape: Shape, pages: impl ExactSizeIterator<Item = u32>) {
        self.shape = shape;
        self.count = pages.len() as u32;
        let to = &mut self.pages[..self.count as usize];
        to.iter_mut().zip(pages).for_each(|(to, page)| *to = page);
    }

    /// Sets the pages to return.
    ///
    /// # Panics
    /// With more than [`RUN_PAGES`].
    pub fn set(&mut self, pages: &[u32]) {
        self.count = pages.len() as u32;
        self.pages[..pages.len()].copy_from_slice(pages);
    }

    /// Sorts the pages by address.
    pub fn sort(&mut self) {
        self.pages[..self.count as usize].sort_unstable();
    }
}

/// The addresses in use.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    /// By size, the next shape.
    turn: [Shape; SIZES.len()],
    /// By shape, returned pages.
    free: [Vec<Svmp>; 16],
    /// Pages from here on were never handed out.
    next: u32,
    /// The set of shapes ever handed out.
    shapes: u16,
    /// Bytes of the pages handed out, and bytes for which room is committed.
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

    /// Bytes of the pages handed out.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether pages of this shape were ever handed out.
    pub(super) fn in_use(&self, shape: Shape) -> bool {
        self.shapes & shape.bit() != 0
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Hands out pages of one shape of `size` bytes: all zeros. `None` if budget, store, addresses
    /// or mappings have no room: the caller then asks the page pager.
    pub(super) fn take_pages(&mut self, host: &mut impl Host, size: usize) -> Option<PageList> {
        let at = SIZES.iter().position(|&s| s == size)?;
        if self.config.spill && self.mappings.used_up() && self.frames.used_sectors() > 0 {
            return None;
        }
        let shape = self.pages.turn[at];
        let free = self.pages.free[shape.number() as usize].len() as u32;
        let is_new = free == 0;
        let count = if is_new {
            RUN_PAGES
        } else {
            free.min(RUN_PAGES)
        };
        if is_new && self.pages.next + RUN_PAGES > PAGES_MAX {
            return None;
        }
        if !self.reserve(host, shape, count) {
            return None;
        }
        let mut list = PageList::default();
        let Addresses {
            turn, free, next, ..
        } = &mut self.pages;
        turn[at] = shape.next();
        if is_new {
            list.hand_out(shape, *next..*next + RUN_PAGES);
            *next += RUN_PAGES;
        } else {
            let free = &mut free[shape.number() as usize];
            let from = free.len() - count as usize;
            // A run that was returned together goes out together.
            list.hand_out(shape, free.drain(from..).map(|page| page.0));
        }
        self.pages.shapes |= shape.bit();
        for &page in list.pages() {
            self.table.set(Svmp(page), shape, SvmpState::Fresh);
        }
        Some(list)
    }

    /// Takes pages back. Reads nothing from flash.
    pub(super) fn give_pages(&mut self, host: &mut impl Host, list: &PageList) -> Action {
        let pages = list.pages();
        debug_assert!(pages.is_sorted());
        let is_read = |&page: &u32| matches!(self.table.get(Svmp(page)).1, SvmpState::Reading(..));
        if pages.iter().any(is_read) {
            return Action::Await;
        }
        for run in pages.chunk_by(|one, other| one + 1 == *other) {
            self.unmap_run(host, run[0]..run[0] + run.len() as u32);
        }
        for page in pages.iter().map(|&page| Svmp(page)) {
            let (shape, place) = self.table.get(page);
            if place == SvmpState::Absent {
                host.fail(Failure::GivenTwice(page));
            }
            if let Some(frame) = place.frame() {
                self.frames.release(frame, shape);
            }
            if let Some(location) = place.location() {
                self.flash.release(&mut self.clusters, location, shape);
            }
            self.table.set(page, shape, SvmpState::Absent);
            self.pages.free[shape.number() as usize].push(page);
            self.forgo(shape, 1);
        }
        self.uncommit(host);
        self.return_idle_frames(host);
        Action::Done(Outcome::Over)
    }

    /// Commits room for this many more pages; returns whether budget and store have it.
    fn reserve(&mut self, host: &mut impl Host, shape: Shape, count: u32) -> bool {
        if let Organization::InPlace(in_place) = &mut self.flash
            && in_place.promise(&mut self.clusters, shape, count).is_err()
        {
            return false;
        }
        self.pages.bytes += u64::from(count) * shape.size() as u64;
        while self.room_needed() > self.pages.committed {
            if !host.commit(self.pages_to_commit()) {
                self.forgo(shape, count);
                self.uncommit(host);
                return false;
            }
            self.pages.committed += COMMIT_BYTES;
        }
        true
    }

    /// `count` pages no longer need room.
    fn forgo(&mut self, shape: Shape, count: u32) {
        self.pages.bytes -= u64::from(count) * shape.size() as u64;
        if let Organization::InPlace(in_place) = &mut self.flash {
            in_place.forget(&mut self.clusters, shape, count);
        }
    }

    /// Returns commitments that exceed the need.
    fn uncommit(&mut self, host: &mut impl Host) {
        while self.pages.committed > self.room_needed() + 2 * COMMIT_BYTES {
            self.pages.committed -= COMMIT_BYTES;
            host.uncommit(self.pages_to_commit());
        }
    }

    /// Bytes to commit. Log: the bytes of the pages handed out. In place: the bytes of the blocks leased
    /// for them plus, since a resident page keeps its slot, of the frames that may hold pages.
    fn room_needed(&self) -> u64 {
        match &self.flash {
            Organization::Log(_) => self.pages.bytes,
            Organization::InPlace(in_place) => {
                let slots = u64::from(in_place.held()) * BLOCK_BYTES as u64;
                slots + slots.min(self.config.budget_bytes / 2)
            }
        }
    }

    /// Pages to commit for [`COMMIT_BYTES`]. In the log a quarter more: for block headers, and for
    /// the garbage without which cleaning gains nothing.
    fn pages_to_commit(&self) -> u64 {
        let pages = COMMIT_BYTES / PAGE_SIZE as u64;
        match self.flash {
            Organization::Log(_) => pages * 5 / 4,
            Organization::InPlace(_) => pages,
        }
    }
}
