//! Rounds of the log, live: read, modify, write, commit (paper, 3.3); and the thread that runs them ahead
//! of need, so that a fault seldom waits for a write.
//!
//! Whether a page has changed is told by its checksum alone. So it does not matter what becomes of a page
//! while it is written: what flash has is what the checksum says, and a page that has changed again is
//! found to be changed when it is lifted the next time.

use super::{Chameleon, Core};
use crate::pager::Pager;
use crate::store::FlashStore;
use crate::sys::flash_io::{read_now, write_now};
use crate::sys::map;
use flashvm_core::chameleon::{
    BLOCK_BYTES, BLOCK_SECTORS, BackPointer, BlockBuffer, Check, DATA_SECTORS, FrameId, Full,
    Location, Place, Shape, Svmp,
};
use rustix::thread::futex;
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Changed sectors with which a round is worth it.
pub(super) const BATCH_SECTORS: u32 = DATA_SECTORS;
/// Free ranges of a shape at which the writer is called, and up to which it replenishes them; less in a
/// small pool.
const LOW: u32 = 32;
const HIGH: u32 = 128;
/// One in so many frames may be free for each shape.
const FREE_SHARE: u32 = 256;
/// How long a round waits when the store is full, and how often, before the process ends.
const FULL_WAIT: Duration = Duration::from_millis(1);
const FULL_TRIES: u32 = 10_000;
/// Steps of a clock in one go of the writer.
const GO: u32 = 64;

impl Chameleon {
    fn low(core: &Core) -> u32 {
        LOW.min(core.frames.len() / FREE_SHARE / 4).max(1)
    }

    /// Has the writer replenish free ranges of the shapes that were asked for, if there are few.
    pub(super) fn call_writer_if_low(&self, core: &mut Core) {
        let low = Self::low(core);
        let few = |shape: &Shape| core.pages.in_use(*shape) && core.frames.available(*shape) < low;
        let wanted = Shape::ALL
            .into_iter()
            .filter(few)
            .fold(0, |set, shape| set | shape.bit());
        let over = core.held > self.target.load(Ordering::Relaxed);
        if (wanted & !core.wanted != 0 && core.ask_again > 0) || over {
            core.wanted |= wanted;
            self.call_writer();
        }
    }

