//! The addresses of managed memory: each page has one in the region and one in the shadow.
//!
//! Both are one reservation, the shadow behind the region. So a page's address in the shadow is its address in
//! the region plus a constant.

use crate::sys::map;
use flashvm_core::{PAGE_SIZE, PageId, Place, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};

/// Bytes; alignment of the managed range: no allocator asks for more.
const ALIGN: usize = 1 << 30;

/// An address of the region or the shadow. Rust code must not make a reference of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address(usize);

impl Address {
    /// The address for the kernel and the program.
    pub(crate) fn get(self) -> usize {
        self.0
    }
}

/// The addresses of a process' region and shadow. They stay reserved until the process ends.
#[derive(Debug)]
pub(crate) struct ManagedRange {
    base: usize,
    pages: u32,
}

impl ManagedRange {
    /// Reserves addresses for `pages` pages and for their shadow. They are inaccessible at first.
    pub(crate) fn reserve(pages: u32) -> Result<Self, Errno> {
        let span = pages as usize * PAGE_SIZE;
        let base = map::reserve(2 * span, ALIGN)?;
        map::keep_from_dumps(base, 2 * span);
        Ok(Self { base, pages })
    }

    /// All pages.
    pub(crate) fn all(&self) -> Run {
        Run::new(PageId(0), self.pages)
    }

    fn span(&self) -> usize {
        self.pages as usize * PAGE_SIZE
    }

    /// The address of a page in the region or in the shadow. The page behind the last has an address as well: the end.
    ///
    /// # Panics
    /// For a page beyond that: its address may be somebody else's memory.
    pub(crate) fn at(&self, place: Place, page: PageId) -> Address {
        assert!(page.0 <= self.pages, "a page of the managed range");
        let start = match place {
            Place::Region => self.base,
            Place::Shadow => self.base + self.span(),
        };
        Address(start + page.0 as usize * PAGE_SIZE)
    }

    /// The address of a run's first page.
    ///
    /// # Panics
    /// If the run does not lie entirely in the range.
    pub(crate) fn start(&self, place: Place, run: Run) -> Address {
        assert!(
            run.count <= self.pages - run.first.0.min(self.pages),
            "a run of the managed range"
        );
        self.at(place, run.first)
    }

    /// The page at an address. `None` if it is not in the region.
    pub(crate) fn page_at(&self, address: usize) -> Option<PageId> {
        let offset = address.wrapping_sub(self.base) / PAGE_SIZE;
        (offset < self.pages as usize).then_some(PageId(offset as u32))
    }

    /// The pages of the region that `len` bytes at `address` touch. `None` if there are none.
    pub(crate) fn pages_of(&self, address: usize, len: usize) -> Option<Run> {
        let from = address.max(self.base);
        let to = address.saturating_add(len).min(self.base + self.span());
        let first = self.page_at(from).filter(|_| from < to)?;
        let last = self.page_at(to - 1)?;
        Some(Run::new(first, last.0 - first.0 + 1))
    }

    /// Puts fresh memory over a run of the region, whatever is there. It is not registered: until it is, the
    /// kernel resolves its faults.
    pub(crate) fn map_anew(&self, run: Run, prot: ProtFlags) -> Result<(), Errno> {
        let start = self.start(Place::Region, run).get();
        // SAFETY: `start` has checked that the run lies in this reservation, and no Rust code refers to managed memory.
        unsafe { map::map_fixed(start, run.bytes(), prot) }
    }

    /// Puts inaccessible memory, which will have small pages, over a run of the region, whatever is there.
    pub(super) fn reserve_anew(&self, run: Run) -> Result<(), Errno> {
        self.map_anew(run, ProtFlags::empty())?;
        let start = self.start(Place::Region, run).get();
        map::keep_from_dumps(start, run.bytes());
        map::keep_small(start, run.bytes());
        Ok(())
    }

    /// Maps memory for the whole shadow.
    pub(super) fn map_shadow(&self, prot: ProtFlags) -> Result<(), Errno> {
        let start = self.start(Place::Shadow, self.all()).get();
        // SAFETY: the shadow is the second half of this reservation, and no Rust code refers to it.
        unsafe { map::map_fixed(start, self.span(), prot)? };
        map::keep_from_dumps(start, self.span());
        Ok(())
    }

    /// Throws away the contents of a run of the region, as the program has asked.
    pub(crate) fn zap(&self, run: Run) -> Result<(), Errno> {
        let start = self.start(Place::Region, run).get();
        // SAFETY: `start` has checked that the run lies in this reservation. The program asks for the loss, and no Rust
        // code refers to managed memory.
        unsafe { map::drop_pages(start, run.bytes()) }
    }

    /// Changes the access rights to a run of the shadow.
    pub(super) fn set_shadow_protection(&self, run: Run, prot: MprotectFlags) -> Result<(), Errno> {
        let start = self.start(Place::Shadow, run).get();
        // SAFETY: as in `set_protection`.
        unsafe { map::protect(start, run.bytes(), prot) }
    }

    /// Changes the program's access rights to a run of the region.
    pub(crate) fn set_protection(&self, run: Run, prot: MprotectFlags) -> Result<(), Errno> {
        let start = self.start(Place::Region, run).get();
        // SAFETY: `start` has checked that the run lies in this reservation. No Rust code refers to managed memory, so none
        // loses access.
        unsafe { map::protect(start, run.bytes(), prot) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_addresses_are_each_others_inverse() {
        let range = ManagedRange::reserve(16).unwrap();
        let first = range.at(Place::Region, PageId(0)).get();
        assert!(first.is_multiple_of(ALIGN));
        for page in range.all().pages() {
            let at = range.at(Place::Region, page).get();
            assert_eq!(range.page_at(at), Some(page));
            assert_eq!(range.page_at(at + PAGE_SIZE - 1), Some(page));
            let shadow = range.at(Place::Shadow, page).get();
            assert_eq!(shadow - at, 16 * PAGE_SIZE);
            assert_eq!(range.page_at(shadow), None, "the program has nothing there");
        }
        assert_eq!(range.page_at(first - 1), None);
        assert_eq!(range.page_at(first.wrapping_sub(PAGE_SIZE)), None);
    }

    #[test]
    fn bytes_touch_the_pages_that_they_lie_in() {
        let range = ManagedRange::reserve(16).unwrap();
        let start = range.at(Place::Region, PageId(0)).get();
        let run = |first, count| Some(Run::new(PageId(first), count));
        assert_eq!(range.pages_of(start, 1), run(0, 1));
        assert_eq!(range.pages_of(start + PAGE_SIZE - 1, 2), run(0, 2));
        assert_eq!(range.pages_of(start + PAGE_SIZE, PAGE_SIZE), run(1, 1));
        assert_eq!(range.pages_of(start - 10, usize::MAX), run(0, 16));
        assert_eq!(range.pages_of(start, 0), None);
        assert_eq!(range.pages_of(start - 10, 10), None);
        assert_eq!(range.pages_of(start + 16 * PAGE_SIZE, 1), None);
    }

    #[test]
    #[should_panic(expected = "a run of the managed range")]
    fn no_run_reaches_beyond_the_range() {
        let range = ManagedRange::reserve(16).unwrap();
        let _ = range.start(Place::Shadow, Run::new(PageId(8), 9));
    }

    #[test]
    #[should_panic(expected = "a run of the managed range")]
    fn nor_does_one_whose_end_overflows() {
        let range = ManagedRange::reserve(16).unwrap();
        let _ = range.start(Place::Region, Run::new(PageId(1), u32::MAX));
    }
}
