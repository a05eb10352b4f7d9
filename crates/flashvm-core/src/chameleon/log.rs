//! The log: which blocks hold live pages, and rounds of read, modify, write and commit (paper, 3.3).
//!
//! A round fills one block with changed pages. While the log may grow, that is all. Later it takes
//! the block at the head of the log, keeps its live pages, and fills the gaps.
//!
//! The paper writes that block back in place. Here a round writes to an empty block, and the old
//! one is the empty block of the next round. The reads and writes are the same; but during the round,
//! and after a failed write, every live page is where the table says. A block is cleaned only if all
//! its live pages are found in it, undamaged.
//!
//! A block costs four bytes of RAM: its live sectors, its state, and whether it is queued for
//! cleaning.

use super::block::{BLOCK_BYTES, BackPointer, BlockLayout, DATA_SECTORS};
use super::organization::FlashCounters;
use super::shape::Shape;
use super::table::{Location, SvmpState, Table};
use crate::{ClusterId, ClusterSource};
use std::collections::VecDeque;

/// Blocks kept empty: one to fill, one for a failed write.
const RESERVE: usize = 2;

/// Empty blocks beyond this number return to the run.
const EMPTY_MAX: usize = 8;

/// The cleaner skips a block whose garbage is less than sectors / WORTH.
const WORTH: u32 = 16;

/// No block can be filled: the store is full of live pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flash store is full of live pages")]
pub struct Full;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not ours.
    Foreign,
    /// Ours, without live pages.
    Empty,
    /// A round fills it.
    Filling,
    /// Written.
    Closed,
    /// A write to it failed, or it cannot be read: never filled again.
    Bad,
}

/// The current round: which block to read, and which to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRound {
    /// The block to fill.
    pub target: u32,
    /// The block to read and to clean, if any.
    pub source: Option<u32>,
    /// The first `moved` pages of the buffer come from `source`.
    moved: usize,
}

/// The log of one process.
#[derive(Clone, Debug)]
pub struct Log {
    states: Vec<State>,
    live: Vec<u16>,
    /// Closed blocks, the head of the log first, and stale entries.
    order: VecDeque<u32>,
    /// By block: whether it is in `order`.
    ordered: Vec<bool>,
    empty: Vec<u32>,
    /// Blocks that are not foreign.
    held: u32,
    live_sectors: u64,
    round: Option<BlockRound>,
    counters: FlashCounters,
}

impl Log {
    /// A log over a store of `blocks` blocks, none of them leased yet.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self {
            states: vec![State::Foreign; blocks as usize],
            live: vec![0; blocks as usize],
            order: VecDeque::new(),
            ordered: vec![false; blocks as usize],
            empty: Vec::new(),
            held: 0,
            live_sectors: 0,
            round: None,
            counters: FlashCounters::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> &FlashCounters {
        &self.counters
    }

    /// Blocks leased.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Sectors that are live.
    #[must_use]
    pub fn live_sectors(&self) -> u64 {
        self.live_sectors
    }

    /// The fewest blocks with which cleaning still gains: a fifth of them is garbage.
    #[must_use]
    pub fn fewest(&self) -> u32 {
        (self.live_sectors * 5 / 4).div_ceil(DATA_SECTORS.into()) as u32 + EMPTY_MAX as u32
    }

    /// After a fork neither process writes to a block that holds pages. Both could fill empty
    /// blocks, so both release them.
    pub fn forked(&mut self, clusters: &mut impl ClusterSource) {
        assert!(self.round.is_none(), "no round runs beside a fork");
        while let Some(block) = self.empty.pop() {
            self.give_back(clusters, block);
        }
    }

    /// In a forked child: resets the counters.
    pub fn reset_counters(&mut self) {
        self.counters = FlashCounters::default();
    }

    /// Begins a round. The log may grow to `most` blocks.
    ///
    /// # Errors
    /// [`Full`] if there is neither an empty block nor garbage.
    ///
    /// # Panics
    /// If another round is running.
    pub fn begin(
        &mut self,
        clusters: &mut impl ClusterSource,
        most: u32,
    ) -> Result<BlockRound, Full> {
        assert!(self.round.is_none(), "one round at a time");
        let most = most.max(RESERVE as u32 + 1);
        while self.empty.len() <= RESERVE
            && self.held < most
            && let Some(ClusterId(block)) = clusters.lease()
        {
            self.states[block as usize] = State::Empty;
            self.held += 1;
            self.empty.push(block);
        }
        let source = match self.empty.len() {
            0 => return Err(Full),
            len if len > RESERVE => None,
            _ => Some(self.head().ok_or(Full)?),
        };
        let target = self.empty.pop().expect("seen above");
        self.states[target as usize] = State::Filling;
        let round = BlockRound {
            target,
            source,
            moved: 0,
        };
        self.round = Some(round);
        Ok(round)
    }

    /// The first block from the head of the log that is worth cleaning; otherwise the one with the
    /// most garbage.
    fn head(&mut self) -> Option<u32> {
        let mut best: Option<u32> = None;
        for _ in 0..self.order.len() {
            let block = self.order.pop_front()?;
            let live = u32::from(self.live[block as usize]);
            if self.states[block as usize] != State::Closed {
                self.ordered[block as usize] = false;
            } else if live * WORTH <= DATA_SECTORS * (WORTH - 1) {
                self.ordered[block as usize] = false;
                return Some(block);
            } else {
                if live < DATA_SECTORS
                    && best.is_none_or(|best| live < self.live[best as usize].into())
                {
                    best = Some(block);
                }
                self.order.push_back(block);
            }
        }
        let best = best?;
        self.order.retain(|&block| block != best);
        self.ordered[best as usize] = false;
        Some(best)
    }

