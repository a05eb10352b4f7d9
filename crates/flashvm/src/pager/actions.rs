//! Carries out the engine's memory actions on the address space of this process.
//!
//! [`flashvm_core::space`], which the simulator runs too, decides what each answer means; [`Backend`] is the contract
//! of the operations. This module connects the two: it knows where the contents of a read lie, and what a lost or
//! contradictory page means to this process. All of it happens with the engine locked.

use super::share::Shares;
use super::{LiveEngine, Locked, Pager, Read};
use crate::space::{Backend, PageBuffer, Source, Userfaultfd};
use crate::sys::map;
use crate::sys::message::say;
use flashvm_core::space::{AddressSpace, Contents, Done, Host, Mapping, Placement, Stop};
use flashvm_core::{Action, IoId, PAGE_SIZE, Packed, PageId, Place, Run};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// The address space, for the time of one action.
pub(super) struct LiveSpace<'a> {
    pager: &'a Pager,
    reads: &'a HashMap<IoId, Read>,
    shares: &'a mut Shares,
}

/// The context of an action of the live pager.
pub(super) type LiveHost<'a, 's> = Host<'a, LiveSpace<'s>, LiveEngine>;

/// Carries out the live pager's actions; keeps the contents of parked actions as bytes.
pub(super) type LivePlacement = Placement<Vec<u8>>;

impl LiveSpace<'_> {
    fn memory(&self) -> &Userfaultfd {
        &self.pager.space
    }

    fn inflate_into(&self, from: &Packed, page: &mut PageBuffer) {
        self.pager.inflate(from, |io| self.reads[&io].buffer, page);
    }

    /// Pages of a read that has ended.
    fn contents(&self, io: IoId, index: u32, count: u32) -> &[u8] {
        let at = self.reads[&io].buffer + index as usize * PAGE_SIZE;
        // SAFETY: the read into this buffer has ended: `Event::ReadDone` has led to this action. The buffer is given
        // back only after all actions of that event, so after this borrow of `reads`.
        unsafe { map::bytes(at, count as usize * PAGE_SIZE) }
    }
}

impl AddressSpace for LiveSpace<'_> {
    type Kept = Vec<u8>;

    fn has_shadow(&self) -> bool {
        self.memory().has_shadow()
    }

    fn copy(
        &mut self,
        place: Place,
        first: PageId,
        count: u32,
        from: &Contents<'_, Vec<u8>>,
        protect: bool,
    ) -> Done {
        let run = Run::new(first, count);
        let source = match *from {
            Contents::Zeros => Source::Zeros,
            Contents::Shadow => Source::Page(Place::Shadow, first),
            Contents::Read(io, index) => Source::Bytes(self.contents(io, index, count)),
            Contents::Packed(ref from) => {
                let mut page = PageBuffer::new();
                self.inflate_into(from, &mut page);
                return self
                    .memory()
                    .copy(place, run, Source::Bytes(&page.0), protect);
            }
            Contents::Kept(bytes, index) => {
                Source::Bytes(&bytes[index as usize * PAGE_SIZE..][..run.bytes()])
            }
        };
        self.memory().copy(place, run, source, protect)
    }

    fn shift(&mut self, to: Place, first: PageId, count: u32) -> Done {
        self.memory().shift(to, Run::new(first, count))
    }

    fn relocate(&mut self, place: Place, from: PageId, to: PageId) -> Done {
        self.memory().relocate(place, from, to)
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
            Source::Zeros
        } else {
            Source::Page(place, from)
        };
        self.memory().copy(place, Run::one(to), source, protect)
    }

    fn protect(&mut self, first: PageId, count: u32, on: bool) -> Result<(), Stop> {
        self.memory().protect(Run::new(first, count), on)
    }

    fn poison(&mut self, page: PageId) -> Result<(), Stop> {
        self.memory().poison(page)
    }

    fn wake(&mut self, first: PageId, count: u32) {
        self.memory().wake(Run::new(first, count));
    }

    fn drop_runs(&mut self, place: Place, runs: &[(PageId, u32)]) {
        let mut of = [Run::default(); 64];
        for part in runs.chunks(of.len()) {
            for (run, &(first, count)) in of.iter_mut().zip(part) {
                *run = Run::new(first, count);
            }
            let zapped = self.memory().zap(place, &of[..part.len()]);
            zapped.unwrap_or_else(|e| self.pager.die(&format!("dropping pages failed: {e:?}")));
        }
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        self.memory().holds(place, page)
    }

    fn unshare(&mut self, page: PageId) -> bool {
        self.memory().unshare(page)
    }

    fn leave_frames(&mut self, first: PageId, count: u32) {
        self.shares.leave(&self.pager.process, first, count);
    }

    fn mapping(&self, page: PageId) -> Option<Mapping> {
        self.memory().mapping(page)
    }

    fn set_protection(
        &mut self,
        first: PageId,
        count: u32,
        protection: Option<u32>,
    ) -> Result<(), Stop> {
        self.memory()
            .set_protection(Run::new(first, count), protection)
    }

    fn keep(&self, io: IoId, index: u32, count: u32) -> Vec<u8> {
        self.contents(io, index, count).to_vec()
    }

    fn inflate(&self, from: &Packed) -> Vec<u8> {
        let mut page = PageBuffer::new();
        self.inflate_into(from, &mut page);
        page.0.to_vec()
    }

    fn part(kept: &Vec<u8>, index: u32, count: u32) -> Vec<u8> {
        kept[index as usize * PAGE_SIZE..][..count as usize * PAGE_SIZE].to_vec()
    }

    fn address(&self, page: PageId) -> usize {
        self.pager.address(page)
    }

    fn tell_lost(&mut self, page: PageId) {
        let lost = &self.pager.stats().pages_lost;
        lost.fetch_add(1, Ordering::Relaxed);
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
    /// Calls `work` with the placement and the context of its actions.
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

    /// Retries parked actions. Returns whether none is left.
    pub(super) fn retry_parked(&self, locked: &mut Locked) -> bool {
        self.with_space(locked, |placement, host| placement.retry(host))
    }

    /// A thread has touched a missing page. If the engine has it as mapped, it was zapped just now: maps zeros. Returns
    /// whether that is so.
    pub(super) fn resolve_spurious(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, host| {
            placement.resolve_spurious(host, page)
        });
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }

    /// Write-protection has stopped a store. If the engine has the page as writable, ends the protection. Returns
    /// whether that is so.
    pub(super) fn unprotect(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, host| placement.unprotect(host, page));
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }
}
