//! The compressed tier: pages that shrink go to the pool instead of flash.
//!
//! A scan also compresses. A page that shrinks enough becomes an object of the pool and gives up its frame; any other
//! is written as it is. While the pool has room, clean pages that were used go there, too: they give up their slot, and
//! the next fault on them is served without a read. When the pool has more than its share, its oldest block is written
//! to flash as it is. `packed` brings pages back.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Action, Sizes};
use crate::ids::{IoId, Nanos, PageId};
use crate::io::{Io, IoKind};
use crate::page::{Flag, PageState};
use crate::pool::{self, BLOCK_BYTES, BLOCK_SLOTS, BlockId, Handle, OBJECT_MAX};

/// A process with fewer frames has no pool.
const LIMIT_MIN: u32 = 64;
/// The pool may exceed its share by `share / SLACK` while blocks are being written.
const SLACK: u32 = 8;
/// The pool has room for pages that are on flash already while more than `share / ROOM_SHARE` frames of its share are
/// free.
const ROOM_SHARE: u32 = 8;
/// Most blocks in flight to flash.
const BLOCKS_LEAVING_MAX: u32 = 4;
/// Sparse blocks are read back while they waste more than `slots / LOST_SHARE` slots. Commitments leave more than
/// that free.
const LOST_SHARE: u32 = 128;
const BLOCKS_RETURNING_MAX: u32 = 1;
/// Most blocks emptied after one scan, to pack their objects.
const PACKS: u32 = 4;
/// Weight of a new read in the mean of reads: `1 / READ_WEIGHT`.
const READ_WEIGHT: u64 = 16;
/// Longest time that counts for a read, in nanoseconds: a longer one says more about the machine than about the device.
const READ_TIME_MAX: u64 = 10_000_000;
const BLOCK_FRAMES: u32 = (BLOCK_BYTES / crate::ids::PAGE_SIZE) as u32;

impl<C: ClusterSource> Engine<C> {
    /// Whether pages may go to the pool.
    pub(super) fn compresses(&self) -> bool {
        self.settings.compress.is_on()
            && !self.draining
            && self.limit >= LIMIT_MIN
            && self.settings.cluster_pages >= BLOCK_SLOTS
    }

    /// Whether the next pages that are scanned are compressed.
    pub(super) fn compresses_now(&self) -> bool {
        self.compresses() && self.trial.is_on()
    }

    /// Whether a clean page that leaves should go to the pool.
    pub(super) fn keeps_clean(&self, page: PageId) -> bool {
        let zero = |slot| self.swap.is_zero(slot);
        self.compresses_now()
            && self.pool_has_room()
            && !self.swap.is_full()
            && self.table.has_place(page)
            && !self.table.slot(page).is_some_and(zero)
            && !self.table.has(page, Flag::Prefetched)
            && !self.table.has(page, Flag::Shared)
            && !self.has_object(page)
            && !self.table.has(page, Flag::Incompressible)
    }

    /// A page leaves its frame: notes when, and moves the pool's share if it is time.
    pub(super) fn note_leaving(&mut self, page: PageId) {
        self.table.set_left(page, self.share.clock());
        self.share.count_eviction();
        if !self.settings.compress.is_on() {
            return;
        }
        let before = self.share.frames();
        self.share.decide(self.pool.objects(), self.pool.frames());
        if before != self.share.frames() {
            self.resize_policy();
        }
    }

    /// Tells the pool's share of a fault on a page that was written uncompressed.
    pub(super) fn missed_plain(&mut self, page: PageId) {
        if !self.compresses() {
            return;
        }
        let others = self.table.stored().saturating_sub(self.pool.objects());
        let shrinks = if self.table.has(page, Flag::Incompressible) {
            0
        } else {
            self.trial.shrinks()
        };
        let left = self.table.left(page);
        self.share.miss_plain(left, others, shrinks, self.read_time);
    }

    /// Frames that the pool may take now.
    pub(super) fn pool_share(&self) -> u32 {
        if self.compresses() && !self.pool_yields {
            self.share.frames()
        } else {
            0
        }
    }

    /// Whether the pool is well below its share.
    pub(super) fn pool_has_room(&self) -> bool {
        let share = self.share.frames();
        self.compresses() && self.pool.frames() + share / ROOM_SHARE < share
    }

    /// Where the compressed contents of a page are, if it has any.
    #[must_use]
    pub fn packed_at(&self, page: PageId) -> Option<pool::PackedAt> {
        let handle = self.table.handle(page)?;
        let object = self.pool.object(handle);
        Some(if self.pool.in_ram(handle) {
            pool::PackedAt::Pool(object)
        } else {
            pool::PackedAt::Flash(self.pool.slot(handle).expect("it is on flash"), object)
        })
    }

