//! Hides and shows pages by access rights (`mprotect`), for kernels without guard regions in shared memory (before Linux
//! 6.15).
//!
//! A hidden page has no rights, a shown one has the program's. [`Shown`] decides what is withdrawn when mappings run
//! short; the code here calls the kernel. No failure of it loses contents: what cannot be shown stays in the file.

use super::shown::UNIT_PAGES;
use super::{Aliased, Rights, Shown};
use flashvm_core::{PageId, Run};
use rustix::io::Errno;
use rustix::mm::MprotectFlags;

impl Aliased {
    /// Whether access rights hide pages, so that they take mappings.
    pub(crate) fn hides_by_rights(&self) -> bool {
        self.shown.is_some()
    }

    /// Whether a page of the region is hidden to save mappings.
    pub(super) fn is_withdrawn(&self, page: PageId) -> bool {
        let shown = self.shown.as_ref();
        shown.is_some_and(|shown| !shown.lock().get(page))
    }

    /// The program touches a withdrawn page: shows it.
    ///
    /// # Errors
    /// `ENOMEM`: the kernel allows no more mappings, although nothing is left to withdraw.
    pub(crate) fn reveal(&self, page: PageId) -> Result<(), Errno> {
        let Some(shown) = &self.shown else {
            return Ok(());
        };
        self.show_by_rights(&self.rights.lock(), &mut shown.lock(), Run::one(page))
    }

    /// Takes all rights to the shown pages of a run, which the program has mapped as a whole.
    pub(super) fn hide_by_rights(
        &self,
        rights: &Rights,
        shown: &mut Shown,
        run: Run,
    ) -> Result<(), Errno> {
        let Some(span) = shown.span(run) else {
            return Ok(());
        };
        match self.take_rights(shown, span) {
            Err(Errno::NOMEM) => {}
            result => return result,
        }
        // The kernel would have to split a mapping, and allows no more of them. Whole runs need no split.
        shown.allow_fewer();
        if let Some(whole) = shown.whole(span)
            && self.take_rights(shown, whole).is_ok()
        {
            return Ok(());
        }
        self.withdraw(rights, shown);
        self.take_rights(shown, span)
    }

    fn take_rights(&self, shown: &mut Shown, run: Run) -> Result<(), Errno> {
        self.range.set_protection(run, MprotectFlags::empty())?;
        shown.hide(run);
        Ok(())
    }

    /// Withdraws pages until a batch of runs has room, or nothing is left to withdraw.
    fn withdraw(&self, rights: &Rights, shown: &mut Shown) {
        while !shown.has_room()
            && let Some(unit) = shown.next_unit()
        {
            let before = shown.runs();
            for (part, _) in rights.within(unit) {
                let Some(span) = shown.span(part) else {
                    continue;
                };
                if self.take_rights(shown, span).is_err()
                    && let Some(whole) = shown.whole(span)
                {
                    // A failure shows in the number of runs.
                    let _ = self.take_rights(shown, whole);
                }
            }
            if shown.runs() >= before {
                break;
            }
        }
    }

    /// Gives the program its rights to the pages of a run, and to their neighbours in the region, which take no mapping
    /// of their own.
    pub(super) fn show_by_rights(
        &self,
        rights: &Rights,
        shown: &mut Shown,
        run: Run,
    ) -> Result<(), Errno> {
        if shown.is_full() {
            self.withdraw(rights, shown);
        }
        for (part, prot) in rights.within(self.with_neighbours(run)) {
            let prot = MprotectFlags::from_bits_retain(prot.bits());
            while let Err(error) = self.range.set_protection(part, prot) {
                let before = shown.runs();
                if error == Errno::NOMEM {
                    shown.allow_fewer();
                    self.withdraw(rights, shown);
                }
                if shown.runs() == before {
                    return Err(error);
                }
            }
            shown.show(part);
        }
        Ok(())
    }

    /// A run, extended by neighbours that are in the region, as far as the ends of its units.
    fn with_neighbours(&self, run: Run) -> Run {
        let (mut first, mut end) = (run.first.0, run.end().0);
        while !first.is_multiple_of(UNIT_PAGES) && self.in_region.get(first - 1) {
            first -= 1;
        }
        while !end.is_multiple_of(UNIT_PAGES)
            && end < self.range.all().count
            && self.in_region.get(end)
        {
            end += 1;
        }
        Run::new(PageId(first), end - first)
    }

    /// The program changes its rights to the shown pages of a run, which it has mapped as a whole.
    pub(super) fn change_by_rights(
        &self,
        rights: &Rights,
        shown: &mut Shown,
        run: Run,
        prot: MprotectFlags,
    ) -> Result<(), Errno> {
        let mut rest = run;
        while let Some(part) = shown.first(rest) {
            match self.range.set_protection(part, prot) {
                Ok(()) => {}
                // What is hidden gets the new rights when it is shown again.
                Err(Errno::NOMEM) => self.hide_by_rights(rights, shown, part)?,
                Err(error) => return Err(error),
            }
            rest = Run::new(part.end(), run.end().0 - part.end().0);
        }
        Ok(())
    }
}
