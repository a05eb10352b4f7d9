//! Two sides that hold the same bytes (`--flash mirror:A,B`): both are written, one is read, and the program outlives the
//! loss of either.
//!
//! - `health`: which sides serve; `choice`: which one is read, and how long before the other is asked too. They decide,
//!   and do nothing;
//! - `read`, `write`: requests to its sides (`super::side`);
//! - `attendant`: the supervisor's thread, which brings a side up to date that has returned, or lacks pages,
//!   and puts the spare in the place of one that stays away.
//!
//! What one process knows of the sides all know: [`crate::control::MirrorState`]. A page is *stale* on a side that lacks
//! its newest contents; it is read from the other one. Checksums are above ([`super::Checked`]): it reads both copies of
//! a page that is wrong, and says which of them is to be written again ([`super::Store::mend`]).
//!
//! A request waits for the last side as for a store without a mirror. It does not wait for a side that is lost, by a
//! broken connection or by no answer in time. Such a side may have lost all that it had, so when it returns, all pages of
//! the run are stale there. A spare that takes its place returns in the same way.

mod attendant;
mod choice;
mod health;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use attendant::{MirrorAttendant, MirrorAttending};

use super::nbd::{NbdTrouble, SideError};
use super::side::{Half, SideStore};
use super::store::{Failed, Geometry, Part, Span, Store};
use crate::control::{MirrorCounter, MirrorState, Process, STORES_MAX};
use crate::sys::discard::StoreKind;
use crate::sys::message::say_plainly;
use flashvm_core::PAGE_SIZE;
use health::{Health, Side};
use rustix::io::Errno;
use std::fmt;
use std::ops::Range;
use std::os::fd::RawFd;

/// A mirror of two sides.
#[derive(Debug)]
pub(crate) struct Mirror<H = SideStore> {
    sides: [H; 2],
    names: [String; 2],
    /// Takes the place of a side that stays away.
    spare: Option<(H, String)>,
    state: MirrorState,
    geometry: Geometry,
    /// Tells the user.
    says: fn(&dyn fmt::Display),
}

impl<H: Half> Mirror<H> {
    /// A mirror of the first `bytes` bytes of two sides.
    pub(super) fn new(sides: [H; 2], names: [String; 2], bytes: u64, state: MirrorState) -> Self {
        let [a, b] = [sides[0].geometry(), sides[1].geometry()];
        let kind = match [a.kind, b.kind] {
            [StoreKind::Device, StoreKind::Device] => StoreKind::Device,
            _ => StoreKind::File,
        };
        let geometry = Geometry {
            bytes,
            unit: a.unit.max(b.unit),
            kind,
            threads: a.threads.max(b.threads),
        };
        Self {
            sides,
            names,
            spare: None,
            state,
            geometry,
            says: say_plainly,
        }
    }

    /// This mirror with a spare, which has the same geometry as the sides.
    pub(super) fn with_spare(self, spare: Option<(H, String)>) -> Self {
        let unit = spare.as_ref().map_or(0, |(spare, _)| spare.geometry().unit);
        let geometry = Geometry {
            unit: self.geometry.unit.max(unit),
            ..self.geometry
        };
        Self {
            spare,
            geometry,
            ..self
        }
    }

    /// The spare, if it has taken the place of this side.
    fn spare_of(&self, side: Side) -> Option<&(H, String)> {
        let spare = self.spare.as_ref()?;
        (self.state.spared() == Some(side.index())).then_some(spare)
    }

    fn side(&self, side: Side) -> &H {
        let spare = self.spare_of(side);
        spare.map_or(&self.sides[side.index()], |(store, _)| store)
    }

    fn name(&self, side: Side) -> &str {
        let spare = self.spare_of(side);
        spare.map_or(&self.names[side.index()], |(_, name)| name)
    }

