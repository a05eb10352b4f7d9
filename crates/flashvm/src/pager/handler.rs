//! The handler: reads what userfaultfd reports and what flash returns, and starts reads.
//!
//! The handler reads messages with the engine locked. A thread that gives memory up continues as soon as
//! its message is read; the engine hears of it before anybody else can lock it, so nobody puts a page
//! back there by mistake. While requests are in flight the handler polls, because a sleeping thread wakes up later
//! than flash answers; otherwise it sleeps.

use super::workers::By;
use super::{Delivery, Freeze, Locked, Pager, Read};
use crate::flash::FlashStore;
use crate::flash::io::{Completion, FlashIo, Request, Threads, read_now};
use crate::sys::map;
use crate::sys::now;
use crate::sys::thread::making_threads;
use crate::sys::uffd::Message;
use flashvm_core::{Access, Action, Event, IoId, Nanos, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// Room for messages that arrive during a fork: one for each thread that faults.
const MESSAGES: usize = 8192;
/// How long to poll for a page that a thread waits for: a little longer than flash takes.
const SPIN: Nanos = Nanos(150_000);
/// How long to look for the next fault before going to sleep: a processor that sleeps is slow to wake.
const LINGER: Nanos = Nanos(30_000);
/// Tries of a read before its pages count as lost.
pub(super) const READ_TRIES: u32 = 3;
/// How long parked actions wait for the program's system call to go on, in nanoseconds.
const PARKED_WAIT_NS: i64 = 20_000;

/// A read that has ended, and a bit mask of its pages that are not as they were written.
struct Ended {
    io: IoId,
    failed: u64,
}

impl Pager {
    /// The handler's thread.
    pub(super) fn handle_faults(&self, io: Option<Arc<Threads>>) {
        let mut io = io.map(FlashIo::Threads);
        let mut messages = Vec::with_capacity(MESSAGES);
        let mut completions: Vec<Completion> = Vec::with_capacity(256);
        // Kept over all looks: during a fork the handler may not free memory either.
        let mut ended: Vec<Ended> = Vec::with_capacity(256);
        let mut active = now();
        self.take_over();
        let listens = self.delivery == Delivery::Handler;
        let linger = if listens { LINGER } else { Nanos(0) };
        loop {
            self.workers.handler.begin_look();
            if let Some(io) = &mut io {
                io.reap(&mut completions);
            }
            ended.clear();
            ended.extend(completions.drain(..).map(|c| self.verify(c)));

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
                    // Only the fork continues: the handler waits for its event.
                    self.space
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
                self.demand.open();
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
            // In a fork the messages stay unread: they would make every poll return at once.
            let listen = if quiescing || !listens {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            // Nothing is allocated on this way: during a fork the allocator is locked.
            let ready = io
                .as_ref()
                .map_or(self.workers.handler.readiness(), FlashIo::readiness);
            let mut fds = [
                PollFd::new(self.space.region(), listen),
                PollFd::from_borrowed_fd(self.workers.handler.readiness(), PollFlags::IN),
                PollFd::new(&self.supervisor, PollFlags::IN),
                PollFd::from_borrowed_fd(ready, PollFlags::IN),
            ];
            let _ = poll(&mut fds, timeout.as_ref());
            let woken = !fds[1].revents().is_empty();
            if !fds[2].revents().is_empty() {
                // The supervisor holds store and budget: without it nobody counts.
                self.die("the supervisor (flashvm run) has died");
            }
            if woken {
                self.workers.handler.silence();
            }
        }
    }

    /// One message of userfaultfd.
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
                    if !self.lift_protection(locked, page) {
                        self.apply(locked, Event::WriteProtectFault { page });
                    }
                } else if self.resolve_spurious(locked, page) {
                    self.handle_events(locked);
                } else {
                    let access = if write { Access::Write } else { Access::Read };
                    self.apply(locked, Event::Fault { page, access });
                }
            }
            Message::Remove { start, end } | Message::Unmap { start, end } => {
                self.discard(locked, start, end);
            }
            Message::Remap { from, to, len } => self.die(&format!(
                "mremap of {len} bytes at {from:#x} to {to:#x} went past the C library; \
                 this version cannot follow it"
            )),
            Message::Fork(fd) => {
                // SAFETY: the kernel has just installed this descriptor for us.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                self.die(
                    "a fork went past the C library; its child would have no pager and is \
                     not allowed to run on",
                );
            }
        }
    }

    /// The program gave up the contents between two addresses.
    pub(super) fn discard(&self, locked: &mut Locked, start: usize, end: usize) {
        let first = self.page_at(start).expect("an event in the managed range");
        let count = ((end - start) / PAGE_SIZE) as u32;
        self.with_space(locked, |placement, host| {
            placement.forget_parked(host, first, count);
        });
        self.apply(locked, Event::Zap { first, count });
    }

    /// Starts reads while there are buffers. Without a queue: the range of the buffers to open one with, if reads
    /// wait.
    fn start_reads(&self, locked: &mut Locked, io: Option<&mut FlashIo>) -> Option<(usize, usize)> {
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
            io.push(Request::Read {
                tag: u64::from(id.0) | u64::from(count) << 32,
                offset: FlashStore::offset(slot),
                address: buffer,
                len: count * PAGE_SIZE as u32,
            });
        }
        None
    }

    /// Opens a queue of requests to the store, with `buffers` registered for reads. Call it with nothing locked.
    pub(super) fn open_io(&self, buffers: Option<(usize, usize)>) -> FlashIo {
        making_threads(|| FlashIo::new(self.store.file(), buffers))
            .unwrap_or_else(|e| self.die(&format!("no queue to the store: {e}")))
    }

    /// Compares checksums of a read that has ended, and repeats it for pages that differ.
    fn verify(&self, completion: Completion) -> Ended {
        let io = IoId(completion.tag as u32);
        let read = self.locked.lock().reads[&io];
        let failed = self.failed_pages(&read, completion.whole);
        Ended { io, failed }
    }

    /// The pages of a read that has ended whose checksum differs, also after [`READ_TRIES`] reads, as a bit mask.
    pub(super) fn failed_pages(&self, read: &Read, whole: bool) -> u64 {
        let mut failed = 0;
        for page in 0..read.count {
            let slot = read.slot.plus(page);
            let address = read.buffer + page as usize * PAGE_SIZE;
            let mut arrived = whole && !self.store.fail_read();
            let mut good = false;
            for attempt in 0..READ_TRIES {
                if attempt > 0 {
                    arrived = !self.store.fail_read()
                        && read_now(
                            self.store.file(),
                            FlashStore::offset(slot),
                            address,
                            PAGE_SIZE as u32,
                        );
                }
                if self.store.flip_read() {
                    // SAFETY: this buffer is ours until the read is answered.
                    unsafe { *(address as *mut u8) ^= 1 };
                }
                // SAFETY: as above; nobody writes to it now.
                good = arrived
                    && self
                        .store
                        .verify(slot, unsafe { map::bytes(address, PAGE_SIZE) });
                if good {
                    break;
                }
            }
            if !good {
                failed |= 1 << page;
            }
        }
        failed
    }

    /// Tells the engine, and takes the buffer back.
    fn read_ended(&self, locked: &mut Locked, ended: &Ended) {
        self.apply(
            locked,
            Event::ReadDone {
                io: ended.io,
                failed: ended.failed,
            },
        );
        let read = locked.reads.remove(&ended.io).expect("a read in flight");
        locked
            .buffers
            .as_mut()
            .expect("there are buffers")
            .give(read.buffer, read.count);
    }
}
