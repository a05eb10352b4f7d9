//! WAGE, weighted age: evicts the page with the largest age / cost of its return. A policy of
//! FlashVM's own.
//!
//! A page that was idle for a time `a` is likely to stay idle for about as long again, so keeping
//! it saves its cost once in `a`: the page with the least cost / age is evicted. A page evicted
//! clean costs a read if it returns; a page evicted dirty costs a read and a write:
//! (read + write) / read times as much, 9 on the CRAW paper's flash. So a dirty page may be idle
//! nine times as long as a clean one. A page referenced again since it came in may be idle
//! [`AGAIN`] times as long: pages of a scan are evicted first.
//!
//! Age is counted in faults, not in references: pressure for frames ages a page, and a live pager
//! observes faults. Pages are in four LRU lists, clean or dirty, referenced again or not; the
//! oldest page of each list has its largest age, so a choice compares four pages.
//!
//! Unlike CRAW it has no areas with sizes to adapt, and no history of evicted pages. A history of
//! up to four times the frames, adaptive weights, and age in references were tried: none was
//! better. `docs/policies.md` has the figures, and where WAGE falls short.

use super::lists::{Bit, ListId, Lists, NOWHERE};
use super::{Costs, Policy, PolicyContext, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// Factor of the idle time of a page that was referenced again since it came in.
const AGAIN: f64 = 1.5;

/// The list of clean pages referenced once; the others follow.
const LIST: ListId = 1;
const LISTS: u8 = 4;
const REFERENCED_AGAIN: ListId = 1;
const DIRTY: ListId = 2;

/// The lists; their tails were referenced the longest ago.
pub(super) struct Wage {
    lists: Lists<4>,
    /// By page: the value of `faults` at its last reference.
    faults_then: Vec<u32>,
    /// Number of faults. It wraps; ages below 2^32 faults are right.
    faults: u32,
    /// By list: the cost of evicting a page, in reads, times [`AGAIN`] if it was referenced again.
    weights: [f64; LISTS as usize],
}

impl Wage {
    pub(super) fn new(context: &PolicyContext) -> Self {
        let Costs { read, write } = context.costs;
        let dirty = 1.0 + write.0 as f64 / read.0.max(1) as f64;
        Self {
            lists: Lists::new(context.pages),
            faults_then: vec![0; context.pages as usize],
            faults: 0,
            weights: [1.0, AGAIN, dirty, dirty * AGAIN],
        }
    }

    fn reference(&mut self, page: PageId, again: bool) {
        let dirty = self.lists.has(page, Bit::Dirty);
        let list = LIST + u8::from(again) * REFERENCED_AGAIN + u8::from(dirty) * DIRTY;
        if self.lists.head(list) != Some(page) {
            self.lists.enter(page, list);
        }
        self.faults_then[page.0 as usize] = self.faults;
    }

    /// Age / cost: the page with the largest score is evicted.
    fn score(&self, list: ListId, page: PageId) -> f64 {
        let age = self.faults.wrapping_sub(self.faults_then[page.0 as usize]);
        (f64::from(age) + 1.0) / self.weights[usize::from(list - LIST)]
    }
}

impl Policy for Wage {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.faults = self.faults.wrapping_add(u32::from(by.is_some()));
        self.reference(page, false);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.reference(page, true);
    }

    fn dirtied(&mut self, page: PageId) {
        self.lists.set(page, Bit::Dirty);
        let list = self.lists.place(page);
        if (LIST..LIST + DIRTY).contains(&list) {
            self.lists.enter(page, list + DIRTY);
        }
    }

    fn cleaned(&mut self, page: PageId) {
        self.lists.clear(page, Bit::Dirty);
        let list = self.lists.place(page);
        if list >= LIST + DIRTY {
            self.lists.enter(page, list - DIRTY);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        let list = self.lists.place(page);
        if list != NOWHERE {
            // The greatest age that can be represented.
            self.faults_then[page.0 as usize] = self.faults.wrapping_add(1);
            self.lists.enter_tail(page, list);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let oldest = (LIST..LIST + LISTS).filter_map(|list| {
            let page = self.lists.tail(list)?;
            Some((self.score(list, page), page))
        });
        let (_, page) = oldest.max_by(|a, b| a.0.total_cmp(&b.0))?;
        self.lists.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
        self.faults_then[to.0 as usize] = self.faults_then[from.0 as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Naive, agree, trace};
    use super::*;
    use proptest::prelude::*;

    struct Idle {
        page: u32,
        dirty: bool,
        again: bool,
        since: u32,
        turn: usize,
    }

    /// Finds victims by a comparison of all pages.
    #[derive(Default)]
    struct Plain {
        frames: usize,
        pages: Vec<Idle>,
        faults: u32,
        turn: usize,
    }

    impl Plain {
        fn victim(&mut self) -> u32 {
            let score = |idle: &Idle| {
                let again = if idle.again { AGAIN } else { 1.0 };
                let cost = again * if idle.dirty { 9.0 } else { 1.0 };
                (f64::from(self.faults - idle.since) + 1.0) / cost
            };
            let list = |idle: &Idle| (idle.dirty, idle.again);
            let worst = (0..self.pages.len()).max_by(|&a, &b| {
                let (a, b) = (&self.pages[a], &self.pages[b]);
                // Among equals the page of the last list, and in it the one of the earliest turn.
                let by_score = score(a).total_cmp(&score(b));
                by_score
                    .then(list(a).cmp(&list(b)))
                    .then(b.turn.cmp(&a.turn))
            });
            self.pages.remove(worst.expect("pages")).page
        }
    }

    impl Naive for Plain {
        fn reference(&mut self, page: u32, write: bool) -> Option<u32> {
            self.turn += 1;
            let (turn, faults) = (self.turn, self.faults);
            if let Some(idle) = self.pages.iter_mut().find(|idle| idle.page == page) {
                (idle.again, idle.since, idle.turn) = (true, faults, turn);
                idle.dirty |= write;
                return None;
            }
            let victim = (self.pages.len() == self.frames).then(|| self.victim());
            self.faults += 1;
            self.pages.push(Idle {
                page,
                dirty: write,
                again: false,
                since: self.faults,
                turn,
            });
            victim
        }
    }

    proptest! {
        #[test]
        fn matches_a_search_of_all_pages(trace in trace(), frames in 1..16_u32) {
            let mut plain = Plain {
                frames: frames as usize,
                ..Plain::default()
            };
            agree("wage", &mut plain, frames, &trace);
        }
    }

    #[test]
    fn a_dirty_page_may_be_idle_nine_times_as_long() {
        let mut wage = Wage::new(&PolicyContext::of_pages(64));
        wage.inserted(PageId(0), Some(Access::Write));
        wage.dirtied(PageId(0));
        let mut clean = 0;
        for page in 1..20 {
            wage.inserted(PageId(page), Some(Access::Read));
            if page > 1 {
                match wage.propose() {
                    Some(Proposal::Evict(PageId(0))) => break,
                    _ => clean += 1,
                }
            }
        }
        // Clean pages leave at a weighted age of 2; the dirty one reaches that at the eighteenth
        // fault.
        assert_eq!(clean, 15);
    }
}
