//! What the processes of a run know together of a tier: where each *chunk* of 64 pages is, and how warm it is.
//!
//! A chunk has no place before it is written first; then one on the first side, as long as there is room, else on the second. The supervisor moves
//! chunks while processes write, without locks, so that a process may be killed at any instruction:
//!
//! - a chunk's word has its place, a count of its moves, and a count of writes that have begun;
//! - a writer first notes the chunk among its process's *writing*, then raises the count of writes, and only then looks at
//!   the place;
//! - a mover reads the word, looks for writers, copies, and changes the word if it is still the same. So no write to the old
//!   place is on its way then, none has been missed, and the old place is free;
//! - a reader looks at the word again after it has read: if the chunk has moved, it reads again.
//!
//! A place has an owner, the chunk that it is for. One whose chunk is elsewhere was left by a process that was killed, and is
//! taken back.

use super::Control;
use super::layout::Region;
use super::process::{Process, State};
use serde::Serialize;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages of a chunk.
pub const CHUNK_PAGES: u32 = u64::BITS;
/// Chunks that a process can be writing at the same time; further writers wait.
const WRITING: usize = 32;
/// Places beyond the chunks of the store: for moves, and for what killed processes leave.
pub const SPARE_CHUNKS: u32 = 16;

/// The part of the region that belongs to a tier, but for its words.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct TierHead {
    /// Where to look for a free place on either side.
    hints: [AtomicU32; 2],
    demoted: AtomicU64,
    promoted: AtomicU64,
}

/// The chunks that one process is writing: number + 1, or 0.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Writing([AtomicU32; WRITING]);

/// A chunk's word. 0: it has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWord(pub u64);

/// A write has begun.
const WRITE: u64 = 1 << 40;
const MOVE: u64 = 1 << 32;

impl ChunkWord {
    /// The place.
    #[must_use]
    pub fn place(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    /// This word with another place.
    #[must_use]
    pub fn moved_to(self, place: Option<u32>) -> Self {
        let moves = self.0.wrapping_add(MOVE) & (MOVE * 0xff);
        let writes = self.0 & !(WRITE - 1);
        Self(writes | moves | u64::from(place.map_or(0, |place| place + 1)))
    }

    /// Whether the chunk has been all the time where it was at `earlier`.
    #[must_use]
    pub fn is_where(self, earlier: Self) -> bool {
        (self.0 ^ earlier.0) & (WRITE - 1) == 0
    }
}

/// The tier's state of a run. Nothing here allocates.
#[derive(Clone, Copy, Debug)]
pub struct TierState {
    region: Region,
    /// The slot of the process that writes; the supervisor writes nothing.
    slot: u32,
}

/// What a tier did, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierCounters {
    /// Bytes moved to the second side.
    pub demoted_bytes: u64,
    /// Bytes moved to the first side.
    pub promoted_bytes: u64,
}

/// One of [`TierCounters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierCounter {
    /// [`TierCounters::demoted_bytes`].
    Demoted,
    /// [`TierCounters::promoted_bytes`].
    Promoted,
}

