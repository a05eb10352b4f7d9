//! Reads of a mirror: the better side, and the other one if the first takes long or fails.
//!
//! Only this thread stores to the memory of a read: when it waits for both sides and one has answered, the other's reply
//! stays in its connection, and is thrown away there.

use super::super::nbd::{NbdTrouble, PendingRead};
use super::super::side::{Begun, Half, Outcome};
use super::super::store::{Failed, Part};
use super::choice::{self, SMALL_PAGES, TRY_EVERY, TRY_ONE_OF};
use super::health::{Health, Side};
use super::{Mirror, pages_of};
use crate::control::MirrorCounter;
use crate::sys::{now, sleep};
use flashvm_core::{Nanos, PAGE_SIZE};
use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

/// One read of both sides, on its way.
struct Ask {
    at: u64,
    to: Part,
    begun: Nanos,
    health: Health,
    /// Its latency counts.
    is_small: bool,
    /// Sides that were asked, and have not answered in time.
    silent: [Cell<bool>; 2],
}

impl Ask {
    fn new(at: u64, to: Part, health: Health) -> Self {
        Self {
            at,
            to,
            begun: now(),
            health,
            is_small: pages_of(at, to.len).len() as u32 <= SMALL_PAGES,
            silent: Default::default(),
        }
    }
}

/// The end of a read of one side.
enum Attempt {
    Done,
    Failed,
    /// All connections wait for replies to reads that were left.
    Busy,
}

/// Pause before a side whose connections are all in use is tried again.
const BUSY: Duration = Duration::from_micros(200);

