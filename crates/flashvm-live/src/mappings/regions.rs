//! The parts of the managed range that are in use, handed out by first fit.

use flashvm_core::PageId;
use std::collections::BTreeMap;

/// The parts of the managed range that are in use.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// By first page: end page (exclusive). Neighbours that touch stay separate entries.
    used: BTreeMap<u32, u32>,
    /// All pages before this one are in use, and a part ends here, unless it is 0.
    packed: u32,
    /// Pages of the whole range.
    pages: u32,
}

impl Regions {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            used: BTreeMap::new(),
            packed: 0,
            pages,
        }
    }

    /// Takes the first `count` free pages that start at a multiple of `align` pages. `None` if there are none.
    pub(super) fn take(&mut self, count: u32, align: u32) -> Option<PageId> {
        while let Some(&end) = self.used.get(&self.packed) {
            self.packed = end;
        }
        let mut start = self.packed.checked_next_multiple_of(align)?;
        for (&first, &end) in self.used.range(self.packed..) {
            if first >= start && first - start >= count {
                break;
            }
            start = end.max(start).checked_next_multiple_of(align)?;
        }
        let end = start.checked_add(count)?;
        if end > self.pages {
            return None;
        }
        self.used.insert(start, end);
        Some(PageId(start))
    }

    /// Gives pages back. They may be only a part of a taken range, or already free.
    pub(super) fn give(&mut self, first: PageId, count: u32) {
        let (start, end) = (first.0, first.0 + count);
        self.packed = self.packed.min(start);
        let touched: Vec<(u32, u32)> = self
            .used
            .range(..end)
            .rev()
            .map(|(&first, &last)| (first, last))
            .take_while(|&(_, last)| last > start)
            .collect();
        for (first, last) in touched {
            self.used.remove(&first);
            if first < start {
                self.used.insert(first, start);
            }
            if last > end {
                self.used.insert(end, last);
            }
        }
    }

    /// Makes exactly these pages one part, whichever of them were in use before.
    pub(super) fn claim(&mut self, first: PageId, count: u32) {
        self.give(first, count);
        self.used.insert(first.0, first.0 + count);
    }

    /// The part that holds a page: its first page and its number of pages.
    pub(super) fn find(&self, page: PageId) -> Option<(PageId, u32)> {
        let (&first, &end) = self.used.range(..=page.0).next_back()?;
        (page.0 < end).then_some((PageId(first), end - first))
    }

    /// The parts in use: first page and number of pages of each.
    pub(super) fn used(&self) -> impl Iterator<Item = (PageId, u32)> {
        self.used
            .iter()
            .map(|(&first, &end)| (PageId(first), end - first))
    }

    /// The number of pages from `first` on, at most `count`, that lie in one part or are all free; and whether they are
    /// in use.
    pub(super) fn run(&self, first: PageId, count: u32) -> (u32, bool) {
        if let Some((start, pages)) = self.find(first) {
            return (count.min(start.0 + pages - first.0), true);
        }
        let next = self.used.range(first.0..).next();
        let free = next.map_or(count, |(&start, _)| start - first.0);
        (count.min(free), false)
    }

    /// How many of these pages are in use.
    pub(super) fn overlap(&self, first: PageId, count: u32) -> u32 {
        let (start, end) = (first.0, first.0 + count);
        self.used
            .range(..end)
            .rev()
            .take_while(|&(_, &last)| last > start)
            .map(|(&first, &last)| last.min(end) - first.max(start))
            .sum()
    }

    /// Extends the part that ends at `end` by `count` pages. Returns false if they are not free or no part ends there.
    pub(super) fn extend(&mut self, end: PageId, count: u32) -> bool {
        let Some(new_end) = end.0.checked_add(count).filter(|&e| e <= self.pages) else {
            return false;
        };
        if end.0 == 0 || self.used.range(end.0..new_end).next().is_some() {
            return false;
        }
        match self.used.range_mut(..end.0).next_back() {
            Some((_, last)) if *last == end.0 => {
                *last = new_end;
                if self.packed == end.0 {
                    self.packed = new_end;
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_bitmap(steps in prop::collection::vec((0u8..4, 0u32..64, 1u32..16), 1..100)) {
            let mut regions = Regions::new(64);
            let mut naive = [false; 64];
            for (kind, at, count) in steps {
                let align = 1 << (at % 4);
                match kind {
                    0 => match regions.take(count, align) {
                        Some(first) => {
                            prop_assert_eq!(first.0 % align, 0);
                            for page in &mut naive[first.0 as usize..(first.0 + count) as usize] {
                                prop_assert!(!*page);
                                *page = true;
                            }
                        }
                        None => {
                            let fits = (0..64u32).step_by(align as usize).any(|start| {
                                start + count <= 64
                                    && naive[start as usize..(start + count) as usize]
                                        .iter()
                                        .all(|used| !used)
                            });
                            prop_assert!(!fits);
                        }
                    },
                    1 => {
                        let count = count.min(64 - at);
                        regions.give(PageId(at), count);
                        naive[at as usize..(at + count) as usize].fill(false);
                    }
                    2 => {
                        let count = count.min(64 - at);
                        regions.claim(PageId(at), count);
                        naive[at as usize..(at + count) as usize].fill(true);
                    }
                    _ => {
                        let free = at + count <= 64
                            && naive[at as usize..(at + count) as usize].iter().all(|used| !used);
                        let before = at > 0 && naive[at as usize - 1];
                        let extended = regions.extend(PageId(at), count);
                        prop_assert_eq!(extended, free && before);
                        if extended {
                            naive[at as usize..(at + count) as usize].fill(true);
                        }
                    }
                }
                let (run, taken) = regions.run(PageId(5), 33);
                prop_assert!(naive[5..5 + run as usize].iter().all(|&used| used == taken));
                let parts: u32 = regions.used().map(|(_, count)| count).sum();
                prop_assert_eq!(parts as usize, naive.iter().filter(|&&used| used).count());
                let used = naive[5..38].iter().filter(|&&used| used).count();
                prop_assert_eq!(regions.overlap(PageId(5), 33) as usize, used);
                for page in 0..64 {
                    prop_assert_eq!(regions.find(PageId(page)).is_some(), naive[page as usize]);
                }
            }
        }
    }
}
