//! A kernel that misbehaves by a seed: the model memory as an address space, with every answer that
//! Linux may give, including partial success.

use crate::memory::{Memory, Version};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::store::Store;
use flashvm_core::space::{AddressSpace, Contents, Done, Executor, Mapping, Stop};
use flashvm_core::{HUGE_PAGES, IoId, Packed, PageId, Place, Run, SlotId};
use std::collections::BTreeSet;

/// Inconvenient answers of the kernel, with their probabilities per million pages or calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFaults {
    /// A page that cannot be moved during this call, as if pinned; also a mapping that cannot be made writable
    /// (`ENOMEM`).
    pub busy: u32,
    /// A call that is postponed (`EAGAIN`), before its first page or amid its run.
    pub again: u32,
    /// A move that reports `EEXIST` at some page but moves the pages from there on, as Linux 6.18 does.
    pub misreported: u32,
}

/// Properties of the program's address space that the pager cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Pages of each mapping; a copy or a move across two fails. 0: all is one mapping.
    pub mapping_pages: u32,
    /// The program may only load in every n-th mapping. 0: it may store to all.
    pub read_only_every: u32,
    /// The program may execute every n-th mapping. 0: none.
    pub code_every: u32,
    /// The program wants huge pages wherever one mapping has room for them.
    pub huge: bool,
}

impl Layout {
    fn mapping_of(self, page: PageId) -> u32 {
        page.0.checked_div(self.mapping_pages).unwrap_or(0)
    }

    /// Whether the program may store to a page.
    #[must_use]
    pub fn is_writable(self, page: PageId) -> bool {
        let of = self.mapping_of(page);
        self.read_only_every == 0 || of % self.read_only_every != self.read_only_every - 1
    }

    /// Whether the program may execute a page.
    fn is_code(self, page: PageId) -> bool {
        self.code_every != 0 && self.mapping_of(page).is_multiple_of(self.code_every)
    }

    /// Whether a fault at a page may fill a huge page.
    pub(super) fn is_huge(self, page: PageId) -> bool {
        let first = page.huge_start();
        self.huge && self.is_writable(first) && self.end_of_mapping(first) - first.0 >= HUGE_PAGES
    }

    fn end_of_mapping(self, page: PageId) -> u32 {
        match self.mapping_pages {
            0 => u32::MAX,
            pages => (self.mapping_of(page) + 1) * pages,
        }
    }
}

/// The address space of a simulated process, borrowed for one call of the placement.
pub(super) struct ModelSpace<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) rng: &'a mut Rng,
    pub(super) faults: KernelFaults,
    pub(super) layout: Layout,
    pub(super) has_shadow: bool,
    pub(super) protects: bool,
    /// Pages with stale copies in the shadow.
    pub(super) stale: &'a [PageId],
    /// The read that has just ended, and its data.
    pub(super) just_read: Option<&'a (IoId, Vec<Option<Version>>)>,
    pub(super) pool: &'a Pool,
    pub(super) store: &'a Store,
    /// The read of a compressed page that has just ended, and its first slot.
    pub(super) just_unpacked: Option<(IoId, SlotId)>,
    /// The pages whose waiters to wake.
    pub(super) woken: &'a mut Vec<Run>,
    /// Pages that the pager has made writable for a moment.
    pub(super) opened: Vec<PageId>,
    /// Mappings whose pages may be executed in the shadow as well.
    pub(super) code_in_shadow: &'a mut BTreeSet<u32>,
    /// Pages whose contents are lost.
    pub(super) lost: &'a mut Vec<PageId>,
}

impl ModelSpace<'_> {
    /// Pages of a run that the kernel processes before it postpones the rest; `None`: it processes all.
    fn pages_before_again(&mut self, count: u32) -> Option<u32> {
        self.rng
            .chance(self.faults.again)
            .then(|| self.rng.below_u32(count))
    }

    fn is_open(&self, page: PageId) -> bool {
        let is_alike = self.layout.is_code(page)
            == self.code_in_shadow.contains(&self.layout.mapping_of(page));
        // Only `UFFDIO_MOVE` needs a mapping that may be stored to, and rights alike.
        !self.protects
            || (is_alike && (self.layout.is_writable(page) || self.opened.contains(&page)))
    }
}

