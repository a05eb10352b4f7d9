//! Room for a page: more frames as long as the process may have them, then victims of the clocks.
//!
//! What has not changed since it came in goes at once: its checksum is that of flash's copy. What has
//! changed is condemned and waits for a round. Pages of zeros are written as nothing.

use super::round::BATCH_SECTORS;
use super::{Chameleon, Core};
use crate::flash::FlashStore;
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::chameleon::{Check, FrameId, Place, Shape, Step, Svmp};
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Frames that are asked for at once: as many as there are already, within these.
const BORROW_MIN: u32 = 16;
const BORROW_MAX: u32 = 256;
/// Faults after which more frames are asked for again, when there were none.
const ASK_AGAIN: u32 = 256;
/// How long a fault waits for a range, looking every millisecond, before the process ends.
const PATIENCE: u32 = 20_000;
const PATIENCE_STEP: Duration = Duration::from_millis(1);
/// Steps of a clock in one go.
const GO: u32 = 64;
/// Steps of a clock with which frames are given back, at most.
const STEPS: u32 = 4096;
/// Ranges of each shape in use that are kept free: one for so many frames, up to so many.
const FREE_SHARE: u32 = 64;
const FREE_MOST: u32 = 128;
/// Steps of a clock beside the read of a page, between two looks at whether it is there.
const STEPS_AHEAD: u32 = 2;

impl Chameleon {
    /// Takes more of the process' frames, if it may have more.
    pub(super) fn borrow(&self, core: &mut Core, pager: &Pager) {
        if core.ask_again > 0 {
            core.ask_again -= 1;
            return;
        }
        let asked = core.held.clamp(BORROW_MIN, BORROW_MAX);
        let asked = asked.min(core.frames.most() - core.frames.len());
        let got = pager.lend_frames(asked);
        core.held += got;
        for _ in 0..got {
            core.frames.grow().expect("no more than the pool can have");
        }
        if got < asked || asked == 0 {
            core.ask_again = ASK_AGAIN;
        }
    }

    /// Gives frames back that the page pager needs. With nothing lifted it takes a while.
    pub(super) fn return_frames(&self, core: &mut Core, pager: &Pager) {
        let target = self.target.load(Ordering::Relaxed);
        let (mut returned, mut steps) = (0, 0);
        while core.held - returned > target && steps < STEPS {
            if let Some(frame) = core.frames.shrink() {
                map::punch(&self.frames_file, frame.0);
                returned += 1;
                continue;
            }
            let taken = self.take_steps(core, pager, Shape::WHOLE, 1, GO);
            if taken == 0 {
                break;
            }
            steps += taken;
        }
        core.held -= returned;
        if returned > 0 {
            pager.take_back_frames(returned);
        }
    }

    /// Makes a range of this shape free, or gets nearer to it: the caller looks again.
    pub(super) fn make_room<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        pager: &Pager,
        shape: Shape,
    ) -> MutexGuard<'a, Core> {
        let mut waited = 0;
        // Twice around every clock: what is still there then is condemned, pinned or on its way in.
        let around = 2 * core.frames.most() * Shape::WHOLE.sectors();
        let mut steps = 0;
        while core.frames.available(shape) == 0 {
            if steps < around {
                let taken = self.take_steps(&mut core, pager, shape, 1, GO);
                if taken > 0 {
                    steps += taken;
                    continue;
                }
            }
            steps = 0;
            if core.writing {
                core = self.await_change(core);
            } else if core.condemned_sectors > 0 {
                core = self.write_round(core, pager);
            } else {
                // All is pinned or on its way in. Others will be done soon.
                waited += 1;
                if waited > PATIENCE {
                    pager.die(
                        "no room for a page, and nothing that could go: give it more --ram or a \
                         larger --flash-size",
                    );
                }
                core.ask_again = 0;
                self.borrow(&mut core, pager);
                drop(core);
                crate::sys::sleep(PATIENCE_STEP);
                core = self.lock();
            }
        }
        core
    }

    /// Makes room for faults to come while this one's page is being read: its thread would do nothing but
    /// poll, and another one on another processor costs an interrupt for each page that it lifts. Whether there
    /// is more to do.
    pub(super) fn make_room_ahead(&self, pager: &Pager, shape: Shape) -> bool {
        let mut core = self.core.lock();
        !core.frozen && self.take_steps_ahead(&mut core, pager, shape)
    }

    /// A few steps towards as many free ranges as are to be kept. Whether there are more to take.
    pub(super) fn take_steps_ahead(&self, core: &mut Core, pager: &Pager, shape: Shape) -> bool {
        let free = (core.frames.len() / FREE_SHARE).clamp(1, FREE_MOST);
        if core.frames.available(shape) >= free {
            return false;
        }
        self.borrow(core, pager);
        let steps = self.take_steps(core, pager, shape, free, STEPS_AHEAD);
        self.call_writer_if_due(core);
        steps == STEPS_AHEAD
    }

    /// Carries out the next steps of a shape's clock, `most` of them, until so many of its ranges are free or a
    /// round is worth it. How many there were.
    fn take_steps(
        &self,
        core: &mut Core,
        pager: &Pager,
        shape: Shape,
        free: u32,
        most: u32,
    ) -> u32 {
        // What was filled in one go turns inactive in one go, and takes one call then.
        let mut cold = 0..0;
        let mut steps = 0;
        while steps < most
            && core.frames.available(shape) < free
            && core.condemned_sectors < BATCH_SECTORS
            && let Some(step) = core.clocks.step(shape, &core.frames)
        {
            match step {
                Step::Lift(frame) => self.lift_soon(core, pager, frame, shape, &mut cold),
                Step::Evict(frame) => {
                    for page in core.frames.pages_in(frame, shape) {
                        self.evict(core, pager, frame, page);
                    }
                }
            }
            steps += 1;
        }
        self.lift_run(core, pager, cold);
        steps
    }

    /// Takes a page out of its frame, or condemns it.
    fn evict(&self, core: &mut Core, pager: &Pager, frame: FrameId, shape: Shape) {
        let page = Svmp(core.frames.owner(frame, shape));
        let location = match core.table.get(page).1 {
            // It goes when its round is over.
            Place::Condemned(..) => return,
            Place::Mapped(..) | Place::Lifted(..) if !core.pins.holds(page) => {
                self.lift(core, pager, page);
                core.table.get(page).1.location()
            }
            // It has to stay, or is on its way in.
            _ => return core.clocks.keep(frame, shape),
        };
        // SAFETY: the page is lifted, so nobody stores to its range; the lock is held.
        let contents = unsafe { map::bytes(self.range(frame, shape), shape.size()) };
        if crate::pager::is_zero(contents) {
            if let Some(location) = location {
                let Core {
                    flash, clusters, ..
                } = core;
                flash.release(clusters, location, shape);
            }
            core.counters.zero_pages += 1;
            core.frames.release(frame, shape);
            core.table.set(page, shape, Place::Fresh);
            return;
        }
        let checksum = FlashStore::checksum(contents);
        match location {
            Some(location) if core.frames.check(frame, shape) == checksum => {
                core.counters.evicted_clean += 1;
                core.frames.release(frame, shape);
                let place = Place::OnFlash(location, Check::of(checksum));
                core.table.set(page, shape, place);
            }
            _ => {
                core.table
                    .set(page, shape, Place::Condemned(frame, location));
                core.condemned.push(page);
                core.condemned_sectors += shape.sectors();
            }
        }
    }
}
