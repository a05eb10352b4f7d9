//! The way back of compressed pages, from the pool or from its blocks on flash.
//!
//! An object in RAM is decompressed without I/O. Its page is then dirty, and the object is removed or kept (`kept`). An
//! object on flash is read with the slots that it lies in, together with objects beside it. A page that was read keeps
//! its object until it is stored to, as it would keep a slot. But while the pool has room, the page gives its object up
//! at once: it is dirty, and when it is evicted it goes to the pool, not back to flash.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action, Packed, Place};
use crate::ids::{IoId, PAGE_SIZE, PageId, RUN_PAGES_MAX, SlotId};
use crate::io::{Io, IoKind};
use crate::page::{Flag, PageState};
use crate::pool::Handle;
use crate::prefetch::{Kind, Whereabouts};

/// Most slots in the read that a thread waits for.
const DEMAND_SLOTS_MAX: u32 = 8;

/// A compressed page that is to be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PackedRead {
    /// The slots that its object lies in.
    slot: SlotId,
    slots: u32,
    page: PageId,
}

impl PackedRead {
    /// The slot after the last.
    fn end(&self) -> u32 {
        self.slot.0 + self.slots
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Serves a fault on a compressed page, whose frame is accounted.
    pub(super) fn serve_packed(
        &mut self,
        page: PageId,
        handle: Handle,
        access: Access,
        actions: &mut Vec<Action>,
    ) {
        if self.pool.in_ram(handle) {
            self.counters.faults_pool += 1;
            let tail = self.pool.is_in_tail(handle, self.share.step());
            self.share.hit(self.table.left(page), tail, self.read_time);
            self.table.reset_flags(page);
            self.policy.inserted(page, Some(access));
            self.inflate(page, handle, access, actions);
            self.propose_ahead(page, access, Whereabouts::Pool, false);
            self.bring_in_candidates(None, actions);
            return;
        }
        self.counters.faults_major += 1;
        self.share
            .miss(self.pool.flushed_since(handle), self.read_time);
        let slot = self.begin_packed_read(page, handle);
        self.table.set(page, Flag::Demanded);
        self.table.put(page, Flag::ToStore, access == Access::Write);
        self.propose_ahead(page, access, Whereabouts::Flash(slot), false);
        self.bring_in_candidates(Some(page), actions);
    }

    /// Brings in a page of the pool that a prefetcher proposed, into a frame that is accounted.
    pub(super) fn inflate_ahead(
        &mut self,
        page: PageId,
        handle: Handle,
        kind: Kind,
        actions: &mut Vec<Action>,
    ) {
        self.counters.prefetch_issued += 1;
        self.counters.prefetch_pool += 1;
        self.table.reset_flags(page);
        self.mark_prefetched(page, kind);
        if !kind.on_probation() {
            self.policy.inserted(page, None);
        }
        self.inflate(page, handle, Access::Read, actions);
    }

    /// Takes a page out of the pool. It counts as stored to. A page that is only loaded may keep its object.
    fn inflate(&mut self, page: PageId, handle: Handle, access: Access, actions: &mut Vec<Action>) {
        let object = self.pool.object(handle);
        self.set_state(page, PageState::Mapped);
        if access == Access::Read && self.keeps_object(handle) {
            self.count_as_stored(page, access);
        } else {
            self.make_dirty(page);
        }
        actions.push(Action::Inflate {
            page,
            from: Packed::Pool(object),
            place: Place::Region,
            protect: false,
        });
    }

    /// Marks a compressed page on flash as being read. Its frame is accounted. Returns its first slot.
    pub(super) fn begin_packed_read(&mut self, page: PageId, handle: Handle) -> SlotId {
        self.table.reset_flags(page);
        self.set_state(page, PageState::Reading);
        let (slot, slots) = self.slots_of(handle);
        self.packed_reads.push(PackedRead { slot, slots, page });
        slot
    }

    /// The slots that an object on flash lies in.
    fn slots_of(&self, handle: Handle) -> (SlotId, u32) {
        let slot = self.pool.slot(handle).expect("it is on flash");
        (slot, self.pool.object(handle).slots().1)
    }

    /// Issues the collected reads: one request for objects side by side. The demanded page begins a request.
    pub(super) fn emit_packed_reads(
        &mut self,
        demanded: Option<PageId>,
        actions: &mut Vec<Action>,
    ) {
        let mut reads = std::mem::take(&mut self.packed_reads);
        reads.sort_unstable();
        let mut rest = &reads[..];
        while let Some((&first, others)) = rest.split_first() {
            let demand = demanded == Some(first.page);
            let most = if demand {
                DEMAND_SLOTS_MAX
            } else {
                RUN_PAGES_MAX
            };
            let mut end = first.end();
            self.batch.push(first.page);
            for read in others {
                let together = read.slot.0 <= end
                    && read.end() - first.slot.0 <= most
                    && self.batch.len() < RUN_PAGES_MAX as usize
                    && demanded != Some(read.page);
                if !together {
                    break;
                }
                end = end.max(read.end());
                self.batch.push(read.page);
            }
            rest = &rest[self.batch.len()..];
            let io = self.ios.begin(IoKind::ReadPacked, first.slot, &self.batch);
            self.ios.started(io, self.now);
            self.batch.clear();
            self.counters.reads += 1;
            actions.push(Action::Read {
                io,
                slot: first.slot,
                count: end - first.slot.0,
                demand,
            });
        }
        reads.clear();
        self.packed_reads = reads;
    }

    pub(super) fn packed_read_done(
        &mut self,
        id: IoId,
        io: &Io,
        failed: u64,
        actions: &mut Vec<Action>,
    ) {
        self.note_read_time(io);
        // Slots of the request below this index are counted in `pages_in`.
        let mut counted = 0;
        for &page in io.pages() {
            // A page that was zapped during the read has no object.
            let handle = self.table.handle(page);
            let Some(handle) = handle.filter(|_| self.table.state(page) == PageState::Reading)
            else {
                self.read_page_done(page, false, actions);
                continue;
            };
            let (slot, slots) = self.slots_of(handle);
            let object = self.pool.object(handle);
            let first = slot.0 - io.slot.0;
            let lost = failed >> first & ((1 << slots) - 1) != 0;
            if !lost {
                let new = (first + slots).saturating_sub(counted.max(first));
                self.counters.pages_in += u64::from(new);
                counted = counted.max(first + slots);
            }
            if let Some(mut placing) = self.read_page_done(page, lost, actions) {
                if placing.protect && self.pool_has_room() {
                    self.table.clear(page, Flag::Protected);
                    self.make_dirty(page);
                    placing.protect = false;
                }
                actions.push(Action::Inflate {
                    page,
                    from: Packed::Read {
                        io: id,
                        skip: first * PAGE_SIZE as u32 + object.offset % PAGE_SIZE as u32,
                        bytes: object.bytes,
                    },
                    place: placing.place,
                    protect: placing.protect,
                });
            }
        }
        self.serve_or_relieve(actions);
    }
}