    /// Learns from a scan whether compression pays.
    pub(super) fn judge(&mut self, scan: &Io, zero: u64, sizes: &Sizes) {
        let pages = scan.pages().len() as u32 - zero.count_ones();
        if scan.compress {
            let mut shrunk = 0;
            for (index, &page) in scan.pages().iter().enumerate() {
                let shrinks = sizes.of(index) > 0;
                shrunk += u32::from(shrinks);
                let same = self.table.state(page) == PageState::Scanning;
                if same && zero >> index & 1 == 0 {
                    self.table.put(page, Flag::Incompressible, !shrinks);
                }
            }
            self.trial.looked(pages, shrunk);
        } else {
            self.trial.left_out(pages);
        }
    }

    pub(super) fn admits(&mut self, bytes: u32) -> bool {
        let most = self.share.frames() + self.share.frames() / SLACK;
        self.compresses()
            && (1..=OBJECT_MAX).contains(&bytes)
            && self.pool.has_numbers()
            && self.pool.frames() + self.pool.frames_for(bytes) <= most
    }

    /// Puts a scanned page into the pool, if it shrinks enough and there is room. Returns whether it did. The bytes are
    /// copied after the frames of the scanned pages are free.
    pub(super) fn pack(&mut self, page: PageId, io: IoId, index: usize, sizes: &Sizes) -> bool {
        let bytes = sizes.of(index);
        if !self.settings.compress.is_on() {
            return false;
        }
        if !self.admits(bytes) {
            self.counters.pool_refused += 1;
            return false;
        }
        self.counters.pool_pages += 1;
        self.counters.pool_bytes += u64::from(bytes);
        if self.table.take(page, Flag::Dirty) {
            self.policy.cleaned(page);
        }
        self.free_slot(page);
        self.count_eviction(page);
        self.free_frame(page);
        self.table.reset_flags(page);
        let handle = self.pool.insert(page, bytes);
        self.table.set_handle(page, Some(handle));
        self.set_state(page, PageState::Stored);
        self.drops.push(page);
        self.keeps.push(Action::Keep {
            io,
            index: u32::try_from(index).expect("at most RUN_PAGES_MAX"),
            object: self.pool.object(handle),
        });
        true
    }

    /// Copies the pages that the last scan packed, and removes holes.
    pub(super) fn emit_keeps(&mut self, actions: &mut Vec<Action>) {
        actions.append(&mut self.keeps);
        for _ in 0..PACKS {
            let room = self.limit.saturating_sub(self.charged());
            if room < BLOCK_FRAMES {
                return;
            }
            let Some(block) = self.pool.wasteful() else {
                return;
            };
            self.empty_block(block, actions);
        }
    }

    /// Moves the live objects of a block in RAM into the open block.
    fn empty_block(&mut self, block: BlockId, actions: &mut Vec<Action>) {
        let mut moved = std::mem::take(&mut self.packed);
        moved.extend(self.pool.live_in(block));
        for &(old, page) in &moved {
            let new = self.pool.relocate(old);
            actions.push(Action::Repack {
                from: self.pool.object(old),
                to: self.pool.object(new),
            });
            self.table.set_handle(page, Some(new));
            self.remove_object(old);
        }
        moved.clear();
        self.packed = moved;
    }

    /// Frees an object; with the last object of a block on flash also the block's slots.
    pub(super) fn remove_object(&mut self, handle: Handle) {
        if let Some(slot) = self.pool.remove(handle) {
            self.swap.free_run(slot, BLOCK_SLOTS, &mut self.clusters);
        }
    }

    /// Frees the frames of blocks that this event has emptied.
    pub(super) fn emit_vacated(&mut self, actions: &mut Vec<Action>) {
        for &block in self.pool.vacated() {
            actions.push(Action::Vacate { block });
        }
    }

    /// Frames of the pool beyond its share that are not leaving yet.
    fn pool_excess(&self) -> u32 {
        let share = self.pool_share();
        let leaving = self.pool.blocks_leaving() * BLOCK_FRAMES;
        self.pool.frames().saturating_sub(leaving + share)
    }

    /// Whether a block has to leave and can be written now.
    pub(super) fn wants_flush(&self) -> bool {
        self.pool_excess() > 0
            && !self.pool_stuck
            && self.pool.can_leave()
            && self.pool.blocks_leaving() < BLOCKS_LEAVING_MAX
    }

