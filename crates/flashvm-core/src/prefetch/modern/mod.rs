//! The default prefetcher: several streams at once, of any stride and direction, with windows that grow while they hit.
//!
//! Faults that follow each other at a constant distance make a stream (`streams`), whose windows grow with the pages
//! that it uses (`window`). A stream that passes a checkpoint without using it must be recognised again: the
//! pattern may come from a B-tree or a hash table. A stream that skips pages gets checkpoints of several
//! pages.
//!
//! A program that loads from a page and then stores to it pays a second fault, for the store. So the
//! windows of a stream with such pages are mapped writable. Each page whose touch is reported is still mapped
//! for that access, and serves as a sample: after a sample without a store, the next
//! windows are write-protected again.
//!
//! Outside of streams the prefetcher expects a store when nearly all loaded pages are stored to (`odds`), fills memory
//! with zeros ahead (`fill`), and guesses neighbours (`guess`).

mod fill;
mod guess;
mod odds;
mod streams;
#[cfg(test)]
mod tests;
mod window;

use self::fill::Fill;
use self::guess::Guesses;
use self::odds::StoreOdds;
use self::streams::Streams;
use self::window::{is_on_its_way, is_resident, issue};
use super::{Candidate, Demand, Passed, Prefetcher, View, Whereabouts};
use crate::ids::PageId;

/// The prefetcher.
pub(super) struct Modern {
    streams: Streams,
    window_max: u32,
    guesses: Guesses,
    passed: Option<Passed>,
    /// The page of the last demand, if it was a miss outside of streams.
    lone: Option<PageId>,
    odds: StoreOdds,
    fill: Fill,
}

impl Modern {
    pub(super) fn new(window_max: u32) -> Self {
        Self {
            streams: Streams::new(),
            window_max,
            guesses: Guesses::new(),
            passed: None,
            lone: None,
            odds: StoreOdds::default(),
            fill: Fill::default(),
        }
    }

    /// Handles a use of a prefetched page.
    fn hit(&mut self, page: i64, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let Some(stream) = self.streams.ahead_of(page) else {
            self.guesses.used();
            self.learn(page, demand, view, out);
            return;
        };
        let at_marker = stream.marker.is_some_and(|m| stream.steps(m, page) >= 0);
        if !stream.passes_checkpoints(page, true) {
            stream.restart(page, demand.access);
            return;
        }
        stream.advance(page, true);
        stream.sample(page, demand.access);
        if stream.steps(stream.next, page) >= 0 {
            stream.next = page + stream.stride;
        }
        if at_marker {
            self.passed = stream.pass(page);
            issue(stream, self.window_max, demand, view, out);
        }
    }

    /// Extends a stream that is not regular yet by this page. False: none is near.
    fn learn(
        &mut self,
        page: i64,
        demand: &Demand,
        view: &dyn View,
        out: &mut Vec<Candidate>,
    ) -> bool {
        let resident = |page| is_resident(view, page);
        let Some(stream) = self.streams.learn(page, resident) else {
            return false;
        };
        stream.sample(page, demand.access);
        if stream.is_regular() {
            issue(stream, self.window_max, demand, view, out);
        }
        true
    }

    /// Handles a fault on a page that is not resident.
    fn miss(&mut self, page: i64, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        let stream = self.streams.ahead_of(page);
        if let Some(stream) = stream.filter(|stream| is_on_its_way(stream, page, view)) {
            let asked_for = stream.steps(page, stream.next) > 0;
            if !stream.passes_checkpoints(page, asked_for) {
                stream.restart(page, demand.access);
                return;
            }
            stream.sample(page, demand.access);
            if asked_for {
                // The page was evicted before its use: the window was too large or too early.
                stream.length /= 2;
            }
            self.passed = stream.pass(page);
            stream.advance(page, false);
            stream.next = page + stream.stride;
            issue(stream, self.window_max, demand, view, out);
            return;
        }
        if self.learn(page, demand, view, out) {
            return;
        }
        self.streams.begin(page, demand.access);
        self.lone = Some(demand.page);
        if let Whereabouts::Flash(slot) = demand.from {
            self.guesses.propose(demand.page, slot.0, view, out);
        }
    }
}

impl Prefetcher for Modern {
    fn demand(&mut self, demand: &Demand, view: &dyn View, out: &mut Vec<Candidate>) {
        self.passed = None;
        self.lone = None;
        if self.window_max == 0 {
            return;
        }
        let page = i64::from(demand.page.0);
        if demand.from == Whereabouts::Absent && view.at_ease() {
            self.fill.propose(demand, view, out);
        } else if demand.hit {
            self.hit(page, demand, view, out);
        } else {
            self.miss(page, demand, view, out);
        }
    }

    fn passed(&mut self) -> Option<Passed> {
        self.passed.take()
    }

    fn expects_store(&mut self, page: PageId) -> bool {
        self.lone == Some(page) && self.odds.loaded(page)
    }

    fn stored(&mut self, page: PageId) {
        self.odds.stored(page);
        self.streams.stored(page.0.into());
    }

    fn wasted(&mut self, page: PageId) {
        if let Some(stream) = self.streams.ahead_of(page.0.into()) {
            stream.length -= stream.length / 8;
        }
    }
}