/// A chunk that a thread is writing, until dropped.
#[derive(Debug)]
pub struct WritingChunk(&'static AtomicU32);

impl Drop for WritingChunk {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Control {
    /// The tier's state, for the supervisor; of no use without a tier.
    #[must_use]
    pub fn tier(&self) -> TierState {
        TierState {
            region: self.region,
            slot: 0,
        }
    }
}

impl Process {
    /// The tier's state of this process's run.
    #[must_use]
    pub fn tier(&self) -> TierState {
        TierState {
            region: self.control.region,
            slot: self.index,
        }
    }
}

impl TierState {
    fn words(&self) -> &'static [AtomicU64] {
        self.region.chunks()
    }

    /// How many chunks the store has.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.words().len() as u32
    }

    /// How many places there are, of both sides.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.region.chunk_owners().len() as u32
    }

    /// A chunk's word.
    #[must_use]
    pub fn word(&self, chunk: u32) -> ChunkWord {
        ChunkWord(self.words()[chunk as usize].load(Ordering::SeqCst))
    }

    /// Changes a chunk's word, if it is still `from`. Returns whether it was.
    #[must_use]
    pub fn change(&self, chunk: u32, from: ChunkWord, to: ChunkWord) -> bool {
        let word = &self.words()[chunk as usize];
        word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Begins a write to a chunk, which stays where it is until the result is dropped. `None`: this process is writing too
    /// many chunks just now.
    #[must_use]
    pub fn begin_write(&self, chunk: u32) -> Option<(WritingChunk, ChunkWord)> {
        let own = &self.region.writing()[self.slot as usize].0;
        let take = |place: &&'static AtomicU32| {
            place
                .compare_exchange(0, chunk + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        let writing = WritingChunk(own.iter().find(take)?);
        let before = self.words()[chunk as usize].fetch_add(WRITE, Ordering::SeqCst);
        Some((writing, ChunkWord(before.wrapping_add(WRITE))))
    }

    /// Whether a process is writing a chunk. A dead process's writes have settled once its slot is free.
    #[must_use]
    pub fn is_written(&self, chunk: u32) -> bool {
        let slots = self.region.process_slots().iter();
        let high = self.region.header().slots_high.load(Ordering::SeqCst);
        let live = slots.zip(self.region.writing()).take(high as usize);
        live.into_iter().any(|(slot, writing)| {
            let state = State::of(slot.state.load(Ordering::SeqCst));
            !matches!(state, State::Free | State::Retired)
                && writing
                    .0
                    .iter()
                    .any(|at| at.load(Ordering::SeqCst) == chunk + 1)
        })
    }

    /// Takes a free place for a chunk, of at most `looks` that are looked at among `places` of a side.
    #[must_use]
    pub fn claim(&self, side: usize, places: Range<u32>, looks: u32, chunk: u32) -> Option<u32> {
        if places.is_empty() {
            return None;
        }
        let hint = &self.region.tier().hints[side];
        let start = hint.load(Ordering::Relaxed).clamp(places.start, places.end);
        let order = (start..places.end).chain(places.start..start);
        let owners = self.region.chunk_owners();
        let mut order = order.take(looks as usize);
        let found = order.find(|&place| {
            let owner = &owners[place as usize];
            owner.load(Ordering::Relaxed) == 0
                && owner
                    .compare_exchange(0, chunk + 1, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
        });
        if let Some(place) = found {
            hint.store(place + 1, Ordering::Relaxed);
        }
        found
    }

    /// Frees a place, which the next search finds.
    pub fn free(&self, side: usize, place: u32) {
        self.region.chunk_owners()[place as usize].store(0, Ordering::SeqCst);
        self.region.tier().hints[side].fetch_min(place, Ordering::Relaxed);
    }

    /// The chunk that a place is for.
    #[must_use]
    pub fn owner(&self, place: u32) -> Option<u32> {
        let owner = self.region.chunk_owners()[place as usize].load(Ordering::SeqCst);
        owner.checked_sub(1)
    }

    /// Notes a request to a chunk.
    pub fn warm(&self, chunk: u32) {
        let warmth = &self.region.warmth()[chunk as usize];
        // Counts of threads that meet here may be lost.
        let now = warmth.load(Ordering::Relaxed);
        warmth.store(now.saturating_add(1), Ordering::Relaxed);
    }

    /// Requests to a chunk, the older ones counted less.
    #[must_use]
    pub fn warmth(&self, chunk: u32) -> u32 {
        self.region.warmth()[chunk as usize].load(Ordering::Relaxed)
    }

    /// Halves the count of a chunk.
    pub fn cool(&self, chunk: u32) {
        let warmth = &self.region.warmth()[chunk as usize];
        warmth.store(warmth.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// Whether a process holds a cluster with pages of a chunk.
    #[must_use]
    pub fn is_held(&self, chunk: u32) -> bool {
        let pages = self.region.sizes().cluster_pages;
        let (first, end) = (chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES);
        let holders = self.region.holders();
        let clusters = (first / pages) as usize..(end.div_ceil(pages) as usize).min(holders.len());
        let mut holders = holders[clusters].iter();
        holders.any(|count| count.load(Ordering::SeqCst) > 0)
    }

    /// Adds a chunk to a counter.
    pub fn count(&self, counter: TierCounter) {
        let head = self.region.tier();
        let counter = match counter {
            TierCounter::Demoted => &head.demoted,
            TierCounter::Promoted => &head.promoted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// All counters.
    #[must_use]
    pub fn counters(&self) -> TierCounters {
        let head = self.region.tier();
        let bytes = |chunks: &AtomicU64| {
            chunks.load(Ordering::Relaxed) * u64::from(CHUNK_PAGES) * flashvm_core::PAGE_SIZE as u64
        };
        TierCounters {
            demoted_bytes: bytes(&head.demoted),
            promoted_bytes: bytes(&head.promoted),
        }
    }
}

impl Writing {
    /// For a process that takes the slot.
    pub(super) fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Writes and moves of a word do not touch each other, however often they happen.
        #[test]
        fn a_word_has_three_parts(
            start: u64, steps in prop::collection::vec(prop::option::of(prop::option::of(0_u32..1 << 31)), 0..600),
        ) {
            let mut word = ChunkWord(start & 0xffff_ffff);
            let mut place = word.place();
            let mut moved = 0_u32;
            let first = word;
            for step in steps {
                match step {
                    None => word = ChunkWord(word.0.wrapping_add(WRITE)),
                    Some(to) => {
                        word = word.moved_to(to);
                        place = to;
                        moved += 1;
                    }
                }
                prop_assert_eq!(word.place(), place);
                let is_same = place == first.place() && moved.is_multiple_of(256);
                prop_assert_eq!(word.is_where(first), is_same);
            }
        }
    }
}
