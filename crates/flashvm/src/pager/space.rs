//! The address space of this process: the region behind one userfaultfd, the shadow behind another.
//!
//! What each answer of the kernel means is decided in [`flashvm_core::space`]; here are the calls.
//! All of them are made with the engine locked.

use super::share::Shares;
use super::{LiveEngine, Locked, Pager, Read};
use crate::sys::map;
use crate::sys::message::say;
use crate::sys::uffd::Uffd;
use flashvm_core::space::{AddressSpace, Contents, Done, Host, Mapping, Placement, Stop};
use flashvm_core::{Action, IoId, PAGE_SIZE, PageId, Place};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// The address space, for the time of one action.
pub(super) struct LiveSpace<'a> {
    pager: &'a Pager,
    reads: &'a HashMap<IoId, Read>,
    shares: &'a mut Shares,
}

/// What surrounds an action of the live pager.
pub(super) type LiveHost<'a, 's> = Host<'a, LiveSpace<'s>, LiveEngine>;

/// Carries out the live pager's actions; contents that wait are kept as bytes.
pub(super) type LivePlacement = Placement<Vec<u8>>;

fn stop(error: Errno) -> Stop {
    match error {
        Errno::AGAIN => Stop::Again,
        Errno::EXIST => Stop::Exists,
        Errno::NOENT => Stop::Missing,
        Errno::INVAL => Stop::Invalid,
        Errno::BUSY => Stop::Busy,
        Errno::SRCH => Stop::Exiting,
        other => Stop::Failed(other.raw_os_error()),
    }
}

/// What a call did of its bytes, and how it ended.
fn done((bytes, result): (usize, Result<(), Errno>)) -> Done {
    Done {
        pages: (bytes / PAGE_SIZE) as u32,
        stop: result.err().map(stop),
    }
}

impl LiveSpace<'_> {
    fn at(&self, place: Place, page: PageId) -> usize {
        match place {
            Place::Region => self.pager.address(page),
            Place::Shadow => self.pager.shadow_address(page),
        }
    }

    fn descriptor(&self, place: Place) -> &Uffd {
        match place {
            Place::Region => &self.pager.region,
            Place::Shadow => self.pager.shadow_descriptor(),
        }
    }

    fn buffer(&self, io: IoId, index: u32) -> usize {
        self.reads[&io].buffer + index as usize * PAGE_SIZE
    }
}

