//! Flash with log structuring switched off (paper, 3.3): a changed page is written in place.
//!
//! For devices that remap sectors themselves: a log would do that work twice. Nothing is cleaned,
//! and only changed bytes are written. A page's *slot* has the size of the page; a block has slots
//! of one size, so that no gap is too small to be used. Pages are handed out only while there is a
//! slot for each ([`InPlace::promise`]): the allocator learns that flash is full, an eviction never
//! does.
//!
//! While a page is being written, flash has no copy of it: the slot holds old contents, new contents
//! or a mixture. So until the write has ended, the round owns the slot and the table has no location
//! for the page. The slot of a failed write is never used again.
//!
//! After a fork nothing overwrites data that the other process may read: pages in shared blocks get
//! a new slot.

use super::block::BLOCK_SECTORS;
use super::log::Full;
use super::organization::FlashCounters;
use super::shape::{SIZES, Shape};
use super::table::{Location, Svmp, SvmpState, Table};
use crate::{ClusterId, ClusterSource};
use std::collections::BTreeSet;

const WORDS: usize = BLOCK_SECTORS as usize / u64::BITS as usize;

/// A block with slots of one size.
#[derive(Clone, Debug)]
struct SlotBlock {
    /// By slot: whether it has a page, is being written or is bad.
    used: [u64; WORDS],
    /// Number of slots in use.
    count: u32,
}

/// The blocks with slots of one size.
#[derive(Clone, Debug, Default)]
struct Class {
    /// Blocks with free slots, those at the start of the store first.
    open: BTreeSet<u32>,
    /// Blocks without pages.
    empty: BTreeSet<u32>,
    /// Blocks with free slots that another process also held at the last check.
    sealed: BTreeSet<u32>,
    /// Slots of all blocks, except bad ones.
    slots: u64,
    /// Slots that the pages handed out may need.
    promised: u64,
}

/// The slots on flash of one process.
#[derive(Clone, Debug)]
pub struct InPlace {
    /// By block of the store; `None` for blocks of others.
    blocks: Vec<Option<Box<SlotBlock>>>,
    /// By size.
    classes: Box<[Class; SIZES.len()]>,
    held: u32,
    pub(super) counters: FlashCounters,
}

/// Slots of a block, for pages of this shape's size.
fn slots_of_block(shape: Shape) -> u32 {
    BLOCK_SECTORS / shape.sectors()
}

fn class_of(shape: Shape) -> usize {
    shape.sectors().ilog2() as usize
}

