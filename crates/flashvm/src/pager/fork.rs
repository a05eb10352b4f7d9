//! fork: the child gets a pager of its own over a copy of the page table.
//!
//! Before the fork everything in flight ends and the engine is frozen, so that the child's copy
//! of it is whole. The kernel hands the child's userfaultfd, with all registrations and
//! write-protections, to the parent's handler, which passes it on through a socket. Until the
//! child has threads to resolve its own faults the parent's handler does that: the C library
//! touches memory of the program's in a forked child, and whenever a thread starts. Then the child
//! asks for what was resolved for it, brings its page table up to that, and both go on.
//! Slots on flash are shared from then on; clusters know how many processes hold them.

use super::{Freeze, LiveEngine, Locked, PAGER, Pager, new_event, publish};
use crate::Error;
use crate::chameleon::ForkedFrames;
use crate::control::Process;
use crate::flash::FlashStore;
use crate::flash::demand::DemandQueues;
use crate::flash::io::read_now;
use crate::flash::model_client;
use crate::space::{Backend, PageBuffer, Source};
use crate::sys::signals::Uninterrupted;
use crate::sys::uffd::{Message, Uffd};
use crate::sys::{descriptors, thread};
use flashvm_core::{Access, Event, PAGE_SIZE, PageId, PageState, Place, Run, SlotId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use rustix_futex_sync::{Condvar, Mutex, MutexGuard};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// Resolved faults in one message to the child.
const REPLY_MAX: usize = 1024;
/// How long to wait for requests to end before looking again.
const QUIET_WAIT: Duration = Duration::from_millis(1);

/// A fork under way: what stands ready for the child, and what was done for it.
pub(super) struct Fork {
    process_slot: Result<Process, crate::control::Error>,
    parent_end: Option<OwnedFd>,
    child_end: Option<OwnedFd>,
    /// The child's userfaultfd, as long as its faults are resolved here.
    child: Option<Uffd>,
    resolved: Vec<ResolvedFault>,
    /// Faults of this process' own that were resolved while its engine was frozen: handlers that
    /// the C library calls around a fork touch memory too.
    own: Vec<ResolvedFault>,
    /// The child is on its own, or there is none.
    over: bool,
    /// Until parent and child can resolve faults again, in the thread that forks.
    uninterrupted: Option<Uninterrupted>,
}

/// A fault of the child's that the parent's handler resolved, packed for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResolvedFault(u32);

impl ResolvedFault {
    const STOPPED_STORE: u32 = 1 << 31;

    fn new(page: PageId, stopped_store: bool) -> Self {
        Self(
            page.0
                | if stopped_store {
                    Self::STOPPED_STORE
                } else {
                    0
                },
        )
    }

    fn page(self) -> PageId {
        PageId(self.0 & !Self::STOPPED_STORE)
    }

    fn is_stopped_store(self) -> bool {
        self.0 & Self::STOPPED_STORE != 0
    }

    /// What happened, for the child's engine. The page is writable now, so it counts as stored to.
    fn event(self) -> Event {
        let page = self.page();
        if self.is_stopped_store() {
            Event::WriteProtectFault { page }
        } else {
            Event::Fault {
                page,
                access: Access::Write,
            }
        }
    }
}

impl Pager {
    /// Whether budget and store could hold a copy of this process.
    #[must_use]
    pub fn can_fork(&self) -> bool {
        let _uninterrupted = Uninterrupted::begin();
        let pages = self.process.committed();
        let fits = self.process.commit_patiently(pages);
        if fits {
            self.process.uncommit(pages);
        } else {
            self.count_refused_fork(&crate::control::Error::Commit);
        }
        fits
    }

    /// Counts a fork that was refused, or says why it was if that is no matter of room.
    fn count_refused_fork(&self, error: &crate::control::Error) {
        match error {
            crate::control::Error::Commit => {
                let stats = self.stats();
                stats.forks_refused.fetch_add(1, Ordering::Relaxed);
            }
            other => crate::program::refuse(&format!("a fork is refused: {other}")),
        }
    }

    /// Before a fork: ends what is in flight and freezes the engine. `touched` are addresses that
    /// this thread will store to before the fork is over, while its faults cannot be resolved.
    pub fn prepare_fork(&self, touched: &[usize]) {
        let uninterrupted = Uninterrupted::begin();
        let mut locked = self.quiet_with_room(|| self.quiesce(touched));
        let (parent_end, child_end) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .and_then(|(one, other)| Ok((descriptors::keep(one)?, descriptors::keep(other)?)))
        .unwrap_or_else(|e| self.die(&format!("fork: no sockets: {e}")));
        let mut touched: Vec<PageId> = touched.iter().filter_map(|&at| self.page_at(at)).collect();
        touched.sort_unstable();
        let mut own = Vec::with_capacity(REPLY_MAX);
        own.extend(touched.iter().map(|&page| ResolvedFault::new(page, true)));
        let process_slot = self.process.fork();
        let shared = self.share_frames(&mut locked, process_slot.as_ref().ok(), &touched);
        locked.fork = Some(Fork {
            process_slot: shared.and(process_slot),
            parent_end: Some(parent_end),
            child_end: Some(child_end),
            child: None,
            resolved: Vec::with_capacity(REPLY_MAX),
            own,
            over: false,
            uninterrupted: Some(uninterrupted),
        });
        locked.freeze = Freeze::Frozen;
        drop(locked);
        self.wake_handler();
    }

    /// Lets everything in flight end, with `touched` in RAM and writable.
    fn quiesce(&self, touched: &[usize]) -> MutexGuard<'_, Locked> {
        loop {
            for &address in touched.iter().filter(|&&address| self.manages(address, 1)) {
                // SAFETY: the caller vouches for mapped, writable memory; adding nothing to a
                // byte atomically leaves it as it is, whoever else uses it.
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
            let mut locked = locked;
            locked.freeze = Freeze::No;
            drop(locked);
            self.changed.notify_all();
            self.wake_handler();
        }
    }

    fn become_quiet(&self) -> MutexGuard<'_, Locked> {
        let mut locked = self.locked.lock();
        while locked.freeze != Freeze::No || !locked.placement.changes.none() {
            locked = self.changed.wait(locked);
        }
        locked.freeze = Freeze::Quiescing;
        self.wake_handler();
        self.call_cleaner();
        while !locked.is_quiet() || !self.handling.load(Ordering::Acquire) {
            locked = self.changed.wait_timeout(locked, QUIET_WAIT).0;
            self.wake_handler();
            self.call_cleaner();
        }
        locked
    }

    /// After a fork, in the parent, whether it succeeded or not: goes on when the child can
    /// resolve its own faults.
    pub fn resume_parent(&self) {
        let mut locked = self.locked.lock();
        let fork = locked.fork.as_mut().expect("prepared");
        // If there is no child, or it dies, nobody else holds this end.
        descriptors::release(fork.child_end.take().expect("not closed yet"));
        while !locked.fork.as_ref().is_some_and(|fork| fork.over) {
            locked = self.changed.wait(locked);
        }
        let fork = locked.fork.take();
        locked.freeze = Freeze::No;
        self.apply(&mut locked, Event::Forked);
        let own = fork.as_ref().map_or(&[][..], |fork| &fork.own);
        self.catch_up(&mut locked, own.iter().copied());
        self.hand_over(&mut locked, false);
        drop(locked);
        self.changed.notify_all();
        self.wake_handler();
        drop(fork);
    }

    /// The handler's part while the engine is frozen: passes the child's descriptor on, and
    /// resolves the child's faults until it does so itself.
    pub(super) fn attend_fork(&self, locked: &mut Locked, messages: &mut Vec<Message>) {
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
                    // Noted first: a child that is forked in between knows of it, whether it was
                    // in time to have the page or not.
                    let page = self.page_at(address).expect("a fault in the managed range");
                    fork.own.push(ResolvedFault::new(page, protected));
                    self.resolve_for(self.space.region(), engine, page, protected);
                    return false;
                }
                _ => return true,
            };
            let parent_end = fork.parent_end.as_ref().expect("seen above");
            // SAFETY: the kernel has just installed this descriptor for us.
            let child = unsafe { OwnedFd::from_raw_fd(fd) };
            let kept = send_descriptor(parent_end, &child).and_then(|()| Uffd::from_fork(child));
            let child =
                kept.unwrap_or_else(|e| self.die(&format!("fork: the child's descriptor: {e}")));
            fork.child = Some(child);
            false
        });
        let Some(parent_end) = &fork.parent_end else {
            return;
        };
        let mut request = [0];
        let asked = match recv(parent_end, &mut request, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => false,
            Ok((1.., _)) => true,
            // No child, or it has died.
            Ok((0, _)) | Err(_) => {
                fork.over = true;
                false
            }
        };
        if let Some(child) = &fork.child {
            let mut faults = Vec::new();
            // After the child has gone there is nothing to read.
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
        if asked {
            // If the child dies at this moment it does not matter what it was told.
            let _ = send_resolved(parent_end, &fork.resolved);
            fork.over = true;
        }
        if fork.over {
            fork.child = None;
            descriptors::release(fork.parent_end.take().expect("seen above"));
            self.changed.notify_all();
        }
    }

    /// Resolves a fault of the child's with what this process has, which is what the child had
    /// when it was forked.
    fn resolve_for(&self, child: &Uffd, engine: &LiveEngine, page: PageId, protected: bool) {
        if protected {
            self.space.unprotect_through(child, page);
            return;
        }
        let mut buffer = PageBuffer::new();
        let source = match engine.page_state(page) {
            state if state.is_in_shadow() => Some(Source::Page(Place::Shadow, page)),
            PageState::Stored => {
                let slot = engine.slot_of(page).expect("stored pages have a slot");
                let good = engine.is_zero_slot(slot) || self.read_for_fork(slot, &mut buffer);
                good.then_some(Source::Bytes(&buffer.0))
            }
            PageState::Poisoned => None,
            _ => Some(Source::Zeros),
        };
        self.space.resolve_through(child, page, source);
    }

    fn read_for_fork(&self, slot: SlotId, buffer: &mut PageBuffer) -> bool {
        let offset = FlashStore::offset(slot);
        (0..super::handler::READ_TRIES).any(|_| {
            let address = buffer.0.as_mut_ptr() as usize;
            !self.store.fail_read()
                && read_now(self.store.file(), offset, address, PAGE_SIZE as u32)
                && self.store.verify(slot, &buffer.0)
        })
    }

    /// Where the handler waits while the engine is frozen. Nothing is allocated on this way: the
    /// allocator is locked meanwhile.
    pub(super) fn await_fork(&self) {
        let locked = self.locked.lock();
        let Some(fork) = &locked.fork else { return };
        let (region, child, parent_end) = match &fork.parent_end {
            None => (Some(self.space.region().as_fd()), None, None),
            Some(end) => (
                Some(self.space.region().as_fd()),
                fork.child.as_ref().map(AsFd::as_fd),
                Some(end.as_fd()),
            ),
        };
        let raw = [region, child, parent_end].map(|fd| fd.map(|fd| fd.as_raw_fd()));
        drop(locked);
        // SAFETY: only the handler, which is here, closes these.
        let fds = raw.map(|fd| fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }));
        let event = self.handler_event.as_fd();
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
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.handler_event, &mut count);
        }
    }

    /// Tells the engine of faults that were resolved while it was frozen. Stopped stores come first:
    /// the other faults may need frames, and a page that the engine still has as clean would be
    /// dropped for them, with what has been stored to it since.
    fn catch_up(&self, locked: &mut Locked, faults: impl Iterator<Item = ResolvedFault> + Clone) {
        let of = |stopped| {
            let faults = faults.clone();
            faults.filter(move |fault| fault.is_stopped_store() == stopped)
        };
        locked
            .placement
            .resolved_already(of(false).map(ResolvedFault::page));
        // Each has been copied by the kernel, whether there are frames for it or not.
        self.own_pages(locked, of(true).map(ResolvedFault::page));
        for fault in of(true).chain(of(false)) {
            self.apply(locked, fault.event());
        }
    }

    /// The handler's first act in a child: from here on it resolves the faults. What the parent
    /// resolved before becomes known to the engine.
    pub(super) fn take_over(&self) {
        let mut locked = self.locked.lock();
        let Some(fork) = locked.fork.take() else {
            return;
        };
        let socket = fork.child_end.as_ref().expect("the child's");
        let resolved = send(socket, &[0], SendFlags::NOSIGNAL)
            .and_then(|_| receive_resolved(socket))
            .unwrap_or_else(|e| self.die(&format!("the parent of a forked child has died: {e}")));
        self.apply(&mut locked, Event::Forked);
        self.catch_up(&mut locked, fork.own.iter().chain(&resolved).copied());
        locked.freeze = Freeze::No;
        self.hand_over(&mut locked, false);
        drop(locked);
        self.changed.notify_all();
        descriptors::release(fork.child_end.expect("the child's"));
    }

    /// After a fork, in the child: builds its pager.
    pub fn resume_child() {
        let old = PAGER.load(Ordering::Acquire);
        // SAFETY: the child has one thread, this one. The parent's structure is never used or
        // dropped again in this process: what is taken over is moved out of it here, once.
        let mut old = unsafe { std::ptr::read(old) };
        thread::forget_all();
        let process_slot = old.slot_for_child();
        if let Err(error) = old.rebuild() {
            end_child(process_slot, &error)
        }
    }

    /// The process slot that the parent has prepared for its child. Not by the lock: the parent's handler may have
    /// had it at the moment of the fork, and is not here to give it back.
    fn slot_for_child(&mut self) -> Option<Process> {
        let locked = self.locked.get_mut();
        locked.fork.as_ref()?.process_slot.as_ref().ok().copied()
    }

    fn rebuild(mut self) -> Result<&'static Self, Error> {
        let locked = self.locked.get_mut();
        let fork = locked.fork.as_mut().expect("prepared");
        let socket = fork.child_end.as_ref().expect("the child's");
        let region = receive_descriptor(socket).map_err(Error::memory("the pager's descriptor"))?;
        let kept = socket.as_raw_fd();
        // The handler ends the fork; the mask is this thread's.
        let _uninterrupted = fork.uninterrupted.take();
        // Closed by number in a moment.
        std::mem::forget(fork.parent_end.take());
        let process_slot =
            std::mem::replace(&mut fork.process_slot, Err(crate::control::Error::Stale));
        self.close_inherited(&[kept]);
        let region = Uffd::from_fork(region).map_err(Error::Userfaultfd)?;
        let pager = publish(self.for_child(Some(region), process_slot?, None)?);
        pager.start_threads().map_err(Error::Threads)?;
        // Until its handler has taken over.
        drop(pager.lock());
        Ok(pager)
    }

    /// In a forked child: closes the parent's descriptors, but for what both share.
    fn close_inherited(&mut self, kept: &[RawFd]) {
        let mut shared = vec![self.store.file(), self.supervisor.as_raw_fd()];
        shared.extend(
            self.locked
                .get_mut()
                .tracer
                .as_ref()
                .map(|tracer| tracer.file()),
        );
        shared.extend(kept);
        descriptors::close_inherited(&shared);
    }

    /// The pager of a forked child, whose faults come through `region`, or a new descriptor. The parent's
    /// descriptors have been closed by number.
    fn for_child(
        self,
        region: Option<Uffd>,
        process: Process,
        frames: Option<ForkedFrames>,
    ) -> Result<Self, Error> {
        let mut locked = self.locked.into_inner();
        std::mem::forget((self.handler_event, self.cleaner_event, self.demand));
        let space = self.space.for_child(region, self.delivery)?;
        process.adopt(crate::control::own_pid()?)?;
        process.await_first_frames();
        locked.queue_pages = 0;
        if self.settings.device_model.is_some() {
            model_client::begin(process);
        }
        let chameleon = match (self.chameleon, frames) {
            (Some(heap), Some(frames)) => {
                let heap = heap.for_child(frames, &process);
                Some(heap.map_err(Error::memory("the heap of small pages"))?)
            }
            _ => None,
        };
        *locked.engine.clusters_mut().inner_mut() = process.clusters();
        locked.engine.reset_counters();
        locked.recorder = None;
        if let Some(tracer) = &mut locked.tracer {
            tracer.forked(crate::control::own_pid()?)?;
        }
        locked.placement.forked();
        locked.handling = false;
        locked.limit = 0;
        locked.buffers = None;
        process.stats().set_delivery(self.delivery);
        Ok(Self {
            space,
            process,
            chameleon,
            locked: Mutex::new(locked),
            changed: Condvar::new(),
            regions: Mutex::new(self.regions.into_inner()),
            foreign: Mutex::new(self.foreign.into_inner()),
            committed: Mutex::new(self.committed.into_inner()),
            demand: DemandQueues::new(self.settings.no_uring, self.control.budget_frames()),
            resolved_count: super::inline::ResolvedCount::default(),
            handler_event: new_event()?,
            handler_called: AtomicBool::new(false),
            cleaner_event: new_event()?,
            cleaner_called: AtomicBool::new(false),
            synchronous: AtomicBool::new(true),
            handling: AtomicBool::new(false),
            pressure_seen: AtomicU32::new(self.control.pressure()),
            file_bytes: self.file_bytes,
            delivery: self.delivery,
            store: self.store,
            settings: self.settings,
            control: self.control,
            supervisor: self.supervisor,
        })
    }

    /// Forks in inline mode, by calling `clone`, which returns twice. The result is the
    /// kernel's. The child has no threads of the pager's until [`Pager::start_threads`].
    ///
    /// Nothing of the program's runs in the child before its pager is there, so nobody has to
    /// resolve faults for it.
    pub(crate) fn fork_inline(&'static self, clone: impl FnOnce() -> isize) -> isize {
        if self.chameleon.is_some() {
            // Its frames are copied, and it gives none up once it is frozen.
            self.await_room_for_fork();
        }
        // First: what runs there may need the engine.
        let frames = match &self.chameleon {
            Some(heap) => match heap.prepare_fork(self) {
                Ok(frames) => Some(frames),
                Err(_) => return -(Errno::NOMEM.raw_os_error() as isize),
            },
            None => None,
        };
        let mut locked = self.quiet_with_room(|| self.become_quiet());
        let pinned = Self::pinned_pages(&locked);
        let process_slot = self.process.fork().and_then(|process_slot| {
            let shared = self.share_frames(&mut locked, Some(&process_slot), &pinned);
            shared
                .map(|()| process_slot)
                .inspect_err(|_| process_slot.retire())
        });
        let process_slot = match process_slot {
            Ok(process_slot) => process_slot,
            Err(error) => {
                locked.fork_room = 0;
                self.thaw(locked);
                self.resume_heap(frames, false);
                self.count_refused_fork(&error);
                return -(Errno::NOMEM.raw_os_error() as isize);
            }
        };
        locked.freeze = Freeze::Frozen;
        drop(locked);
        FORK_HOOKS.call(|hooks| (hooks.before)());
        let result = clone();
        FORK_HOOKS.call(|hooks| (hooks.after)());
        if result != 0 {
            let mut locked = self.locked.lock();
            // Also without a child: the frames have their numbers, and are owned again soon.
            self.apply(&mut locked, Event::Forked);
            self.own_pages(&mut locked, pinned.into_iter());
            self.thaw(locked);
            self.resume_heap(frames, result > 0);
            if result < 0 {
                process_slot.retire();
            }
            return result;
        }
        // SAFETY: the child has one thread, this one. The parent's structure is never used or
        // dropped again in this process: what is taken over is moved out of it here, once.
        let old = unsafe { std::ptr::read(self) };
        thread::forget_all();
        if let Err(error) = old.rebuild_inline(process_slot, frames) {
            end_child(Some(process_slot), &error)
        }
        0
    }

    /// Lets everybody go on.
    pub(super) fn thaw(&self, mut locked: MutexGuard<'_, Locked>) {
        locked.freeze = Freeze::No;
        self.hand_over(&mut locked, false);
        drop(locked);
        self.changed.notify_all();
        self.wake_handler();
    }

    /// In the parent: the heap of small pages goes on.
    fn resume_heap(&self, frames: Option<ForkedFrames>, forked: bool) {
        if let (Some(heap), Some(frames)) = (&self.chameleon, frames) {
            heap.resume_parent(self, forked);
            frames.close();
        }
    }

    fn rebuild_inline(
        mut self,
        process_slot: Process,
        frames: Option<ForkedFrames>,
    ) -> Result<(), Error> {
        let kept: Vec<RawFd> = frames.iter().map(ForkedFrames::descriptor).collect();
        self.close_inherited(&kept);
        let pager = publish(self.for_child(None, process_slot, frames)?);
        pager.register_all().map_err(Error::Userfaultfd)?;
        let mut locked = pager.locked.lock();
        locked.handling = true;
        pager.handling.store(true, Ordering::Release);
        pager.apply(&mut locked, Event::Forked);
        pager.protect_all(&locked);
        pager.thaw(locked);
        Ok(())
    }

    /// Registers all managed memory anew.
    fn register_all(&self) -> Result<(), Errno> {
        let foreign = self.foreign.lock();
        for (first, count) in self.regions.lock().used() {
            let mut at = first;
            while at.0 < first.0 + count {
                let left = first.0 + count - at.0;
                let (run, is_foreign) = foreign.run(at, left);
                if !is_foreign {
                    self.space.register(Run::new(at, run))?;
                }
                at = at.plus(run);
            }
        }
        Ok(())
    }

    /// Write-protects anew what was protected: a fork without fork events forgets it.
    fn protect_all(&self, locked: &Locked) {
        let (engine, has_shadow) = (&locked.engine, self.space.has_shadow());
        self.stop_stores(engine.present_pages().filter(|&page| {
            let state = engine.page_state(page);
            let in_region = state.is_mapped() || !has_shadow;
            let on_its_way_out = !has_shadow && state.is_in_shadow();
            in_region && (engine.is_protected(page) || on_its_way_out)
        }));
    }
}

