//! Inline mode: the thread that faults resolves its fault itself.
//!
//! Its SIGBUS handler calls [`Pager::fault`], on a stack that is not managed memory, with all other
//! signals blocked. The thread tells the engine, executes the memory actions, reads its page
//! and polls for it; it leaves prefetching to the handler, and eviction to the
//! cleaner. It reclaims by itself only when there is no free frame (FlashVM, 4.1.2).

use super::workers::By;
use super::{Freeze, Locked, Pager, Read};
use crate::control::Interrupted;
use crate::flash::demand::PAGES_MAX;
use crate::flash::offset;
use crate::space::{Resolution, Touch, Use};
use crate::sys::crowd::CROWD;
use crate::sys::now;
use crate::sys::thread::on_pager_stack;
use flashvm_core::{Access, Action, Event, IoId, Nanos, PAGE_SIZE, PageId, PageState};
use rustix::thread::futex;
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks at the count of resolved faults before a waiting thread goes to sleep.
const LOOKS: u32 = 2000;
/// A sleeping thread looks again after this long: the engine has deadlines.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The end of a process whose pages cannot be shown.
const NO_MAPPINGS: &str = "the kernel allows this process no more mappings, which pages hidden by access rights need: \
                           raise vm.max_map_count";

/// Counts resolved faults, and lets threads wait for the next one.
#[derive(Debug, Default)]
pub(super) struct ResolvedCount {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl ResolvedCount {
    /// The count, for [`Self::wait`]. Read it with the engine locked, and wait with the engine unlocked.
    fn seen(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Counts an action that has resolved faults, and wakes the threads that wait.
    pub(super) fn announce(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.count, futex::Flags::PRIVATE, u32::MAX >> 1);
        }
    }

