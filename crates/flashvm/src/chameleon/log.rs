//! Rounds of the log, live: read, modify, write, commit (paper, 3.3).

use super::{Chameleon, Core};
use crate::control::SharedClusters;
use crate::flash::FlashStore;
use crate::flash::io::{read_now, write_now};
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::chameleon::{
    BLOCK_BYTES, BLOCK_SECTORS, BackPointer, BlockBuffer, Check, Frames, Full, Location, Log,
    Organization, Place, Table,
};
use rustix_futex_sync::MutexGuard;

impl Chameleon {
    /// Writes what is condemned to the end of the log, as far as it goes into a block with what is live of
    /// the block that is cleaned.
    pub(super) fn log_round<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        pager: &Pager,
    ) -> MutexGuard<'a, Core> {
        let mut tries = 0;
        let round = loop {
            let (log, _, _, clusters) = core.log();
            let most = log_most(log, pager);
            match log.begin(clusters, most) {
                Ok(round) => break round,
                Err(Full) => core = self.await_room(core, pager, &mut tries),
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
            let (log, table, frames, _) = core.log();
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
        let (log, table, _, clusters) = core.log();
        if written {
            let mut changed = Vec::with_capacity(pointers.len());
            log.commit(table, clusters, len, &pointers, |pointer, _| {
                changed.push(*pointer);
            });
            for BackPointer {
                page,
                sector,
                shape,
            } in changed
            {
                let check = checks[sector as usize].expect("changed pages have a checksum");
                self.written(&mut core, page, shape, check);
            }
        } else {
            log.abandon(clusters);
            let changed = pointers
                .iter()
                .filter(|pointer| checks[pointer.sector as usize].is_some());
            for pointer in changed {
                self.condemn_again(&mut core, pointer.page);
            }
        }
        core
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
}

/// Blocks that the log may have: half of the store as long as much of it is free, else what its live pages
/// need.
fn log_most(log: &Log, pager: &Pager) -> u32 {
    let (all, free) = pager.store_clusters();
    log.fewest().max((all / 2).min(log.held() + free / 2))
}

impl Core {
    /// The log, and what a round of it works on.
    fn log(&mut self) -> (&mut Log, &mut Table, &Frames, &mut SharedClusters) {
        match &mut self.flash {
            Organization::Log(log) => (log, &mut self.table, &self.frames, &mut self.clusters),
            Organization::InPlace(_) => unreachable!("log structuring is switched off"),
        }
    }
}