impl<H: Half> Mirror<H> {
    /// Reads from the best side that has all pages; page by page, if no side has all.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    pub(super) unsafe fn read_best(&self, at: u64, to: Part) -> Failed {
        let health = self.health();
        let pages = pages_of(at, to.len);
        let ask = Ask::new(at, to, health);
        let [a, b] = Side::BOTH.map(|side| self.is_fresh(health, side, &pages));
        // SAFETY: the caller guarantees for `to` what these calls ask for.
        unsafe {
            match (a, b) {
                (true, true) => self.read_either(&ask, &pages),
                (true, false) => self.read_alone(Side::A, &ask),
                (false, true) => self.read_alone(Side::B, &ask),
                (false, false) if pages.len() > 1 => self.read_by_page(at, to),
                // Both sides have failed it.
                (false, false) => Failed::all(to.len),
            }
        }
    }

    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn read_by_page(&self, at: u64, to: Part) -> Failed {
        let mut failed = Failed::NONE;
        // A page of a request is counted from its start, and starts at the request's offset: both are whole pages where
        // more than one page is read, or the first piece is shorter.
        for from in (0..to.len).step_by(PAGE_SIZE) {
            let part = Part {
                address: to.address + from,
                len: (to.len - from).min(PAGE_SIZE),
            };
            // SAFETY: a part of `to`, for which the caller guarantees what this call asks for.
            let of_page = unsafe { self.read_best_page(at + from as u64, part) };
            if !of_page.is_none() {
                failed.add(from / PAGE_SIZE);
            }
        }
        failed
    }

    /// A page's bytes, which lie in two pages of the store if the request is not aligned to pages.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn read_best_page(&self, at: u64, to: Part) -> Failed {
        let head = (PAGE_SIZE - at as usize % PAGE_SIZE).min(to.len);
        let tail = Part {
            address: to.address + head,
            len: to.len - head,
        };
        // SAFETY: parts of `to`, for which the caller guarantees what these calls ask for.
        unsafe {
            let first = self.read_best(at, Part { len: head, ..to });
            match tail.len {
                0 => first,
                _ if !first.is_none() => first,
                _ => self.read_best(at + head as u64, tail),
            }
        }
    }

    /// Reads from the only side that has the pages. Waits for it, as for a store without a mirror.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn read_alone(&self, side: Side, ask: &Ask) -> Failed {
        // A side that was silent has had its time.
        let since = match ask.silent[side.index()].get() {
            true => ask.begun,
            false => now(),
        };
        // SAFETY: the caller guarantees for `to` what this call asks for.
        let failed = unsafe { self.side(side).read_patiently(ask.at, ask.to, since) };
        if failed.is_none() {
            self.answered(side, ask, now().since(since));
        }
        failed
    }

    /// Reads one copy, without the help of the other.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    pub(super) unsafe fn read_side(&self, side: Side, at: u64, to: Part) -> Failed {
        let health = self.health();
        let pages = pages_of(at, to.len);
        if !self.is_fresh(health, side, &pages) {
            return Failed::all(to.len);
        }
        let ask = Ask::new(at, to, health);
        loop {
            // SAFETY: the caller guarantees for `to` what these calls ask for.
            let attempt = unsafe {
                if self.health().is_last(side) {
                    return self.read_alone(side, &ask);
                }
                self.try_side(side, &ask)
            };
            match attempt {
                Attempt::Done => return Failed::NONE,
                Attempt::Failed => return Failed::all(to.len),
                Attempt::Busy => sleep(BUSY),
            }
        }
    }

    /// Reads from the side that is chosen, and from the other one if that takes long or fails.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn read_either(&self, ask: &Ask, pages: &Range<u32>) -> Failed {
        let averages = self.state.averages();
        let tries = ask.is_small
            && self.state.reads() % TRY_ONE_OF == TRY_ONE_OF - 1
            && self.state.may_try(ask.begun.0, TRY_EVERY.0);
        let choice = choice::choose(averages, pages.start, pages.len() as u32, tries);
        let (first, second) = (choice.first, choice.first.other());
        // SAFETY: the caller guarantees for `to` what these calls ask for.
        let mut attempt = unsafe { self.try_chosen(first, choice.patience, ask) };
        if matches!(attempt, Attempt::Failed) {
            self.state.count(MirrorCounter::FailedOver, 1);
        }
        loop {
            if matches!(attempt, Attempt::Done) {
                return Failed::NONE;
            }
            let health = self.health();
            if let Some(last) = Side::BOTH.into_iter().find(|&side| health.is_last(side)) {
                // SAFETY: the caller guarantees for `to` what this call asks for.
                return unsafe { self.read_alone(last, ask) };
            }
            // SAFETY: the caller guarantees for `to` what these calls ask for.
            match (attempt, unsafe { self.try_side(second, ask) }) {
                (_, Attempt::Done) => return Failed::NONE,
                (Attempt::Failed, Attempt::Failed) if self.health().out().is_none() => {
                    return Failed::all(ask.to.len);
                }
                _ => sleep(BUSY),
            }
            // SAFETY: the caller guarantees for `to` what these calls ask for.
            attempt = unsafe { self.try_side(first, ask) };
        }
    }

    /// Reads from one side, once.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn try_side(&self, side: Side, ask: &Ask) -> Attempt {
        let until = self.side(side).deadline();
        // SAFETY: the caller guarantees for `to` what these calls ask for.
        let outcome = unsafe {
            match self.side(side).begin_read(ask.at, ask.to, until, true) {
                Begun::Ended(outcome) => outcome,
                Begun::Pending(pending) => Outcome::of(pending.finish(ask.to, until)),
                Begun::Busy => return Attempt::Busy,
            }
        };
        self.note(side, ask, outcome)
    }

    /// Reads from the side that was chosen, and from the other one too after `patience`.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn try_chosen(&self, side: Side, patience: Nanos, ask: &Ask) -> Attempt {
        let until = self.side(side).deadline();
        // SAFETY: the caller guarantees for `to` what these calls ask for. A read that is pending does not store to it.
        unsafe {
            let outcome = match self.side(side).begin_read(ask.at, ask.to, until, true) {
                Begun::Ended(outcome) => outcome,
                Begun::Busy => return Attempt::Busy,
                Begun::Pending(pending) => {
                    let hedge_at = Nanos(ask.begun.0 + patience.0);
                    if PendingRead::first(&[&pending], hedge_at.min(until)).is_none() {
                        return self.hedge(side, pending, ask, until);
                    }
                    Outcome::of(pending.finish(ask.to, until))
                }
            };
            self.note(side, ask, outcome)
        }
    }

    /// Asks the other side too, and takes the answer that comes first.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    unsafe fn hedge(
        &self,
        first: Side,
        pending: PendingRead<'_>,
        ask: &Ask,
        until: Nanos,
    ) -> Attempt {
        let second = first.other();
        self.state.count(MirrorCounter::Hedged, 1);
        // SAFETY: the caller guarantees for `to` what these calls ask for. Of the reads that are pending only the one that
        // is being finished stores to it.
        unsafe {
            let begun = self.side(second).begin_read(ask.at, ask.to, until, false);
            let other = match begun {
                Begun::Pending(other) => other,
                Begun::Ended(Outcome::Done) => {
                    pending.leave();
                    self.outrun(first, ask);
                    return self.note(second, ask, Outcome::Done);
                }
                Begun::Ended(outcome) => {
                    self.note(second, ask, outcome);
                    return self.note(first, ask, Outcome::of(pending.finish(ask.to, until)));
                }
                Begun::Busy => {
                    return self.note(first, ask, Outcome::of(pending.finish(ask.to, until)));
                }
            };
            let is_second = PendingRead::first(&[&pending, &other], until) == Some(1);
            let (winner, wins, loser, loses) = match is_second {
                true => (second, other, first, pending),
                false => (first, pending, second, other),
            };
            let outcome = Outcome::of(wins.finish(ask.to, until));
            if outcome == Outcome::Done {
                loses.leave();
                if is_second {
                    self.outrun(first, ask);
                }
                return self.note(winner, ask, outcome);
            }
            self.note(winner, ask, outcome);
            self.note(loser, ask, Outcome::of(loses.finish(ask.to, until)))
        }
    }

    /// Takes the end of a read into account.
    fn note(&self, side: Side, ask: &Ask, outcome: Outcome) -> Attempt {
        match outcome {
            Outcome::Done => {
                self.answered(side, ask, now().since(ask.begun));
                return Attempt::Done;
            }
            Outcome::Failed => self.outrun(side, ask),
            Outcome::Lost(trouble) => {
                ask.silent[side.index()].set(trouble == NbdTrouble::NoAnswer);
                self.lose(side, ask.health.epoch(side), trouble);
            }
        }
        Attempt::Failed
    }

    fn answered(&self, side: Side, ask: &Ask, took: Nanos) {
        self.state.count(MirrorCounter::Read(side.index()), 1);
        if ask.is_small {
            let average = self.state.averages()[side.index()];
            let average = choice::answered(average, took);
            self.state.set_average(side.index(), average);
        }
    }

    /// A side was slower than the other one, or failed.
    fn outrun(&self, side: Side, ask: &Ask) {
        if ask.is_small {
            let average = self.state.averages()[side.index()];
            let average = choice::outrun(average, now().since(ask.begun));
            self.state.set_average(side.index(), average);
        }
    }
}
