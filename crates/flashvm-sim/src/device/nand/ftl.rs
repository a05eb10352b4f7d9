//! A page-mapped flash translation layer: the place of each logical page, the choice of the next
//! block to clean, wear levelling, and worn-out blocks.
//!
//! It decides and counts, without time: a [`Flash`] receives the flash operations. Host pages are
//! appended to an open block. When that is full and only the cleaner's block is erased, a victim is
//! chosen, its valid pages are appended likewise, and it is erased. With one shared frontier and no
//! reserve, this is the model behind the published figures of write amplification under greedy
//! cleaning.

use super::blocks::ValidLists;
use super::geometry::{Frontiers, Geometry};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;
/// Full wear scan, amortised to at most this many blocks an erase, and at most every fourth erase.
const LEVELLING_BLOCKS_PER_ERASE: u32 = 64;
const LEVELLING_INTERVAL_MIN: u32 = 4;

/// Which block to clean next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cleaning {
    /// The one with the fewest valid pages.
    #[default]
    Greedy,
    /// The one with the highest `age x (1 - u) / (1 + u)`, `u` being the share of valid pages
    /// (Rosenblum and Ousterhout 1992). Checks every block.
    CostBenefit,
}

/// How erases are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Levelling {
    /// Ignores wear: the erased block with the lowest number is filled next.
    None,
    /// The least worn erased block is filled next.
    #[default]
    Dynamic,
    /// As dynamic; also empties blocks with constant contents once their wear lags behind.
    Static,
}

/// The strategy of a translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtlStrategy {
    /// Which block is cleaned next.
    pub cleaning: Cleaning,
    /// How erases are spread.
    pub levelling: Levelling,
    /// Erases by which a block may lag behind the most worn one (static levelling).
    pub levelling_gap: u32,
    /// Erases after which a block is bad.
    pub endurance: u32,
}

impl Default for FtlStrategy {
    /// Greedy and dynamic, with the lowest endurance that FlashVM's paper names for MLC (4.2).
    fn default() -> Self {
        Self {
            cleaning: Cleaning::Greedy,
            levelling: Levelling::Dynamic,
            levelling_gap: 64,
            endurance: 10_000,
        }
    }
}

/// The flash below: receives operations, in order.
pub trait Flash {
    /// A page is read.
    fn read(&mut self, page: u32);
    /// A page is programmed. `false`: that failed, and the block is taken out of use.
    fn program(&mut self, page: u32) -> bool;
    /// A block is erased.
    fn erase(&mut self, block: u32);
}

/// Flash without contents or time.
impl Flash for () {
    fn read(&mut self, _page: u32) {}
    fn program(&mut self, _page: u32) -> bool {
        true
    }
    fn erase(&mut self, _block: u32) {}
}

/// Too many blocks are bad: writes are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flash is worn out: too many blocks are bad")]
pub struct WornOut;

/// What has been written and erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that the host wrote.
    pub host_writes: u64,
    /// Pages that cleaning copied.
    pub copies: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl Counts {
    /// Pages programmed for each page that the host wrote, since `before`; 1 if it wrote none.
    #[must_use]
    pub fn write_amplification_since(&self, before: &Self) -> f64 {
        let host = self.host_writes - before.host_writes;
        let copies = self.copies - before.copies;
        if host == 0 {
            return 1.0;
        }
        (host + copies) as f64 / host as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    Erased,
    Open,
    Closed,
    Bad,
}

/// Whose pages are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Host,
    Cleaner,
}

/// A block being filled.
#[derive(Clone, Copy)]
struct Open {
    block: u32,
    next: u32,
}

/// The translation layer.
pub struct Ftl {
    geometry: Geometry,
    strategy: FtlStrategy,
    /// Physical page by logical page.
    map: Vec<u32>,
    /// Logical page by physical page.
    owners: Vec<u32>,
    valid: Vec<u32>,
    states: Vec<BlockState>,
    erases: Vec<u32>,
    /// When a block was filled, in host writes.
    filled: Vec<u64>,
    closed: ValidLists,
    erased: BinaryHeap<Reverse<(u32, u32)>>,
    open: [Option<Open>; 2],
    /// Blocks with a failed program operation: emptied and taken out of use before the next write.
    failing: Vec<u32>,
    bad: u32,
    since_levelling: u32,
    counts: Counts,
}

impl Ftl {
    /// An empty device.
    #[must_use]
    pub fn new(geometry: Geometry, strategy: FtlStrategy) -> Self {
        let blocks = geometry.blocks_all();
        let pages = blocks as usize * geometry.pages_per_block as usize;
        Self {
            geometry,
            strategy,
            map: vec![NONE; geometry.logical_pages as usize],
            owners: vec![NONE; pages],
            valid: vec![0; blocks as usize],
            states: vec![BlockState::Erased; blocks as usize],
            erases: vec![0; blocks as usize],
            filled: vec![0; blocks as usize],
            closed: ValidLists::new(blocks, geometry.pages_per_block),
            erased: (0..blocks).map(|block| Reverse((0, block))).collect(),
            open: [None; 2],
            failing: Vec::new(),
            bad: 0,
            since_levelling: 0,
            counts: Counts::default(),
        }
    }

