//! The executor of the engine's memory actions in this process.
//!
//! [`flashvm_core::space`], which the simulator runs too, calls the address space ([`Space`]) itself and decides
//! what each answer means. This module has what is not in the address space: it finds the contents of a read or
//! of a compressed page, and knows what a lost or contradictory page means to this process. All of it happens with the
//! engine locked.

use super::share::Shares;
use super::{LiveEngine, Locked, Pager, Read};
use crate::space::{Backend, Source, Space};
use crate::sys::map;
use crate::sys::message::say;
use flashvm_core::space::{ActionContext, Contents, Done, Executor, Placement, Stop};
use flashvm_core::{Action, IoId, PAGE_SIZE, Packed, PageId, Place, Run};
use std::collections::HashMap;
use std::iter;
use std::sync::atomic::Ordering;

const NO_MEMORY: &str = "a page cannot be placed: the kernel has no memory, or allows this process no more mappings: raise \
                         vm.max_map_count";

/// The executor, for the time of one action.
pub(super) struct LiveExecutor<'a> {
    pager: &'a Pager,
    memory: &'a Space,
    reads: &'a HashMap<IoId, Read>,
    shares: &'a mut Shares,
}

/// The context of an action of the live pager.
pub(super) type LiveHost<'a, 's> = ActionContext<'a, LiveExecutor<'s>, LiveEngine>;

/// Carries out the live pager's actions; keeps the contents of parked actions as bytes.
pub(super) type LivePlacement = Placement<Vec<u8>>;

impl LiveExecutor<'_> {
    /// The compressed bytes of a page.
    fn packed(&self, from: &Packed) -> &[u8] {
        match *from {
            // SAFETY: actions are carried out with the engine locked.
            Packed::Pool(object) => unsafe { self.pager.object(object) },
            Packed::Read { io, skip, bytes } => self.contents(io, skip as usize, bytes as usize),
        }
    }

    /// Bytes of a read that has ended, from its byte `skip` on.
    fn contents(&self, io: IoId, skip: usize, len: usize) -> &[u8] {
        let Read { buffer, count, .. } = self.reads[&io];
        let read = count as usize * PAGE_SIZE;
        assert!(
            skip <= read && len <= read - skip,
            "{len} bytes from byte {skip} on of a read of {count} pages"
        );
        // SAFETY: the part lies in the buffer. The read into it has ended: `Event::ReadDone` has led to this action. The
        // buffer is given back only after all actions of that event, so after this borrow of `reads`.
        unsafe { map::bytes(buffer + skip, len) }
    }

    fn pages(&self, io: IoId, index: u32, count: u32) -> &[u8] {
        let (skip, len) = (index as usize * PAGE_SIZE, count as usize * PAGE_SIZE);
        self.contents(io, skip, len)
    }
}

impl<'a> Executor for LiveExecutor<'a> {
    type Space = &'a Space;
    type Kept = Vec<u8>;

    fn space(&mut self) -> &mut &'a Space {
        &mut self.memory
    }

    fn copy(
        &mut self,
        place: Place,
        run: Run,
        from: &Contents<'_, Vec<u8>>,
        protect: bool,
    ) -> Done {
        let mut inflater;
        let source = match *from {
            Contents::Zeros => Source::Zeros,
            Contents::Page(from, first) => Source::Page(from, first),
            Contents::Read(io, index) => Source::Bytes(self.pages(io, index, run.count)),
            Contents::Packed(from) => {
                inflater = self.pager.inflater();
                let objects = from.iter().take(run.count as usize);
                let pages = inflater.inflate(objects.map(|from| self.packed(from)));
                Source::Bytes(pages.unwrap_or_else(|error| self.pager.die(&error)))
            }
            Contents::Kept(bytes, index) => {
                Source::Bytes(&bytes[index as usize * PAGE_SIZE..][..run.bytes()])
            }
        };
        let done = self.memory.copy(place, run, source, protect);
        if done.stop == Some(Stop::Failed(libc::ENOMEM)) {
            self.pager.die(NO_MEMORY);
        }
        done
    }

    fn leave_frames(&mut self, run: Run) {
        self.shares.leave(&self.pager.process, run.first, run.count);
    }

    fn keep(&self, io: IoId, index: u32, count: u32) -> Vec<u8> {
        self.pages(io, index, count).to_vec()
    }

    fn inflate(&self, from: &Packed) -> Vec<u8> {
        let mut inflater = self.pager.inflater();
        let page = inflater.inflate(iter::once(self.packed(from)));
        page.unwrap_or_else(|error| self.pager.die(&error)).to_vec()
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
        tracing::error!(page = page.0, "lost");
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
        let mut executor = LiveExecutor {
            pager: self,
            memory: &self.space,
            reads,
            shares,
        };
        let mut context = ActionContext {
            executor: &mut executor,
            engine,
            events,
        };
        work(placement, &mut context)
    }

    /// Retries parked actions. Returns whether none is left.
    pub(super) fn retry_parked(&self, locked: &mut Locked) -> bool {
        self.with_space(locked, |placement, context| placement.retry(context))
    }

    /// A thread has touched a missing page. If the engine has it as mapped, it was zapped just now: maps zeros. Returns
    /// whether that is so.
    pub(super) fn resolve_spurious(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, context| {
            placement.resolve_spurious(context, page)
        });
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }

    /// Write-protection has stopped a store. If the engine has the page as writable, ends the protection. Returns
    /// whether that is so.
    pub(super) fn unprotect(&self, locked: &mut Locked, page: PageId) -> bool {
        let was = self.with_space(locked, |placement, context| {
            placement.unprotect(context, page)
        });
        if was {
            self.note_resolved(locked, &Action::Wake { page });
        }
        was
    }
}
