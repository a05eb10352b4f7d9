//! The handler: reads what userfaultfd reports and what flash returns, and starts reads.
//!
//! The handler reads messages with the engine locked. A thread that zaps memory continues as soon as its message is
//! read; the engine hears of the zap before another thread can lock it, so nobody puts a page back by mistake. While
//! requests are in flight the handler polls, because a sleeping thread wakes up later than flash answers; otherwise it
//! sleeps.

use super::workers::By;
use super::{Freeze, Locked, Pager, Read};
use crate::flash::{
    Completion, FlashStore, Part, Queue, Request, StoreQueue, ThreadQueue, Transfer, offset,
};
use crate::sys::now;
use crate::sys::uffd::Message;
use flashvm_core::{Access, Action, Event, IoId, Nanos, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd as _, FromRawFd, OwnedFd};

/// Capacity for messages: one for each faulting thread, as the handler must not allocate during a fork.
const MESSAGES: usize = 8192;
/// How long to poll for a page that a thread waits for: a little longer than flash takes.
const SPIN: Nanos = Nanos(150_000);
/// How long to look for the next fault before going to sleep: a processor that sleeps is slow to wake.
const LINGER: Nanos = Nanos(30_000);
/// How long parked actions wait for the program's system call to go on, in nanoseconds.
const PARKED_WAIT_NS: i64 = 20_000;

