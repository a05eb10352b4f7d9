//! Rounds, in which changed pages are written, and the thread that runs them ahead of need, so that a
//! fault seldom waits for a write. What a round does is `log`'s or `in_place`'s.
//!
//! Whether a page has changed is told by its checksum alone. So it does not matter what becomes of a page
//! while it is written: what flash has is what the checksum says, and a page that has changed again is
//! found to be changed when it is lifted the next time.

use super::{Chameleon, Core};
use crate::flash::FlashStore;
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::chameleon::{
    Check, DATA_SECTORS, FrameId, Full, Organization, Place, Shape, Svmp,
};
use rustix::thread::futex;
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Changed sectors with which a round is worth it.
pub(super) const BATCH_SECTORS: u32 = DATA_SECTORS;
/// How long a round waits when the store is full, and how often, before the process ends.
const FULL_WAIT: Duration = Duration::from_millis(1);
const FULL_TRIES: u32 = 10_000;

impl Chameleon {
    /// Has the writer run a round if it is worth it, and give frames back that the page pager needs.
    pub(super) fn call_writer_if_due(&self, core: &Core) {
        let due = core.condemned_sectors >= BATCH_SECTORS && !core.writing;
        if due || self.has_too_many(core) {
            self.call_writer();
        }
    }

    pub(crate) fn call_writer(&self) {
        self.writer_called.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.writer_called, futex::Flags::PRIVATE, 1);
    }

    fn has_too_many(&self, core: &Core) -> bool {
        core.held > self.target.load(Ordering::Relaxed)
    }

    /// The writer's thread.
    pub(crate) fn write_behind(&self, pager: &Pager) {
        loop {
            let seen = self.writer_called.load(Ordering::Acquire);
            self.write_due(pager);
            let _ = futex::wait(&self.writer_called, futex::Flags::PRIVATE, seen, None);
        }
    }

    fn write_due(&self, pager: &Pager) {
        let mut core = self.lock();
        loop {
            self.return_frames(&mut core, pager);
            // What is over goes as it comes free; the next fault calls again.
            let worth_it = if self.has_too_many(&core) {
                1
            } else {
                BATCH_SECTORS
            };
            if core.writing || core.condemned_sectors < worth_it {
                return;
            }
            core = self.write_round(core, pager);
            self.publish(&core, pager);
        }
    }

    /// Runs a round. Without it being possible, it waits a little.
    pub(super) fn write_round<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        pager: &Pager,
    ) -> MutexGuard<'a, Core> {
        debug_assert!(!core.writing);
        core.forget_touched();
        if core.condemned.is_empty() {
            return core;
        }
        core.writing = true;
        core = match core.flash {
            Organization::Log(_) => self.log_round(core, pager),
            Organization::InPlace(_) => self.in_place_round(core, pager),
        };
        core.writing = false;
        self.announce_change(&core);
        core
    }

    /// Waits a little for room on flash.
    pub(super) fn await_room<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        pager: &Pager,
        tries: &mut u32,
    ) -> MutexGuard<'a, Core> {
        *tries += 1;
        if *tries > FULL_TRIES {
            pager.die(&format!(
                "{Full}: give it a larger --flash-size, or room on its disk"
            ));
        }
        drop(core);
        crate::sys::sleep(FULL_WAIT);
        self.core.lock()
    }

    /// A changed page has been written. Where it is in the table says where.
    pub(super) fn written(&self, core: &mut Core, page: Svmp, shape: Shape, check: u64) {
        let (_, place) = core.table.get(page);
        let frame = place.frame().expect("a changed page lies in a frame");
        core.frames.set_check(frame, shape, check);
        match place {
            // It may have been touched, changed and condemned again meanwhile.
            Place::Condemned(_, Some(location)) if self.is_unchanged(frame, shape, check) => {
                core.counters.evicted_dirty += 1;
                core.frames.release(frame, shape);
                let place = Place::OnFlash(location, Check::of(check));
                core.table.set(page, shape, place);
            }
            Place::Condemned(..) => {}
            // Touched meanwhile: it stays.
            _ => core.clocks.keep(frame, shape),
        }
    }

    /// Whether a lifted page has the contents of this checksum.
    fn is_unchanged(&self, frame: FrameId, shape: Shape, check: u64) -> bool {
        // SAFETY: the page is lifted, and stays so as long as the lock is held.
        let contents = unsafe { map::bytes(self.range(frame, shape), shape.size()) };
        FlashStore::checksum(contents) == check
    }

    /// The write of a page has failed: it waits for another one.
    pub(super) fn condemn_again(&self, core: &mut Core, page: Svmp) {
        if let (shape, Place::Condemned(..)) = core.table.get(page) {
            core.condemned.push(page);
            core.condemned_sectors += shape.sectors();
        }
    }
}

impl Core {
    /// Forgets condemned pages that were touched since, or given up, and counts the others. One that was
    /// condemned again after a touch is there once.
    pub(super) fn forget_touched(&mut self) {
        let Self {
            condemned, table, ..
        } = self;
        condemned.sort_unstable();
        condemned.dedup();
        let mut sectors = 0;
        condemned.retain(|&page| {
            let (shape, place) = table.get(page);
            let waits = matches!(place, Place::Condemned(..));
            sectors += if waits { shape.sectors() } else { 0 };
            waits
        });
        self.condemned_sectors = sectors;
    }
}
