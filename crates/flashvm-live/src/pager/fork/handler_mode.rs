//! fork in handler mode: the kernel hands the child's userfaultfd, with all registrations and
//! write-protections, to the parent's handler, which passes it on through a socket. Until the
//! child has threads to resolve its own faults, the parent's handler resolves them: the C library
//! touches the program's memory in a forked child, and whenever a thread starts. Then the child
//! asks for the faults resolved for it, applies them to its page table, and both go on.

use super::child::end_child;
use super::socket::{self, ChildAsks, REPLY_MAX, ResolvedFault};
use crate::Error;
use crate::control::Process;
use crate::flash::{Part, Store, offset};
use crate::pager::workers::Crew;
use crate::pager::{Freeze, LiveEngine, Locked, PAGER, Pager};
use crate::space::{Inherited, PageBuffer, Source};
use crate::sys::descriptors::PagerFd;
use crate::sys::signals::Uninterrupted;
use crate::sys::uffd::{Message, Uffd};
use flashvm_core::pool;
use flashvm_core::{PAGE_SIZE, PageId, PageState, Place, SlotId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::ProtFlags;
use rustix_futex_sync::MutexGuard;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Two slots side by side, for direct I/O into each.
#[repr(align(4096))]
struct TwoPages([[u8; PAGE_SIZE]; 2]);

/// A fork under way: resources ready for the child, and faults resolved for it.
pub(in crate::pager) struct Fork {
    process_slot: Result<Process, crate::control::Error>,
    parent_end: Option<PagerFd>,
    child_end: Option<PagerFd>,
    /// The child's userfaultfd, as long as the parent's handler resolves its faults.
    child: Option<Uffd>,
    resolved: Vec<ResolvedFault>,
    /// Faults of this process itself that were resolved while its engine was frozen: `pthread_atfork` handlers
    /// touch memory too.
    own: Vec<ResolvedFault>,
    /// Resident frames have numbers of shared frames, and stores to them are stopped. False if the numbers ran out:
    /// then no child has a pager.
    shared: bool,
    /// The child resolves its own faults, or there is no child.
    over: bool,
    /// Blocks the forking thread's signals until parent and child can resolve faults again.
    uninterrupted: Option<Uninterrupted>,
}

impl Pager {
    /// Before a fork: waits until all requests have ended, and freezes the engine. `touched` are addresses that this
    /// thread may store to before the fork is over, while its faults cannot be resolved. Addresses to which the program
    /// itself may not store, such as a guard page beside a stack, are left out.
    pub fn prepare_fork(&self, touched: &[usize]) {
        let uninterrupted = Uninterrupted::begin();
        let may_store = |&at: &usize| {
            let mapping = self.space.mapping_at(at);
            mapping.is_some_and(|mapping| mapping.prot.contains(ProtFlags::WRITE))
        };
        let touched: Vec<usize> = touched.iter().copied().filter(may_store).collect();
        let (_, mut locked) = self
            .quiet_with_room(|| self.become_quiet_with(&touched))
            .expect("handler mode has no heap of small pages to copy");
        let (parent_end, child_end) =
            socket::pair().unwrap_or_else(|e| self.die(&format!("fork: no sockets: {e}")));
        let mut touched: Vec<PageId> = touched.iter().filter_map(|&at| self.page_at(at)).collect();
        touched.sort_unstable();
        let mut own = Vec::with_capacity(REPLY_MAX);
        own.extend(touched.iter().map(|&page| ResolvedFault::new(page, true)));
        let process_slot = self.prepare_child(&mut locked, &touched);
        // The C library forks nevertheless, and its child holds the frames, too, until it ends.
        let shared = process_slot.is_ok() || self.share_frames(&mut locked, None, &touched).is_ok();
        locked.fork = Some(Fork {
            process_slot,
            parent_end: Some(parent_end),
            child_end: Some(child_end),
            child: None,
            resolved: Vec::with_capacity(REPLY_MAX),
            own,
            shared,
            over: false,
            uninterrupted: Some(uninterrupted),
        });
        locked.freeze = Freeze::Frozen;
        drop(locked);
        self.workers.handler.ring();
    }

    /// As [`Self::become_quiet`], with the managed pages of `touched` in RAM and writable.
    fn become_quiet_with(&self, touched: &[usize]) -> MutexGuard<'_, Locked> {
        loop {
            for &address in touched.iter().filter(|&&address| self.manages(address, 1)) {
                // SAFETY: the memory is mapped and writable, as `prepare_fork` has found. An atomic `or` with 0 leaves the byte as it is, whoever
                // else uses it.
                unsafe { AtomicU8::from_ptr(address as *mut u8) }.fetch_or(0, Ordering::Relaxed);
            }
            let locked = self.become_quiet();
            let there = |&address: &usize| {
                self.page_at(address).is_none_or(|page| {
                    locked.engine.page_state(page).is_mapped() && !locked.engine.is_protected(page)
                })
            };
            if touched.iter().all(there) {
                return locked;
            }
            self.thaw(locked);
        }
    }

    /// After a fork, in the parent, whether it succeeded or not: waits until the child can resolve its own faults or
    /// is gone; then everybody goes on.
    pub fn resume_parent(&self) {
        let mut locked = self.locked.lock();
        let fork = locked.fork.as_mut().expect("prepared");
        // From here on only a child holds this end: if there is none, or it dies, the handler sees the end closed.
        fork.child_end = None;
        while !locked.fork.as_ref().is_some_and(|fork| fork.over) {
            locked = self.changed.wait(locked);
        }
        let fork = locked.fork.take().expect("prepared");
        if let Ok(process_slot) = &fork.process_slot {
            process_slot.retire_unadopted();
        }
        self.resume_after(locked, fork.shared, fork.own.iter().copied());
    }

    /// The handler's part while the engine is frozen: passes the child's descriptor on, and
    /// resolves the child's faults until the child does so itself. Resolves this process's own faults, too.
    pub(in crate::pager) fn attend_fork(&self, locked: &mut Locked, messages: &mut Vec<Message>) {
        let Locked { fork, engine, .. } = locked;
        let fork = fork.as_mut().expect("frozen for a fork");
        messages.retain(|message| {
            let fd = match (*message, &fork.parent_end) {
                (Message::Fork(fd), Some(_)) => fd,
                (
                    Message::Fault {
                        address, protected, ..
                    },
                    _,
                ) => {
                    // Noted before it is resolved: a child forked between the two steps then knows of the fault,
                    // whether it has the page or not.
                    let page = self.page_at(address).expect("a fault in the managed range");
                    fork.own.push(ResolvedFault::new(page, protected));
                    self.resolve_for(self.space.userfaultfd().region(), engine, page, protected);
                    return false;
                }
                _ => return true,
            };
            let parent_end = fork.parent_end.as_ref().expect("seen above");
            // SAFETY: the kernel has opened this descriptor for the reader of the message: nobody else owns it.
            let child = unsafe { OwnedFd::from_raw_fd(fd) };
            let kept =
                socket::send_descriptor(parent_end, &child).and_then(|()| Uffd::from_fork(child));
            let child =
                kept.unwrap_or_else(|e| self.die(&format!("fork: the child's descriptor: {e}")));
            fork.child = Some(child);
            false
        });
        let Some(parent_end) = &fork.parent_end else {
            return;
        };
        let request = socket::request(parent_end);
        fork.over |= request == ChildAsks::Gone;
        if let Some(child) = &fork.child {
            let mut faults = Vec::new();
            // An error means that the child is gone: then there is nothing to read.
            let _ = child.read(&mut faults);
            for fault in faults {
                if let Message::Fault {
                    address, protected, ..
                } = fault
                {
                    let page = self.page_at(address).expect("a fault in the managed range");
                    self.resolve_for(child, engine, page, protected);
                    fork.resolved.push(ResolvedFault::new(page, protected));
                }
            }
        }
        if request == ChildAsks::TakeOver {
            // If the child has just died, the answer does not matter.
            let _ = socket::send_resolved(parent_end, &fork.resolved);
            fork.over = true;
        }
        if fork.over {
            fork.child = None;
            fork.parent_end = None;
            self.changed.notify_all();
        }
    }

    /// Resolves a fault that came through `child`, the descriptor of the child or of this process, with this process's
    /// contents. The engine is frozen, so these are the contents at the moment of the fork.
    fn resolve_for(&self, child: &Uffd, engine: &LiveEngine, page: PageId, protected: bool) {
        if protected {
            self.space.userfaultfd().unprotect_through(child, page);
            return;
        }
        let mut buffer = PageBuffer::new();
        let source = match engine.page_state(page) {
            state if state.is_in_shadow() => Some(Source::Page(Place::Shadow, page)),
            PageState::Stored => {
                let good = match (engine.packed_at(page), engine.slot_of(page)) {
                    (Some(place), _) => self.unpack_for_fork(place, &mut buffer),
                    (None, Some(slot)) if engine.is_zero_slot(slot) => true,
                    (None, slot) => {
                        let slot = slot.expect("stored pages have a place");
                        self.read_for_fork(slot, &mut buffer.0)
                    }
                };
                good.then_some(Source::Bytes(&buffer.0))
            }
            PageState::Poisoned => None,
            _ => Some(Source::Zeros),
        };
        self.space
            .userfaultfd()
            .resolve_through(child, page, source);
    }

    fn unpack_for_fork(&self, place: pool::PackedAt, buffer: &mut PageBuffer) -> bool {
        match place {
            pool::PackedAt::Pool(object) => {
                // SAFETY: the engine is frozen until the fork has ended.
                self.unpack(unsafe { self.object(object) }, buffer);
                true
            }
            pool::PackedAt::Flash(slot, object) => {
                // An object is smaller than a page, so it lies in two slots at most.
                let mut slots = TwoPages([[0; PAGE_SIZE]; 2]);
                let count = object.slots().1 as usize;
                let read = slots.0[..count].iter_mut().zip(0..);
                if !read.fold(true, |good, (to, i)| {
                    self.read_for_fork(slot.plus(i), to) && good
                }) {
                    return false;
                }
                let skip = object.offset as usize % PAGE_SIZE;
                let packed = &slots.0.as_flattened()[skip..][..object.bytes as usize];
                self.unpack(packed, buffer);
                true
            }
        }
    }

    fn unpack(&self, object: &[u8], buffer: &mut PageBuffer) {
        let mut inflater = self.inflater();
        let page = inflater.inflate(iter::once(object));
        let page = page.unwrap_or_else(|error| self.die(&error));
        buffer.0.copy_from_slice(page);
    }

    fn read_for_fork(&self, slot: SlotId, page: &mut [u8; PAGE_SIZE]) -> bool {
        let to = Part {
            address: page.as_mut_ptr() as usize,
            len: PAGE_SIZE,
        };
        // SAFETY: `page` has that length, and is borrowed mutably until `read` returns.
        unsafe { self.store.read(offset(slot), to) }.is_none()
    }

    /// Sleeps, in the handler, while the engine is frozen. Allocates nothing: the forking thread has locked the
    /// allocator.
    pub(in crate::pager) fn await_fork(&self) {
        let locked = self.locked.lock();
        let Some(fork) = &locked.fork else { return };
        let (region, child, parent_end) = match &fork.parent_end {
            None => (Some(self.space.userfaultfd().region().as_fd()), None, None),
            Some(end) => (
                Some(self.space.userfaultfd().region().as_fd()),
                fork.child.as_ref().map(AsFd::as_fd),
                Some(end.as_fd()),
            ),
        };
        let raw = [region, child, parent_end].map(|fd| fd.map(|fd| fd.as_raw_fd()));
        drop(locked);
        // SAFETY: the region's descriptor is never closed, and only the handler, the caller, closes the other two.
        let fds = raw.map(|fd| fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }));
        let event = self.workers.handler.readiness();
        let mut fds = [
            PollFd::from_borrowed_fd(event, PollFlags::IN),
            PollFd::from_borrowed_fd(self.supervisor.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(fds[0].unwrap_or(event), PollFlags::IN),
            PollFd::from_borrowed_fd(fds[1].unwrap_or(event), PollFlags::IN),
            PollFd::from_borrowed_fd(fds[2].unwrap_or(event), PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            self.die("the supervisor (flashvm run) has died");
        }
        if !fds[0].revents().is_empty() {
            self.workers.handler.silence();
        }
    }

    /// Goes on after a fork during which these faults were resolved. Until the engine has heard of all of them, it does
    /// not know that their pages are in the region.
    fn resume_after(
        &self,
        mut locked: MutexGuard<'_, Locked>,
        shared: bool,
        faults: impl Iterator<Item = ResolvedFault> + Clone,
    ) {
        let missing = faults.clone().filter(|fault| !fault.is_stopped_store());
        locked
            .placement
            .resolved_already(missing.map(ResolvedFault::page));
        if shared {
            self.resume(locked, |locked| self.catch_up(locked, faults));
        } else {
            self.catch_up(&mut locked, faults);
            self.thaw(locked);
        }
    }

    /// Tells the engine of faults that were resolved while it was frozen. Stopped stores come first: the other faults
    /// may need frames, for which the engine would drop a page that it still takes for clean, and lose the stores to
    /// it.
    fn catch_up(&self, locked: &mut Locked, faults: impl Iterator<Item = ResolvedFault> + Clone) {
        let of = |stopped| {
            let faults = faults.clone();
            faults.filter(move |fault| fault.is_stopped_store() == stopped)
        };
        // The kernel has copied each of these pages, whether there is a frame for it or not.
        self.own_pages(locked, of(true).map(ResolvedFault::page));
        for fault in of(true).chain(of(false)) {
            self.apply(locked, fault.event());
        }
    }

    /// The handler's first act: from here on it resolves the faults, and allocates and frees nothing while the
    /// engine is frozen.
    pub(in crate::pager) fn take_over(&self) {
        self.take_over_from_parent();
        // Only now can the next fork begin: it locks the allocator, and by now the handler has freed what the last
        // fork left behind.
        self.locked.lock().crew = Crew::Up;
    }

    /// In a forked child: gets the faults that the parent has resolved, and tells the engine.
    fn take_over_from_parent(&self) {
        let mut locked = self.locked.lock();
        let Some(fork) = locked.fork.take() else {
            return;
        };
        let child_end = fork.child_end.expect("the child's");
        let resolved = socket::take_over(&child_end)
            .unwrap_or_else(|e| self.die(&format!("the parent of a forked child has died: {e}")));
        let faults = fork.own.iter().chain(&resolved).copied();
        self.resume_after(locked, true, faults);
    }

    /// After a fork, in the child: makes its pager.
    pub fn resume_child() {
        // SAFETY: the child has one thread, this one; `PAGER` points to its parent's pager, and to the child's own
        // before anybody looks again.
        let mut old = unsafe { Self::inherit(PAGER.load(Ordering::Acquire)) };
        // Without the lock: the parent's handler may have held it at the moment of the fork, and does not exist here
        // to release it.
        let fork = old.locked.get_mut().fork.as_ref();
        let process_slot = fork.and_then(|fork| fork.process_slot.as_ref().ok().copied());
        if let Err(error) = old.resume_as_child() {
            end_child(process_slot, &error)
        }
    }

    fn resume_as_child(mut self) -> Result<(), Error> {
        let fork = self.locked.get_mut().fork.as_mut().expect("prepared");
        let child_end = fork.child_end.as_ref().expect("the child's");
        let kept = child_end.as_raw_fd();
        // The child's handler drops the `Fork`, but the signal mask is this thread's: it is restored here.
        let _uninterrupted = fork.uninterrupted.take();
        // `close_inherited` closes it by number, below.
        std::mem::forget(fork.parent_end.take());
        let process_slot =
            std::mem::replace(&mut fork.process_slot, Err(crate::control::Error::Stale));
        // First, so that there is a number for the next one.
        self.close_inherited(iter::once(kept));
        let fork = self.locked.get_mut().fork.as_ref().expect("prepared");
        let child_end = fork.child_end.as_ref().expect("the child's");
        let region = socket::receive_descriptor(child_end)
            .map_err(Error::memory("the pager's descriptor"))?;
        let region = Uffd::from_fork(region).map_err(Error::Userfaultfd)?;
        let pager = self.become_child(Inherited::Region(Some(region)), process_slot?, None)?;
        pager.start_threads().map_err(Error::Threads)?;
        // `lock` waits until the child's handler has taken over.
        pager.unlock_all(&mut pager.lock());
        Ok(())
    }
}