/// Ends a forked child that cannot have a pager.
fn end_child(process_slot: Option<Process>, error: &Error) -> ! {
    let reason = format!("a forked child cannot go on without its pager: {error}");
    if let Some(process_slot) = process_slot {
        process_slot.note_end(&reason);
    }
    crate::sys::message::say(&reason);
    crate::sys::signals::abort()
}

/// What has to happen around a fork in inline mode, beside the pager.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Before it.
    pub before: fn(),
    /// After it, in parent and child.
    pub after: fn(),
}

struct Hooks(std::sync::OnceLock<ForkHooks>);

impl Hooks {
    fn call(&self, call: impl FnOnce(&ForkHooks)) {
        if let Some(hooks) = self.0.get() {
            call(hooks);
        }
    }
}

static FORK_HOOKS: Hooks = Hooks(std::sync::OnceLock::new());

/// Sets what is to happen around forks: an allocator's lock, held so that the child's copy is whole.
pub fn set_fork_hooks(hooks: ForkHooks) {
    let _ = FORK_HOOKS.0.set(hooks);
}

/// Tells the child what was resolved for it: a count, and the faults in messages of bounded size.
fn send_resolved(socket: &OwnedFd, resolved: &[ResolvedFault]) -> Result<(), Errno> {
    let count = u32::try_from(resolved.len()).expect("fewer faults than pages");
    send(socket, &count.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    let mut bytes = [0; 4 * REPLY_MAX];
    for part in resolved.chunks(REPLY_MAX) {
        for (bytes, fault) in bytes.chunks_exact_mut(4).zip(part) {
            bytes.copy_from_slice(&fault.0.to_ne_bytes());
        }
        send(socket, &bytes[..4 * part.len()], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn receive_resolved(socket: &OwnedFd) -> Result<Vec<ResolvedFault>, Errno> {
    let mut count = [0; 4];
    if recv(socket, &mut count, RecvFlags::empty())?.0 != count.len() {
        return Err(Errno::PIPE);
    }
    let count = u32::from_ne_bytes(count) as usize;
    let mut resolved = Vec::with_capacity(count);
    let mut bytes = [0; 4 * REPLY_MAX];
    while resolved.len() < count {
        let (len, _) = recv(socket, &mut bytes, RecvFlags::empty())?;
        if len == 0 {
            return Err(Errno::PIPE);
        }
        let (words, _) = bytes[..len].as_chunks::<4>();
        resolved.extend(
            words
                .iter()
                .map(|&word| ResolvedFault(u32::from_ne_bytes(word))),
        );
    }
    Ok(resolved)
}

fn send_descriptor(socket: &OwnedFd, fd: &OwnedFd) -> Result<(), Errno> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(
        ancillary.push(SendAncillaryMessage::ScmRights(&fds)),
        "room for one descriptor"
    );
    sendmsg(
        socket,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

fn receive_descriptor(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or(Errno::BADF)
}
