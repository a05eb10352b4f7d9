//! Writes of a mirror: both sides, at the same time where they are servers.
//!
//! A write succeeds if one side has taken it; the pages are stale on the other one then. They are stale, too, on a side to
//! which the supervisor copied while the write was on its way, as the copy may have ended last.

use super::super::nbd::{NbdTrouble, PendingWrite};
use super::super::side::{Begun, Half, Outcome};
use super::super::store::{Failed, Part, bytes_of};
use super::health::{Health, Side};
use super::{Mirror, pages_of};
use crate::sys::now;
use flashvm_core::{Nanos, PAGE_SIZE};
use std::ops::Range;

/// Attempts at a write that overlaps copies to both sides.
const TRIES: u32 = 3;

impl<H: Half> Mirror<H> {
    /// Writes to all sides that serve.
    ///
    /// # Safety
    /// As [`super::Store::write`].
    pub(super) unsafe fn write_both(&self, at: u64, parts: &[Part]) -> Failed {
        let len = bytes_of(parts);
        // SAFETY: the caller guarantees for the parts what this call asks for.
        let is_written = (0..TRIES).any(|_| unsafe { self.write_once(at, parts, len) });
        Failed::unless(is_written, len)
    }

    /// Returns whether a side has the pages for certain.
    ///
    /// # Safety
    /// As [`super::Store::write`].
    unsafe fn write_once(&self, at: u64, parts: &[Part], len: usize) -> bool {
        let pages = pages_of(at, len);
        let health = self.health();
        let copied = Side::BOTH.map(|side| self.state.copied(side.index(), pages.clone()));
        let begun_at = now();
        let serves = Side::BOTH.map(|side| move || self.is_same(health, side));
        let begin = |side: Side| {
            // SAFETY: the caller guarantees for the parts what this call asks for; `finish` follows.
            (!health.is_lost(side)).then(|| unsafe {
                let until = self.side(side).deadline();
                let serves = &serves[side.index()];
                let begun = self.side(side).begin_write(at, parts, until, serves);
                (begun, until)
            })
        };
        let mut begun = Side::BOTH.map(begin).into_iter();
        let ended = Side::BOTH.map(|side| {
            let (begun, until) = begun.next().flatten()?;
            Some(finish(begun, until, &serves[side.index()]))
        });
        // All trouble is noted before anybody waits for the last side.
        for side in Side::BOTH {
            if let Some(Outcome::Lost(trouble)) = ended[side.index()] {
                self.lose(side, health.epoch(side), trouble);
            }
        }
        let took = Side::BOTH.map(|side| match ended[side.index()] {
            Some(Outcome::Done) => true,
            Some(Outcome::Lost(trouble)) if self.health().is_last(side) => {
                // A side that was silent has had its time.
                let since = match trouble {
                    NbdTrouble::NoAnswer if self.is_same(health, side) => begun_at,
                    _ => now(),
                };
                // SAFETY: the caller guarantees for the parts what this call asks for.
                unsafe { self.side(side).write_patiently(at, parts, since) }.is_none()
            }
            _ => false,
        });
        let has = |side: Side| {
            let index = side.index();
            let now = self.state.copied(index, pages.clone());
            took[index] && now.is_some() && now == copied[index] && self.is_same(health, side)
        };
        let has = Side::BOTH.map(has);
        if has == [false; 2] {
            return false;
        }
        for side in Side::BOTH {
            self.settle(health, side, has[side.index()], at, len, &pages);
        }
        true
    }

    /// Whether a side has served all the time since it had this health.
    fn is_same(&self, then: Health, side: Side) -> bool {
        let now = Health::of(self.state.health());
        !now.is_lost(side) && now.epoch(side) == then.epoch(side)
    }

    /// Notes whether a side has the pages of a write.
    fn settle(&self, then: Health, side: Side, has: bool, at: u64, len: usize, pages: &Range<u32>) {
        if !has {
            self.state.mark(side.index(), pages.clone());
            return;
        }
        self.state.clear(side.index(), whole_pages_of(at, len));
        // A side that was lost meanwhile: its pages may have become stale before they were cleared.
        if !self.is_same(then, side) {
            self.state.mark(side.index(), pages.clone());
        }
    }
}

fn finish(begun: Begun<PendingWrite<'_>>, until: Nanos, serves: &dyn Fn() -> bool) -> Outcome {
    match begun {
        Begun::Ended(outcome) => outcome,
        Begun::Pending(pending) => Outcome::of(pending.finish(until, serves)),
        Begun::Busy => Outcome::Failed,
    }
}

/// The pages that `len` bytes at `at` cover.
fn whole_pages_of(at: u64, len: usize) -> Range<u32> {
    const PAGE: u64 = PAGE_SIZE as u64;
    let first = at.div_ceil(PAGE) as u32;
    first..first.max(((at + len as u64) / PAGE) as u32)
}