    /// Sends the oldest blocks to flash while the pool has more than its share.
    pub(super) fn flush_pool(&mut self, actions: &mut Vec<Action>) {
        while self.wants_flush() {
            let next = self.pool.next_to_leave();
            if next.is_some_and(|block| self.forget_kept(block)) {
                continue;
            }
            let Some(block) = self.pool.oldest() else {
                return;
            };
            let Some(slot) = self.swap.allocate_run(BLOCK_SLOTS, &mut self.clusters) else {
                self.pool.return_oldest(block);
                self.pool_stuck = true;
                return;
            };
            self.pool.leaves(block, slot);
            let io = self.ios.begin_block(IoKind::WriteBlock, slot, block);
            self.counters.writes += 1;
            actions.push(Action::WriteBlock { io, slot, block });
        }
    }

    /// Reads sparse blocks back while they waste too many slots, to pack their live objects.
    pub(super) fn return_sparse(&mut self, actions: &mut Vec<Action>) {
        let few = self.swap.slots() / LOST_SHARE;
        while self.pool.slots_lost() > few && self.pool.blocks_returning() < BLOCKS_RETURNING_MAX {
            // Frames for the block, and for its packed objects.
            let need = 2 * BLOCK_FRAMES;
            if self.charged() + need > self.limit {
                self.drop_standby(self.charged() + need - self.limit, 0, actions);
            }
            if self.charged() + need > self.limit {
                return;
            }
            let Some(block) = self.pool.sparsest() else {
                return;
            };
            let slot = self.pool.returns(block);
            let io = self.ios.begin_block(IoKind::ReadBlock, slot, block);
            self.counters.reads += 1;
            actions.push(Action::ReadBlock { io, slot, block });
        }
    }

    pub(super) fn block_returned(&mut self, io: &Io, failed: u64, actions: &mut Vec<Action>) {
        let block = io.block.expect("the read of a block");
        let lost = failed.count_ones();
        self.counters.read_errors += u64::from(lost);
        self.counters.pages_in += u64::from(BLOCK_SLOTS - lost);
        // While a page of the block is being read, the block's slots must not be reused.
        let is_read = |(_, page)| self.table.state(page) == PageState::Reading;
        let read = self.pool.live_in(block).any(is_read);
        let good = failed == 0 && !read;
        if let Some(slot) = self.pool.has_returned(block, good) {
            self.swap.free_run(slot, BLOCK_SLOTS, &mut self.clusters);
            self.pool_stuck = false;
            self.empty_block(block, actions);
        } else {
            if failed == 0 {
                self.pool.add_sparse(block);
            }
            actions.push(Action::Vacate { block });
        }
        self.serve_or_relieve(actions);
    }

    pub(super) fn block_written(&mut self, io: &Io, failed: u64, actions: &mut Vec<Action>) {
        let block = io.block.expect("the write of a block");
        if failed == 0 {
            self.counters.pool_blocks_out += 1;
            self.counters.pages_out += u64::from(BLOCK_SLOTS);
            self.sampler.written(self.now);
            if let Some(slot) = self.pool.has_left(block) {
                self.swap.free_run(slot, BLOCK_SLOTS, &mut self.clusters);
            } else {
                actions.push(Action::Vacate { block });
            }
        } else {
            for index in 0..BLOCK_SLOTS {
                let slot = io.slot.plus(index);
                if failed >> index & 1 != 0 {
                    self.counters.write_errors += 1;
                    self.swap.mark_run_bad(slot, &mut self.clusters);
                } else {
                    self.swap.free_run(slot, 1, &mut self.clusters);
                }
            }
            self.counters.slots_bad = u64::from(self.swap.slots_bad());
            self.pool.stays(block);
        }
        self.pool_stuck = false;
        self.flush_pool(actions);
        self.serve_or_relieve(actions);
    }

    /// Updates the mean time of reads.
    pub(super) fn note_read_time(&mut self, io: &Io) {
        let took = self.now.since(io.begun).0.min(READ_TIME_MAX);
        self.read_time =
            Nanos(self.read_time.0 - self.read_time.0 / READ_WEIGHT + took / READ_WEIGHT);
    }

    /// A fork is ahead (`on`), or will not happen. Before a fork all compressed pages go to flash, or the kernel would
    /// copy the pool.
    pub(super) fn drain(&mut self, on: bool, actions: &mut Vec<Action>) {
        self.draining = on;
        self.pool_stuck = false;
        if on {
            self.flush_pool(actions);
        }
    }

    /// Whether a fork is ahead, and the pool has frames that can still leave.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining && self.pool.frames() > 0 && !self.pool_stuck
    }
}