    /// Waits for the next announcement after `seen`: polls, then sleeps for [`LOOK_AGAIN`] at most.
    fn wait(&self, seen: u32) {
        let mut looks = if CROWD.wants_the_processor(now()) {
            1
        } else {
            LOOKS
        };
        while looks > 0 {
            if self.count.load(Ordering::Acquire) != seen {
                return;
            }
            looks -= 1;
            if looks % 64 == 63 && CROWD.yield_to() {
                // One more look.
                looks = 1;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let timeout = rustix::thread::Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK_AGAIN.subsec_nanos()),
        };
        let _ = futex::wait(&self.count, futex::Flags::PRIVATE, seen, Some(&timeout));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Locked {
    fn awaits(&self, page: PageId) -> bool {
        self.placement.is_awaited(Some(page))
    }

    /// Takes over the queued read that brings a page in, if the handler has not started it.
    fn take_demand(&mut self, page: PageId) -> Option<(IoId, Read)> {
        let index = self.to_read.iter().position(|action| match *action {
            Action::Read {
                io, count, demand, ..
            } => demand && count <= PAGES_MAX && self.engine.io_pages(io).contains(&page),
            _ => false,
        })?;
        let Some(Action::Read {
            io, slot, count, ..
        }) = self.to_read.remove(index)
        else {
            unreachable!("just found")
        };
        let buffer = 0;
        Some((
            io,
            Read {
                slot,
                count,
                buffer,
            },
        ))
    }
}

impl Pager {
    /// Resolves a fault of the calling thread. `present`: the page is there, and write-protection has stopped a store
    /// to it. `at`: where the fault interrupted the thread, if that was in the program's own code.
    ///
    /// Takes only locks of the pager, which no thread holds while it touches managed memory. The caller's stack is not
    /// managed, and all signals but the synchronous ones are blocked.
    pub fn fault(
        &self,
        address: usize,
        access: Access,
        present: bool,
        at: Option<Interrupted>,
    ) -> Resolution {
        let Some(page) = self.managed_page(address) else {
            return Resolution::NotOurs;
        };
        let since = now();
        let locked = self.lock_to_fault();
        self.resolve(locked, page, access, present, since, at)
    }

    /// Resolves a SIGSEGV of the calling thread at a hidden page; otherwise as [`Self::fault`].
    pub(crate) fn fault_at_hidden(
        &self,
        address: usize,
        wanted: Use,
        at: Option<Interrupted>,
    ) -> Resolution {
        let Some(page) = self.managed_page(address) else {
            return Resolution::NotOurs;
        };
        let since = now();
        let locked = self.lock_to_fault();
        match self.space.judge(page, wanted) {
            None | Some(Touch::Forbidden) => Resolution::NotOurs,
            Some(Touch::Again) => Resolution::Resolved,
            Some(Touch::Withdrawn) => {
                if self.space.reveal(page).is_err() {
                    self.die(NO_MAPPINGS);
                }
                self.stats()
                    .pages_shown_again
                    .fetch_add(1, Ordering::Relaxed);
                Resolution::Resolved
            }
            Some(Touch::Absent) => {
                let access = match wanted {
                    Use::Store => Access::Write,
                    Use::Load | Use::Execute => Access::Read,
                };
                self.resolve(locked, page, access, false, since, at)
            }
        }
    }

    /// Whether a fault at an address is SIGSEGV: at a small page, or where there is no userfaultfd.
    pub(crate) fn gives_segv(&self, address: usize) -> bool {
        let hidden = self.space.aliased().is_some() && self.page_at(address).is_some();
        let small = self.chameleon.as_ref();
        hidden || small.is_some_and(|heap| heap.holds(address, 1))
    }

    /// The page of an address, if the pager pages it.
    fn managed_page(&self, address: usize) -> Option<PageId> {
        self.page_at(address)
            .filter(|&page| !self.mappings.is_foreign(page))
    }

    fn resolve<'a>(
        &'a self,
        mut locked: MutexGuard<'a, Locked>,
        page: PageId,
        access: Access,
        present: bool,
        since: Nanos,
        at: Option<Interrupted>,
    ) -> Resolution {
        match locked.engine.page_state(page) {
            PageState::Poisoned => return Resolution::Lost,
            // Parked actions come first: one of them may be for this page.
            _ if locked.placement.is_parked() && !self.retry_parked(&mut locked) => {
                self.hand_over(&mut locked, By::Program);
                drop(locked);
                rustix::thread::sched_yield();
                return Resolution::Resolved;
            }
            _ => {}
        }
        locked.placement.await_page(page, since);
        if present {
            if !self.unprotect(&mut locked, page) {
                self.apply(&mut locked, Event::WriteProtectFault { page });
            }
        } else if self.resolve_spurious(&mut locked, page) {
            self.handle_events(&mut locked);
        } else {
            let huge = self.wants_huge(page, access);
            let majors = locked.engine.counters().faults_major;
            self.apply(&mut locked, Event::Fault { page, access, huge });
            if self.settings.report && locked.engine.counters().faults_major > majors {
                self.count_major(since, at);
            }
        }
        while locked.awaits(page) {
            let before = locked.placement.progress();
            if let Some((io, read)) = locked.take_demand(page) {
                locked = self.read_inline(locked, io, read);
                continue;
            }
            if locked.engine.deadline().is_some_and(|at| at <= now()) {
                self.apply(&mut locked, Event::Tick);
            }
            if locked.is_synchronous() || locked.engine.stalled() {
                locked = self.work(locked);
            }
            // Without progress here, another thread has to make it: unlock the engine for it.
            if locked.placement.progress() == before && locked.awaits(page) {
                locked = self.wait(locked);
            }
        }
        if locked.is_synchronous() {
            locked = self.work(locked);
        }
        let lost = locked.engine.page_state(page) == PageState::Poisoned;
        self.hand_over(&mut locked, By::Program);
        if lost {
            Resolution::Lost
        } else {
            Resolution::Resolved
        }
    }

    /// Waits until some fault has been resolved, or for [`LOOK_AGAIN`].
    fn wait<'a>(&'a self, mut locked: MutexGuard<'a, Locked>) -> MutexGuard<'a, Locked> {
        self.hand_over(&mut locked, By::Program);
        let seen = self.resolved_count.seen();
        drop(locked);
        self.resolved_count.wait(seen);
        self.lock_to_fault()
    }

    /// Locks the engine to begin new requests. Blocks while a fork quiesces, except for the pager's threads, which the
    /// fork waits for.
    fn lock_to_fault(&self) -> MutexGuard<'_, Locked> {
        let own = on_pager_stack();
        let mut locked = self.locked.lock();
        while locked.freeze == Freeze::Frozen || (locked.freeze == Freeze::Quiescing && !own) {
            locked = self.changed.wait(locked);
        }
        locked
    }

    /// Reads the page that this thread waits for.
    fn read_inline<'a>(
        &'a self,
        mut locked: MutexGuard<'a, Locked>,
        io: IoId,
        mut read: Read,
    ) -> MutexGuard<'a, Locked> {
        let Some(mut queue) = self.demand.take() else {
            // Every queue is in use: the handler reads the page with its own. `demand: false` leaves the read to it.
            locked.to_read.push_front(Action::Read {
                io,
                slot: read.slot,
                count: read.count,
                demand: false,
            });
            return locked;
        };
        read.buffer = queue.buffer();
        locked.reads.insert(io, read);
        self.hand_over(&mut locked, By::Program);
        drop(locked);
        let len = read.count as usize * PAGE_SIZE;
        let failed = queue.read(&self.store, offset(read.slot), len).bits();
        let mut locked = self.lock();
        self.apply(&mut locked, Event::ReadDone { io, failed });
        locked.reads.remove(&io);
        locked
    }
}
