//! CRAW, CLOCK for read and write (Lee, Bahn and Shin, *Page Replacement for Write References in NAND
//! Flash Based Virtual Memory Systems*, JCSE 8(3), 2014, IV), and CRAW-A, its approximation by
//! reference and modified bits (VI.A).
//!
//! Three clocks over one set of frames: the read area R, and the write area, in which W1 is for
//! pages written once and W2 for pages written more often while their metadata was kept. A page may
//! be in R and in the write area at once, by separate links; it leaves RAM when it is in neither. A
//! page that leaves an area is remembered in its ghost area R', W1' or W2', first in, first out. A
//! fault on a page remembered there enlarges the area. Victims are sought in the area with the
//! largest ratio of current to desired size.
//!
//! The text that we have lacks the pseudocode of the paper's Figure 9. Where the text leaves a
//! choice, this file chooses as follows:
//!
//! - *How much an area grows.* "The different cost of a read and a write is also considered" (IV.A):
//!   by one page for a hit in W1' or W2'; for a hit in R' by the cost of a read in writes, an eighth
//!   with the paper's Table 1. The others shrink in proportion to their desired sizes, none below one
//!   page, so that the sum stays at S frames. At first each has S/3: nothing is known.
//! - *Ghosts.* R' holds S - R pages, W1' and W2' together S - W1 - W2, where R, W1 and W2 are
//!   desired sizes. So there are at most S ghosts, however many pages are in both areas (IV.A). The
//!   longer of W1' and W2' is trimmed, so that neither starves the other.
//! - *Bits of a page that comes in* are clear: the faulting access has already decided its area.
//! - *Pages of W1 found written* go to W2, which is for "pages that are written more than once"
//!   (IV.B). CAR, on which the paper builds, does the same with T1 and T2. In R and W2 a page whose
//!   bit is set stays, with its bit cleared.
//! - *A page found written in R* (IV.B) joins W1 with its bit clear, or W2 if W1' or W2' remembers
//!   it: W2 is for "pages that are written more than once" while their metadata exist. There was no
//!   fault, so no size changes. A page that is already in the write area keeps its write bit for the
//!   hand there. Pages found read in W1 or W2 join R likewise.
//! - *History of the other kind.* A read fault leaves W1' and W2' unchanged, a write fault leaves
//!   R' unchanged (IV.B).
//! - *Prefetched pages*, and pages that the engine declines to evict, join W1 or W2 if W1' or W2'
//!   remembers them, otherwise R, with their bit clear. No size changes.
//!
//! Growth, bits and promotion were chosen by measurement among the readings that the text allows:
//! `docs/policies.md` has the figures of the others.
//!
//! In CRAW-A R is the area of all references: writes set the bit of R as well, and a write fault
//! enters the page into R and the write area; a hit in either history counts.

pub(super) mod readings;

pub(super) use readings::Readings;

use super::lists::{Bit, ListId, Lists};
use super::{Costs, Policy, PolicyContext, Proposal};
use crate::event::Access;
use crate::ids::PageId;
use readings::{Arrival, Found, Ghosts, Growth, OtherBit, OtherHistory, Promotion, Shrink, Start};

/// Places among the links for reads.
const R: ListId = 1;
const R_GHOST: ListId = 2;
/// Places among the links for writes.
const W1: ListId = 1;
const W2: ListId = 2;
const W1_GHOST: ListId = 3;
const W2_GHOST: ListId = 4;

/// Among the links for reads the read or reference bit, among those for writes the write or
/// modified bit.
const BIT: Bit = Bit::Referenced;

/// Which accesses set the bits of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    /// A read bit by reads, a write bit by writes: CRAW.
    ReadWrite,
    /// A reference bit by both, a modified bit by writes: CRAW-A.
    ReferenceModified,
}

/// In which area a victim is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// That with the largest ratio of current to desired size: CRAW.
    Fullest,
    /// That with the largest ratio over the cost of evicting a page from it: CRAW-C.
    Cheapest,
}

/// An area; its number is its index in `desired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    R,
    W1,
    W2,
}

impl Area {
    const ALL: [Self; 3] = [Self::R, Self::W1, Self::W2];
}

/// The policy.
pub(super) struct Craw {
    read: Lists<2>,
    write: Lists<4>,
    bits: Bits,
    readings: Readings,
    frames: f64,
    /// Desired sizes of R, W1 and W2, in pages; their sum is `frames`.
    desired: [f64; 3],
    /// Pages that left RAM, by the area under whose hand.
    evicted: [u64; 3],
    /// Pages by which a hit in R' enlarges R, and a hit in W1' or W2' those.
    growth: [f64; 2],
    /// Factor of R's ratio when a victim is sought.
    read_weight: f64,
}