impl Pager {
    /// The handler's thread.
    pub(super) fn handle_faults(&'static self, io: Option<ThreadQueue<FlashStore>>) {
        let mut io = io.map(Queue::Fallback);
        let mut messages = Vec::with_capacity(MESSAGES);
        // Reused by all looks: during a fork the handler may neither allocate nor free memory.
        let mut ended: Vec<Completion> = Vec::with_capacity(256);
        let mut active = now();
        self.take_over();
        let listens = !self.delivery.is_in_thread();
        let linger = if listens { LINGER } else { Nanos(0) };
        loop {
            self.workers.handler.begin_look();
            ended.clear();
            if let Some(io) = &mut io {
                io.reap(&mut ended);
            }

            let mut locked = self.locked.lock();
            for read in &ended {
                self.read_ended(&mut locked, read);
            }
            let mut busy = !ended.is_empty();
            let (mut without_queue, mut open_queue) = (None, false);
            match locked.freeze {
                Freeze::No => {
                    if listens {
                        self.space
                            .userfaultfd()
                            .read(&mut messages)
                            .unwrap_or_else(|e| self.die(&format!("userfaultfd: {e}")));
                    }
                    busy |= !messages.is_empty();
                    for message in messages.drain(..) {
                        self.receive(&mut locked, message);
                    }
                    let due = locked.engine.deadline().is_some_and(|at| at <= now());
                    if due {
                        self.apply(&mut locked, Event::Tick);
                        busy = true;
                    }
                    self.retry_parked(&mut locked);
                    self.handle_events(&mut locked);
                    without_queue = self.start_reads(&mut locked, io.as_mut());
                    open_queue = self.may_open_queue(&mut locked);
                    self.hand_over(&mut locked, By::Handler);
                }
                Freeze::Quiescing => {
                    self.retry_parked(&mut locked);
                    self.handle_events(&mut locked);
                    // The engine waits for these reads, so they have to start.
                    without_queue = self.start_reads(&mut locked, io.as_mut());
                    if locked.is_quiet() {
                        self.changed.notify_all();
                    }
                }
                Freeze::Frozen if !listens => {}
                Freeze::Frozen => {
                    // Only the fork goes on: the handler reads its event and the faults around it.
                    self.space
                        .userfaultfd()
                        .read(&mut messages)
                        .unwrap_or_else(|e| self.die(&format!("userfaultfd: {e}")));
                    self.attend_fork(&mut locked, &mut messages);
                }
            }
            let parked = locked.placement.is_parked();
            let awaited = !locked.reads.is_empty() && locked.placement.is_awaited(None);
            let quiescing = locked.freeze == Freeze::Quiescing;
            let deadline = locked.engine.deadline();
            if locked.freeze == Freeze::Frozen && listens {
                drop(locked);
                self.await_fork();
                continue;
            }
            drop(locked);

            if open_queue {
                // SAFETY: only this thread, the handler, opens queues.
                unsafe { self.demand.open(&self.store) };
            }
            if let Some(buffers) = without_queue {
                io = Some(self.open_io(Some(buffers)));
                busy = true;
            }
            if let Some(io) = &mut io {
                io.submit();
            }
            if busy {
                active = now();
                continue;
            }
            let timeout = if parked {
                Some(Timespec {
                    tv_sec: 0,
                    tv_nsec: PARKED_WAIT_NS,
                })
            } else if now().since(active) < if awaited { SPIN } else { linger } {
                Some(Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                })
            } else {
                deadline.map(|at| {
                    let left = at.since(now()).0;
                    Timespec {
                        tv_sec: (left / 1_000_000_000) as i64,
                        tv_nsec: (left % 1_000_000_000) as i64,
                    }
                })
            };
            // While the engine quiesces, messages stay unread: they would make every poll return at once.
            let call = self.workers.handler.readiness();
            let messages = if quiescing || !listens {
                call
            } else {
                self.space.userfaultfd().region().as_fd()
            };
            // This path allocates nothing: during a fork the allocator is locked.
            let ready = io.as_ref().map_or(call, StoreQueue::readiness);
            let mut fds = [
                PollFd::from_borrowed_fd(messages, PollFlags::IN),
                PollFd::from_borrowed_fd(call, PollFlags::IN),
                PollFd::new(&self.supervisor, PollFlags::IN),
                PollFd::from_borrowed_fd(ready, PollFlags::IN),
            ];
            let _ = poll(&mut fds, timeout.as_ref());
            let woken = !fds[1].revents().is_empty();
            if !fds[2].revents().is_empty() {
                self.die_without_supervisor();
            }
            if woken {
                self.workers.handler.silence();
            }
        }
    }

    /// Handles a message of userfaultfd.
    fn receive(&self, locked: &mut Locked, message: Message) {
        match message {
            Message::Fault {
                address,
                write,
                protected,
            } => {
                let page = self.page_at(address).expect("a fault in the managed range");
                locked.placement.await_page(page, now());
                if protected {
                    if !self.unprotect(locked, page) {
                        self.apply(locked, Event::WriteProtectFault { page });
                    }
                } else if self.resolve_spurious(locked, page) {
                    self.handle_events(locked);
                } else {
                    let access = if write { Access::Write } else { Access::Read };
                    let huge = self.wants_huge(page, access);
                    self.apply(locked, Event::Fault { page, access, huge });
                }
            }
            Message::Remove { start, end } | Message::Unmap { start, end } => {
                self.zapped(locked, start, end);
            }
            Message::Remap { from, to, len } => self.die(&format!(
                "mremap of {len} bytes at {from:#x} to {to:#x} went past the C library; \
                 this version cannot follow it"
            )),
            Message::Fork(fd) => {
                // SAFETY: the kernel has opened this descriptor for the reader of the message: nobody else owns it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                self.die(
                    "a fork went past the C library: its child would have no pager, so this process ends",
                );
            }
        }
    }

    /// Tells the engine that the program has zapped the pages between two addresses.
    pub(super) fn zapped(&self, locked: &mut Locked, start: usize, end: usize) {
        let first = self.page_at(start).expect("an event in the managed range");
        let count = ((end - start) / PAGE_SIZE) as u32;
        self.forget(locked, first, count);
    }

    /// Starts queued reads while there are free buffers. Without a queue, returns the buffers to open one with, if
    /// reads wait.
    fn start_reads(&self, locked: &mut Locked, io: Option<&mut Queue<FlashStore>>) -> Option<Part> {
        let Some(io) = io else {
            return (!locked.to_read.is_empty()).then(|| self.buffers(locked).range());
        };
        while let Some(&Action::Read {
            io: id,
            slot,
            count,
            ..
        }) = locked.to_read.front()
        {
            let Some(buffer) = self.buffers(locked).take(count) else {
                break;
            };
            locked.to_read.pop_front();
            locked.reads.insert(
                id,
                Read {
                    slot,
                    count,
                    buffer,
                },
            );
            let request = Request {
                tag: id.0.into(),
                at: offset(slot),
                transfer: Transfer::Read(Part {
                    address: buffer,
                    len: count as usize * PAGE_SIZE,
                }),
            };
            // SAFETY: `take` has lent the buffer to this read alone, and `read_ended` gives it back.
            unsafe { io.push(request) };
        }
        None
    }

    /// Opens a queue of requests to the store, with `buffers` registered for reads. Call it with nothing locked.
    pub(super) fn open_io(&'static self, buffers: Option<Part>) -> Queue<FlashStore> {
        Queue::open(&self.store, buffers)
            .unwrap_or_else(|e| self.die(&format!("no queue to the store: {e}")))
    }

    /// Tells the engine that a read has ended; then frees its buffer.
    fn read_ended(&self, locked: &mut Locked, ended: &Completion) {
        let io = IoId(ended.request.tag as u32);
        let failed = ended.failed.bits();
        self.apply(locked, Event::ReadDone { io, failed });
        let read = locked.reads.remove(&io).expect("a read in flight");
        locked
            .buffers
            .as_mut()
            .expect("there are buffers")
            .give(read.buffer, read.count);
    }
}
