//! fork: the child gets a pager of its own over a copy of the page table.
//!
//! Before the fork everything in flight ends and the engine is frozen, so that the child's copy
//! of it is whole. The kernel hands the child's userfaultfd, with all registrations and
//! write-protections, to the parent's handler, which passes it on through a socket. Between the
//! fork and the moment when the child has its pager the C library touches a little memory in the
//! child (its stack, the list of open files): those pages are made resident and writable before.
//! Slots on flash are shared from then on; clusters know how many processes hold them.

use super::{Core, Freeze, PAGER, Pager, SPAN_PAGES, new_event, publish};
use crate::Error;
use crate::control::Process;
use crate::sys::signals::Uninterrupted;
use crate::sys::uffd::{Features, Message, Uffd};
use crate::sys::{descriptors, thread};
use flashvm_core::{Event, PAGE_SIZE};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// How long to wait for requests to end before looking again.
const QUIET_WAIT: Duration = Duration::from_millis(1);

/// What stands ready for the child.
pub(super) struct Fork {
    seat: Result<Process, crate::control::Error>,
    parent_end: OwnedFd,
    child_end: OwnedFd,
    /// Until parent and child can resolve faults again.
    _uninterrupted: Uninterrupted,
}

impl Pager {
    /// Whether budget and store could hold a copy of this process.
    #[must_use]
    pub fn can_fork(&self) -> bool {
        let _uninterrupted = Uninterrupted::begin();
        let pages = self.process.committed();
        let fits = self.process.commit(pages);
        if fits {
            self.process.uncommit(pages);
        }
        fits
    }

    /// Before a fork: ends what is in flight and freezes the engine. `touched` are addresses that
    /// will be written to in the child before it has a pager.
    pub fn prepare_fork(&self, touched: &[usize]) {
        let uninterrupted = Uninterrupted::begin();
        loop {
            for &address in touched.iter().filter(|&&address| self.manages(address, 1)) {
                // SAFETY: the caller vouches for mapped, writable memory; adding nothing to a
                // byte atomically leaves it as it is, whoever else uses it.
                unsafe { AtomicU8::from_ptr(address as *mut u8) }.fetch_or(0, Ordering::Relaxed);
            }
            let mut core = self.core.lock().expect("the pager aborts on a panic");
            while core.freeze != Freeze::No || !core.changes.none() {
                core = self
                    .changed
                    .wait(core)
                    .expect("the pager aborts on a panic");
            }
            core.freeze = Freeze::Quiescing;
            self.wake_handler();
            self.call_cleaner();
            while !core.is_quiet() || !self.handling.load(Ordering::Acquire) {
                let waited = self.changed.wait_timeout(core, QUIET_WAIT);
                core = waited.expect("the pager aborts on a panic").0;
                self.wake_handler();
                self.call_cleaner();
            }
            let there = |&address: &usize| {
                self.page_at(address).is_none_or(|page| {
                    core.engine.page_state(page).is_mapped() && !core.engine.is_protected(page)
                })
            };
            if !touched.iter().all(there) {
                core.freeze = Freeze::No;
                drop(core);
                self.changed.notify_all();
                self.wake_handler();
                continue;
            }
            let sockets = socketpair(
                AddressFamily::UNIX,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            );
            let (parent_end, child_end) =
                sockets.unwrap_or_else(|e| self.die(&format!("fork: no sockets: {e}")));
            core.fork = Some(Fork {
                seat: self.process.fork(),
                parent_end,
                child_end,
                _uninterrupted: uninterrupted,
            });
            core.freeze = Freeze::Frozen;
            drop(core);
            self.wake_handler();
            return;
        }
    }

    /// After a fork, in the parent, whether it succeeded or not.
    pub fn resume_parent(&self) {
        let mut core = self.core.lock().expect("the pager aborts on a panic");
        core.freeze = Freeze::No;
        let fork = core.fork.take();
        self.apply(&mut core, Event::Forked);
        self.hand_over(&mut core, false);
        drop(core);
        self.changed.notify_all();
        self.wake_handler();
        drop(fork);
    }

