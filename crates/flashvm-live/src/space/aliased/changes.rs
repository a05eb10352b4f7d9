//! What the program does to its mappings.

use super::{Aliased, Rights, chunks, part_in};
use crate::space::runs;
use flashvm_core::{PageId, Place, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};

impl Aliased {
    /// Takes pages out of a place; those that are in neither place then lose their contents.
    pub(super) fn drop_from(&self, place: Place, run: Run) {
        for part in runs(self.bits(place).pages(run)) {
            if place == Place::Region {
                self.hide(part)
                    .expect("a page of the region is mapped, and can be hidden");
            }
            self.forget(place, part);
        }
    }

    /// These pages are gone from a place; those that are not in the other lose their contents.
    fn forget(&self, place: Place, part: Run) {
        let other = match place {
            Place::Region => &self.in_shadow,
            Place::Shadow => &self.in_region,
        };
        self.bits(place).put(part, false);
        // Private pages of the region have no contents in the file.
        let has_none = |page| place == Place::Region && self.is_private(page);
        let is_gone = |page: &PageId| !other.get(page.0) && !has_none(*page);
        for gone in runs(part.pages().filter(is_gone)) {
            match place {
                Place::Region => self.punch(gone),
                Place::Shadow => self.free(gone),
            }
        }
    }

    /// The program throws away the contents of a run, and of the kernel's memory in it.
    pub(crate) fn zap(&self, run: Run) -> Result<(), Errno> {
        self.drop_pages(run);
        let rights = self.rights.lock();
        rights.gaps(run).try_for_each(|gap| self.range.zap(gap))
    }

    fn drop_pages(&self, run: Run) {
        for part in self.open_parts(run) {
            self.drop_from(Place::Region, part);
        }
    }

    /// The program maps fresh memory over a run; or it unmaps the run, without `prot`.
    pub(crate) fn map_anew(&self, run: Run, prot: Option<ProtFlags>) -> Result<(), Errno> {
        let mut rights = self.rights.lock();
        if let Err(error) = self.range.reserve_anew(run) {
            drop(rights);
            self.drop_pages(run);
            return Err(error);
        }
        self.replaced(&mut rights, run);
        let Some(prot) = prot else {
            return Ok(());
        };
        rights.set(run, Some(prot));
        self.open_parts(run)
            .try_for_each(|part| self.map_part(part, prot))
            .inspect_err(|_| {
                // What cannot be shown must not count as mapped.
                let _ = self.range.reserve_anew(run);
                self.replaced(&mut rights, run);
            })
    }

    /// The kernel has mapped other memory over a run.
    pub(crate) fn give_up(&self, run: Run) {
        self.replaced(&mut self.rights.lock(), run);
    }

    /// Other memory has taken the place of the program's in a run.
    fn replaced(&self, rights: &mut Rights, run: Run) {
        for part in self.open_parts(run) {
            for gone in runs(self.in_region.pages(part)) {
                self.forget(Place::Region, gone);
            }
            self.private.lock().remove(part);
        }
        if let Some(shown) = &self.shown {
            shown.lock().hide(run);
        }
        rights.set(run, None);
    }

    /// The program changes its rights, also to the kernel's memory in the run.
    pub(crate) fn set_rights(&self, run: Run, prot: MprotectFlags) -> Result<(), Errno> {
        let mut rights = self.rights.lock();
        rights
            .gaps(run)
            .try_for_each(|gap| self.range.set_protection(gap, prot))?;
        let parts: Vec<Run> = rights.within(run).map(|(part, _)| part).collect();
        for part in parts {
            // Chunk by chunk: a failure leaves the rights as the kernel has them.
            for chunk in chunks(part) {
                let part = part_in(part, chunk);
                match &self.shown {
                    _ if !self.open.get(chunk) => {}
                    None => self.range.set_protection(part, prot)?,
                    Some(shown) => self.change_by_rights(&rights, &mut shown.lock(), part, prot)?,
                }
                let prot = ProtFlags::from_bits_retain(prot.bits() & 7);
                rights.set(part, Some(prot));
            }
        }
        Ok(())
    }
}