    /// The counts since the device was new.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks that are erased and not open.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        u32::try_from(self.erased.len()).expect("a count of blocks")
    }

    /// Blocks that are worn out or failed.
    #[must_use]
    pub fn bad_blocks(&self) -> u32 {
        self.bad
    }

    /// Fewest, mean and most erases of a block.
    #[must_use]
    pub fn erases(&self) -> (u32, f64, u32) {
        let sum: u64 = self.erases.iter().map(|&n| u64::from(n)).sum();
        let least = self.erases.iter().min().copied().unwrap_or(0);
        let most = self.erases.iter().max().copied().unwrap_or(0);
        (least, sum as f64 / self.erases.len() as f64, most)
    }

    /// The place of a logical page, if it has contents.
    #[must_use]
    pub fn lookup(&self, logical: u32) -> Option<u32> {
        let page = self.map[logical as usize];
        (page != NONE).then_some(page)
    }

    /// The host reads a page; one without contents costs no flash operation.
    pub fn read(&mut self, logical: u32, flash: &mut impl Flash) {
        if let Some(page) = self.lookup(logical) {
            flash.read(page);
        }
    }

    /// The host discards a page; returns whether it had contents.
    pub fn discard(&mut self, logical: u32) -> bool {
        let Some(page) = self.lookup(logical) else {
            return false;
        };
        self.map[logical as usize] = NONE;
        self.invalidate(page);
        true
    }

    /// The host writes a page.
    ///
    /// # Errors
    /// If too many blocks are bad to clean; then the page has lost its contents.
    pub fn write(&mut self, logical: u32, flash: &mut impl Flash) -> Result<(), WornOut> {
        let old = std::mem::replace(&mut self.map[logical as usize], NONE);
        if old != NONE {
            self.invalidate(old);
        }
        self.make_room(flash)?;
        self.place(logical, Stream::Host, flash)?;
        self.counts.host_writes += 1;
        Ok(())
    }

    fn invalidate(&mut self, page: u32) {
        self.owners[page as usize] = NONE;
        let block = page / self.geometry.pages_per_block;
        let valid = self.valid[block as usize];
        self.valid[block as usize] = valid - 1;
        if self.states[block as usize] == BlockState::Closed {
            self.closed.remove(block, valid);
            self.closed.insert(block, valid - 1);
        }
    }

    fn frontier(&self, stream: Stream) -> usize {
        match (self.geometry.frontiers, stream) {
            (Frontiers::Shared, _) | (_, Stream::Host) => 0,
            (Frontiers::Separate, Stream::Cleaner) => 1,
        }
    }

    /// Pages left in the open block of a stream.
    fn room(&self, stream: Stream) -> u32 {
        let open = self.open[self.frontier(stream)];
        open.map_or(0, |open| self.geometry.pages_per_block - open.next)
    }

    /// Cleans until the host has a page to write to.
    fn make_room(&mut self, flash: &mut impl Flash) -> Result<(), WornOut> {
        while let Some(block) = self.failing.pop() {
            self.empty(block, flash)?;
            self.retire(block);
        }
        let kept = self.geometry.reserve as usize + 1;
        while self.room(Stream::Host) == 0 && self.erased.len() <= kept {
            let victim = self.victim().ok_or(WornOut)?;
            self.clean(victim, flash)?;
            self.level(flash)?;
        }
        // Cleaning needs an erased block as its destination; one that turned bad after its erase is missing.
        while self.erased.is_empty() {
            let victim = self.closed.least().ok_or(WornOut)?;
            if self.valid[victim as usize] > self.room(Stream::Cleaner) {
                return Err(WornOut);
            }
            self.clean(victim, flash)?;
        }
        Ok(())
    }

    /// The block to clean next; none if that would gain nothing.
    fn victim(&mut self) -> Option<u32> {
        let victim = match self.strategy.cleaning {
            Cleaning::Greedy => self.closed.least()?,
            Cleaning::CostBenefit => self.best_benefit()?,
        };
        (self.valid[victim as usize] < self.geometry.pages_per_block).then_some(victim)
    }

    fn best_benefit(&mut self) -> Option<u32> {
        let pages = f64::from(self.geometry.pages_per_block);
        let now = self.counts.host_writes;
        let mut best = (0.0, self.closed.least()?);
        for (block, state) in (0..).zip(&self.states) {
            if *state == BlockState::Closed {
                let used = f64::from(self.valid[block as usize]) / pages;
                let age = (now - self.filled[block as usize] + 1) as f64;
                let benefit = age * (1.0 - used) / (1.0 + used);
                if benefit > best.0 {
                    best = (benefit, block);
                }
            }
        }
        Some(best.1)
    }

    /// Empties a closed block and erases it.
    fn clean(&mut self, block: u32, flash: &mut impl Flash) -> Result<(), WornOut> {
        self.closed.remove(block, self.valid[block as usize]);
        // No longer in the lists of closed blocks.
        self.states[block as usize] = BlockState::Open;
        self.empty(block, flash)?;
        flash.erase(block);
        self.counts.erases += 1;
        self.erases[block as usize] += 1;
        if self.erases[block as usize] >= self.strategy.endurance {
            self.retire(block);
        } else {
            self.states[block as usize] = BlockState::Erased;
            let wear = match self.strategy.levelling {
                Levelling::None => 0,
                Levelling::Dynamic | Levelling::Static => self.erases[block as usize],
            };
            self.erased.push(Reverse((wear, block)));
        }
        Ok(())
    }

    fn retire(&mut self, block: u32) {
        self.states[block as usize] = BlockState::Bad;
        self.bad += 1;
    }

    /// Copies the valid pages of a block elsewhere.
    fn empty(&mut self, block: u32, flash: &mut impl Flash) -> Result<(), WornOut> {
        let first = block * self.geometry.pages_per_block;
        let mut left = self.valid[block as usize];
        let mut page = first;
        while left > 0 {
            let logical = self.owners[page as usize];
            if logical != NONE {
                flash.read(page);
                self.owners[page as usize] = NONE;
                self.valid[block as usize] -= 1;
                if let Err(worn) = self.place(logical, Stream::Cleaner, flash) {
                    // The copy failed: the page stays where it was.
                    self.owners[page as usize] = logical;
                    self.valid[block as usize] += 1;
                    self.map[logical as usize] = page;
                    self.states[block as usize] = BlockState::Closed;
                    self.closed.insert(block, self.valid[block as usize]);
                    return Err(worn);
                }
                self.counts.copies += 1;
                left -= 1;
            }
            page += 1;
        }
        Ok(())
    }

    /// Now and then, empties the least worn block if it lags behind.
    fn level(&mut self, flash: &mut impl Flash) -> Result<(), WornOut> {
        self.since_levelling += 1;
        let interval = self.geometry.blocks / LEVELLING_BLOCKS_PER_ERASE;
        if self.strategy.levelling != Levelling::Static
            || self.since_levelling < interval.max(LEVELLING_INTERVAL_MIN)
            || self.erased.is_empty()
        {
            return Ok(());
        }
        self.since_levelling = 0;
        let most = self.erases.iter().max().copied().unwrap_or(0);
        let closed = (0..)
            .zip(&self.states)
            .filter(|(_, state)| **state == BlockState::Closed);
        let least = closed
            .map(|(block, _)| (self.erases[block as usize], block))
            .min();
        match least {
            Some((worn, block)) if most - worn > self.strategy.levelling_gap => {
                self.clean(block, flash)
            }
            _ => Ok(()),
        }
    }

    /// Appends a page to the open block of a stream.
    fn place(
        &mut self,
        logical: u32,
        stream: Stream,
        flash: &mut impl Flash,
    ) -> Result<(), WornOut> {
        let frontier = self.frontier(stream);
        loop {
            let mut open = match self.open[frontier] {
                Some(open) => open,
                None => {
                    let Reverse((_, block)) = self.erased.pop().ok_or(WornOut)?;
                    self.states[block as usize] = BlockState::Open;
                    Open { block, next: 0 }
                }
            };
            let page = open.block * self.geometry.pages_per_block + open.next;
            let programmed = flash.program(page);
            if programmed {
                self.owners[page as usize] = logical;
                self.map[logical as usize] = page;
                self.valid[open.block as usize] += 1;
                open.next += 1;
                self.open[frontier] = Some(open);
                if open.next == self.geometry.pages_per_block {
                    self.close(frontier, open.block);
                }
                return Ok(());
            }
            self.open[frontier] = None;
            self.failing.push(open.block);
        }
    }

    fn close(&mut self, frontier: usize, block: u32) {
        self.open[frontier] = None;
        self.states[block as usize] = BlockState::Closed;
        self.filled[block as usize] = self.counts.host_writes;
        self.closed.insert(block, self.valid[block as usize]);
    }

    /// Checks maps, counts and states of blocks against each other.
    ///
    /// # Panics
    /// If they contradict each other: a bug in this file.
    pub fn check(&self) {
        let pages = self.geometry.pages_per_block as usize;
        for (logical, &page) in (0..).zip(&self.map) {
            if page != NONE {
                assert_eq!(self.owners[page as usize], logical, "page {logical}");
            }
        }
        let mapped = self.map.iter().filter(|&&page| page != NONE).count();
        let owned = self.owners.iter().filter(|&&owner| owner != NONE).count();
        assert_eq!(mapped, owned);
        for (block, owners) in self.owners.chunks(pages).enumerate() {
            let valid = owners.iter().filter(|&&owner| owner != NONE).count();
            assert_eq!(valid, self.valid[block] as usize, "block {block}");
            let state = self.states[block];
            if matches!(state, BlockState::Erased | BlockState::Bad) {
                assert_eq!(valid, 0, "block {block} is {state:?}");
            }
        }
        let erased = self.states.iter().filter(|s| **s == BlockState::Erased);
        assert_eq!(erased.count(), self.erased.len());
    }
}

#[cfg(test)]
mod tests;