    /// The handler's part while the engine is frozen: passes the child's descriptor on.
    pub(super) fn take_fork(&self, core: &Core, messages: &mut Vec<Message>) {
        messages.retain(|message| {
            let Message::Fork(fd) = *message else {
                return true;
            };
            // SAFETY: the kernel has just installed this descriptor for us.
            let child = unsafe { OwnedFd::from_raw_fd(fd) };
            let fork = core.fork.as_ref().expect("frozen for a fork");
            send(&fork.parent_end, &child)
                .unwrap_or_else(|e| self.die(&format!("fork: the child's descriptor: {e}")));
            false
        });
    }

    /// After a fork, in the child: builds its pager.
    pub fn resume_child() {
        let old = PAGER.load(Ordering::Acquire);
        // SAFETY: the child has one thread, this one. The parent's structure is never used or
        // dropped again in this process: what is taken over is moved out of it here, once.
        let old = unsafe { std::ptr::read(old) };
        thread::forget_all();
        if let Err(error) = old.rebuild() {
            super::eprint_line(&format!(
                "flashvm: process {}: a forked child cannot go on without its pager: {error}",
                std::process::id()
            ));
            std::process::abort()
        }
    }

    fn rebuild(self) -> Result<&'static Self, Error> {
        let mut core = self.core.into_inner().expect("the pager aborts on a panic");
        let fork = core.fork.take().expect("prepared");
        let socket = Error::memory("the pager's descriptor");
        let region = receive(&fork.child_end).map_err(socket)?;
        descriptors::close_inherited(&[self.store.file(), self.supervisor.as_raw_fd()]);
        // Closed by number just now.
        std::mem::forget((
            self.region,
            self.shadow,
            self.handler_event,
            self.cleaner_event,
        ));
        let shadow = if self.can_move {
            let start = self.base + SPAN_PAGES as usize * PAGE_SIZE;
            let shadow = Uffd::open(Features::MOVE).map_err(Error::Userfaultfd)?;
            shadow
                .register(start, SPAN_PAGES as usize * PAGE_SIZE, false)
                .map_err(Error::Userfaultfd)?;
            Some(shadow)
        } else {
            None
        };
        let Fork {
            seat,
            _uninterrupted,
            ..
        } = fork;
        let process = seat?;
        process.adopt(crate::control::own_pid()?)?;
        process.overdraw(core.engine.frames_in_use());
        core.freeze = Freeze::No;
        *core.engine.clusters_mut().inner_mut() = process.clusters();
        core.engine.reset_counters();
        core.recorder = None;
        core.waiting.clear();
        core.handling = false;
        core.limit = 0;
        core.buffers = None;
        let pager = Self {
            region: Uffd::from_fork(region).map_err(Error::Userfaultfd)?,
            shadow,
            process,
            core: Mutex::new(core),
            changed: std::sync::Condvar::new(),
            regions: Mutex::new(
                self.regions
                    .into_inner()
                    .expect("the pager aborts on a panic"),
            ),
            foreign: Mutex::new(
                self.foreign
                    .into_inner()
                    .expect("the pager aborts on a panic"),
            ),
            committed: Mutex::new(
                self.committed
                    .into_inner()
                    .expect("the pager aborts on a panic"),
            ),
            handler_event: new_event()?,
            cleaner_event: new_event()?,
            cleaner_called: AtomicBool::new(false),
            handling: AtomicBool::new(false),
            pressure_seen: AtomicU32::new(self.control.pressure()),
            base: self.base,
            can_move: self.can_move,
            zeros: self.zeros,
            store: self.store,
            settings: self.settings,
            control: self.control,
            supervisor: self.supervisor,
        };
        let pager = publish(pager)?;
        pager.report(Event::Forked);
        Ok(pager)
    }
}

fn send(socket: &OwnedFd, fd: &OwnedFd) -> Result<(), Errno> {
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

fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
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
