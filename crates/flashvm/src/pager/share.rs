//! Frames that this process shares with others since a fork: their numbers in the run, and the steps that keep
//! the account right. Which pages share is the engine's to know; [`crate::control::SharedFrame`] counts them.

use super::{Delivery, Freeze, LiveEngine, Locked, Pager, SPAN_PAGES};
use crate::control::{LIMIT_FRAMES_MIN, Process, SharedFrame};
use crate::space::{Backend, runs};
use flashvm_core::space::Stop;
use flashvm_core::{Event, PageId, TRANSIT_PAGES_MAX};
use rustix_futex_sync::MutexGuard;
use std::time::Duration;

/// Pages of which one look asks whether the others have let go.
const LOOK_PAGES: usize = 8192;
/// Frames for pages that turn out to have been stored to unnoticed.
const UNNOTICED_PAGES: u32 = 32;
/// Frames for what threads store to during a fork with a handler: `granted / STORES_SHARE`, at most so many.
const STORES_IN_FORK: u32 = 512;
const STORES_SHARE: u32 = 8;
/// How often, and how long apart, a fork looks for frames for the child.
const ROOM_TRIES: u32 = 500;
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// The numbers of the shared frames, by page.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Number + 1; 0 is none. Empty before the first fork.
    numbers: Vec<u32>,
    /// Where the next look starts.
    next: u32,
}

impl Shares {
    fn get(&self, page: PageId) -> Option<SharedFrame> {
        let number = self.numbers.get(page.0 as usize)?;
        number.checked_sub(1).map(SharedFrame)
    }

    fn set(&mut self, page: PageId, frame: Option<SharedFrame>) {
        self.numbers[page.0 as usize] = frame.map_or(0, |frame| frame.0 + 1);
    }

    /// The pages have left their shared frames.
    pub(super) fn leave(&mut self, process: &Process, first: PageId, count: u32) {
        for page in (0..count).map(|i| first.plus(i)) {
            if let Some(frame) = self.get(page) {
                self.set(page, None);
                process.leave_frame(frame);
            }
        }
    }
}

impl Pager {
    /// Frames that a process keeps back while pages are shared, or a fork is ahead.
    pub(super) fn frames_kept_back(&self, locked: &Locked) -> u32 {
        let sharing = match locked.engine.pages_shared() {
            0 => 0,
            _ => TRANSIT_PAGES_MAX + UNNOTICED_PAGES,
        };
        sharing + locked.fork_room
    }

    /// Frames for pages that are stored to during a fork, unnoticed or before there is room: those of calls in
    /// flight, and with a handler whatever threads store to until the child is on its own.
    fn frames_for_stores(&self, locked: &Locked) -> u32 {
        match self.delivery {
            Delivery::Inline => locked.placement.pins.pages(),
            Delivery::Handler => STORES_IN_FORK.min(self.process.granted() / STORES_SHARE),
        }
    }

    /// Pages that may share frames with this grant: all, unless others want frames and this process accounts
    /// for more than its allowance.
    pub(super) fn shared_limit(&self, locked: &Locked, granted: u32) -> u32 {
        let shared = locked.engine.pages_shared();
        if shared == 0 || !self.process.others_want() {
            return u32::MAX;
        }
        let excess = (granted + shared / 2).saturating_sub(self.process.allowance());
        match excess {
            0 => u32::MAX,
            _ => shared.saturating_sub(2 * excess),
        }
    }

    /// Frames with which a forked child begins.
    fn frames_for_child(&self, locked: &Locked) -> u32 {
        let stores = match self.delivery {
            Delivery::Inline => 0,
            // It is charged for the same pages.
            Delivery::Handler => self.frames_for_stores(locked),
        };
        LIMIT_FRAMES_MIN + TRANSIT_PAGES_MAX + self.read_buffer_pages() + locked.lent + stores
    }

    /// Before a fork: waits until this process holds enough free frames for the child and for what the parent
    /// stores to next, so that the budget holds. Whether it does: after `ROOM_TRIES * ROOM_WAIT`, or with too
    /// small a share, the fork does without, and the overrun is counted.
    pub(super) fn await_room_for_fork(&self) -> bool {
        for _ in 0..ROOM_TRIES {
            let mut locked = self.lock();
            let for_parent = LIMIT_FRAMES_MIN + self.frames_for_stores(&locked);
            locked.fork_room = for_parent + self.frames_for_child(&locked);
            self.hand_over(&mut locked, false);
            if self.is_synchronous() {
                locked = self.work(locked);
            }
            if self.has_room_for_fork(&locked) {
                return true;
            }
            if self.process.limit() < locked.fork_room + LIMIT_FRAMES_MIN {
                // Its share of the budget never has that room.
                return false;
            }
            drop(locked);
            crate::sys::sleep(ROOM_WAIT);
        }
        false
    }

    fn has_room_for_fork(&self, locked: &Locked) -> bool {
        locked.fork_room > 0 && self.frames_in_use(locked) <= self.process.granted()
    }

