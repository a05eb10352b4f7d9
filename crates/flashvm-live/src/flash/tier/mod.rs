//! A store on two sides (`--flash tier:LOCAL,REMOTE`): what is in use on the first, the rest on the second.
//!
//! - `plan`: which chunks move. It decides, and does nothing;
//! - `mover`: the supervisor's thread that moves them;
//! - here: requests, which find their chunks wherever they are ([`crate::control::TierState`] says how).
//!
//! `super::sides` has requests to one side, and what happens when it stays away. Checksums are above ([`super::Checked`]).

mod mover;
mod plan;
#[cfg(test)]
mod tests;

pub use mover::{TierMover, TierMoving};

use super::side::{Half, SideStore};
use super::sides::Sides;
use super::store::{Failed, Geometry, Part, REQUEST_PAGES_MAX, Span, Store, bytes_of};
use super::stripe::{Piece, UNIT, cut, merge, units};
use crate::control::{ChunkWord, Process, SPARE_CHUNKS, TierState, WritingChunk};
use crate::sys::disk_space::Space;
use crate::sys::sleep;
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;

/// Bytes of a chunk: those of the longest request, as of a stripe's unit.
pub const CHUNK: u64 = UNIT;
/// Places of the first side that a write looks at, before it takes one on the second.
const LOOKS: u32 = 4096;
/// Pause of a writer while its process is writing too many chunks.
const CROWDED: Duration = Duration::from_micros(100);

/// The size of a tier on two sides of these sizes.
#[must_use]
pub fn tiered(first: u64, second: u64) -> u64 {
    let chunks = first / CHUNK + second / CHUNK;
    chunks.saturating_sub(SPARE_CHUNKS.into()) * CHUNK
}

/// Where the places of both sides are.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Those before are on the first side.
    first: u32,
    all: u32,
}

impl Places {
    fn new(first_bytes: u64, state: TierState) -> Self {
        let all = state.places();
        let first = (first_bytes / CHUNK).min(all.into()) as u32;
        Self { first, all }
    }

    /// The places of a side.
    fn of(self, side: usize) -> Range<u32> {
        match side {
            0 => 0..self.first,
            _ => self.first..self.all,
        }
    }

    fn side(self, place: u32) -> usize {
        usize::from(place >= self.first)
    }

    /// The offset of a place on its side.
    fn at(self, place: u32) -> u64 {
        let of_side = self.of(self.side(place));
        u64::from(place - of_side.start) * CHUNK
    }

    /// The bytes of a side that are used.
    fn bytes(self, side: usize) -> u64 {
        self.of(side).len() as u64 * CHUNK
    }
}

/// The bytes that a tier of which the first side has `first_bytes` uses of each.
pub(super) fn bytes_of_sides(first_bytes: u64, state: TierState) -> [u64; 2] {
    let places = Places::new(first_bytes, state);
    [places.bytes(0), places.bytes(1)]
}

/// A store on two sides.
#[derive(Debug)]
pub(crate) struct Tier<H = SideStore> {
    sides: Sides<H>,
    state: TierState,
    places: Places,
    geometry: Geometry,
}

impl<H: Half> Tier<H> {
    /// A tier of `bytes` bytes, of which the first side holds up to `first_bytes`.
    pub(super) fn new(sides: Sides<H>, first_bytes: u64, bytes: u64, state: TierState) -> Self {
        Self {
            geometry: sides.geometry(bytes),
            places: Places::new(first_bytes, state),
            sides,
            state,
        }
    }