impl AddressSpace for ModelSpace<'_> {
    fn has_shadow(&self) -> bool {
        self.has_shadow
    }

    fn shift(&mut self, to: Place, run: Run) -> Done {
        let Run { first, count } = run;
        let end = self.layout.end_of_mapping(first);
        if first.0 + count > end {
            return Done::stopped(0, Stop::Invalid);
        }
        if !self.is_open(first) {
            return Done::stopped(0, Stop::Invalid);
        }
        let again = self.pages_before_again(count);
        let misreported = self.rng.chance(self.faults.misreported);
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        // From this page of the run on, pages are moved but not reported.
        let silent_from = if misreported {
            self.rng.below_u32(count)
        } else {
            count
        };
        for done in 0..count {
            let page = first.plus(done);
            let stopped = |stop| Done::stopped(done.min(silent_from), stop);
            if again == Some(done) && done <= silent_from {
                return stopped(Stop::Again);
            }
            if self.holds(to, page) {
                return stopped(Stop::Exists);
            }
            if !self.holds(from, page) {
                return if done > silent_from {
                    stopped(Stop::Exists)
                } else {
                    stopped(Stop::Missing)
                };
            }
            let shared = self.memory.shares(from, page);
            if shared || self.rng.chance(self.faults.busy) {
                return if done > silent_from {
                    stopped(Stop::Exists)
                } else {
                    stopped(Stop::Busy)
                };
            }
            match to {
                Place::Region => self.memory.restore(page),
                Place::Shadow => self.memory.shadow(page),
            }
        }
        if silent_from < count {
            return Done::stopped(silent_from, Stop::Exists);
        }
        Done::all(count)
    }

    fn relocate(&mut self, _: Place, _: PageId, _: PageId) -> Done {
        unreachable!("simulated programs move their memory by `Simulator::relocate`")
    }

    fn zero_huge(&mut self, first: PageId) -> Done {
        if !self.has_shadow {
            return Done::stopped(0, Stop::Invalid);
        }
        let run = Run::new(first, HUGE_PAGES);
        self.copy(Place::Region, run, &Contents::Zeros, false)
    }

    fn protect(&mut self, run: Run, on: bool) -> Result<(), Stop> {
        assert!(self.protects, "{run:?} cannot be protected");
        if self.pages_before_again(run.count).is_some() {
            return Err(Stop::Again);
        }
        for page in run.pages() {
            if !self.holds(Place::Region, page) {
                continue;
            }
            if on {
                self.memory.protect(page);
            } else {
                self.memory.unprotect(page);
            }
        }
        if !on {
            self.wake(run);
        }
        Ok(())
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        if self.pages_before_again(1).is_some() {
            return Err(Stop::Again);
        }
        if !self.memory.is_poisoned(page) {
            self.memory.poison(page);
        }
        self.wake(Run::one(page));
        Ok(())
    }

    fn wake(&mut self, run: Run) {
        self.woken.push(run);
    }

    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        for page in runs.iter().flat_map(|run| run.pages()) {
            match place {
                Place::Shadow => self.memory.drop_shadow(page),
                Place::Region => self.memory.drop_mapped(page),
            }
        }
        Ok(())
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        match place {
            Place::Region => self.memory.mapped(page).is_some(),
            Place::Shadow => self.memory.shadow_holds(page),
        }
    }

    fn unshare(&mut self, page: PageId) -> bool {
        let done = self.rng.below(2) == 0;
        if done {
            self.memory.unshare(page);
        }
        done
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        Some(Mapping {
            pages: self.layout.end_of_mapping(page) - page.0,
            protection: u32::from(self.layout.is_writable(page)),
            writable: self.layout.is_writable(page),
        })
    }

    fn open_to_moves(&mut self, run: Run, _: u32) -> Result<(), Stop> {
        if self.rng.chance(self.faults.busy) {
            return Err(Stop::Failed(12));
        }
        self.opened = run.pages().collect();
        let mapping = self.layout.mapping_of(run.first);
        if self.layout.is_code(run.first) {
            self.code_in_shadow.insert(mapping);
        } else {
            self.code_in_shadow.remove(&mapping);
        }
        Ok(())
    }

    fn close_to_moves(&mut self, _: Run, _: u32) -> Result<(), Stop> {
        self.opened.clear();
        Ok(())
    }
}