    pub(crate) fn call_writer(&self) {
        self.writer_called.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.writer_called, futex::Flags::PRIVATE, 1);
    }

    /// The writer's thread.
    pub(crate) fn write_ahead(&self, pager: &Pager) {
        loop {
            let seen = self.writer_called.load(Ordering::Acquire);
            self.replenish(pager);
            let _ = futex::wait(&self.writer_called, futex::Flags::PRIVATE, seen, None);
        }
    }

    fn replenish(&self, pager: &Pager) {
        let mut core = self.lock();
        loop {
            self.return_frames(&mut core, pager);
            let over = core.held > self.target.load(Ordering::Relaxed);
            let mut wanted = Shape::ALL.into_iter();
            let Some(shape) = wanted.find(|shape| core.wanted & shape.bit() != 0) else {
                if over && core.condemned_sectors > 0 && !core.writing {
                    core = self.write_round(core, pager);
                    continue;
                }
                // What is over goes as it comes free; the next fault calls again.
                return;
            };
            let high = (4 * Self::low(&core)).min(HIGH);
            let mut stuck = false;
            for _ in 0..GO {
                let full = core.condemned_sectors >= BATCH_SECTORS;
                if stuck || full || core.frames.available(shape) >= high {
                    break;
                }
                stuck = !self.take_step(&mut core, pager, shape);
            }
            let full = core.condemned_sectors >= BATCH_SECTORS;
            if core.frames.available(shape) >= high {
                core.wanted &= !shape.bit();
            } else if core.writing {
                core = self.changed.wait(core);
            } else if full || (stuck && core.condemned_sectors > 0) {
                core = self.write_round(core, pager);
            } else if stuck {
                core.wanted &= !shape.bit();
            }
            self.publish(&core, pager);
            // The program's threads come first.
            drop(core);
            rustix::thread::sched_yield();
            core = self.lock();
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
        let mut tries = 0;
        let round = loop {
            let most = self.log_most(&core, pager);
            let Core { log, clusters, .. } = &mut *core;
            match log.begin(clusters, most) {
                Ok(round) => break round,
                Err(Full) if tries < FULL_TRIES => {
                    tries += 1;
                    drop(core);
                    crate::sys::sleep(FULL_WAIT);
                    core = self.core.lock();
                }
                Err(full) => pager.die(&format!("{full}: give it a larger --flash-size")),
            }
        };
        let store = pager.store();
        let (target, clean) = (self.buffers, self.buffers + BLOCK_BYTES);
        let mut readable = false;
        if let Some(source) = round.source {
            drop(core);
            let offset = Location::new(source, 0).offset();
            readable =
                read_now(store.file(), offset, clean, BLOCK_BYTES as u32) && !store.fail_read();
            core = self.core.lock();
        }
        // SAFETY: the buffers are used by the round that is under way alone: this one.
        let (bytes, cleaned) = unsafe {
            (
                map::bytes_mut(target, BLOCK_BYTES),
                map::bytes(clean, BLOCK_BYTES),
            )
        };
        let mut buffer = BlockBuffer::new(bytes);
        if round.source.is_some() {
            let Core {
                log, table, frames, ..
            } = &mut *core;
            let matches = |pointer: &BackPointer, place: Place, bytes: &[u8]| {
                let found = Check::of(FlashStore::checksum(bytes));
                match place {
                    Place::OnFlash(_, check) => found == check,
                    place => place.frame().is_some_and(|frame| {
                        Check::of(frames.check(frame, pointer.shape)) == found
                    }),
                }
            };
            log.keep_live(table, readable.then_some(cleaned), matches, &mut buffer);
        }
        let checks = self.fill(&mut core, &mut buffer);
        let (len, pointers) = buffer.finish();
        drop(core);
        let offset = Location::new(round.target, 0).offset();
        let written = !store.fail_write() && write_now(store.file(), offset, target, len as u32);
        let mut core = self.core.lock();
        if written {
            self.commit(&mut core, len, &pointers, &checks);
        } else {
            let Core { log, clusters, .. } = &mut *core;
            log.abandon(clusters);
            for pointer in pointers
                .iter()
                .filter(|p| checks[p.sector as usize].is_some())
            {
                self.condemn_again(&mut core, pointer.page);
            }
        }
        core.writing = false;
        self.changed.notify_all();
        core
    }

    /// Blocks that the log may have: half of the store as long as much of it is free, else what its live
    /// pages need.
    fn log_most(&self, core: &Core, pager: &Pager) -> u32 {
        let (all, free) = pager.store_clusters();
        core.log
            .fewest()
            .max((all / 2).min(core.log.held() + free / 2))
    }

    /// Puts condemned pages into the buffer until it is full. By sector, the checksum of what begins there.
    fn fill(
        &self,
        core: &mut Core,
        buffer: &mut BlockBuffer<'_>,
    ) -> Box<[Option<u64>; BLOCK_SECTORS as usize]> {
        let mut checks = Box::new([None; BLOCK_SECTORS as usize]);
        core.forget_touched();
        let mut put = 0;
        for &page in &core.condemned {
            let (shape, place) = core.table.get(page);
            let frame = place.frame().expect("a condemned page lies in a frame");
            // SAFETY: the page is lifted, and stays so as long as the lock is held.
            let contents = unsafe { map::bytes(self.range(frame, shape), shape.size()) };
            let Some(sector) = buffer.push(page, shape, contents) else {
                break;
            };
            checks[sector as usize] = Some(FlashStore::checksum(contents));
            put += 1;
        }
        core.condemned.drain(..put);
        core.forget_touched();
        checks
    }

    fn commit(
        &self,
        core: &mut Core,
        len: usize,
        pointers: &[BackPointer],
        checks: &[Option<u64>; BLOCK_SECTORS as usize],
    ) {
        let mut written = Vec::with_capacity(pointers.len());
        let Core {
            log,
            table,
            clusters,
            ..
        } = core;
        log.commit(table, clusters, len, pointers, |pointer, place| {
            written.push((*pointer, place));
        });
        for (pointer, place) in written {
            let check = checks[pointer.sector as usize].expect("changed pages have a checksum");
            let frame = place.frame().expect("a changed page lies in a frame");
            core.frames.set_check(frame, pointer.shape, check);
            match place {
                // It may have been touched, changed and condemned again meanwhile.
                Place::Condemned(_, Some(location))
                    if self.is_unchanged(frame, pointer.shape, check) =>
                {
                    core.counters.evicted_dirty += 1;
                    core.frames.release(frame, pointer.shape);
                    let place = Place::OnFlash(location, Check::of(check));
                    core.table.set(pointer.page, pointer.shape, place);
                }
                Place::Condemned(..) => {}
                // Touched meanwhile: it stays.
                _ => core.clocks.keep(frame, pointer.shape),
            }
        }
    }

    /// Whether a lifted page has the contents of this checksum.
    fn is_unchanged(&self, frame: FrameId, shape: Shape, check: u64) -> bool {
        // SAFETY: the page is lifted, and stays so as long as the lock is held.
        let contents = unsafe { map::bytes(self.range(frame, shape), shape.size()) };
        FlashStore::checksum(contents) == check
    }

    fn condemn_again(&self, core: &mut Core, page: Svmp) {
        if let (shape, Place::Condemned(..)) = core.table.get(page) {
            core.condemned.push(page);
            core.condemned_sectors += shape.sectors();
        }
    }
}

impl Core {
    /// Forgets condemned pages that were touched since, or given up, and counts the others. One that was
    /// condemned again after a touch is there once.
    fn forget_touched(&mut self) {
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