    /// Reads from a chunk, again if it has moved meanwhile.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn read_chunk(&self, chunk: u32, within: u64, to: Part) -> Failed {
        self.state.warm(chunk);
        loop {
            let before = self.state.word(chunk);
            let Some(place) = before.place() else {
                // Nothing was ever written there.
                return Failed::all(to.len);
            };
            let (side, at) = (self.places.side(place), self.places.at(place) + within);
            // SAFETY: the caller guarantees for `to` what this call asks for.
            let failed = unsafe { self.sides.read(side, at, to) };
            if self.state.word(chunk).is_where(before) {
                return failed;
            }
        }
    }

    /// Writes to a chunk, which does not move meanwhile.
    ///
    /// # Safety
    /// As [`Store::write`].
    unsafe fn write_chunk(&self, chunk: u32, within: u64, parts: &[Part]) -> Failed {
        self.state.warm(chunk);
        let (_writing, word) = self.begin_write(chunk);
        let Some(place) = self.place_for(chunk, word) else {
            return Failed::all(bytes_of(parts));
        };
        let (side, at) = (self.places.side(place), self.places.at(place) + within);
        // SAFETY: the caller guarantees for the parts what this call asks for.
        unsafe { self.sides.write(side, at, parts) }
    }

    fn begin_write(&self, chunk: u32) -> (WritingChunk, ChunkWord) {
        loop {
            match self.state.begin_write(chunk) {
                Some(begun) => return begun,
                None => sleep(CROWDED),
            }
        }
    }

    /// The place of a chunk that is being written; a new one, if it has none.
    fn place_for(&self, chunk: u32, word: ChunkWord) -> Option<u32> {
        if let Some(place) = word.place() {
            return Some(place);
        }
        let claim = |side, looks| {
            let places = self.places.of(side);
            self.state.claim(side, places, looks, chunk)
        };
        let first = match self.sides.is_away(0) {
            true => None,
            false => claim(0, LOOKS),
        };
        let claimed = first.or_else(|| claim(1, u32::MAX));
        let claimed = claimed.or_else(|| claim(0, u32::MAX))?;
        loop {
            let now = self.state.word(chunk);
            if let Some(place) = now.place() {
                // Another thread was first.
                self.state.free(self.places.side(claimed), claimed);
                return Some(place);
            }
            if self.state.change(chunk, now, now.moved_to(Some(claimed))) {
                return Some(claimed);
            }
        }
    }
}

impl Tier {
    /// In a forked child.
    pub(super) fn become_child(&mut self, process: Process) {
        self.sides.become_child(process);
        self.state = process.tier();
    }

    /// Where its space is: all of it has been allocated before the run.
    pub(super) fn space(&self) -> Space {
        Space {
            share: |_, _, _| (0, 0),
            ..Space::whole(self.sides.descriptors())
        }
    }
}

/// The pieces of a request, each in one chunk: its number, the offset there, and the piece.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u32, u64, Piece)> {
    units(at, len).map(|(chunk, within, from, len)| {
        let (side, at) = (0, within);
        let piece = Piece {
            side,
            at,
            from,
            len,
        };
        (chunk as u32, within, piece)
    })
}

impl<H: Half> Store for Tier<H> {
    /// What [`super::Queue`] falls back to: `queue` opens none.
    type Queue = super::ThreadQueue<Self>;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        let mut failed = Failed::NONE;
        for (chunk, within, piece) in pieces(at, to.len) {
            let part = Part {
                address: to.address + piece.from,
                len: piece.len,
            };
            // SAFETY: a part of `to`, for which the caller guarantees what this call asks for.
            let of_piece = unsafe { self.read_chunk(chunk, within, part) };
            merge(&mut failed, of_piece, &piece);
        }
        failed
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        let len = bytes_of(parts);
        self.geometry.admit(at, len);
        let mut failed = Failed::NONE;
        for (chunk, within, piece) in pieces(at, len) {
            let mut room = [Part { address: 0, len: 0 }; REQUEST_PAGES_MAX];
            let parts = match piece.len == len {
                true => parts,
                false => cut(parts, piece.from, piece.len, &mut room),
            };
            // SAFETY: parts of the caller's, for which it guarantees what this call asks for.
            let of_piece = unsafe { self.write_chunk(chunk, within, parts) };
            merge(&mut failed, of_piece, &piece);
        }
        failed
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        for span in spans {
            let end = span.at + span.len;
            let mut at = span.at;
            while at < end {
                let len = (CHUNK - at % CHUNK).min(end - at);
                let chunk = (at / CHUNK) as u32;
                let (_writing, word) = self.begin_write(chunk);
                if let Some(place) = word.place() {
                    let within = self.places.at(place) + at % CHUNK;
                    let span = Span { at: within, len };
                    self.sides.discard(self.places.side(place), &[span])?;
                }
                at += len;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        [0, 1]
            .into_iter()
            .try_for_each(|side| self.sides.sync(side))
    }

    fn queue(&'static self, _: u32, _: Option<Part>) -> Result<Self::Queue, Errno> {
        // Threads serve.
        Err(Errno::NOSYS)
    }
}