    fn enqueue(&mut self, block: u32) {
        if !std::mem::replace(&mut self.ordered[block as usize], true) {
            self.order.push_back(block);
        }
    }

    /// The block that the round fills.
    ///
    /// # Panics
    /// If no round is running.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.round.expect("a round is under way").target
    }

    /// The modify phase: adds the live pages of the source to the layout, before all others.
    /// `pointers` are the back-pointers of the source, `None` if it could not be read; `matches`
    /// compares the bytes there with the checksum of a page. Returns the pages to copy, in the
    /// order of the layout. `None`: the source stays as it is, and the round continues without it.
    pub fn keep_live(
        &mut self,
        table: &Table,
        pointers: Option<Vec<BackPointer>>,
        mut matches: impl FnMut(&BackPointer, SvmpState) -> bool,
        layout: &mut BlockLayout,
    ) -> Option<Vec<BackPointer>> {
        let round = self.round.as_mut().expect("a round is under way");
        let source = round.source.expect("the round has a source");
        let live = pointers.and_then(|mut live| {
            live.retain(|pointer| {
                let (shape, place) = table.get(pointer.page);
                shape == pointer.shape
                    && place.location() == Some(Location::new(source, pointer.sector))
            });
            // A moved page must be undamaged, and every sector counted as live must be found.
            let mut is_whole = |pointer: &BackPointer| matches(pointer, table.get(pointer.page).1);
            let sectors: u32 = live.iter().map(|pointer| pointer.shape.sectors()).sum();
            let all = sectors == self.live[source as usize].into();
            (all && live.iter().all(&mut is_whole)).then_some(live)
        });
        let Some(live) = live else {
            round.source = None;
            self.states[source as usize] = State::Bad;
            self.counters.blocks_bad += 1;
            return None;
        };
        round.moved = live.len();
        self.counters.bytes_read += BLOCK_BYTES as u64;
        for pointer in &live {
            let kept = layout.push(pointer.page, pointer.shape);
            assert!(kept.is_some(), "a block holds what another has held");
        }
        Some(live)
    }

    /// The commit phase, after a successful write of `len` bytes: the table now places pages where
    /// `pointers` say. Calls `written` for every changed page that is still in a frame.
    pub fn commit(
        &mut self,
        table: &mut Table,
        clusters: &mut impl ClusterSource,
        len: usize,
        pointers: &[BackPointer],
        mut written: impl FnMut(&BackPointer, SvmpState),
    ) {
        let round = self.round.take().expect("a round is under way");
        self.states[round.target as usize] = State::Closed;
        self.counters.rounds += 1;
        self.counters.cleaned += u64::from(round.source.is_some());
        self.counters.bytes_written += len as u64;
        for (at, pointer) in pointers.iter().enumerate() {
            let (shape, place) = table.get(pointer.page);
            let old = place.location();
            let is_moved = at < round.moved;
            // The page was freed meanwhile, or handed out again: garbage from the start.
            let is_live = if is_moved {
                old.is_some() && old.map(Location::block) == round.source
            } else {
                place.frame().is_some()
            };
            if !is_live || shape != pointer.shape {
                continue;
            }
            let place = place.with_location(Some(Location::new(round.target, pointer.sector)));
            table.set(pointer.page, shape, place);
            self.live[round.target as usize] += shape.sectors() as u16;
            self.live_sectors += u64::from(shape.sectors());
            if let Some(old) = old {
                self.release(clusters, old, shape);
            }
            if is_moved {
                self.counters.pages_moved += 1;
            } else {
                self.counters.pages_changed += 1;
                self.counters.bytes_changed += shape.size() as u64;
                written(pointer, place);
            }
        }
        if let Some(source) = round.source
            && self.states[source as usize] == State::Closed
        {
            self.emptied_or_enqueued(clusters, source);
        }
        self.emptied_or_enqueued(clusters, round.target);
    }

    /// The write failed: the pages of the buffer stay where they were.
    pub fn abandon(&mut self, clusters: &mut impl ClusterSource) {
        let round = self.round.take().expect("a round is under way");
        self.states[round.target as usize] = State::Bad;
        self.counters.write_errors += 1;
        self.counters.blocks_bad += 1;
        if let Some(source) = round.source {
            self.emptied_or_enqueued(clusters, source);
        }
    }

    /// A page no longer needs its copy on flash.
    pub fn release(&mut self, clusters: &mut impl ClusterSource, at: Location, shape: Shape) {
        let block = at.block();
        let live = &mut self.live[block as usize];
        *live = live
            .checked_sub(shape.sectors() as u16)
            .expect("released as often as written");
        self.live_sectors -= u64::from(shape.sectors());
        let in_round = self.round.is_some_and(|round| round.source == Some(block));
        if *live == 0 && self.states[block as usize] == State::Closed && !in_round {
            self.emptied_or_enqueued(clusters, block);
        }
    }

    /// A closed block without live pages becomes empty or returns to the run; others are queued for
    /// cleaning.
    fn emptied_or_enqueued(&mut self, clusters: &mut impl ClusterSource, block: u32) {
        if self.live[block as usize] > 0 {
            self.enqueue(block);
        } else if clusters.shared(ClusterId(block)) || self.empty.len() >= EMPTY_MAX {
            self.give_back(clusters, block);
        } else {
            self.states[block as usize] = State::Empty;
            self.empty.push(block);
        }
    }

    fn give_back(&mut self, clusters: &mut impl ClusterSource, block: u32) {
        self.states[block as usize] = State::Foreign;
        self.held -= 1;
        clusters.release(ClusterId(block));
    }
}

#[cfg(test)]
mod tests;
