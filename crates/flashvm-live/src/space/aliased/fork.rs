//! fork: the child gets a file of its own with copies of the file's pages, since the kernel shares mapped files. Private
//! pages it shares with the parent as in any fork, until one of them stores.
//!
//! The copies are of one moment: before the first is made, every page of the file is hidden that no system call has pinned,
//! and threads that touch one wait until the fork is over. The kernel takes the private pages later: a thread may have stored
//! to them since, but has not touched the file's.

use super::{Aliased, new_file, part_in};
use crate::Error;
use crate::space::{PageBuffer, runs};
use crate::sys::descriptors::PagerFd;
use crate::sys::map;
use crate::sys::own::OwnMemory;
use flashvm_core::{PAGE_SIZE, PageId, Run};
use rustix::io::Errno;
use rustix_futex_sync::Mutex;
use std::os::fd::{AsRawFd as _, RawFd};

/// The child's memory.
pub(crate) struct ForkedMemory {
    file: PagerFd,
}

impl ForkedMemory {
    /// Its descriptor, for the child to keep.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Aliased {
    /// Runs of the region that the program has mapped, one chunk at a time.
    fn mapped_parts(&self) -> Vec<Run> {
        let rights = self.rights.lock();
        let parts = self.all_open().flat_map(|chunk| {
            let all = part_in(self.range.all(), chunk);
            rights.within(all).map(|(part, _)| part).collect::<Vec<_>>()
        });
        parts.collect()
    }

    /// The parts of them that are mapped to the file.
    fn parts_in_file(&self) -> Vec<Run> {
        let parts = self.mapped_parts().into_iter();
        parts.flat_map(|part| self.parts_of_file(part)).collect()
    }

    /// Before a fork, with the engine frozen: hides the pages of the file except those in `pinned` (sorted), and copies their
    /// contents.
    ///
    /// # Errors
    /// The kernel's error if it has no file or no memory for the copy. Pages are shown again by [`Self::resume`].
    pub(crate) fn prepare_fork(&self, pinned: &[PageId]) -> Result<ForkedMemory, Errno> {
        let is_pinned = |page: &PageId| pinned.binary_search(page).is_ok();
        for part in self.parts_in_file() {
            for run in runs(part.pages().filter(|page| !is_pinned(page))) {
                self.hide(run)?;
            }
        }
        let bytes = self.range.all().bytes();
        let file = new_file(bytes)?;
        (self.mapped_parts().into_iter()).try_for_each(|part| self.copy_part(part, &file))?;
        Ok(ForkedMemory { file })
    }

    /// Copies the contents of a part that are in the file to another one.
    fn copy_part(&self, part: Run, file: &PagerFd) -> Result<(), Errno> {
        let in_file = |page: &PageId| {
            self.in_shadow.get(page.0) || self.in_region.get(page.0) && !self.is_private(*page)
        };
        let mut contents = PageBuffer::new();
        part.pages().filter(in_file).try_for_each(|page| {
            self.read(Run::one(page), &mut contents.0)?;
            let from = contents.0.as_ptr() as usize;
            // SAFETY: the page is borrowed.
            unsafe { map::write_all(file, self.offset(page), from, PAGE_SIZE) }
        })
    }

    /// After a fork, or one that failed: shows the pages of the file in the region again, as many as mappings suffice for.
    pub(crate) fn resume(&self) -> Result<(), Errno> {
        self.parts_in_file().into_iter().try_for_each(|part| {
            let mut runs = runs(self.in_region.pages(part));
            runs.try_for_each(|run| match &self.shown {
                Some(shown) if !shown.lock().has_room() => Ok(()),
                _ => self.show(run),
            })
        })
    }

    /// The address space of a forked child, in which the parent's descriptors have been closed by number. Locks are made
    /// anew: a thread that the child does not have may have held them to read.
    pub(crate) fn for_child(self, memory: ForkedMemory) -> Result<Self, Error> {
        std::mem::forget((self.file, self.own));
        let child = Self {
            file: memory.file,
            rights: Mutex::new(self.rights.into_inner()),
            shown: self.shown.map(|shown| Mutex::new(shown.into_inner())),
            dropped: Mutex::default(),
            private: Mutex::new(self.private.into_inner()),
            own: OwnMemory::open().map_err(Error::memory("/proc"))?,
            ..self
        };
        if let Some(shown) = &child.shown {
            shown.lock().forked();
        }
        child
            .map_all()
            .map_err(Error::memory("the memory of a forked child"))?;
        Ok(child)
    }

    /// Maps the open chunks to the file, except private pages, and shows the pages of the region.
    fn map_all(&self) -> Result<(), Errno> {
        // No thread is in a system call.
        self.private.lock().forget_pins();
        for part in self.parts_in_file() {
            self.map_file(part)?;
            if self.shown.is_none() {
                let rights = self.rights.lock();
                let mut parts = rights.within(part);
                parts.try_for_each(|(part, prot)| self.give_rights(part, prot, [part]))?;
            }
        }
        self.resume()
    }
}
