//! The pool of compressed pages: which object lies where, and what leaves next.
//!
//! A *block* of 64 KiB holds objects one after the other, each the compressed contents of a page. A new object goes
//! into the open block. A block in RAM takes the frames that its objects reach. The oldest block leaves first: it is
//! written to flash as it is, its objects keep their places in it, and a read brings back the slots that an object
//! lies in. Blocks with holes are packed: their live objects move into the open block.
//!
//! Pure: the executor holds the bytes, at the places that this module decides.

mod share;
mod trial;

use crate::ids::{PAGE_SIZE, PageId, SlotId};
pub(crate) use share::Share;
use std::collections::VecDeque;
pub(crate) use trial::Trial;

/// Bytes of a block, and slots on flash.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Slots of a block on flash.
pub const BLOCK_SLOTS: u32 = (BLOCK_BYTES / PAGE_SIZE) as u32;
/// Objects begin at multiples of this, in bytes.
const GRAIN: u32 = 16;
/// Least room of an object in bytes: so many fit in a block that their index has [`INDEX_BITS`] bits.
pub const OBJECT_MIN: u32 = 64;
const INDEX_BITS: u32 = 10;
/// A handle has the other bits for its block.
const BLOCKS_MAX: usize = 1 << (u32::BITS - INDEX_BITS);
const NUMBERS_SPARE: usize = 64;
/// Largest object in bytes: a page that shrinks less is not worth its decompression.
pub const OBJECT_MAX: u32 = 3072;
/// Blocks are packed while more than `1 / WASTE_SHARE` of the pool's bytes in RAM are holes.
const WASTE_SHARE: u32 = 12;
/// Blocks that the search for one with many holes looks at.
const PACK_LOOKS: usize = 16;

/// A block of the pool.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct BlockId(pub u32);

/// The compressed contents of a page: `bytes` from `offset` on in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Object {
    /// Its block.
    pub block: BlockId,
    /// Byte offset in the block.
    pub offset: u32,
    /// Length in bytes, without padding.
    pub bytes: u32,
}

impl Object {
    /// The slots of its block that it lies in: the first, from the block's start, and how many.
    #[must_use]
    pub fn slots(&self) -> (u32, u32) {
        let page = PAGE_SIZE as u32;
        let first = self.offset / page;
        (first, (self.offset + self.bytes - 1) / page - first + 1)
    }
}

/// The number of an object, as the page table has it: block and index in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u32);

impl Handle {
    fn new(block: BlockId, index: usize) -> Self {
        Self(block.0 << INDEX_BITS | index as u32)
    }

    pub(crate) fn block(self) -> BlockId {
        BlockId(self.0 >> INDEX_BITS)
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

/// Where the contents of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// No block: its number can be used again.
    Nowhere,
    /// In RAM.
    Ram,
    /// In RAM, being written to these slots.
    Leaving(SlotId),
    /// On flash, from this slot on.
    Flash(SlotId),
    /// On flash, and being read back.
    Returning(SlotId),
}

/// Where the compressed contents of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In RAM.
    Pool(Object),
    /// On flash, from the start of this slot on.
    Flash(SlotId, Object),
}

/// An object of a block. Freed objects stay until the block is empty.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Page + 1; 0: freed.
    page: u32,
    offset: u16,
    bytes: u16,
}

#[derive(Clone, Debug)]
struct Block {
    home: Home,
    entries: Vec<Entry>,
    /// Bytes up to the end of its last object, and those of live objects, padded.
    end: u32,
    live: u32,
    /// Live objects.
    count: u32,
    /// The pool's count of flushed pages when it left.
    left: u64,
    /// Its place in the order: greater than that of all older ones.
    ticket: i64,
}

/// The pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
    /// Blocks without objects since the last [`Pool::recycle`]: the actions so far may still name them.
    vacated: Vec<BlockId>,
    open: Option<BlockId>,
    /// Blocks in RAM but the open one, oldest first.
    order: VecDeque<BlockId>,
    /// The ticket of the next block that gets into the order.
    next_ticket: i64,
    /// Frames of blocks in RAM.
    frames: u32,
    /// Padded bytes of live objects in RAM, and of all up to the end of each block.
    live: u64,
    filled: u64,
    /// Objects in RAM.
    objects: u32,
    /// Blocks being written.
    leaving: u32,
    /// Blocks on flash.
    on_flash: u32,
    /// Slots of blocks on flash beyond one for each of their objects.
    lost: u32,
    /// Blocks on flash with fewer objects than slots; some have changed since.
    sparse: Vec<BlockId>,
    /// Blocks being read back.
    returning: u32,
    inserted: u64,
    flushed: u64,
}

