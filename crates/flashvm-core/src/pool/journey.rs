//! The way of a block to flash and back: which block leaves RAM next, and which returns.

use super::object::{BLOCK_SLOTS, BlockId, Handle, frames_to};
use super::{Block, Home, Pool, SEARCH_BLOCKS};
use crate::ids::SlotId;

impl Pool {
    /// Whether any block in RAM is not being written yet.
    pub(crate) fn can_leave(&self) -> bool {
        !self.order.is_empty() || self.open.is_some()
    }

    pub(super) fn push_youngest(&mut self, id: BlockId) {
        self.block_mut(id).ticket = self.next_ticket;
        self.next_ticket += 1;
        self.order.push_back(id);
    }

    fn push_oldest(&mut self, id: BlockId) {
        self.block_mut(id).ticket = self.oldest_ticket() - 1;
        self.order.push_front(id);
    }

    fn oldest_ticket(&self) -> i64 {
        let oldest = self.order.front();
        oldest.map_or(self.next_ticket, |&id| self.block(id).ticket)
    }

    /// Estimates whether an object in RAM would be on flash if the pool had `frames` fewer: whether its block is among
    /// the oldest `frames / self.frames` of all blocks.
    pub(crate) fn is_in_tail(&self, handle: Handle, frames: u32) -> bool {
        let (id, oldest) = (handle.block(), self.oldest_ticket());
        let ticket = match self.home(id) {
            _ if self.open == Some(id) => self.next_ticket,
            Home::Ram => self.block(id).ticket,
            _ => return true,
        };
        let all = self.next_ticket - oldest + 1;
        (ticket - oldest) * i64::from(self.frames) < i64::from(frames) * all
    }

    /// The block that [`Self::oldest`] would return.
    pub(crate) fn next_to_leave(&self) -> Option<BlockId> {
        self.order.front().copied().or(self.open)
    }

    /// Takes the oldest block out of the order; the open block comes last.
    pub(crate) fn oldest(&mut self) -> Option<BlockId> {
        self.order.pop_front().or_else(|| self.open.take())
    }

    /// The block that [`Self::oldest`] returned cannot leave now.
    pub(crate) fn return_oldest(&mut self, id: BlockId) {
        self.push_oldest(id);
    }

    /// A block begins to be written.
    pub(crate) fn leaves(&mut self, id: BlockId, slot: SlotId) {
        self.block_mut(id).home = Home::Leaving(slot);
        self.leaving += 1;
        self.since_leaving = 0;
    }

    /// A block has been written: its frames are free. Returns its first slot if no object in it is alive: its slots
    /// are free, too.
    pub(crate) fn has_left(&mut self, id: BlockId) -> Option<SlotId> {
        let Home::Leaving(slot) = self.home(id) else {
            panic!("{id:?} is not being written");
        };
        self.leaving -= 1;
        let live = self.block(id).live;
        let objects = self.block(id).count;
        self.leave_ram(id);
        self.live -= u64::from(live);
        self.objects -= objects;
        self.flushed += u64::from(objects);
        let flushed = self.flushed;
        if live == 0 {
            self.vacate(id);
            return Some(slot);
        }
        self.on_flash += 1;
        if objects < BLOCK_SLOTS {
            self.lost += BLOCK_SLOTS - objects;
            self.sparse.push(id);
        }
        let block = self.block_mut(id);
        block.home = Home::Flash(slot);
        block.left = flushed;
        None
    }

    /// A block could not be written: it stays in RAM while an object in it is alive.
    pub(crate) fn stays(&mut self, id: BlockId) {
        self.leaving -= 1;
        self.block_mut(id).home = Home::Ram;
        if self.block(id).live > 0 {
            self.push_oldest(id);
            return;
        }
        self.leave_ram(id);
        self.vacate(id);
    }

    /// Slots lost to holes on flash: the sum of max(0, slots - objects) over blocks on flash.
    pub(crate) fn slots_lost(&self) -> u32 {
        self.lost
    }

    /// Blocks that are being read back.
    pub(crate) fn blocks_returning(&self) -> u32 {
        self.returning
    }

    /// A block on flash to read back: the one with the fewest objects of [`SEARCH_BLOCKS`].
    pub(crate) fn sparsest(&mut self) -> Option<BlockId> {
        let blocks = &self.blocks;
        let is_sparse = |id: &BlockId| {
            let block = &blocks[id.0 as usize];
            matches!(block.home, Home::Flash(_)) && block.count < BLOCK_SLOTS
        };
        while self.sparse.last().is_some_and(|id| !is_sparse(id)) {
            self.sparse.pop();
        }
        let from = self.sparse.len().saturating_sub(SEARCH_BLOCKS);
        let candidates = (from..self.sparse.len()).filter(|&at| is_sparse(&self.sparse[at]));
        let at = candidates.min_by_key(|&at| blocks[self.sparse[at].0 as usize].count)?;
        Some(self.sparse.swap_remove(at))
    }

    /// A block that came back too early, while a page of it was being read, is to be read back again: after others.
    pub(crate) fn add_sparse(&mut self, id: BlockId) {
        self.sparse.push(id);
        let last = self.sparse.len() - 1;
        self.sparse.swap(0, last);
    }

    /// A block on flash begins to be read back; its frames are taken. Returns its first slot.
    pub(crate) fn returns(&mut self, id: BlockId) -> SlotId {
        let Home::Flash(slot) = self.home(id) else {
            panic!("{id:?} is not on flash");
        };
        self.block_mut(id).home = Home::Returning(slot);
        self.returning += 1;
        self.frames += frames_to(self.block(id).end);
        slot
    }

    /// The read of a returning block has ended. If it was `good` the block is in RAM, as the oldest; else it stays on
    /// flash. Returns its first slot if it has left flash: its slots are free.
    pub(crate) fn has_returned(&mut self, id: BlockId, good: bool) -> Option<SlotId> {
        let Home::Returning(slot) = self.home(id) else {
            panic!("{id:?} is not being read back");
        };
        self.returning -= 1;
        let Block {
            end, live, count, ..
        } = *self.block(id);
        if good || live == 0 {
            self.on_flash -= 1;
            self.lost -= BLOCK_SLOTS.saturating_sub(count);
        }
        if live == 0 {
            self.frames -= frames_to(end);
            self.vacate(id);
            return Some(slot);
        }
        if !good {
            self.frames -= frames_to(end);
            self.block_mut(id).home = Home::Flash(slot);
            return None;
        }
        self.block_mut(id).home = Home::Ram;
        self.filled += u64::from(end);
        self.live += u64::from(live);
        self.objects += count;
        self.push_oldest(id);
        Some(slot)
    }

    /// Pages that have left RAM in blocks since the block of this object did.
    pub(crate) fn flushed_since(&self, handle: Handle) -> u64 {
        self.flushed - self.block(handle.block()).left
    }
}
