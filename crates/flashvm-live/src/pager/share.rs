//! Frames that this process shares with others since a fork: their numbers in the run, and the steps that keep the
//! account right. The engine knows which pages are in shared frames; the run counts the holders of each frame.

use super::grant::limit_event;
use super::{Freeze, LiveEngine, Locked, Pager, SPAN_PAGES};
use crate::control::{Process, SharedFrame};
use crate::space::runs;
use flashvm_core::space::{AddressSpace as _, Stop};
use flashvm_core::{Event, PageId};

/// Pages that one look checks for other holders.
const LOOK_PAGES: usize = 8192;

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
    /// Right before a fork, with the engine frozen: every resident page shares its frame from now on, and
    /// write-protection stops stores to it. Without write-protection no frame is shared. `child` is the child's process
    /// slot, if there is one.
    ///
    /// The pages of `writable`, sorted, stay writable: system calls in flight, or the thread that forks, store to them
    /// before a fault can be resolved. See [`Self::own_pages`].
    pub(super) fn share_frames(
        &self,
        locked: &mut Locked,
        child: Option<&Process>,
        writable: &[PageId],
    ) -> Result<(), crate::control::Error> {
        self.publish_use(locked);
        let (usage, stores) = (locked.usage(), self.fork_stores(locked));
        let for_child = locked.grant.begin_fork(&self.process, &usage, stores);
        if !self.space.protects() {
            // The child gets copies, each in a frame of its own.
            if let Some(child) = child {
                self.process.pass_frames(child, for_child);
            }
            return Ok(());
        }
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
                    return Err(crate::control::Error::SharedFrames);
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

    /// The fork is refused: the frames that were made shared for it become this process's own again.
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

    /// Around a fork: write-protects pages of the region. `pages` must ascend.
    pub(super) fn stop_stores(&self, pages: impl Iterator<Item = PageId>) {
        for run in runs(pages) {
            loop {
                match (&self.space).protect(run, true) {
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

    /// After a fork: stores to these pages may have gone unnoticed since their frames became shared. So each counts as
    /// dirty, in a frame of its own.
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

    /// Takes over frames that no other process holds any more. One look checks [`LOOK_PAGES`] pages.
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
        // `own_frame` has added as many to the frames that this process holds.
        let limits = locked.grant.owns(owned.len() as u32);
        self.apply(locked, limit_event(limits));
        for first in owned {
            // The new limit may have made the engine move the page: then it has left its frame.
            if locked.engine.is_shared(first) {
                self.apply(locked, Event::Owned { first, count: 1 });
            }
        }
    }
}