impl Craw {
    pub(super) fn new(
        context: &PolicyContext,
        bits: Bits,
        victim: Victim,
        readings: Readings,
    ) -> Self {
        let Costs { read, write } = context.costs;
        let read_in_writes = read.0 as f64 / write.0.max(1) as f64;
        let write_in_reads = write.0 as f64 / read.0.max(1) as f64;
        Self {
            read: Lists::new(context.pages),
            write: Lists::new(context.pages),
            bits,
            readings,
            frames: 0.0,
            desired: [0.0; 3],
            evicted: [0; 3],
            read_weight: match victim {
                Victim::Fullest => 1.0,
                // Half way, on a scale of factors, between ignoring the cost and counting it whole.
                Victim::Cheapest => (1.0 + write_in_reads).sqrt(),
            },
            growth: match readings.growth {
                Growth::Cost => [read_in_writes, 1.0],
                Growth::Whole => [1.0, write_in_reads],
                Growth::Both => [1.0, 1.0 + write_in_reads],
                Growth::Equal => [1.0, 1.0],
            },
        }
    }

    fn is_read(&self, page: PageId) -> bool {
        self.read.place(page) == R
    }

    fn is_written(&self, page: PageId) -> bool {
        matches!(self.write.place(page), W1 | W2)
    }

    fn len(&self, area: Area) -> u32 {
        match area {
            Area::R => self.read.len(R),
            Area::W1 => self.write.len(W1),
            Area::W2 => self.write.len(W2),
        }
    }

    /// Enlarges an area by `pages`, taken from the others; by default in proportion to what they have
    /// above one.
    fn grow(&mut self, area: Area, pages: f64) {
        let spare = |craw: &Self, other: Area| (craw.desired[other as usize] - 1.0).max(0.0);
        let others = || Area::ALL.into_iter().filter(|&other| other != area);
        let larger = others().max_by(|&a, &b| spare(self, a).total_cmp(&spare(self, b)));
        let both = self.readings.shrink == Shrink::Both;
        let others = others().filter(|&other| both || Some(other) == larger);
        let all: f64 = others.clone().map(|other| spare(self, other)).sum();
        let pages = pages.min(all);
        if pages <= 0.0 {
            return;
        }
        for other in others {
            let share = pages * spare(self, other) / all;
            self.desired[other as usize] -= share;
            self.desired[area as usize] += share;
        }
        self.trim();
    }

    /// Forgets the oldest pages of histories that are too long.
    fn trim(&mut self) {
        let [r, w1, w2] = self.desired;
        while f64::from(self.read.len(R_GHOST)) > (self.frames - r).max(0.0) {
            self.read.pop(R_GHOST);
        }
        if self.readings.ghosts == Ghosts::Each {
            for (ghost, size) in [(W1_GHOST, w1), (W2_GHOST, w2)] {
                while f64::from(self.write.len(ghost)) > (self.frames - size).max(0.0) {
                    self.write.pop(ghost);
                }
            }
            return;
        }
        loop {
            let (first, second) = (self.write.len(W1_GHOST), self.write.len(W2_GHOST));
            if f64::from(first + second) <= (self.frames - w1 - w2).max(0.0) {
                return;
            }
            self.write
                .pop(if first > second { W1_GHOST } else { W2_GHOST });
        }
    }

    fn fault_read(&mut self, page: PageId) {
        if self.read.place(page) == R_GHOST {
            self.read.remove(page);
            self.grow(Area::R, self.growth[0]);
        }
        self.read.enter(page, R);
    }

    fn fault_write(&mut self, page: PageId) {
        let history = self.write.place(page);
        if matches!(history, W1_GHOST | W2_GHOST) {
            self.write.remove(page);
            let area = if history == W1_GHOST {
                Area::W1
            } else {
                Area::W2
            };
            self.grow(area, self.growth[1]);
            self.write.enter(page, W2);
        } else {
            self.write.enter(page, W1);
        }
    }

    /// Adds a page to the write area without a fault.
    fn join_written(&mut self, page: PageId) {
        let known = self.remembers_written(page) && self.readings.found == Found::History;
        self.write.enter(page, if known { W2 } else { W1 });
    }

    fn remembers_written(&self, page: PageId) -> bool {
        matches!(self.write.place(page), W1_GHOST | W2_GHOST)
    }

    /// A fault of one kind on a page that a history of the other kind may remember.
    fn fault_other(&mut self, page: PageId, access: Access) {
        let remembered = match access {
            Access::Read => self.remembers_written(page),
            Access::Write => self.read.place(page) == R_GHOST,
        };
        match (self.readings.other_history, access) {
            _ if !remembered => {}
            (OtherHistory::Kept, _) => {}
            (OtherHistory::Forgotten, Access::Read) => self.write.remove(page),
            (OtherHistory::Forgotten, Access::Write) => self.read.remove(page),
            (OtherHistory::Hit, Access::Read) => self.fault_write(page),
            (OtherHistory::Hit, Access::Write) => self.fault_read(page),
        }
    }

    fn set_bits(&mut self, page: PageId, access: Access) {
        if access == Access::Read || self.bits == Bits::ReferenceModified {
            self.read.set(page, BIT);
        }
        if access == Access::Write {
            self.write.set(page, BIT);
        }
    }

