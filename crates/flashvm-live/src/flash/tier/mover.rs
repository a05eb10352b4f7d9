//! Moves chunks between the sides of a tier: a thread of the supervisor.
//!
//! It also takes back the places of chunks that no process holds any more, and of those that a killed process has left.

use super::super::link::Link;
use super::plan::{Chunk, plan};
use super::{CHUNK, Places};
use crate::control::{ChunkWord, Control, SidePlace, TierCounter, TierState};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between two looks.
const IDLE: Duration = Duration::from_millis(50);
/// Looks between two halvings of all counts: a second.
const COOL_EVERY: u32 = 20;
/// Looks between two searches for places without a chunk.
const SEARCH_EVERY: u32 = 100;

/// A chunk's bytes, aligned for direct I/O.
#[repr(align(4096))]
struct Room([u8; CHUNK as usize]);

/// The thread, before it begins.
pub struct TierMover {
    state: TierState,
    places: Places,
    links: [Link; 2],
    room: Box<Room>,
    looks: u32,
}

/// The thread, while it runs.
pub struct TierMoving {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl TierMoving {
    /// Ends the thread.
    ///
    /// # Panics
    /// If the thread did.
    pub fn end(self) {
        self.over.store(true, Ordering::Release);
        self.thread
            .join()
            .expect("the tier's thread does not panic");
    }
}

impl TierMover {
    /// For the sides of a run, each with its file if it has one; the first holds up to `first_bytes`.
    #[must_use]
    pub fn new(
        control: Control,
        sides: [(SidePlace, Option<OwnedFd>); 2],
        first_bytes: u64,
    ) -> Self {
        let state = control.tier();
        Self {
            state,
            places: Places::new(first_bytes, state),
            links: sides.map(|(place, file)| Link::of(place, file)),
            room: Box::new(Room([0; CHUNK as usize])),
            looks: 0,
        }
    }

    /// Starts the thread. It inherits the blocked signals of the calling one.
    ///
    /// # Errors
    /// There is no thread.
    pub fn begin(mut self) -> std::io::Result<TierMoving> {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("flashvm-tier".to_owned())
            .spawn(move || {
                while !until.load(Ordering::Acquire) {
                    self.look(&until);
                    std::thread::sleep(IDLE);
                }
            })?;
        Ok(TierMoving { over, thread })
    }

    /// Does what there is to do.
    pub(super) fn look(&mut self, over: &AtomicBool) {
        self.looks = self.looks.wrapping_add(1);
        let cools = self.looks.is_multiple_of(COOL_EVERY);
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        for chunk in 0..self.state.chunks() {
            let word = self.state.word(chunk);
            let Some(place) = word.place() else {
                continue;
            };
            // After the word: a chunk that is written after it has been released is held again, or has another word.
            if !self.state.is_held(chunk) {
                self.release(chunk, word, place);
                continue;
            }
            if cools {
                self.state.cool(chunk);
            }
            let warmth = self.state.warmth(chunk);
            let side = match self.places.side(place) {
                0 => &mut first,
                _ => &mut second,
            };
            side.push(Chunk { warmth, chunk });
        }
        let plan = plan(&mut first, &mut second, self.places.first as usize);
        let demote = plan.demote.into_iter().map(|chunk| (chunk, 1));
        let promote = plan.promote.into_iter().map(|chunk| (chunk, 0));
        for (chunk, side) in demote.chain(promote) {
            if over.load(Ordering::Acquire) || !self.move_to(chunk, side) {
                break;
            }
        }
        if self.looks.is_multiple_of(SEARCH_EVERY) {
            self.take_back();
        }
    }

    /// Frees the place of a chunk that no process holds.
    fn release(&self, chunk: u32, word: ChunkWord, place: u32) {
        let is_idle = !self.state.is_written(chunk);
        if is_idle && self.state.change(chunk, word, word.moved_to(None)) {
            self.state.free(self.places.side(place), place);
        }
    }

    /// Moves a chunk to a side. False: the sides do not answer, or there is no room.
    fn move_to(&mut self, chunk: u32, side: usize) -> bool {
        let word = self.state.word(chunk);
        let from = match word.place() {
            Some(from) if self.places.side(from) != side => from,
            // Released, or moved, since it was looked at.
            _ => return true,
        };
        if self.state.is_written(chunk) {
            return true;
        }
        let places = self.places.of(side);
        let Some(to) = self.state.claim(side, places, u32::MAX, chunk) else {
            return false;
        };
        if !self.copy(from, to) {
            // A server may still carry the write out: the place stays taken until `take_back`.
            return false;
        }
        if self.state.change(chunk, word, word.moved_to(Some(to))) {
            self.state.free(self.places.side(from), from);
            self.state.count(match side {
                0 => TierCounter::Promoted,
                _ => TierCounter::Demoted,
            });
        } else {
            // Written meanwhile.
            self.state.free(side, to);
        }
        true
    }

    fn copy(&mut self, from: u32, to: u32) -> bool {
        let places = self.places;
        let [source, target] = [from, to].map(|place| places.side(place));
        let bytes = &mut self.room.0;
        let links = &mut self.links;
        let connects = |link: &mut Link, side: usize| link.connect(places.bytes(side));
        if !connects(&mut links[source], source) || !connects(&mut links[target], target) {
            return false;
        }
        if !links[source].read(places.at(from), bytes) {
            links[source].disconnect();
            return false;
        }
        if !links[target].write(places.at(to), bytes) {
            links[target].disconnect();
            return false;
        }
        true
    }

    /// Frees places whose chunks are elsewhere: processes that were killed have left them, or copies that failed.
    fn take_back(&self) {
        for place in 0..self.places.all {
            let Some(chunk) = self.state.owner(place) else {
                continue;
            };
            // In this order: who writes the chunk may be about to use the place; who begins later takes another one.
            if !self.state.is_written(chunk) && self.state.word(chunk).place() != Some(place) {
                self.state.free(self.places.side(place), place);
            }
        }
    }
}