fn padded(bytes: u32) -> u32 {
    bytes.max(OBJECT_MIN).next_multiple_of(GRAIN)
}

fn frames_to(end: u32) -> u32 {
    end.div_ceil(PAGE_SIZE as u32)
}

impl Pool {
    fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    /// Frames that the pool takes.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Compressed pages in RAM.
    pub(crate) fn objects(&self) -> u32 {
        self.objects
    }

    /// Whether there are numbers for more blocks, with some to spare for packing: blocks in RAM and on flash take
    /// at most 256 GiB.
    pub(crate) fn has_numbers(&self) -> bool {
        self.vacant.len() >= NUMBERS_SPARE || self.blocks.len() + NUMBERS_SPARE < BLOCKS_MAX
    }

    /// Blocks that are being written.
    pub(crate) fn blocks_leaving(&self) -> u32 {
        self.leaving
    }

    /// Blocks on flash, or being written there.
    pub(crate) fn blocks_on_flash(&self) -> u32 {
        self.on_flash + self.leaving
    }

    pub(crate) fn home(&self, block: BlockId) -> Home {
        self.block(block).home
    }

    /// Frames that an insertion of so many bytes takes beyond those that the pool has.
    pub(crate) fn frames_for(&self, bytes: u32) -> u32 {
        let need = padded(bytes);
        match self.open.map(|open| self.block(open).end) {
            Some(end) if end + need <= BLOCK_BYTES as u32 => frames_to(end + need) - frames_to(end),
            _ => frames_to(need),
        }
    }

    /// Puts an object for a page into the open block.
    pub(crate) fn insert(&mut self, page: PageId, bytes: u32) -> Handle {
        self.inserted += 1;
        self.put(page, bytes)
    }

    fn put(&mut self, page: PageId, bytes: u32) -> Handle {
        let need = padded(bytes);
        let open = match self.open {
            Some(open) if self.block(open).end + need <= BLOCK_BYTES as u32 => open,
            full => {
                if let Some(full) = full {
                    self.push_youngest(full);
                }
                let id = self.vacant.pop().unwrap_or_else(|| {
                    self.blocks.push(Block {
                        home: Home::Nowhere,
                        entries: Vec::new(),
                        end: 0,
                        live: 0,
                        count: 0,
                        left: 0,
                        ticket: 0,
                    });
                    assert!(self.blocks.len() <= BLOCKS_MAX, "no number for a block");
                    BlockId(self.blocks.len() as u32 - 1)
                });
                self.block_mut(id).home = Home::Ram;
                self.open = Some(id);
                id
            }
        };
        let block = &mut self.blocks[open.0 as usize];
        let (before, offset) = (frames_to(block.end), block.end);
        block.entries.push(Entry {
            page: page.0 + 1,
            offset: (offset / GRAIN) as u16,
            bytes: bytes as u16,
        });
        block.end += need;
        block.live += need;
        block.count += 1;
        let handle = Handle::new(open, block.entries.len() - 1);
        self.frames += frames_to(block.end) - before;
        self.live += u64::from(need);
        self.filled += u64::from(need);
        self.objects += 1;
        handle
    }

    fn entry(&self, handle: Handle) -> Entry {
        self.block(handle.block()).entries[handle.index()]
    }

    /// Where an object lies.
    pub(crate) fn object(&self, handle: Handle) -> Object {
        let entry = self.entry(handle);
        Object {
            block: handle.block(),
            offset: u32::from(entry.offset) * GRAIN,
            bytes: u32::from(entry.bytes),
        }
    }

    /// The page of a live object.
    pub(crate) fn owner(&self, handle: Handle) -> Option<PageId> {
        self.entry(handle).page.checked_sub(1).map(PageId)
    }

    /// An object belongs to another page.
    pub(crate) fn reassign(&mut self, handle: Handle, page: PageId) {
        self.block_mut(handle.block()).entries[handle.index()].page = page.0 + 1;
    }

