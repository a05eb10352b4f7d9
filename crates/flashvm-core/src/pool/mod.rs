//! The pool of compressed pages: which object lies where, and what leaves next.
//!
//! A *block* of 64 KiB holds objects one after the other, each the compressed contents of a page. A new object goes
//! into a hole that a freed one has left, or into the open block. A block in RAM takes the frames that its objects
//! reach. The oldest block leaves first: it is written to flash as it is, its objects keep their places in it, and a
//! read brings back the slots that an object lies in. While blocks leave, new objects go into the open block only, so
//! that what is new does not leave with what is old. Blocks with many holes are packed: their live objects move into
//! the open block.
//!
//! Pure: the executor holds the bytes, at the places that this module decides.

mod check;
mod holes;
mod journey;
mod object;
mod share;
mod trial;

use crate::ids::{PageId, SlotId};
use holes::Holes;
pub(crate) use object::Handle;
pub use object::{BLOCK_BYTES, BLOCK_SLOTS, BlockId, OBJECT_MAX, OBJECT_MIN, Object, PackedAt};
use object::{BLOCKS_MAX, GRAIN, frames_to, padded};
pub(crate) use share::Share;
use std::collections::VecDeque;
pub(crate) use trial::Trial;

/// Blocks are packed while more than `1 / WASTE_SHARE` of the pool's bytes in RAM are holes.
const WASTE_SHARE: u32 = 12;
/// Blocks that a search for the one with the most holes, or the fewest objects, compares.
const SEARCH_BLOCKS: usize = 16;
/// Holes are filled once `objects / STILL_SHARE` objects were inserted since a block last began to leave.
const STILL_SHARE: u32 = 2;
/// Block numbers that packing may still need when an insertion needs one.
const NUMBERS_SPARE: usize = 64;

/// Where the contents of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Nowhere: the block is empty and its number free.
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

/// An object of a block, or the hole of a freed one.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Page + 1; 0: freed.
    page: u32,
    /// Where it begins, in grains.
    offset: u16,
    /// The length of its place, in grains: at least that of the object.
    room: u16,
    bytes: u16,
}

#[derive(Clone, Debug)]
struct Block {
    home: Home,
    entries: Vec<Entry>,
    /// Byte offset of the end of its last object.
    end: u32,
    /// Padded bytes of its live objects.
    live: u32,
    /// Number of its live objects.
    count: u32,
    /// [`Pool::flushed`] when it left RAM.
    left: u64,
    /// Sorts [`Pool::order`]: an older block has a smaller ticket.
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
    /// Blocks in RAM except the open one, oldest first.
    order: VecDeque<BlockId>,
    /// Ticket of the next youngest block.
    next_ticket: i64,
    /// Frames of blocks in RAM, or being read back.
    frames: u32,
    /// Padded bytes of live objects in RAM.
    live: u64,
    /// The sum of [`Block::end`] of blocks in RAM.
    filled: u64,
    /// Objects in RAM.
    objects: u32,
    /// Blocks being written.
    leaving: u32,
    /// Blocks on flash.
    on_flash: u32,
    /// Slots lost to holes on flash: the sum of max(0, slots - objects) over blocks on flash.
    lost: u32,
    /// Blocks that had fewer objects than slots on flash when they were added; some no longer do.
    sparse: Vec<BlockId>,
    /// Blocks being read back.
    returning: u32,
    /// Where in `order` the next search for a block to pack begins.
    search_start: usize,
    /// Pages that have left RAM in blocks, ever.
    flushed: u64,
    holes: Holes,
    /// Objects inserted since a block last began to leave.
    since_leaving: u32,
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
    pub(crate) fn frames_for(&mut self, bytes: u32) -> u32 {
        if self.hole_for(bytes).is_some() {
            return 0;
        }
        let need = padded(bytes);
        match self.open.map(|open| self.block(open).end) {
            Some(end) if end + need <= BLOCK_BYTES as u32 => frames_to(end + need) - frames_to(end),
            _ => frames_to(need),
        }
    }

    /// A hole that an object of `bytes` may fill.
    fn hole_for(&mut self, bytes: u32) -> Option<Handle> {
        if self.since_leaving < self.objects / STILL_SHARE {
            return None;
        }
        let blocks = &self.blocks;
        self.holes.find(bytes, |hole, room| {
            let block = &blocks[hole.block().0 as usize];
            let entry = block.entries.get(hole.index());
            let free = |entry: &Entry| entry.page == 0 && u32::from(entry.room) * GRAIN == room;
            block.home == Home::Ram && entry.is_some_and(free)
        })
    }

    /// Puts an object of `bytes` for a page into a hole, or into the open block.
    pub(crate) fn insert(&mut self, page: PageId, bytes: u32) -> Handle {
        let hole = self.hole_for(bytes);
        self.since_leaving = self.since_leaving.saturating_add(1);
        let Some(hole) = hole else {
            return self.append(page, bytes);
        };
        let need = padded(bytes);
        let block = self.block_mut(hole.block());
        let entry = &mut block.entries[hole.index()];
        (entry.page, entry.bytes) = (page.0 + 1, bytes as u16);
        block.live += need;
        block.count += 1;
        self.live += u64::from(need);
        self.objects += 1;
        hole
    }

    /// Puts an object of `bytes` for a page into the open block.
    fn append(&mut self, page: PageId, bytes: u32) -> Handle {
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
            room: (need / GRAIN) as u16,
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
        let room = u32::from(entry.room) * GRAIN;
        let block = self.block_mut(id);
        block.live -= bytes;
        block.count -= 1;
        let (empty, home, sparse) = (block.live == 0, block.home, block.count < BLOCK_SLOTS);
        if matches!(home, Home::Ram | Home::Leaving(_)) {
            self.live -= u64::from(bytes);
            self.objects -= 1;
            self.holes.add(handle, room);
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
                    self.remove_from_order(id);
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

    fn remove_from_order(&mut self, id: BlockId) {
        let ticket = self.block(id).ticket;
        let at = self
            .order
            .binary_search_by_key(&ticket, |&other| self.block(other).ticket);
        self.order
            .remove(at.expect("a block in RAM is in the order"));
    }

    /// The frames of a block are no longer the pool's.
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

    /// A block to pack if the pool wastes too much: of the next [`SEARCH_BLOCKS`] in order, the one with the most
    /// holes. That is enough: the average block then has more holes than are allowed.
    pub(crate) fn wasteful(&mut self) -> Option<BlockId> {
        let holes = self.filled - self.live;
        let spare = BLOCK_BYTES as u64;
        if holes <= spare || holes * u64::from(WASTE_SHARE) <= self.filled {
            return None;
        }
        let start = self.search_start.checked_rem(self.order.len())?;
        self.search_start = start + SEARCH_BLOCKS;
        let candidates = (start..start + SEARCH_BLOCKS).map(|at| self.order[at % self.order.len()]);
        candidates.max_by_key(|&id| self.block(id).end - self.block(id).live)
    }

    /// Copies an object of another block into the open block. The caller removes the old one.
    pub(crate) fn relocate(&mut self, handle: Handle) -> Handle {
        let page = self.owner(handle).expect("a live object");
        self.append(page, self.object(handle).bytes)
    }
}

#[cfg(test)]
mod tests;