    /// The area with pages that has the largest ratio of current to desired size.
    fn fullest(&self) -> Option<Area> {
        let ratio = |area: Area| {
            let cost = if area == Area::R {
                self.read_weight
            } else {
                1.0
            };
            cost * f64::from(self.len(area)) / self.desired[area as usize]
        };
        let filled = Area::ALL.into_iter().filter(|&area| self.len(area) > 0);
        filled.max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)))
    }

    /// One step of the hand of R; returns a proposal, if any.
    fn step_read(&mut self) -> Option<Proposal> {
        let page = self.read.tail(R)?;
        let written = self.is_written(page);
        let clears = !written || self.readings.other_bit == OtherBit::Cleared;
        let found = clears && self.write.take(page, BIT);
        if found && !written {
            self.join_written(page);
        }
        if self.read.take(page, BIT) {
            self.read.enter(page, R);
            return Some(Proposal::Unreference(page));
        }
        self.read.enter(page, R_GHOST);
        self.trim();
        self.left(page, found)
    }

    /// One step of the hand of W1 or W2.
    fn step_write(&mut self, area: ListId, ghost: ListId) -> Option<Proposal> {
        let page = self.write.tail(area)?;
        let read = self.is_read(page);
        let clears = !read || self.readings.other_bit == OtherBit::Cleared;
        let found = clears && self.read.take(page, BIT);
        if found && !read {
            self.read.enter(page, R);
        }
        if self.write.take(page, BIT) {
            let stays = self.readings.promotion == Promotion::Stay;
            self.write.enter(page, if stays { area } else { W2 });
            return Some(Proposal::Unreference(page));
        }
        self.write.enter(page, ghost);
        self.trim();
        self.left(page, found)
    }

    /// The proposal for a page that has left an area. `cleared`: a bit of the page was cleared.
    fn left(&self, page: PageId, cleared: bool) -> Option<Proposal> {
        match self.is_read(page) || self.is_written(page) {
            true => cleared.then_some(Proposal::Unreference(page)),
            false => Some(Proposal::Evict(page)),
        }
    }
}

impl Policy for Craw {
    fn has_write_bits(&self) -> bool {
        true
    }

    fn resized(&mut self, frames: u32) {
        let frames = f64::from(frames);
        if self.frames == 0.0 {
            self.desired = match self.readings.start {
                Start::Halves => [frames / 2.0, frames / 4.0, frames / 4.0],
                Start::Thirds => [frames / 3.0; 3],
            };
        }
        let scale = if self.frames == 0.0 {
            1.0
        } else {
            frames / self.frames
        };
        self.frames = frames;
        self.desired = self.desired.map(|pages| (pages * scale).max(1.0));
        self.trim();
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.read.clear(page, BIT);
        self.write.clear(page, BIT);
        if let Some(access) = by {
            self.fault_other(page, access);
            if self.readings.arrival == Arrival::Set {
                self.set_bits(page, access);
            }
        }
        match by {
            Some(Access::Read) => self.fault_read(page),
            Some(Access::Write) => {
                self.fault_write(page);
                if self.bits == Bits::ReferenceModified {
                    self.fault_read(page);
                }
            }
            None => match self.write.place(page) {
                W1_GHOST => self.write.enter(page, W1),
                W2_GHOST => self.write.enter(page, W2),
                _ => self.read.enter(page, R),
            },
        }
    }

    fn touched(&mut self, page: PageId, access: Access) {
        if !self.is_read(page) && !self.is_written(page) {
            match access {
                Access::Read => self.read.enter(page, R),
                Access::Write => self.join_written(page),
            }
        }
        self.set_bits(page, access);
    }

    fn removed(&mut self, page: PageId) {
        self.read.forget(page);
        self.write.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        self.read.clear(page, BIT);
        self.write.clear(page, BIT);
        if self.is_read(page) {
            self.read.enter_tail(page, R);
        }
        if self.is_written(page) {
            let area = self.write.place(page);
            self.write.enter_tail(page, area);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        loop {
            let area = self.fullest()?;
            let step = match area {
                Area::R => self.step_read(),
                Area::W1 => self.step_write(W1, W1_GHOST),
                Area::W2 => self.step_write(W2, W2_GHOST),
            };
            if matches!(step, Some(Proposal::Evict(_))) {
                self.evicted[area as usize] += 1;
            }
            if step.is_some() {
                return step;
            }
        }
    }

    fn areas(&self) -> Vec<super::Area> {
        let names = Area::ALL.into_iter().zip(["R", "W1", "W2"]);
        let areas = names.map(|(area, name)| super::Area {
            name,
            desired: self.desired[area as usize],
            pages: self.len(area),
            evicted: self.evicted[area as usize],
        });
        areas.collect()
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.read.relocate(from, to);
        self.write.relocate(from, to);
    }
}

#[cfg(test)]
mod tests;
