//! A first-in first-out queue of pages that may leave it from the middle.
//!
//! Removal costs nothing: an entry is stale as soon as its page no longer belongs, and is skipped
//! when its turn comes. That saves eight bytes of links a page. When the buffer is full and stale
//! entries outnumber live ones by [`SLACK`], the queue is swept instead of enlarged: a sweep removes at
//! least half of the entries. A page that leaves and returns before a sweep may keep its older place.

use crate::ids::PageId;
use crate::page::PageTable;
use std::cmp::Reverse;
use std::collections::VecDeque;

const SLACK: usize = 64;

/// Pages that the table says belong here, oldest first.
pub(crate) struct PageQueue {
    belongs: fn(&PageTable, PageId) -> bool,
    entries: VecDeque<PageId>,
    live: u32,
}

impl PageQueue {
    /// A queue of the pages for which `belongs` holds.
    pub(crate) fn new(belongs: fn(&PageTable, PageId) -> bool, capacity: usize) -> Self {
        Self {
            belongs,
            entries: VecDeque::with_capacity(capacity),
            live: 0,
        }
    }

    /// Pages in the queue.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// A page belongs here from now on.
    pub(crate) fn push(&mut self, page: PageId, table: &PageTable) {
        debug_assert!((self.belongs)(table, page));
        if self.entries.len() == self.entries.capacity()
            && self.entries.len() >= 2 * self.live as usize + SLACK
        {
            self.sweep(table);
        }
        self.entries.push_back(page);
        self.live += 1;
    }

    /// A page of the queue no longer belongs here, or is about to leave.
    pub(crate) fn forget(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.entries.clear();
        }
    }

    /// Takes the oldest page; the caller changes its state so that it no longer belongs here.
    pub(crate) fn pop(&mut self, table: &PageTable) -> Option<PageId> {
        let page = self.oldest(table)?;
        self.entries.pop_front();
        self.forget();
        Some(page)
    }

    /// The oldest page, which stays.
    pub(crate) fn oldest(&mut self, table: &PageTable) -> Option<PageId> {
        while let Some(&page) = self.entries.front() {
            if (self.belongs)(table, page) {
                return Some(page);
            }
            self.entries.pop_front();
        }
        assert_eq!(self.live, 0, "pages lost from their queue");
        None
    }

    /// Removes stale entries, and all but the youngest of several entries for one page.
    fn sweep(&mut self, table: &PageTable) {
        let live = |(_, page): &(usize, PageId)| (self.belongs)(table, *page);
        let entries = self.entries.drain(..).enumerate();
        let mut kept: Vec<(usize, PageId)> = entries.filter(live).collect();
        kept.sort_unstable_by_key(|&(age, page)| (page, Reverse(age)));
        kept.dedup_by_key(|&mut (_, page)| page);
        kept.sort_unstable();
        self.entries.extend(kept.into_iter().map(|(_, page)| page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageState;

    #[test]
    fn stale_entries_are_skipped_and_swept() {
        let mut table = PageTable::new(100);
        let mut queue = PageQueue::new(|table, page| table.state(page) == PageState::Mapped, 0);
        for page in (0..100).map(PageId) {
            table.set_state(page, PageState::Mapped);
            queue.push(page, &table);
        }
        // Each page leaves and returns many times: the queue stays short.
        for _ in 0..50 {
            for page in (0..99).map(PageId) {
                table.set_state(page, PageState::Absent);
                queue.forget();
                table.set_state(page, PageState::Mapped);
                queue.push(page, &table);
            }
        }
        assert!(queue.entries.len() <= 2 * (2 * 100 + SLACK));
        let order = std::iter::from_fn(|| {
            let page = queue.pop(&table)?;
            table.set_state(page, PageState::Absent);
            Some(page.0)
        });
        let mut order = order.collect::<Vec<_>>();
        assert_eq!(order[0], 99, "the one that never left is the oldest");
        order.sort_unstable();
        assert_eq!(order, Vec::from_iter(0..100));
    }
}
