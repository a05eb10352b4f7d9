//! The cleaner: reclaims ahead of need, so that a fault seldom waits for a write.
//!
//! It scans pages for zeros and writes pages. Both work on pages in the shadow, which the program cannot change, so
//! neither locks the engine. Where pages cannot be moved, the cleaner copies them out of the region first; if the
//! program changes a page after that, the engine learns of it and ignores the result.

use super::workers::By;
use super::{Freeze, Locked, Pager};
use crate::flash::{
    Completion, FlashStore, Part, Queue, Request, StoreQueue, ThreadQueue, Transfer, offset,
};
use crate::space::Backend as _;
use crate::sys::map;
use crate::sys::now;
use flashvm_core::pool::{BLOCK_BYTES, BlockId};
use flashvm_core::{Action, Event, IoId, Nanos, PAGE_SIZE, PageId, Place, RUN_PAGES_MAX, SlotId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::ops::Range;

/// Looks of a millisecond each without progress before a deadlock is declared. Looks, not wall time, as the process
/// may be stopped.
const STUCK_LOOKS: u32 = 20_000;
/// Writes in flight at most.
const WRITES_MAX: usize = 8;

/// The cleaner's writes, and its buffers for pages that are not written in place.
struct Writes {
    io: Queue<FlashStore>,
    in_flight: usize,
    /// Writes held back by the write limit, and when each may begin.
    held_back: VecDeque<(Nanos, Request)>,
    bounce: Option<Bounce>,
}

/// Buffers for the contents of pages that are not written in place.
struct Bounce {
    free: Vec<usize>,
    /// The addresses of all buffers, free or not.
    all: Range<usize>,
}

impl Writes {
    /// Begins the writes whose time has come.
    fn begin_due(&mut self) {
        while self.held_back_for() == Some(Nanos(0))
            && let Some((_, request)) = self.held_back.pop_front()
        {
            // SAFETY: until the engine hears that the write has ended, its pages stay in the shadow, its bounce buffer
            // is not in `free`, or the bytes of its block of the pool do not change.
            unsafe { self.io.push(request) };
        }
    }

    /// How long the first write is still held back.
    fn held_back_for(&self) -> Option<Nanos> {
        self.held_back.front().map(|(at, _)| at.since(now()))
    }
}

impl Pager {
    /// The cleaner's thread.
    pub(super) fn clean(&'static self, io: Option<ThreadQueue<FlashStore>>) {
        let mut writes = io.map(|threads| self.writes(Queue::Fallback(threads)));
        let mut completions: Vec<Completion> = Vec::with_capacity(WRITES_MAX);
        let mut work: Vec<(Action, Vec<PageId>)> = Vec::new();
        let mut stuck = (0, 0);
        loop {
            self.workers.cleaner.begin_look();
            self.space.defer_drops(true);
            if let Some(writes) = &mut writes {
                writes.io.reap(&mut completions);
            }
            let mut busy = !completions.is_empty();

            let mut locked = self.lock();
            for completion in completions.drain(..) {
                self.write_ended(&mut locked, writes.as_mut().expect("a queue"), completion);
            }
            self.look_at_write_limit(&mut locked);
            if locked.freeze == Freeze::No {
                busy |= self.reclaim(&mut locked);
            }
            let in_flight = writes.as_ref().map_or(0, |writes| writes.in_flight);
            while in_flight + work.len() < WRITES_MAX {
                let Some(action) = locked.to_clean.pop_front() else {
                    break;
                };
                let pages = match action {
                    Action::Scan { io, .. } | Action::Write { io, .. } => {
                        locked.engine.io_pages(io).to_vec()
                    }
                    _ => Vec::new(),
                };
                work.push((action, pages));
            }
            self.hand_over(&mut locked, By::Cleaner);
            if locked.freeze == Freeze::Quiescing && locked.is_quiet() {
                self.changed.notify_all();
            }
            stuck = match locked.engine.stalled() && locked.open == locked.scans {
                true if stuck.1 == locked.placement.progress() => (stuck.0 + 1, stuck.1),
                _ => (0, locked.placement.progress()),
            };
            if stuck.0 == STUCK_LOOKS {
                self.report_stall(&locked);
            }
            let deadline = locked.engine.deadline();
            drop(locked);
            self.space.finish_drops();

            busy |= !work.is_empty();
            for (action, pages) in work.drain(..) {
                match action {
                    Action::Scan { io, compress, .. } => {
                        self.scan(io, &pages, compress);
                        self.space.finish_drops();
                    }
                    Action::WriteBlock { io, slot, block } => {
                        let writes = writes.get_or_insert_with(|| self.writes(self.open_io(None)));
                        self.write_block(writes, io, slot, block);
                    }
                    Action::Write { io, slot, .. } => {
                        let writes = writes.get_or_insert_with(|| self.writes(self.open_io(None)));
                        self.write(writes, io, slot, pages);
                    }
                    Action::ReadBlock { io, slot, block } => self.read_block(io, slot, block),
                    Action::Discard { .. } => self.discard_slots(),
                    _ => unreachable!(
                        "only scans, writes, reads of blocks and discards are queued here"
                    ),
                }
            }
            if let Some(writes) = &mut writes {
                writes.begin_due();
                writes.io.submit();
            }
            if !busy {
                self.space.defer_drops(false);
                self.space.finish_drops();
                self.rest(writes.as_ref(), deadline.is_some());
            }
        }
    }

    /// Reclaims up to four batches, as long as frames are short and each makes progress. Returns whether any did.
    fn reclaim(&self, locked: &mut Locked) -> bool {
        let mut any = false;
        // Then the handler gets its turn; the cleaner's next look does the rest.
        for _ in 0..4 {
            if !locked.engine.wants_reclaim() {
                break;
            }
            self.look_at_limit(locked);
            let progress = locked.placement.progress();
            self.apply(locked, Event::Reclaim);
            if locked.placement.progress() == progress {
                break;
            }
            any = true;
        }
        any
    }

    fn writes(&self, io: Queue<FlashStore>) -> Writes {
        let bounce = (!self.space.writes_in_place()).then(|| {
            let run = RUN_PAGES_MAX as usize * PAGE_SIZE;
            let open = || {
                let base = map::own(run * WRITES_MAX)?;
                let free = (0..WRITES_MAX).map(|i| base + i * run).collect();
                Ok(Bounce {
                    free,
                    all: base..base + run * WRITES_MAX,
                })
            };
            open().unwrap_or_else(|e: rustix::io::Errno| self.die(&format!("bounce buffers: {e}")))
        });
        Writes {
            io,
            in_flight: 0,
            held_back: VecDeque::with_capacity(WRITES_MAX),
            bounce,
        }
    }

    fn write(&self, writes: &mut Writes, io: IoId, slot: SlotId, pages: Vec<PageId>) {
        let mut parts: Vec<Part> = Vec::with_capacity(pages.len());
        match &mut writes.bounce {
            None => {
                for &page in &pages {
                    let address = self.space.range().at(Place::Shadow, page).get();
                    match parts.last_mut() {
                        Some(part) if part.address + part.len == address => part.len += PAGE_SIZE,
                        _ => parts.push(Part {
                            address,
                            len: PAGE_SIZE,
                        }),
                    }
                }
            }
            Some(bounce) => {
                let buffer = bounce
                    .free
                    .pop()
                    .expect("one buffer for each write in flight");
                // SAFETY: `pop` has given the buffer to this write alone. It has room for `RUN_PAGES_MAX` pages, the most
                // that a write has.
                let mut room = unsafe { map::bytes_mut(buffer, pages.len() * PAGE_SIZE) };
                let mut rest = &pages[..];
                while !rest.is_empty() {
                    // SAFETY: this write is not answered yet.
                    let (count, _) = unsafe { self.copy_leaving(rest, room) };
                    rest = &rest[count as usize..];
                    room = &mut room[count as usize * PAGE_SIZE..];
                }
                parts.push(Part {
                    address: buffer,
                    len: pages.len() * PAGE_SIZE,
                });
            }
        }
        self.hold_back(writes, io, slot, parts);
    }

    /// Writes a block of the pool from its place: its bytes do not change before the write has ended.
    fn write_block(&self, writes: &mut Writes, io: IoId, slot: SlotId, block: BlockId) {
        let pool = self.pool.expect("a pool, as --compress is on");
        let part = Part {
            address: pool.block(block),
            len: BLOCK_BYTES,
        };
        self.hold_back(writes, io, slot, vec![part]);
    }

    /// Queues a write until the write limit lets it begin.
    fn hold_back(&self, writes: &mut Writes, io: IoId, slot: SlotId, parts: Vec<Part>) {
        let bytes: usize = parts.iter().map(|part| part.len).sum();
        writes.in_flight += 1;
        let request = Request {
            tag: io.0.into(),
            at: offset(slot),
            transfer: Transfer::Write(parts),
        };
        let begin = self.write_may_begin(bytes as u64);
        writes.held_back.push_back((begin, request));
    }

    fn write_ended(&self, locked: &mut Locked, writes: &mut Writes, completion: Completion) {
        let io = IoId(completion.request.tag as u32);
        writes.in_flight -= 1;
        if let (Some(bounce), Transfer::Write(parts)) =
            (&mut writes.bounce, completion.request.transfer)
        {
            let address = parts[0].address;
            // A block of the pool is written from its place, without a bounce buffer.
            if bounce.all.contains(&address) {
                bounce.free.push(address);
            }
        }
        let failed = completion.failed.bits();
        self.apply(locked, Event::WriteDone { io, failed });
    }

    /// Ends a process that would hang for ever.
    fn report_stall(&self, locked: &Locked) -> ! {
        let engine = &locked.engine;
        self.die(&if engine.store_full() && self.control.disk_was_full() {
            "the flash store is full, and so is its disk: make room there, or name another --flash"
                .to_owned()
        } else if engine.store_full() && engine.slots_bad() > 0 {
            format!(
                "the flash store is full: {} of its slots hold pages of this process, and writes to {} have \
                 failed: see the device's log, and give the run another --flash",
                engine.slots_used(),
                engine.slots_bad()
            )
        } else if engine.store_full() {
            format!(
                "the flash store is full: {} of its slots hold pages of this process, and what is \
                 free lies between slots that it shares with others after a fork; give the run a \
                 larger --flash-size",
                engine.slots_used()
            )
        } else {
            format!(
                "none of the {} pages in RAM can be paged out (pinned by the kernel); give \
                 the run a larger --ram",
                engine.frames_in_use()
            )
        })
    }

    /// Sleeps until somebody rings, a request ends, or a held-back request may begin; if `soon`, a millisecond at most.
    fn rest(&self, writes: Option<&Writes>, soon: bool) {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.workers.cleaner.readiness(),
            PollFlags::IN,
        )];
        if let Some(writes) = writes {
            fds.push(PollFd::from_borrowed_fd(
                writes.io.readiness(),
                PollFlags::IN,
            ));
        }
        // While faults wait for a frame, other processes may have given some back.
        let timeout = [
            soon.then_some(Nanos(1_000_000)),
            writes.and_then(Writes::held_back_for),
        ];
        let timeout = timeout.into_iter().flatten().min().map(|time| Timespec {
            tv_sec: (time.0 / 1_000_000_000) as i64,
            tv_nsec: (time.0 % 1_000_000_000) as i64,
        });
        let _ = poll(&mut fds, timeout.as_ref());
        if !fds[0].revents().is_empty() {
            self.workers.cleaner.silence();
        }
    }
}