    /// Whether its contents are in RAM.
    pub(crate) fn in_ram(&self, handle: Handle) -> bool {
        matches!(self.home(handle.block()), Home::Ram | Home::Leaving(_))
    }

    /// The slot on flash that an object begins in, or is being written to.
    pub(crate) fn slot(&self, handle: Handle) -> Option<SlotId> {
        match self.home(handle.block()) {
            Home::Flash(slot) | Home::Leaving(slot) | Home::Returning(slot) => {
                Some(slot.plus(self.object(handle).slots().0))
            }
            Home::Ram | Home::Nowhere => None,
        }
    }

    /// Removes an object. Returns the first slot of its block, if that was its last object and it lay on flash: the
    /// slots are free.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<SlotId> {
        let (id, bytes) = (handle.block(), padded(self.object(handle).bytes));
        let entry = &mut self.blocks[id.0 as usize].entries[handle.index()];
        assert_ne!(entry.page, 0, "{handle:?} removed twice");
        entry.page = 0;
        let block = self.block_mut(id);
        block.live -= bytes;
        block.count -= 1;
        let (empty, home, sparse) = (block.live == 0, block.home, block.count < BLOCK_SLOTS);
        if matches!(home, Home::Ram | Home::Leaving(_)) {
            self.live -= u64::from(bytes);
            self.objects -= 1;
        }
        if sparse && matches!(home, Home::Flash(_) | Home::Returning(_)) {
            self.lost += 1;
            if self.block(id).count + 1 == BLOCK_SLOTS {
                self.sparse.push(id);
            }
        }
        match home {
            Home::Ram if empty => {
                if self.open == Some(id) {
                    self.open = None;
                } else {
                    self.order.retain(|&other| other != id);
                }
                self.leave_ram(id);
                self.vacate(id);
                None
            }
            Home::Flash(slot) if empty => {
                self.on_flash -= 1;
                self.lost -= BLOCK_SLOTS;
                self.vacate(id);
                Some(slot)
            }
            // A block that is being written or read stays until that has ended.
            _ => None,
        }
    }

    fn leave_ram(&mut self, id: BlockId) {
        let end = self.block(id).end;
        self.frames -= frames_to(end);
        self.filled -= u64::from(end);
    }

    fn vacate(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.home = Home::Nowhere;
        block.entries.clear();
        block.end = 0;
        block.live = 0;
        block.count = 0;
        self.vacated.push(id);
    }

    /// Blocks that have lost their last object since the last [`Self::recycle`].
    pub(crate) fn vacated(&self) -> &[BlockId] {
        &self.vacated
    }

    /// The actions that name vacated blocks have been carried out.
    pub(crate) fn recycle(&mut self) {
        self.vacant.append(&mut self.vacated);
    }

    /// The live objects of a block and their pages.
    pub(crate) fn live_in(&self, id: BlockId) -> impl Iterator<Item = (Handle, PageId)> + '_ {
        let entries = self.block(id).entries.iter().enumerate();
        entries.filter_map(move |(index, entry)| {
            let page = entry.page.checked_sub(1)?;
            Some((Handle::new(id, index), PageId(page)))
        })
    }

    /// A block to pack, if the pool wastes too much: the one with the most holes of [`PACK_LOOKS`].
    pub(crate) fn wasteful(&self) -> Option<BlockId> {
        let holes = self.filled - self.live;
        let spare = BLOCK_BYTES as u64;
        if holes <= spare || holes * u64::from(WASTE_SHARE) <= self.filled {
            return None;
        }
        let most = |id: &&BlockId| self.block(**id).end - self.block(**id).live;
        // A few candidates are enough: the average block has more holes than are allowed.
        let start = (self.inserted as usize).checked_rem(self.order.len())?;
        let looked = self.order.iter().cycle().skip(start).take(PACK_LOOKS);
        looked.max_by_key(most).copied()
    }

    /// Moves an object of another block into the open block. The old object is removed by the caller.
    pub(crate) fn relocate(&mut self, handle: Handle) -> Handle {
        let page = self.owner(handle).expect("a live object");
        self.put(page, self.object(handle).bytes)
    }

    /// Whether a block is in RAM that is not being written.
    pub(crate) fn can_leave(&self) -> bool {
        !self.order.is_empty() || self.open.is_some()
    }

    fn push_youngest(&mut self, id: BlockId) {
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

    /// Whether an object in RAM would be on flash if the pool had `frames` fewer. An estimate by the place of its block
    /// in the order, as if all blocks were equally large.
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

    /// Takes the oldest block that can leave out of the order; the open one is the last.
    pub(crate) fn oldest(&mut self) -> Option<BlockId> {
        self.order.pop_front().or_else(|| self.open.take())
    }

    /// The oldest block cannot leave.
    pub(crate) fn return_oldest(&mut self, id: BlockId) {
        self.push_oldest(id);
    }

    /// A block begins to be written.
    pub(crate) fn leaves(&mut self, id: BlockId, slot: SlotId) {
        self.block_mut(id).home = Home::Leaving(slot);
        self.leaving += 1;
    }

    /// A block has been written: its frames are free. Returns its first slot if no object in it is alive: then the
    /// slots are free, too.
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

    /// A block could not be written: it stays in RAM, unless no object in it is alive.
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

    /// Slots of blocks on flash beyond one for each of their objects.
    pub(crate) fn slots_lost(&self) -> u32 {
        self.lost
    }

    /// Blocks that are being read back.
    pub(crate) fn blocks_returning(&self) -> u32 {
        self.returning
    }

    /// A block on flash to read back: the one with the fewest objects of a few.
    pub(crate) fn sparsest(&mut self) -> Option<BlockId> {
        let blocks = &self.blocks;
        let is_sparse = |id: &BlockId| {
            let block = &blocks[id.0 as usize];
            matches!(block.home, Home::Flash(_)) && block.count < BLOCK_SLOTS
        };
        while self.sparse.last().is_some_and(|id| !is_sparse(id)) {
            self.sparse.pop();
        }
        let from = self.sparse.len().saturating_sub(PACK_LOOKS);
        let candidates = (from..self.sparse.len()).filter(|&at| is_sparse(&self.sparse[at]));
        let at = candidates.min_by_key(|&at| blocks[self.sparse[at].0 as usize].count)?;
        Some(self.sparse.swap_remove(at))
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

    /// A block has been read back, or not (`good`); in RAM it counts as the oldest. Returns its first slot unless it
    /// stays on flash: the slots are free.
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

    /// Pages flushed since the block of this object was.
    pub(crate) fn flushed_since(&self, handle: Handle) -> u64 {
        self.flushed - self.block(handle.block()).left
    }

    /// Live objects, in RAM and on flash.
    pub(crate) fn objects_everywhere(&self) -> usize {
        let live = |block: &Block| block.entries.iter().filter(|entry| entry.page > 0).count();
        self.blocks.iter().map(live).sum()
    }

    /// Compares the sums with the blocks.
    ///
    /// # Panics
    /// If they differ: a bug in this file.
    pub(crate) fn check(&self) {
        let (mut frames, mut filled, mut alive, mut lost) = (0, 0, 0, 0);
        for (id, block) in (0..).map(BlockId).zip(&self.blocks) {
            let live: u32 = self
                .live_in(id)
                .map(|(handle, _)| padded(self.object(handle).bytes))
                .sum();
            assert_eq!(live, block.live, "{id:?}");
            let in_order = self.order.iter().filter(|&&other| other == id).count();
            let ram = block.home == Home::Ram;
            let queued = ram && self.open != Some(id);
            assert_eq!(in_order, usize::from(queued), "{id:?} is {:?}", block.home);
            assert!(live > 0 || block.home != Home::Ram, "{id:?} is empty");
            assert_eq!(block.count as usize, self.live_in(id).count(), "{id:?}");
            if matches!(block.home, Home::Flash(_) | Home::Returning(_)) {
                lost += BLOCK_SLOTS.saturating_sub(block.count);
            }
            if matches!(block.home, Home::Returning(_)) {
                frames += frames_to(block.end);
            }
            if ram || matches!(block.home, Home::Leaving(_)) {
                frames += frames_to(block.end);
                filled += u64::from(block.end);
                alive += u64::from(live);
            }
        }
        assert_eq!(frames, self.frames, "frames miscounted");
        assert_eq!(lost, self.lost, "lost slots miscounted");
        assert_eq!(
            (filled, alive),
            (self.filled, self.live),
            "bytes miscounted"
        );
    }
}

#[cfg(test)]
mod tests;