    /// Which sides serve now. Tells them how often they have returned.
    fn health(&self) -> Health {
        let health = Health::of(self.state.health());
        for side in Side::BOTH {
            self.side(side).set_epoch(health.epoch(side));
        }
        health
    }

    /// Notes trouble with a side in an epoch. The other side serves alone from now on, unless it is out already.
    fn lose(&self, side: Side, epoch: u32, trouble: NbdTrouble) {
        loop {
            let word = self.state.health();
            let Some(lost) = Health::of(word).lose(side, epoch) else {
                return;
            };
            if self.state.change_health(word, lost.word()) {
                self.state.count(MirrorCounter::Lost, 1);
                let [name, other] = [side, side.other()].map(|side| self.name(side));
                (self.says)(&format_args!(
                    "{name}: {trouble}; the run goes on with {other}"
                ));
                return;
            }
        }
    }

    /// Whether a side serves and has the newest contents of these pages.
    fn is_fresh(&self, health: Health, side: Side, pages: &Range<u32>) -> bool {
        // First the bits: a copy clears them after it has begun.
        let index = side.index();
        !health.is_lost(side)
            && !self.state.any_stale(index, pages.clone())
            && self.state.copied(index, pages.clone()).is_some()
    }

    /// Asks the sides that serve for the same, once. The error is the first one, unless a side succeeds.
    fn both(&self, request: impl Fn(&H) -> Result<(), SideError>) -> Result<(), Errno> {
        let health = self.health();
        let ask = |side: Side| match (!health.is_lost(side)).then(|| request(self.side(side))) {
            None => Err(Errno::IO),
            Some(Ok(())) => Ok(()),
            Some(Err(SideError::Answered(error))) => Err(error),
            Some(Err(SideError::Lost(trouble))) => {
                self.lose(side, health.epoch(side), trouble);
                Err(Errno::IO)
            }
        };
        let [one, two] = Side::BOTH.map(ask);
        if two.is_ok() { two } else { one }
    }
}

impl Mirror {
    /// In a forked child.
    pub(super) fn become_child(&mut self, process: Process) {
        let spare = self.spare.iter_mut().map(|(store, _)| store);
        for side in self.sides.iter_mut().chain(spare) {
            side.become_child(process);
        }
    }

    /// The descriptors of the sides that are files or devices.
    pub(super) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        let spare = self.spare.iter().map(|(store, _)| store);
        let stores = self.sides.iter().chain(spare);
        let mut files = stores.filter_map(SideStore::descriptor);
        [(); STORES_MAX].map(|()| files.next())
    }
}

/// The pages that `len` bytes at `at` touch.
fn pages_of(at: u64, len: usize) -> Range<u32> {
    const PAGE: u64 = PAGE_SIZE as u64;
    (at / PAGE) as u32..(at + len as u64).div_ceil(PAGE) as u32
}

impl<H: Half> Store for Mirror<H> {
    /// What [`super::Queue`] falls back to: `queue` opens none.
    type Queue = super::ThreadQueue<Self>;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.read_best(at, to) }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        self.geometry.admit(at, super::store::bytes_of(parts));
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.write_both(at, parts) }
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        if spans.is_empty() {
            return Ok(());
        }
        self.both(|side| side.discard(spans))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.both(Half::sync)
    }

    fn queue(&'static self, _: u32, _: Option<Part>) -> Result<Self::Queue, Errno> {
        // Threads serve.
        Err(Errno::NOSYS)
    }

    fn copies(&self) -> usize {
        Side::BOTH.len()
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        self.geometry.admit(at, to.len);
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.read_side(Side::BOTH[copy], at, to) }
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        let pages = pages_of(at, len);
        let health = self.health();
        let wrong = Side::BOTH[copy];
        // Where the other copy is not fresh, this one was no worse.
        if self.is_fresh(health, wrong, &pages) && self.is_fresh(health, wrong.other(), &pages) {
            self.state.count(MirrorCounter::Mended, pages.len() as u64);
            self.state.mark(copy, pages);
        }
    }
}