impl AddressSpace for LiveSpace<'_> {
    type Kept = Vec<u8>;

    fn has_shadow(&self) -> bool {
        self.pager.can_move
    }

    fn copy(
        &mut self,
        place: Place,
        first: PageId,
        count: u32,
        from: &Contents<'_, Vec<u8>>,
        protect: bool,
    ) -> Done {
        let source = match *from {
            Contents::Zeros => self.pager.zeros,
            Contents::Shadow => self.at(Place::Shadow, first),
            Contents::Read(io, index) => self.buffer(io, index),
            Contents::Kept(bytes, index) => bytes[index as usize * PAGE_SIZE..].as_ptr() as usize,
        };
        let (at, len) = (self.at(place, first), count as usize * PAGE_SIZE);
        done(self.descriptor(place).copy(at, source, len, protect))
    }

    fn shift(&mut self, to: Place, first: PageId, count: u32) -> Done {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let (dst, src) = (self.at(to, first), self.at(from, first));
        let len = count as usize * PAGE_SIZE;
        done(self.descriptor(to).relocate(dst, src, len))
    }

    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done {
        if !self.has_shadow() {
            // This kernel cannot move pages.
            return Done::stopped(0, Stop::Invalid);
        }
        let (dst, src) = (self.at(place, to), self.at(place, from));
        done(self.descriptor(place).relocate(dst, src, PAGE_SIZE))
    }

    fn relocate_copy(
        &mut self,
        place: Place,
        from: PageId,
        to: PageId,
        protect: bool,
        zeros: bool,
    ) -> Done {
        let source = if zeros {
            self.pager.zeros
        } else {
            self.at(place, from)
        };
        let to = self.at(place, to);
        done(self.descriptor(place).copy(to, source, PAGE_SIZE, protect))
    }

    fn protect(&mut self, first: PageId, count: u32, on: bool) -> Result<(), Stop> {
        let (at, len) = (self.pager.address(first), count as usize * PAGE_SIZE);
        self.pager.region.write_protect(at, len, on).map_err(stop)
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        let at = self.pager.address(page);
        self.pager.region.poison(at, PAGE_SIZE).map_err(stop)
    }

    fn wake(&mut self, first: PageId, count: u32) {
        let at = self.pager.address(first);
        // Fails only where nobody can wait: the range is not registered any more.
        let _ = self.pager.region.wake(at, count as usize * PAGE_SIZE);
    }

    fn drop_runs(&mut self, place: Place, runs: &[(PageId, u32)]) {
        let mut ranges = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; map::DROP_RANGES_MAX];
        for part in runs.chunks(ranges.len()) {
            for (range, &(first, count)) in ranges.iter_mut().zip(part) {
                range.iov_base = self.at(place, first) as *mut _;
                range.iov_len = count as usize * PAGE_SIZE;
            }
            map::drop_ranges(&ranges[..part.len()])
                .unwrap_or_else(|e| self.pager.die(&format!("dropping pages failed: {e}")));
        }
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        self.pager.own.is_present(self.at(place, page))
    }

    fn unshare(&mut self, page: PageId) -> bool {
        map::unshare(self.pager.address(page)).is_ok()
    }

    fn leave_frames(&mut self, first: PageId, count: u32) {
        self.shares.leave(&self.pager.process, first, count);
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        let at = self.pager.address(page);
        self.pager.own.mapping_at(at).map(|mapping| Mapping {
            pages: ((mapping.end - at) / PAGE_SIZE) as u32,
            protection: mapping.prot.bits(),
            writable: mapping.prot.contains(ProtFlags::READ | ProtFlags::WRITE),
        })
    }

    fn set_protection(
        &mut self,
        first: PageId,
        count: u32,
        protection: Option<u32>,
    ) -> Result<(), Stop> {
        let (at, len) = (self.pager.address(first), count as usize * PAGE_SIZE);
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        let protection = protection.map_or(all, MprotectFlags::from_bits_retain);
        map::protect(at, len, protection).map_err(stop)
    }

    fn keep(&self, io: IoId, index: u32, count: u32) -> Vec<u8> {
        let source = self.buffer(io, index);
        // SAFETY: the read into this buffer has ended, and the buffer is not given back before
        // the actions of that event are done.
        unsafe { map::bytes(source, count as usize * PAGE_SIZE) }.to_vec()
    }

    fn part(kept: &Vec<u8>, index: u32, count: u32) -> Vec<u8> {
        let start = index as usize * PAGE_SIZE;
        kept[start..start + count as usize * PAGE_SIZE].to_vec()
    }

    fn address(&self, page: PageId) -> usize {
        self.pager.address(page)
    }

    fn tell_lost(&mut self, page: PageId) {
        self.pager
            .stats()
            .pages_lost
            .fetch_add(1, Ordering::Relaxed);
        say(&format!(
            "the contents of the page at {:#x} are lost: it could not be read back from flash as it \
             was written (SIGBUS)",
            self.pager.address(page)
        ));
    }

    fn fail(&self, why: &str) -> ! {
        self.pager.die(why)
    }
}

impl Pager {
    /// Does something with the address space.
    pub(super) fn with_space<T>(
        &self,
        locked: &mut Locked,
        work: impl FnOnce(&mut LivePlacement, &mut LiveHost<'_, '_>) -> T,
    ) -> T {
        let Locked {
            engine,
            events,
            placement,
            reads,
            shares,
            ..
        } = locked;
        let mut space = LiveSpace {
            pager: self,
            reads,
            shares,
        };
        let mut host = Host {
            space: &mut space,
            engine,
            events,
        };
        work(placement, &mut host)
    }

    /// Retries what is parked. Whether nothing is left.
    pub(super) fn retry_parked(&self, locked: &mut Locked) -> bool {
        self.with_space(locked, |placement, host| placement.retry(host))
    }

    /// A missing page was touched that the engine has as mapped: it reads as zeros. Whether that is so.
    pub(super) fn resolve_spurious(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, host| {
            placement.resolve_spurious(host, page)
        });
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }

    /// A write-protected page was stored to. If the engine has it as mapped for stores, the
    /// protection is lifted. Whether that is so.
    pub(super) fn lift_protection(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, host| {
            placement.lift_protection(host, page)
        });
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }
}
