//! Rounds with log structuring switched off, live: each changed page is written to its slot (paper, 3.3).
//!
//! Contents are copied first, in the order of their slots, so that neighbours are one write and the
//! program may go on with the pages meanwhile.

use super::{Chameleon, Core};
use crate::control::SharedClusters;
use crate::flash::FlashStore;
use crate::flash::io::write_now;
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::chameleon::{BLOCK_BYTES, InPlace, Location, Organization, Shape, Svmp, Table};
use rustix_futex_sync::MutexGuard;

/// A page on its way to its slot.
struct Write {
    page: Svmp,
    shape: Shape,
    slot: Location,
    check: u64,
}

impl Write {
    fn end(&self) -> u64 {
        self.slot.offset() + self.shape.size() as u64
    }
}

impl Chameleon {
    /// Writes what is condemned, a block's bytes of it at most.
    pub(super) fn in_place_round<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        pager: &Pager,
    ) -> MutexGuard<'a, Core> {
        let mut tries = 0;
        let mut writes = loop {
            let writes = core.begin_writes();
            if !writes.is_empty() || core.condemned.is_empty() {
                break writes;
            }
            core = self.await_room(core, pager, &mut tries);
        };
        writes.sort_unstable_by_key(|write| write.slot);
        let mut at = 0;
        for write in &mut writes {
            let frame = core.table.get(write.page).1.frame();
            let from = self.range(
                frame.expect("a condemned page lies in a frame"),
                write.shape,
            );
            let (to, bytes) = (self.buffers + at, write.shape.size());
            // SAFETY: the buffer is used by the round that is under way alone, this one, and longer than what
            // it takes; the page is lifted, and stays so as long as the lock is held.
            unsafe { map::copy(from, to, bytes) };
            // SAFETY: as above.
            write.check = FlashStore::checksum(unsafe { map::bytes(to, bytes) });
            at += bytes;
        }
        drop(core);
        let store = pager.store();
        let (mut from, mut written) = (self.buffers, Vec::with_capacity(writes.len()));
        for run in writes.chunk_by(|one, next| one.end() == next.slot.offset()) {
            let (start, end) = (run[0].slot.offset(), run[run.len() - 1].end());
            let bytes = (end - start) as usize;
            let is_written =
                !store.fail_write() && write_now(store.file(), start, from, bytes as u32);
            written.push((run, is_written));
            from += bytes;
        }
        let mut core = self.core.lock();
        for (run, is_written) in written {
            if !is_written {
                core.in_place().0.fail(run.iter().map(|write| write.shape));
                run.iter()
                    .for_each(|write| self.condemn_again(&mut core, write.page));
                continue;
            }
            for &Write {
                page,
                shape,
                slot,
                check,
            } in run
            {
                let (in_place, table, clusters) = core.in_place();
                if in_place
                    .commit(table, clusters, page, shape, slot)
                    .is_some()
                {
                    self.written(&mut core, page, shape, check);
                }
            }
        }
        core
    }
}

impl Core {
    /// Takes condemned pages, as many as go into a block and have a slot.
    fn begin_writes(&mut self) -> Vec<Write> {
        self.forget_touched();
        let condemned = std::mem::take(&mut self.condemned);
        let (mut writes, mut bytes) = (Vec::with_capacity(condemned.len()), 0);
        for page in condemned {
            let shape = self.table.get(page).0;
            let (in_place, table, clusters) = self.in_place();
            let fits = bytes + shape.size() <= BLOCK_BYTES;
            match fits.then(|| in_place.begin(table, clusters, page)) {
                Some(Ok(slot)) => {
                    bytes += shape.size();
                    writes.push(Write {
                        page,
                        shape,
                        slot,
                        check: 0,
                    });
                }
                _ => self.condemned.push(page),
            }
        }
        self.forget_touched();
        writes
    }

    /// The slots, and what a round of them works on.
    fn in_place(&mut self) -> (&mut InPlace, &mut Table, &mut SharedClusters) {
        match &mut self.flash {
            Organization::InPlace(in_place) => (in_place, &mut self.table, &mut self.clusters),
            Organization::Log(_) => unreachable!("log structuring is switched on"),
        }
    }
}
