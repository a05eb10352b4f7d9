//! What the program does to its mappings.

use super::{Aliased, chunks, part_in};
use crate::space::runs;
use flashvm_core::{Place, Run};
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
        for gone in runs(part.pages().filter(|page| !other.get(page.0))) {
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
        self.drop_pages(run);
        let mut rights = self.rights.lock();
        // Whatever was there; what is touched later is mapped to the file then.
        self.range.map_anew(run, ProtFlags::empty())?;
        rights.set(run, prot);
        let Some(prot) = prot else {
            return Ok(());
        };
        self.open_parts(run)
            .try_for_each(|part| self.map_part(part, prot))
            .inspect_err(|_| {
                // What has no mapping to the file must not count as mapped.
                rights.set(run, None);
                let _ = self.range.map_anew(run, ProtFlags::empty());
            })
    }

    /// The kernel has mapped other memory over a run.
    pub(crate) fn give_up(&self, run: Run) {
        for part in self.open_parts(run) {
            for gone in runs(self.in_region.pages(part)) {
                self.forget(Place::Region, gone);
            }
        }
        let mut rights = self.rights.lock();
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
