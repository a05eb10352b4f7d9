//! What the program does to its managed memory: map, unmap, protect, move, advise, commit.
//!
//! The kernel tells the handler what becomes of a registered range (unmap and remove events), in
//! the right order with faults; so these calls mostly just make the system call. Without
//! `UFFDIO_MOVE`, and in inline mode, there are no such events, and the engine is told here.

use super::Pager;
use super::regions::pages_of;
use crate::sys::signals::Uninterrupted;
use flashvm_core::{Advice, Event, PAGE_SIZE, PageId, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::sync::atomic::Ordering;

/// Pages of the unit in which commitments are counted.
pub(super) const UNIT_PAGES: u32 = 16;
/// Mappings of this size and more start at a multiple of it, in pages.
pub(super) const LARGE_PAGES: u32 = 512;
/// Which units of the managed range the program has been promised memory for.
#[derive(Debug)]
pub(super) struct Committed {
    units: Vec<u64>,
}

impl Committed {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            units: vec![0; (pages / UNIT_PAGES / u64::BITS) as usize + 1],
        }
    }

    /// The units that a range touches.
    fn touched(first: PageId, count: u32) -> std::ops::Range<u32> {
        first.0 / UNIT_PAGES..(first.0 + count).div_ceil(UNIT_PAGES)
    }

    /// The units that a range covers whole.
    fn covered(first: PageId, count: u32) -> std::ops::Range<u32> {
        first.0.div_ceil(UNIT_PAGES)..(first.0 + count) / UNIT_PAGES
    }

    /// Pages of those units that are not (`on`) or are (`!on`) committed.
    fn pages_to_change(&self, units: std::ops::Range<u32>, on: bool) -> u64 {
        let other = |unit: &u32| {
            (self.units[(unit / u64::BITS) as usize] >> (unit % u64::BITS)) & 1 != u64::from(on)
        };
        units.filter(other).count() as u64 * u64::from(UNIT_PAGES)
    }

    fn set(&mut self, units: std::ops::Range<u32>, on: bool) {
        for unit in units {
            let word = &mut self.units[(unit / u64::BITS) as usize];
            let bit = 1 << (unit % u64::BITS);
            if on { *word |= bit } else { *word &= !bit }
        }
    }
}

impl Pager {
    /// Whether any of these addresses is in the managed range, or in the heap of small pages: there
    /// is nothing there that a program could map, unmap or protect.
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
        let align = if count >= LARGE_PAGES {
            LARGE_PAGES
        } else {
            UNIT_PAGES
        };
        let first = {
            let mut regions = self.regions.lock();
            regions.take(count, align).ok_or(Errno::NOMEM)?
        };
        let result = self.map_pages(first, count, prot, commit);
        if result.is_err() {
            self.regions.lock().give(first, count);
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
        if self.is_managed_whole(first, count) {
            return self.renew(first, count, prot, commit);
        }
        self.zap(first, count, || {
            self.space.range().map_anew(Run::new(first, count), prot)
        })?;
        self.uncommit(first, count);
        self.regions.lock().claim(first, count);
        self.map_pages(first, count, prot, commit)
    }

    fn is_managed_whole(&self, first: PageId, count: u32) -> bool {
        self.regions.lock().overlap(first, count) == count
            && self.foreign.lock().overlap(first, count) == 0
    }

    /// Makes managed memory as new, where it is: a mapping in its stead would not be registered
    /// for a moment, in which other threads could have pages of the kernel's.
    fn renew(&self, first: PageId, count: u32, prot: ProtFlags, commit: bool) -> Result<(), Errno> {
        let run = Run::new(first, count);
        self.zap(first, count, || self.space.range().zap(run))?;
        self.uncommit(first, count);
        if commit {
            self.commit(first, count)?;
        }
        let prot = MprotectFlags::from_bits_retain(prot.bits());
        self.space.range().set_protection(run, prot)
    }

    /// The program put something else over part of the managed range: `map_it` does that.
    ///
    /// # Errors
    /// Those of `map_it`; `EINVAL` if the range is not managed memory.
    pub fn map_foreign<T>(
        &self,
        address: usize,
        len: usize,
        map_it: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        let result = self.zap(first, count, map_it)?;
        self.uncommit(first, count);
        self.regions.lock().claim(first, count);
        self.foreign.lock().claim(first, count);
        Ok(result)
    }

