//! What the program does to its managed memory: map, unmap, protect, move, advise, commit.
//!
//! In handler mode the kernel reports unmapped and zapped pages of registered ranges, in order with faults: these
//! functions only make the program's call. In inline mode there are no such events: these functions tell the engine.

use super::workers::By;
use super::{Locked, Pager};
use crate::control::HugePages;
use crate::mappings::pages_of;
use crate::sys::signals::Uninterrupted;
use flashvm_core::{Access, Advice, Event, PAGE_SIZE, PageId, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::sync::atomic::Ordering;

impl Pager {
    /// Whether any of these addresses is in the managed range or in the heap of small pages. A program can map, unmap
    /// or protect nothing in that heap.
    #[must_use]
    pub fn manages(&self, address: usize, len: usize) -> bool {
        self.space.range().pages_of(address, len.max(1)).is_some()
            || self
                .chameleon
                .as_ref()
                .is_some_and(|heap| heap.holds(address, len))
    }

    /// Bytes that budget and store can hold together.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.control.committed_pages().1 as usize * PAGE_SIZE
    }

    /// Maps managed memory. `commit` says whether it counts against budget and store now.
    ///
    /// # Errors
    /// `ENOMEM` if budget and store together have no room, or the managed range is used up.
    pub fn map(&self, len: usize, prot: ProtFlags, commit: bool) -> Result<usize, Errno> {
        let _change = self.begin_change([None, None]);
        let count = pages_of(len)
            .filter(|&count| count > 0)
            .ok_or(Errno::NOMEM)?;
        let first = self.mappings.take(count).ok_or(Errno::NOMEM)?;
        let result = self.map_pages(first, count, prot, commit);
        if result.is_err() {
            self.mappings.give(first, count);
        }
        result.map(|()| self.address(first))
    }

    /// Puts fresh managed memory over part of the managed range (`MAP_FIXED`).
    ///
    /// # Errors
    /// As [`Pager::map`]; `EINVAL` if the range is not managed memory.
    pub fn map_over(
        &self,
        address: usize,
        len: usize,
        prot: ProtFlags,
        commit: bool,
    ) -> Result<(), Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        if self.mappings.is_managed_whole(first, count) {
            return self.renew(first, count, prot, commit);
        }
        self.zap(first, count, || self.space.unmap(Run::new(first, count)))?;
        self.uncommit(first, count);
        self.mappings.claim(first, count);
        self.map_pages(first, count, prot, commit)
    }

    /// Zaps managed memory in place. A new mapping would be unregistered at first: touched then, it would get pages
    /// that the engine does not know.
    fn renew(&self, first: PageId, count: u32, prot: ProtFlags, commit: bool) -> Result<(), Errno> {
        let run = Run::new(first, count);
        self.zap(first, count, || self.space.zap(run))?;
        self.uncommit(first, count);
        if commit {
            self.commit(first, count)?;
        }
        let prot = MprotectFlags::from_bits_retain(prot.bits());
        self.space.set_rights(run, prot)
    }

    /// Calls `map_it`, which maps foreign memory over part of the managed range.
    ///
    /// # Errors
    /// The error of `map_it`; `EINVAL` if the range is not managed memory.
    pub fn map_foreign<T>(
        &self,
        address: usize,
        len: usize,
        map_it: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        if self.hears_of_changes() {
            // The kernel's event comes when the new memory is there already, perhaps with contents (`mremap`). Until
            // then the engine would take these for its own pages in this range, and move them away.
            let mut locked = self.lock();
            self.forget(&mut locked, first, count);
            self.hand_over(&mut locked, By::Program);
        }
        let result = self.zap(first, count, || {
            let result = map_it()?;
            self.space.give_up(Run::new(first, count));
            Ok(result)
        })?;
        self.uncommit(first, count);
        self.mappings.claim_foreign(first, count);
        Ok(result)
    }

    /// Unmaps managed memory, also in part.
    ///
    /// # Errors
    /// `EINVAL` if the range is not managed memory.
    pub fn unmap(&self, address: usize, len: usize) -> Result<(), Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        // The reservation stays, so that the kernel maps nothing else there.
        self.zap(first, count, || self.space.unmap(Run::new(first, count)))?;
        self.uncommit(first, count);
        self.mappings.give(first, count);
        Ok(())
    }

    /// Bytes from `address` to the end of the mapping that starts there.
    #[must_use]
    pub fn mapping_len(&self, address: usize) -> Option<usize> {
        let _uninterrupted = Uninterrupted::begin();
        let page = self.page_at(address)?;
        let count = self.mappings.starting_at(page)?;
        Some(count as usize * PAGE_SIZE)
    }

    /// Changes the protection of managed memory; what becomes writable is committed.
    ///
    /// # Errors
    /// `ENOMEM` if budget and store have no room for it; `EINVAL` if the range is not managed memory; the error of
    /// `mprotect`.
    pub fn protect(&self, address: usize, len: usize, prot: MprotectFlags) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        if prot.contains(MprotectFlags::WRITE) {
            self.commit(first, count)?;
        }
        self.space.set_rights(Run::new(first, count), prot)
    }

    /// Zaps a range: it reads as zeros from now on (`MADV_DONTNEED`).
    ///
    /// # Errors
    /// `EINVAL` if the range is not managed memory; the error of `madvise`.
    pub fn zap_contents(&self, address: usize, len: usize) -> Result<(), Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        self.zap(first, count, || self.space.zap(Run::new(first, count)))
    }

    /// Passes the program's advice to the engine.
    ///
    /// # Errors
    /// `EINVAL` if the range is not managed memory.
    pub fn advise(&self, address: usize, len: usize, advice: Advice) -> Result<(), Errno> {
        let _uninterrupted = Uninterrupted::begin();
        let (first, count) = self.range(address, len)?;
        self.report(Event::Advise {
            first,
            count,
            advice,
        });
        Ok(())
    }

    /// Notes whether the program wants huge pages in a range (`MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`). Only whole ones count.
    /// Returns whether the kernel has to hear of it: in this run it fills huge pages.
    ///
    /// # Errors
    /// `EINVAL` if the range is not managed memory.
    pub fn want_huge(&self, address: usize, len: usize, wanted: bool) -> Result<bool, Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        let some = self.settings.huge_pages != HugePages::Never;
        if some {
            self.mappings.want_huge(first, count, wanted);
        }
        Ok(some && self.space.aliased().is_none())
    }

    /// Whether a fault may fill a huge page.
    pub(super) fn wants_huge(&self, page: PageId, access: Access) -> bool {
        access == Access::Write && self.mappings.is_huge(page)
    }

    /// Commits memory to the program; see [`crate::control::Process::commit`]. A refusal is not counted:
    /// an allocator may have other memory to give.
    ///
    /// # Errors
    /// `ENOMEM` if there is no room for it; `EINVAL` if the range is not managed memory.
    pub fn commit_range(&self, address: usize, len: usize) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        self.try_commit(first, count)
    }

    /// Whether budget and store have room for a commitment of `pages` more.
    #[must_use]
    pub fn has_room_for(&self, pages: u64) -> bool {
        let _uninterrupted = Uninterrupted::begin();
        let fits = self.process.commit_patiently(pages);
        if fits {
            self.process.uncommit(pages);
        }
        fits
    }

    /// Zaps a range and ends its commitment; it stays mapped.
    ///
    /// # Errors
    /// As [`Pager::zap_contents`].
    pub fn decommit_range(&self, address: usize, len: usize) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        self.zap_contents(address, len)?;
        let (first, count) = self.range(address, len)?;
        self.uncommit(first, count);
        Ok(())
    }

    /// Makes `call`, a system call that zaps or replaces a range. In inline mode, tells the engine first.
    fn zap<T>(
        &self,
        first: PageId,
        count: u32,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.hears_of_changes() {
            // The kernel tells the handler, in order with all faults.
            return call();
        }
        let mut locked = self.lock();
        self.forget(&mut locked, first, count);
        let result = call();
        self.hand_over(&mut locked, By::Program);
        result
    }

    /// Tells the engine that the program zaps a range; parked actions on it are dropped.
    pub(super) fn forget(&self, locked: &mut Locked, first: PageId, count: u32) {
        self.with_space(locked, |placement, host| {
            placement.forget_parked(host, first, count);
        });
        self.apply(locked, Event::Zap { first, count });
    }

    /// Maps and registers pages that [`Mappings`](crate::mappings::Mappings) has as managed already.
    pub(super) fn map_pages(
        &self,
        first: PageId,
        count: u32,
        prot: ProtFlags,
        commit: bool,
    ) -> Result<(), Errno> {
        if commit {
            self.commit(first, count)?;
        }
        let run = Run::new(first, count);
        let mapped = self.space.map_anew(run, prot);
        if mapped.is_err() {
            self.uncommit(first, count);
        }
        mapped
    }

    /// As [`Self::try_commit`]; counts a refusal.
    fn commit(&self, first: PageId, count: u32) -> Result<(), Errno> {
        let result = self.try_commit(first, count);
        if result.is_err() {
            self.count_refused_allocation();
        }
        result
    }

    pub(crate) fn count_refused_allocation(&self) {
        self.stats()
            .allocations_refused
            .fetch_add(1, Ordering::Relaxed);
    }

    fn try_commit(&self, first: PageId, count: u32) -> Result<(), Errno> {
        let promise = |pages| self.process.commit_patiently(pages);
        let promised = self.mappings.commit(first, count, promise);
        promised.then_some(()).ok_or(Errno::NOMEM)
    }

    fn uncommit(&self, first: PageId, count: u32) {
        let release = |pages| self.process.uncommit(pages);
        self.mappings.uncommit(first, count, release);
    }

    pub(super) fn range(&self, address: usize, len: usize) -> Result<(PageId, u32), Errno> {
        let first = self.page_at(address).ok_or(Errno::INVAL)?;
        let count = pages_of(len)
            .filter(|&count| count > 0)
            .ok_or(Errno::INVAL)?;
        let inside = first
            .0
            .checked_add(count)
            .is_some_and(|end| end <= super::SPAN_PAGES);
        if !inside || !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL);
        }
        Ok((first, count))
    }
}