impl Executor for ModelSpace<'_> {
    type Space = Self;
    type Kept = Vec<Version>;

    fn space(&mut self) -> &mut Self {
        self
    }

    fn copy(
        &mut self,
        place: Place,
        run: Run,
        from: &Contents<'_, Self::Kept>,
        protect: bool,
    ) -> Done {
        let Run { first, count } = run;
        if place == Place::Region && first.0 + count > self.layout.end_of_mapping(first) {
            return Done::stopped(0, Stop::Missing);
        }
        let again = self.pages_before_again(count);
        for done in 0..count {
            if again == Some(done) {
                return Done::stopped(done, Stop::Again);
            }
            let page = first.plus(done);
            if self.holds(place, page) {
                return Done::stopped(done, Stop::Exists);
            }
            let version = match *from {
                Contents::Zeros => 0,
                Contents::Page(Place::Shadow, first) => self.memory.in_shadow(first.plus(done)),
                Contents::Page(Place::Region, _) => {
                    unreachable!("simulated programs move their memory by `Simulator::relocate`")
                }
                Contents::Packed(from) => self.unpack(&from[done as usize]),
                Contents::Kept(kept, at) => kept[(at + done) as usize],
                Contents::Read(io, index) => self.read_page(io, index + done),
            };
            match (place, from) {
                (Place::Region, Contents::Page(..)) => self.memory.restore_copy(page, protect),
                (Place::Region, _) => {
                    let stale = self.stale.contains(&page);
                    self.memory.map(page, version, protect, stale);
                }
                (Place::Shadow, _) => self.memory.map_shadow(page, version),
            }
            if place == Place::Region {
                self.wake(Run::one(page));
            }
        }
        Done::all(count)
    }

    /// Nothing to do: reference counts tell which frames are shared.
    fn leave_frames(&mut self, _: Run) {}

    fn keep(&self, io: IoId, index: u32, count: u32) -> Self::Kept {
        (index..index + count)
            .map(|index| self.read_page(io, index))
            .collect()
    }

    fn inflate(&self, from: &Packed) -> Self::Kept {
        vec![self.unpack(from)]
    }

    fn part(kept: &Self::Kept, index: u32, count: u32) -> Self::Kept {
        kept[index as usize..(index + count) as usize].to_vec()
    }

    fn address(&self, page: PageId) -> usize {
        page.0 as usize * flashvm_core::PAGE_SIZE
    }

    fn tell_lost(&mut self, page: PageId) {
        self.lost.push(page);
    }

    fn fail(&self, why: &str) -> ! {
        panic!("{why}");
    }
}

impl ModelSpace<'_> {
    fn unpack(&self, from: &Packed) -> Version {
        match *from {
            Packed::Pool(object) => self.pool.get(object),
            Packed::Read { io, skip, bytes } => {
                let (of, slot) = self.just_unpacked.expect("a read that has just ended");
                assert_eq!(of, io, "a read that has not just ended is unpacked");
                let found = self.store.packed(slot, skip, bytes);
                found.unwrap_or_else(|| panic!("nothing of {bytes} bytes in {slot:?} + {skip}"))
            }
        }
    }

    fn read_page(&self, io: IoId, index: u32) -> Version {
        let (of, seen) = self.just_read.expect("a read that has just ended");
        assert_eq!(*of, io, "a read that has not just ended is mapped");
        seen[index as usize].unwrap_or_else(|| panic!("page {index} read amid a write"))
    }
}
