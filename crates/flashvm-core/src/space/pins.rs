//! Pinned pages: those of a system call that cannot be repeated, which stay where they are while
//! the kernel works on them. The pager refuses to move them, as the kernel refuses to move pages
//! that it has pinned itself.

use super::Range;
use crate::ids::PageId;

/// The pinned ranges.
#[derive(Debug, Default)]
pub struct PinnedRanges {
    ranges: Vec<Range>,
    pages: u32,
}

impl PinnedRanges {
    /// Pins a range.
    pub fn pin(&mut self, range: Range) {
        self.ranges.push(range);
        self.pages += range.1;
    }

    /// Unpins a range, if it is pinned.
    pub fn unpin(&mut self, range: Range) {
        // Equal ranges are interchangeable.
        if let Some(at) = self.ranges.iter().position(|&other| other == range) {
            self.ranges.swap_remove(at);
            self.pages -= range.1;
        }
    }

    /// Pages of all ranges together.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Whether a page is pinned.
    #[must_use]
    pub fn holds(&self, page: PageId) -> bool {
        let inside = |&(first, count): &Range| page.0.wrapping_sub(first.0) < count;
        self.ranges.iter().any(inside)
    }

    /// How many of `count` pages come before the first pinned one.
    #[must_use]
    pub fn free_before(&self, first: PageId, count: u32) -> u32 {
        if self.ranges.is_empty() {
            return count;
        }
        (0..count)
            .find(|&i| self.holds(first.plus(i)))
            .unwrap_or(count)
    }

    /// In a forked child: no thread is in a system call.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.pages = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_counts_by_page(steps in prop::collection::vec((any::<bool>(), 0u32..30, 1u32..8), 0..60)) {
            let mut pinned = PinnedRanges::default();
            let mut held: Vec<Range> = Vec::new();
            for (pin, first, count) in steps {
                let range = (PageId(first), count);
                if pin {
                    pinned.pin(range);
                    held.push(range);
                } else {
                    pinned.unpin(range);
                    if let Some(at) = held.iter().position(|&other| other == range) {
                        held.remove(at);
                    }
                }
                let holds = |page: u32| held.iter().any(|&(at, n)| (at.0..at.0 + n).contains(&page));
                prop_assert_eq!(pinned.pages(), held.iter().map(|range| range.1).sum::<u32>());
                let free = (0..40).take_while(|&page| !holds(page)).count();
                prop_assert_eq!(pinned.free_before(PageId(0), 40), free as u32);
            }
        }
    }
}