    /// Unmaps managed memory, also in part.
    ///
    /// # Errors
    /// `EINVAL` if the range is not managed memory.
    pub fn unmap(&self, address: usize, len: usize) -> Result<(), Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        // The reservation stays, so that the kernel puts nothing of its own there.
        self.zap(first, count, || {
            let range = self.space.range();
            range.map_anew(Run::new(first, count), ProtFlags::empty())
        })?;
        self.uncommit(first, count);
        self.no_longer_foreign(first, count);
        self.regions.lock().give(first, count);
        Ok(())
    }

    /// Bytes from `address` to the end of the mapping that starts there.
    #[must_use]
    pub fn mapping_len(&self, address: usize) -> Option<usize> {
        let _uninterrupted = Uninterrupted::begin();
        let page = self.page_at(address)?;
        let (first, count) = self.regions.lock().find(page)?;
        (first == page).then_some(count as usize * PAGE_SIZE)
    }

    /// Changes the protection of managed memory; what becomes writable is committed.
    ///
    /// # Errors
    /// `ENOMEM` if budget and store have no room for it; what `mprotect` says.
    pub fn protect(&self, address: usize, len: usize, prot: MprotectFlags) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        if prot.contains(MprotectFlags::WRITE) {
            self.commit(first, count)?;
        }
        self.space
            .range()
            .set_protection(Run::new(first, count), prot)
    }

    /// The program gave contents up: they read as zeros from now on (`MADV_DONTNEED`).
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn zap_contents(&self, address: usize, len: usize) -> Result<(), Errno> {
        let (first, count) = self.range(address, len)?;
        let _change = self.begin_change([Some((first, count)), None]);
        self.zap(first, count, || {
            self.space.range().zap(Run::new(first, count))
        })
    }

    /// Passes advice on.
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

    /// Promises memory to the program; see [`crate::control::Process::commit`]. A refusal is not counted:
    /// an allocator may have other memory to give.
    ///
    /// # Errors
    /// `ENOMEM` if there is no room for it; `EINVAL` if the range is not managed memory.
    pub fn commit_range(&self, address: usize, len: usize) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        self.try_commit(first, count)
    }

    /// Gives up contents and promise of a range that stays mapped.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn decommit_range(&self, address: usize, len: usize) -> Result<(), Errno> {
        let _change = self.begin_change([None, None]);
        self.zap_contents(address, len)?;
        let (first, count) = self.range(address, len)?;
        self.uncommit(first, count);
        Ok(())
    }

    /// Runs a system call that gives up a range, and sees to it that the engine knows.
    fn zap<T>(
        &self,
        first: PageId,
        count: u32,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.hears_of_changes() {
            // The handler is told by the kernel, in order with all faults.
            return call();
        }
        let mut locked = self.lock();
        self.with_space(&mut locked, |placement, host| {
            placement.forget_parked(host, first, count);
        });
        self.apply(&mut locked, Event::Zap { first, count });
        let result = call();
        self.hand_over(&mut locked, false);
        result
    }

    /// Maps and registers pages that are taken already.
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
        self.no_longer_foreign(first, count);
        let run = Run::new(first, count);
        let mapped = self.space.range().map_anew(run, prot);
        let mapped = mapped.and_then(|()| self.space.register(run));
        if mapped.is_err() {
            self.uncommit(first, count);
        }
        mapped
    }

    fn no_longer_foreign(&self, first: PageId, count: u32) {
        self.foreign.lock().give(first, count);
    }

    /// Counts a refusal: it is the program's.
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
        let mut committed = self.committed.lock();
        let units = Committed::touched(first, count);
        let pages = committed.pages_to_change(units.clone(), true);
        if pages > 0 {
            if !self.process.commit_patiently(pages) {
                return Err(Errno::NOMEM);
            }
            committed.set(units, true);
        }
        Ok(())
    }

    fn uncommit(&self, first: PageId, count: u32) {
        let mut committed = self.committed.lock();
        let units = Committed::covered(first, count);
        let pages = committed.pages_to_change(units.clone(), false);
        if pages > 0 {
            committed.set(units, false);
            self.process.uncommit(pages);
        }
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
