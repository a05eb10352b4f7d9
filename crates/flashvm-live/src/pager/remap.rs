//! `mremap`: contents change their addresses, wherever they are.
//!
//! Pages in RAM move in the region or in the shadow; for pages on flash only the page
//! table changes. The target is fresh managed memory; at the end the source is unmapped.
//! The kernel moves foreign memory, which the program has mapped over part of the managed range (a file, say).

use super::Pager;
use crate::mappings::{Foreign, pages_of};
use crate::sys::map;
use flashvm_core::{Event, PAGE_SIZE, PageId, Place, Run};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};

/// Pages that a relocation moves at most before it unlocks the engine.
const RELOCATE_RUN: u32 = 64;
/// Pause of a relocation while requests on its pages are in flight, or the kernel postpones a move.
const IN_FLIGHT_WAIT: std::time::Duration = std::time::Duration::from_micros(50);

impl Pager {
    /// `mremap`. `to` is the new address that the program insists on (`MREMAP_FIXED`).
    ///
    /// # Errors
    /// `ENOMEM` if it can neither grow in place nor move; `EINVAL` if a range is not managed, or source and target
    /// overlap; `EFAULT` if only a part of the source is foreign.
    ///
    /// # Safety
    /// Nobody but the program uses the memory at `address` and at `to`: it has asked for this.
    pub unsafe fn remap(
        &self,
        address: usize,
        len: usize,
        new_len: usize,
        may_move: bool,
        to: Option<usize>,
    ) -> Result<usize, Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        let new_count = pages_of(new_len)
            .filter(|&count| count > 0)
            .ok_or(Errno::INVAL)?;
        if self.is_foreign(first, count)? {
            // SAFETY: the program alone uses the memory at `address` and at `to`, as our caller guarantees.
            return unsafe { self.remap_foreign(address, len, new_len, may_move, to) };
        }
        let prot = self
            .space
            .mapping_at(address)
            .map(|mapping| mapping.prot)
            .ok_or(Errno::FAULT)?;
        if to.is_none() {
            if new_count <= count {
                if new_count < count {
                    let tail = (count - new_count) as usize * PAGE_SIZE;
                    self.unmap(self.address(first.plus(new_count)), tail)?;
                }
                return Ok(address);
            }
            let grown = new_count - count;
            if self.mappings.extend(first.plus(count), grown) {
                let tail = first.plus(count);
                let result = self.map_pages(tail, grown, prot, true);
                if result.is_err() {
                    self.mappings.give(tail, grown);
                }
                return result.map(|()| address);
            }
            if !may_move {
                return Err(Errno::NOMEM);
            }
        }
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        let target = match to {
            Some(to) => {
                let (target, _) = self.range(to, new_len)?;
                let apart = target.0 + new_count <= first.0 || first.0 + count <= target.0;
                if !apart {
                    return Err(Errno::INVAL);
                }
                target
            }
            None => self.mappings.take(new_count).ok_or(Errno::NOMEM)?,
        };
        let new = self.address(target);
        let moving = self.begin_change([Some((first, count)), Some((target, new_count))]);
        let mapped = match to {
            Some(_) => self.map_over(new, new_len, rw, true),
            None => self.map_pages(target, new_count, rw, true),
        };
        let moved = mapped.and_then(|()| {
            if prot != rw {
                let flags = MprotectFlags::READ | MprotectFlags::WRITE;
                self.space.set_rights(Run::new(first, count), flags)?;
            }
            self.relocate(first, target, count.min(new_count));
            Ok(())
        });
        if let Err(error) = moved {
            // The contents are where they were. The target goes, with what is committed to it.
            if mapped.is_ok() {
                self.unmap(new, new_count as usize * PAGE_SIZE)?;
            } else if to.is_none() {
                self.mappings.give(target, new_count);
            }
            return Err(error);
        }
        self.unmap(address, count as usize * PAGE_SIZE)?;
        drop(moving);
        if prot != rw {
            let flags = MprotectFlags::from_bits_retain(prot.bits());
            self.space.set_rights(Run::new(target, new_count), flags)?;
        }
        Ok(new)
    }

    /// `mremap` with `MREMAP_FIXED` to an address outside of the managed range: the contents
    /// become the kernel's memory, as the mapping that they replace was.
    ///
    /// # Errors
    /// `EINVAL` if the source is not managed; `EFAULT` if only a part of it is foreign; the error of mapping the
    /// target.
    ///
    /// # Safety
    /// As [`Self::remap`]. The target is outside of the managed range.
    pub unsafe fn move_out(
        &self,
        address: usize,
        len: usize,
        to: usize,
        new_len: usize,
    ) -> Result<usize, Errno> {
        let _change = self.begin_change([None, None]);
        let (first, count) = self.range(address, len)?;
        if self.is_foreign(first, count)? {
            // SAFETY: the program alone uses the memory at `address` and at `to`, as our caller guarantees.
            return unsafe { self.remap_foreign(address, len, new_len, true, Some(to)) };
        }
        let prot = self
            .space
            .mapping_at(address)
            .map(|mapping| mapping.prot)
            .ok_or(Errno::FAULT)?;
        let new_len = new_len.next_multiple_of(PAGE_SIZE);
        if !to.is_multiple_of(PAGE_SIZE) || new_len == 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the call replaces what is mapped at `to`, which the program alone uses, as our caller guarantees.
        unsafe { map::map_fixed(to, new_len, ProtFlags::READ | ProtFlags::WRITE)? };
        let old_len = count as usize * PAGE_SIZE;
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        self.space.set_rights(Run::new(first, count), all)?;
        // SAFETY: both ranges are mapped for loads and stores, above. They do not overlap: our caller guarantees that
        // the target is not managed. The program alone uses both. Absent pages fault in as they are read.
        unsafe {
            std::ptr::copy_nonoverlapping(
                address as *const u8,
                to as *mut u8,
                old_len.min(new_len),
            );
        }
        // SAFETY: this call has made the mapping at `to`, and no Rust code refers to it.
        unsafe { map::protect(to, new_len, MprotectFlags::from_bits_retain(prot.bits()))? };
        self.unmap(address, old_len)?;
        Ok(to)
    }

    /// Whether a range is foreign.
    ///
    /// # Errors
    /// `EFAULT` if only a part of it is: then it is more than one mapping.
    fn is_foreign(&self, first: PageId, count: u32) -> Result<bool, Errno> {
        match self.mappings.foreign(first, count) {
            Foreign::No => Ok(false),
            Foreign::Whole => Ok(true),
            Foreign::Part => Err(Errno::FAULT),
        }
    }

    /// `mremap` of foreign memory.
    ///
    /// # Safety
    /// As [`Self::remap`].
    unsafe fn remap_foreign(
        &self,
        address: usize,
        len: usize,
        new_len: usize,
        may_move: bool,
        to: Option<usize>,
    ) -> Result<usize, Errno> {
        let (first, count) = self.range(address, len)?;
        let new_count = pages_of(new_len)
            .filter(|&count| count > 0)
            .ok_or(Errno::INVAL)?;
        if to.is_none() && new_count <= count {
            if new_count < count {
                let tail = (count - new_count) as usize * PAGE_SIZE;
                self.unmap(self.address(first.plus(new_count)), tail)?;
            }
            return Ok(address);
        }
        if !may_move {
            return Err(Errno::NOMEM);
        }
        let (new, taken) = match to {
            Some(to) => (to, None),
            None => {
                let page = self.mappings.take(new_count).ok_or(Errno::NOMEM)?;
                (self.address(page), Some(page))
            }
        };
        // SAFETY: the program alone uses the memory at `address` and at `to`, as our caller guarantees. Without `to`,
        // `new` is a free part of the managed range, which `take` has just given to this call.
        let move_it = || unsafe { map::move_mapping(address, len, new, new_len) };
        let moved = match self.manages(new, new_len) {
            true => self.map_foreign(new, new_len, move_it),
            false => move_it(),
        };
        if let (Err(_), Some(page)) = (&moved, taken) {
            self.mappings.give(page, new_count);
        }
        moved?;
        // The old range, now without contents, becomes part of the reservation again.
        self.unmap(address, len)?;
        Ok(new)
    }

    /// Moves contents, wherever they are, page by page or in runs.
    fn relocate(&self, from: PageId, to: PageId, count: u32) {
        let mut done = 0;
        while done < count {
            let mut locked = self.lock();
            let (page, target) = (from.plus(done), to.plus(done));
            let state = locked.engine.page_state(page);
            let same = |n: &u32| locked.engine.page_state(page.plus(*n)) == state;
            let run = (1..RELOCATE_RUN.min(count - done)).take_while(same).count() as u32 + 1;
            // A write of a page that the target had before may still be in flight.
            let in_flight =
                locked.engine.in_flight(page, run) || locked.engine.in_flight(target, run);
            if in_flight || locked.placement.is_parked() {
                drop(locked);
                crate::sys::sleep(IN_FLIGHT_WAIT);
                continue;
            }
            let place = if state.is_in_shadow() && self.space.has_shadow() {
                Some((Place::Shadow, false))
            } else if state.is_mapped() || state.is_in_shadow() {
                // Without a shadow a page that is being cleaned is protected.
                let protected = state.is_in_shadow() || locked.engine.is_protected(page);
                Some((Place::Region, protected))
            } else {
                None
            };
            let moved = match place {
                None => Some(run),
                Some((place, protect)) => self
                    .with_space(&mut locked, |placement, host| {
                        placement.relocate(host, place, page, target, protect)
                    })
                    .then_some(1),
            };
            match moved {
                Some(count) => {
                    self.apply(
                        &mut locked,
                        Event::Relocate {
                            from: page,
                            to: target,
                            count,
                        },
                    );
                    done += count;
                }
                // The kernel postpones the move: in handler mode the handler has to read an event first.
                None => {
                    drop(locked);
                    crate::sys::sleep(IN_FLIGHT_WAIT);
                }
            }
        }
    }
}