    /// Before a fork: lets everything in flight end, as `quiet` does, while there is room for the child.
    pub(super) fn quiet_with_room<'a>(
        &'a self,
        quiet: impl Fn() -> MutexGuard<'a, Locked>,
    ) -> MutexGuard<'a, Locked> {
        loop {
            let had_room = self.await_room_for_fork();
            let locked = quiet();
            if !had_room || self.has_room_for_fork(&locked) {
                return locked;
            }
            // Another thread has forked meanwhile, with the room of this one.
            self.thaw(locked);
        }
    }

    /// Right before a fork, with the engine frozen: every resident page shares its frame from now on, and stores
    /// to it are stopped. `child` is the child's process slot, if there is one.
    ///
    /// The pages of `writable`, sorted, are stored to before anybody can be asked: by system calls in flight,
    /// or by the thread that forks. Stores to them go on; see [`Self::own_pages`].
    pub(super) fn share_frames(
        &self,
        locked: &mut Locked,
        child: Option<&Process>,
        writable: &[PageId],
    ) -> Result<(), crate::control::Error> {
        let room = std::mem::take(&mut locked.fork_room);
        self.publish_use(locked);
        let free = self
            .process
            .granted()
            .saturating_sub(self.frames_in_use(locked));
        let for_child = self.frames_for_child(locked).min(room).min(free);
        let Locked { engine, shares, .. } = locked;
        if shares.numbers.is_empty() {
            shares.numbers = vec![0; SPAN_PAGES as usize];
        }
        for page in engine.resident_pages() {
            if shares.get(page).is_none() {
                let frame = self.process.share_frame();
                shares.set(page, frame);
                if frame.is_none() {
                    self.unshare_frames(engine, shares);
                    return Err(crate::control::Error::Full);
                }
            }
        }
        if let Some(child) = child {
            for page in engine.resident_pages() {
                child.hold_frame(shares.get(page).expect("just given"));
            }
            self.process.pass_frames(child, for_child);
        }
        self.stop_stores(engine.resident_pages().filter(|page| {
            engine.page_state(*page).is_mapped() && writable.binary_search(page).is_err()
        }));
        Ok(())
    }

    /// The fork is refused: what was made shared for it is this process' own again.
    fn unshare_frames(&self, engine: &LiveEngine, shares: &mut Shares) {
        for page in engine.resident_pages() {
            if !engine.is_shared(page)
                && let Some(frame) = shares.get(page)
            {
                let owned = self.process.own_frame(frame);
                assert!(owned, "no child holds it yet");
                shares.set(page, None);
            }
        }
    }

    /// Around a fork: write-protects pages of the region, which come in ascending order.
    pub(super) fn stop_stores(&self, pages: impl Iterator<Item = PageId>) {
        for run in runs(pages) {
            loop {
                match self.space.protect(run, true) {
                    Ok(()) => break,
                    // Another thread is changing its mappings.
                    Err(Stop::Again) => std::thread::yield_now(),
                    Err(stop) => self.die(&format!(
                        "the pages at {:#x} cannot be write-protected for a fork: {stop:?}",
                        self.address(run.first)
                    )),
                }
            }
        }
    }

    /// After a fork: these pages may have been stored to, and unnoticed, since their frames became shared. They
    /// count as this process' own, in frames of their own.
    pub(super) fn own_pages(&self, locked: &mut Locked, pages: impl Iterator<Item = PageId>) {
        for page in pages {
            if locked.engine.is_shared(page) {
                locked.shares.leave(&self.process, page, 1);
                let (first, count) = (page, 1);
                self.apply(locked, Event::Owned { first, count });
                self.apply(locked, Event::WriteProtectFault { page });
            }
        }
    }

    /// The pages that system calls in flight may be storing to, sorted.
    pub(super) fn pinned_pages(locked: &Locked) -> Vec<PageId> {
        let pages = locked.engine.resident_pages();
        pages
            .filter(|&page| locked.placement.pins.holds(page))
            .collect()
    }

    /// Takes over frames that the other processes have let go of: some of them at each look.
    pub(super) fn own_abandoned(&self, locked: &mut Locked) {
        if locked.engine.pages_shared() == 0 || locked.freeze != Freeze::No {
            return;
        }
        let Locked { engine, shares, .. } = locked;
        let mut owned: Vec<PageId> = Vec::new();
        let mut looked = 0;
        for page in engine.resident_pages_from(PageId(shares.next)) {
            shares.next = page.0 + 1;
            looked += 1;
            if engine.is_shared(page)
                && let Some(frame) = shares.get(page)
                && self.process.own_frame(frame)
            {
                shares.set(page, None);
                owned.push(page);
            }
            if looked == LOOK_PAGES {
                break;
            }
        }
        if looked < LOOK_PAGES {
            shares.next = 0;
        }
        if owned.is_empty() {
            return;
        }
        // The grant has grown by as many.
        locked.limit += owned.len() as u32;
        let (frames, shared) = (locked.limit, locked.shared_limit);
        self.apply(locked, Event::Limit { frames, shared });
        for first in owned {
            // Making use of the limit may have moved it: it has left its frame then.
            if locked.engine.is_shared(first) {
                self.apply(locked, Event::Owned { first, count: 1 });
            }
        }
    }
}