impl InPlace {
    /// Slots over a store of `blocks` blocks, none of them leased yet.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self {
            blocks: (0..blocks).map(|_| None).collect(),
            classes: Default::default(),
            held: 0,
            counters: FlashCounters::default(),
        }
    }

    /// Blocks leased.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Guarantees a slot for each of `count` more pages of this shape's size.
    ///
    /// # Errors
    /// [`Full`] if the store has no block for them; then nothing is promised.
    pub fn promise(
        &mut self,
        clusters: &mut impl ClusterSource,
        shape: Shape,
        count: u32,
    ) -> Result<(), Full> {
        let at = class_of(shape);
        self.classes[at].promised += u64::from(count);
        while self.classes[at].slots < self.classes[at].promised {
            if let Err(full) = self.lease(clusters, shape) {
                self.forget(clusters, shape, count);
                return Err(full);
            }
        }
        Ok(())
    }

    /// `count` pages of this shape's size were freed.
    pub fn forget(&mut self, clusters: &mut impl ClusterSource, shape: Shape, count: u32) {
        let class = &mut self.classes[class_of(shape)];
        class.promised = class
            .promised
            .checked_sub(count.into())
            .expect("promised once");
        while let Some(&block) = surplus(&self.classes[class_of(shape)], shape) {
            self.give_back(clusters, block, shape);
        }
    }

    /// Begins the write of a changed page in a frame. Returns the page's slot: a new one if the page
    /// has none, or if another process may read the old one. Until [`InPlace::commit`] or
    /// [`InPlace::fail`] the table has no location for the page.
    ///
    /// # Errors
    /// [`Full`] if no slot is free: many are bad, or shared since a fork.
    ///
    /// # Panics
    /// If the page is not in a frame.
    pub fn begin(
        &mut self,
        table: &mut Table,
        clusters: &mut impl ClusterSource,
        page: Svmp,
    ) -> Result<Location, Full> {
        let (shape, place) = table.get(page);
        assert!(place.frame().is_some(), "{page:?} is {place:?}");
        let own = place.location();
        let may_write = |at: &Location| !clusters.shared(ClusterId(at.block()));
        let slot = match own.filter(may_write) {
            Some(own) => own,
            None => {
                let slot = self.take(clusters, shape)?;
                if let Some(own) = own {
                    self.release(clusters, own, shape);
                }
                slot
            }
        };
        table.set(page, shape, place.with_location(None));
        Ok(slot)
    }

    /// A write succeeded. Returns the page's place if it is still in a frame; otherwise frees the
    /// slot.
    pub fn commit(
        &mut self,
        table: &mut Table,
        clusters: &mut impl ClusterSource,
        page: Svmp,
        shape: Shape,
        slot: Location,
    ) -> Option<SvmpState> {
        self.counters.bytes_written += shape.size() as u64;
        let (now, place) = table.get(page);
        // The page may have been freed meanwhile, or handed out again.
        if now != shape || place.frame().is_none() {
            self.release(clusters, slot, shape);
            return None;
        }
        assert_eq!(place.location(), None, "one round at a time");
        let place = place.with_location(Some(slot));
        table.set(page, shape, place);
        self.counters.pages_changed += 1;
        self.counters.bytes_changed += shape.size() as u64;
        Some(place)
    }

    /// A write to these slots failed: none of them is used again.
    pub fn fail(&mut self, slots: impl IntoIterator<Item = Shape>) {
        self.counters.write_errors += 1;
        for shape in slots {
            self.classes[class_of(shape)].slots -= 1;
        }
    }

    /// A page no longer needs its slot: frees it.
    pub fn release(&mut self, clusters: &mut impl ClusterSource, at: Location, shape: Shape) {
        let (word, bit) = Self::bit(at, shape);
        let block = self.block(at.block());
        assert!(block.used[word] & bit != 0, "released as often as taken");
        block.used[word] &= !bit;
        block.count -= 1;
        let count = block.count;
        let shared = clusters.shared(ClusterId(at.block()));
        let class = &mut self.classes[class_of(shape)];
        if count == 0 {
            class.open.remove(&at.block());
            class.sealed.remove(&at.block());
            class.empty.insert(at.block());
            if shared || surplus(class, shape).is_some() {
                self.give_back(clusters, at.block(), shape);
            }
        } else if shared {
            class.sealed.insert(at.block());
        } else if !class.sealed.contains(&at.block()) {
            class.open.insert(at.block());
        }
    }

    /// After a fork both processes could fill an empty block, so both release theirs.
    pub fn forked(&mut self, clusters: &mut impl ClusterSource) {
        for shape in SIZES.map(|size| Shape::new(size, 0).expect("a size of Table 2")) {
            let class = &mut self.classes[class_of(shape)];
            let mut open = std::mem::take(&mut class.open);
            class.sealed.append(&mut open);
            for block in std::mem::take(&mut class.empty) {
                self.give_back(clusters, block, shape);
            }
        }
    }

    /// Takes a free slot.
    fn take(&mut self, clusters: &mut impl ClusterSource, shape: Shape) -> Result<Location, Full> {
        let at = class_of(shape);
        let class = &mut self.classes[at];
        if class.open.is_empty() && class.empty.is_empty() {
            // The other process may have ended or released its slots.
            let sealed = std::mem::take(&mut class.sealed);
            (class.sealed, class.open) = sealed
                .into_iter()
                .partition(|&block| clusters.shared(ClusterId(block)));
            if class.open.is_empty() {
                self.lease(clusters, shape)?;
            }
        }
        let class = &mut self.classes[at];
        let number = match class.open.first() {
            Some(&block) => block,
            None => class.empty.pop_first().expect("leased above"),
        };
        let block = self.block(number);
        let mut words = block.used.iter_mut().enumerate();
        let (word, used) = words
            .find(|(_, used)| **used != u64::MAX)
            .expect("a block that is open has a free slot");
        let bit = used.trailing_ones();
        *used |= 1 << bit;
        block.count += 1;
        let full = block.count == slots_of_block(shape);
        let class = &mut self.classes[at];
        if full {
            class.open.remove(&number);
        } else {
            class.open.insert(number);
        }
        let slot = word as u32 * u64::BITS + bit;
        Ok(Location::new(number, slot * shape.sectors()))
    }

    /// Leases one more block, for slots of this size.
    fn lease(&mut self, clusters: &mut impl ClusterSource, shape: Shape) -> Result<(), Full> {
        let ClusterId(block) = clusters.lease().ok_or(Full)?;
        self.held += 1;
        let slots = slots_of_block(shape);
        // The bits beyond the last slot stay set.
        let mut used = [u64::MAX; WORDS];
        used[..slots as usize / u64::BITS as usize].fill(0);
        self.blocks[block as usize] = Some(Box::new(SlotBlock { used, count: 0 }));
        let class = &mut self.classes[class_of(shape)];
        class.slots += u64::from(slots);
        class.empty.insert(block);
        Ok(())
    }

    fn give_back(&mut self, clusters: &mut impl ClusterSource, block: u32, shape: Shape) {
        let class = &mut self.classes[class_of(shape)];
        class.empty.remove(&block);
        class.slots -= u64::from(slots_of_block(shape));
        self.blocks[block as usize] = None;
        self.held -= 1;
        clusters.release(ClusterId(block));
    }

    fn block(&mut self, block: u32) -> &mut SlotBlock {
        self.blocks[block as usize]
            .as_mut()
            .expect("a slot lies in a block of ours")
    }

    /// The position of a slot's bit.
    fn bit(at: Location, shape: Shape) -> (usize, u64) {
        let slot = at.sector() / shape.sectors();
        ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
    }
}

/// An empty block that is not needed for the slots promised.
fn surplus(class: &Class, shape: Shape) -> Option<&u32> {
    let enough = class.slots >= class.promised + u64::from(slots_of_block(shape));
    class.empty.last().filter(|_| enough)
}

#[cfg(test)]
mod tests;
