//! Memory of a program that fits in RAM: private memory, which the kernel makes and frees fastest.
//!
//! A page of a file costs the kernel 1.7 times as much as one of private memory (Linux 6.18: it makes and frees 256 MiB in
//! 0.41 s and 0.24 s). So fresh pages are private, as long as no page has left. Before a page leaves, its contents have to
//! be in the file: it *settles*, with its neighbours, for one copy. From then on fresh pages are those of the file, since
//! they will leave as well.
//!
//! # Invariants
//!
//! - A private page is in the region, and has no contents in the file; or a guard marker hides it, which has thrown away
//!   its contents. Where access rights hide pages, none is private.
//! - A forked child has the private pages of its parent, whose contents the kernel shares until either stores.
//! - A fresh page may still be in the shadow, from the time before the program mapped it anew, until the engine drops it.
//! - While a page settles, it can be loaded from. A store waits: [`Aliased::judge`] needs the lock of `rights`.

use super::{Aliased, CHUNK_PAGES};
use crate::space::run_set::RunSet;
use crate::space::runs;
use crate::sys::map;
use flashvm_core::space::PinnedRanges;
use flashvm_core::{PageId, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::os::fd::OwnedFd;

/// Pages that settle together.
const UNIT_PAGES: u32 = 64;
/// Runs of private pages from which on whole chunks settle: each run takes two mappings of the kernel's.
const MANY_RUNS: u32 = 2000;

/// The private pages.
#[derive(Debug)]
pub(super) struct Private {
    pages: RunSet,
    /// Pages that system calls work on: a copy could miss what the kernel stores, and who waits on a futex would wait at
    /// the old page.
    pins: PinnedRanges,
    /// Whether a page had to settle, so that no more become private.
    is_over: bool,
}

impl Private {
    pub(super) fn new(all: u32) -> Result<Self, Errno> {
        Ok(Self {
            pages: RunSet::new(all)?,
            pins: PinnedRanges::default(),
            is_over: false,
        })
    }

    /// Whether fresh pages are those of the file.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Fresh pages are private again.
    #[cfg(test)]
    pub(super) fn begin_again(&mut self) {
        self.is_over = false;
    }

    pub(super) fn has(&self, page: PageId) -> bool {
        self.pages.has(page)
    }

    /// Notes that private memory is mapped in a run.
    pub(super) fn insert(&mut self, run: Run) {
        self.pages.insert(run);
    }

    /// Notes that other memory is mapped in a run.
    pub(super) fn remove(&mut self, run: Run) {
        self.pages.remove(run);
    }

    /// The first private page of a run, with the neighbours that settle with it: those beyond the run are not pinned.
    pub(super) fn unit(&self, run: Run) -> Option<Run> {
        let page = self.pages.first(run)?.first.0;
        let unit = match self.pages.runs() >= MANY_RUNS {
            true => CHUNK_PAGES,
            false => UNIT_PAGES,
        };
        let goes_along = |&page: &u32| {
            let page = PageId(page);
            self.has(page) && ((run.first..run.end()).contains(&page) || !self.pins.holds(page))
        };
        let start = page / unit * unit;
        let before = (start..page).rev().take_while(goes_along).count() as u32;
        let rest = (page..start + unit).take_while(goes_along).count() as u32;
        Some(Run::new(PageId(page - before), before + rest))
    }

    /// The whole run around a unit. `None`: a page beside the unit is pinned.
    fn whole(&self, unit: Run) -> Option<Run> {
        self.pages.whole(unit, &self.pins)
    }

    /// A system call works on these pages until [`Self::unpin`].
    pub(super) fn pin(&mut self, run: Run) {
        self.pins.pin((run.first, run.count));
    }

    pub(super) fn unpin(&mut self, run: Run) {
        self.pins.unpin((run.first, run.count));
    }

    /// No system call works on any page.
    pub(super) fn forget_pins(&mut self) {
        self.pins.clear();
    }
}

impl Aliased {
    pub(super) fn is_private(&self, page: PageId) -> bool {
        self.private.lock().has(page)
    }

    /// The parts of a run that are private, in order.
    pub(super) fn private_parts(&self, run: Run) -> Vec<Run> {
        runs(self.private.lock().pages.pages(run)).collect()
    }

    /// The other parts of a run, in order.
    pub(super) fn parts_of_file(&self, run: Run) -> Vec<Run> {
        let mut parts = Vec::new();
        let mut from = run.first;
        for private in self.private_parts(run) {
            if from < private.first {
                parts.push(Run::new(from, private.first.0 - from.0));
            }
            from = private.end();
        }
        if from < run.end() {
            parts.push(Run::new(from, run.end().0 - from.0));
        }
        parts
    }

    /// Makes pages of the file of the private pages of a run, with the same contents.
    ///
    /// # Errors
    /// `ENOMEM`: the kernel has no memory, or allows no more mappings. A page has settled or has not changed.
    pub(super) fn settle(&self, run: Run) -> Result<(), Errno> {
        let mut rest = run;
        loop {
            let unit = self.private.lock().unit(rest);
            let Some(unit) = unit else {
                return Ok(());
            };
            let settled = match self.settle_unit(unit) {
                // The kernel would have to split a mapping. A whole run needs no split.
                Err(Errno::NOMEM) => self.settle_whole(unit)?,
                result => result.map(|()| unit)?,
            };
            rest = Run::new(settled.end(), run.end().0.saturating_sub(settled.end().0));
        }
    }

    fn settle_unit(&self, unit: Run) -> Result<(), Errno> {
        self.private.lock().is_over = true;
        let rights = self.rights.lock();
        for (part, prot) in rights.within(unit) {
            let copied = (self.range.set_protection(part, MprotectFlags::READ))
                .and_then(|()| self.copy_private(part, &self.file))
                .and_then(|()| self.map_file(part));
            if let Err(error) = copied {
                for run in runs(self.in_region.pages(part)) {
                    self.punch(run);
                }
                // What has changed takes no further mapping.
                let _ = self.give_rights(part, prot, []);
                return Err(error);
            }
            self.show_settled(part, prot);
        }
        Ok(())
    }

    /// Makes pages of the file of the whole run of private pages around a unit. Returns it.
    ///
    /// # Errors
    /// `ENOMEM`: a page beside the unit is pinned, or not even this can be done.
    fn settle_whole(&self, unit: Run) -> Result<Run, Errno> {
        let whole = self.private.lock().whole(unit).ok_or(Errno::NOMEM)?;
        let rights = self.rights.lock();
        for (part, prot) in rights.within(whole) {
            (self.range.set_protection(part, MprotectFlags::READ)).inspect_err(|_| {
                // What has changed takes no further mapping.
                let _ = self.give_rights(part, prot, []);
            })?;
            // RAM has no room for a second copy of all: each unit is hidden, and so freed, once it is copied.
            for first in (part.first.0..part.end().0).step_by(UNIT_PAGES as usize) {
                let unit = Run::new(PageId(first), UNIT_PAGES.min(part.end().0 - first));
                (self.copy_private(unit, &self.file))
                    .and_then(|()| self.hide(unit))
                    .expect("the file has room for as much as is freed");
            }
            self.map_file(part)
                .expect("a mapping is replaced as a whole");
            self.show_settled(part, prot);
        }
        Ok(whole)
    }

    /// Shows pages that were private and are mapped to the file.
    fn show_settled(&self, part: Run, prot: ProtFlags) {
        let absent = runs(part.pages().filter(|page| !self.in_region.get(page.0)));
        // Nobody can touch the pages any more, and they cannot be private again.
        self.give_rights(part, prot, absent)
            .expect("a mapping of the file changes as a whole");
        self.private.lock().remove(part);
    }

    /// Copies the contents of private pages to a file. Nobody may store to them.
    pub(super) fn copy_private(&self, part: Run, file: &OwnedFd) -> Result<(), Errno> {
        runs(self.in_region.pages(part)).try_for_each(|run| {
            let (at, len) = (self.region(run), run.bytes());
            // SAFETY: the pages are mapped in the region, which stays reserved.
            unsafe { map::write_all(file, self.offset(run.first), at, len) }
        })
    }
}
