//! A store over several sides (`--flash stripe:A,B[,C...]`): each has a part, and all are used at once.
//!
//! - `layout`: which side has which bytes. It decides, and does nothing;
//! - requests are carried out piece by piece, and side by side only as far as there are several: `super::sides` has those
//!   to one side, and what happens when it stays away.
//!
//! Checksums are above ([`super::Checked`]): a side that has other bytes than were written loses pages, and no more.

mod layout;
#[cfg(test)]
mod tests;

pub(super) use layout::{Piece, units};
pub use layout::{UNIT, each_of, striped};

use super::side::{Half, SideStore};
use super::sides::Sides;
use super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use crate::control::Process;
use crate::sys::disk_space::Space;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;

/// A store over several sides.
#[derive(Debug)]
pub(crate) struct Stripe<H = SideStore> {
    sides: Sides<H>,
    geometry: Geometry,
}

impl<H: Half> Stripe<H> {
    /// A stripe of `bytes` bytes.
    pub(super) fn new(sides: Sides<H>, bytes: u64) -> Self {
        let geometry = sides.geometry(bytes);
        Self { sides, geometry }
    }

    fn count(&self) -> usize {
        self.sides.stores.len()
    }
}

impl Stripe {
    /// In a forked child.
    pub(super) fn become_child(&mut self, process: Process) {
        self.sides.become_child(process);
    }

    /// Where its space is.
    pub(super) fn space(&self) -> Space {
        Space {
            stores: self.sides.descriptors(),
            share: layout::share,
            sides: self.count(),
        }
    }
}

/// The failed pages of a request, of which the bytes from `from` on failed so.
pub(super) fn merge(failed: &mut Failed, of_piece: Failed, piece: &Piece) {
    if of_piece.is_none() {
        return;
    }
    // A piece begins within a page where a request is not aligned to pages: that page has failed whole.
    let first = piece.from / PAGE_SIZE;
    let end = (piece.from + piece.len).div_ceil(PAGE_SIZE);
    let is_aligned = piece.from.is_multiple_of(PAGE_SIZE);
    for page in first..end {
        if !is_aligned || of_piece.holds(page - first) {
            failed.add(page);
        }
    }
}

/// The parts that hold `len` bytes of `parts` from `from` on, in `room`.
pub(super) fn cut<'a>(parts: &[Part], from: usize, len: usize, room: &'a mut [Part]) -> &'a [Part] {
    let (mut skip, mut left, mut count) = (from, len, 0);
    for part in parts {
        let skipped = skip.min(part.len);
        let taken = (part.len - skipped).min(left);
        skip -= skipped;
        if taken > 0 {
            room[count] = Part {
                address: part.address + skipped,
                len: taken,
            };
            (count, left) = (count + 1, left - taken);
        }
    }
    assert_eq!(left, 0, "a piece outside of its request");
    &room[..count]
}

impl<H: Half> Store for Stripe<H> {
    /// What [`super::Queue`] falls back to: `queue` opens none.
    type Queue = super::ThreadQueue<Self>;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        let mut failed = Failed::NONE;
        for piece in layout::pieces(at, to.len, self.count()) {
            let part = Part {
                address: to.address + piece.from,
                len: piece.len,
            };
            // SAFETY: a part of `to`, for which the caller guarantees what this call asks for.
            let of_piece = unsafe { self.sides.read(piece.side, piece.at, part) };
            merge(&mut failed, of_piece, &piece);
        }
        failed
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        let len = bytes_of(parts);
        self.geometry.admit(at, len);
        let mut failed = Failed::NONE;
        for piece in layout::pieces(at, len, self.count()) {
            let mut room = [Part { address: 0, len: 0 }; super::store::REQUEST_PAGES_MAX];
            let of_piece = match piece.len == len {
                // SAFETY: the caller guarantees for the parts what this call asks for.
                true => unsafe { self.sides.write(piece.side, piece.at, parts) },
                // SAFETY: as above, for parts of them.
                false => unsafe {
                    let parts = cut(parts, piece.from, piece.len, &mut room);
                    self.sides.write(piece.side, piece.at, parts)
                },
            };
            merge(&mut failed, of_piece, &piece);
        }
        failed
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        let sides = 0..self.count();
        sides.into_iter().try_for_each(|side| {
            spans.iter().try_for_each(|span| {
                let before = |at| layout::before(side, at, self.count());
                let at = before(span.at);
                match before(span.at + span.len) - at {
                    0 => Ok(()),
                    len => self.sides.discard(side, &[Span { at, len }]),
                }
            })
        })
    }

    fn sync(&self) -> Result<(), Errno> {
        (0..self.count()).try_for_each(|side| self.sides.sync(side))
    }

    fn queue(&'static self, _: u32, _: Option<Part>) -> Result<Self::Queue, Errno> {
        // Threads serve.
        Err(Errno::NOSYS)
    }
}
