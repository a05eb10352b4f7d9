//! Pinned pages: those of a system call, which stay where they are while the kernel works on them.

use super::super::Svmp;
use std::ops::Range;

/// Most pages pinned for one range: a call with a longer range gets EFAULT for the rest.
pub const PINNED_PAGES_MAX: u32 = 64;

/// The pinned ranges. Equal ranges are interchangeable.
#[derive(Clone, Debug, Default)]
pub(super) struct PinnedSvmps {
    ranges: Vec<(Svmp, u32)>,
}

impl PinnedSvmps {
    /// Whether a page is pinned.
    pub(super) fn holds(&self, page: Svmp) -> bool {
        let inside = |&(first, count): &(Svmp, u32)| page.0.wrapping_sub(first.0) < count;
        self.ranges.iter().any(inside)
    }

    pub(super) fn pin(&mut self, first: Svmp, count: u32) {
        self.ranges.push((first, count));
    }

    pub(super) fn unpin(&mut self, first: Svmp, count: u32) {
        if let Some(at) = self
            .ranges
            .iter()
            .position(|&range| range == (first, count))
        {
            self.ranges.swap_remove(at);
        }
    }

    /// The ranges of pages below `end` that are not pinned, in order.
    pub(super) fn gaps(&self, end: u32) -> Vec<Range<u32>> {
        let mut pinned = self.ranges.clone();
        pinned.sort_unstable();
        let mut gaps = Vec::new();
        let mut at = 0;
        for (first, count) in pinned.into_iter().chain([(Svmp(end), 0)]) {
            let until = first.0.min(end);
            if at < until {
                gaps.push(at..until);
            }
            at = at.max(first.0.saturating_add(count));
        }
        gaps
    }

    /// In a forked child: no thread is in a system call.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gaps_are_the_pages_that_no_range_holds(ranges in vec((0..40_u32, 1..8_u32), 0..6), end in 0..40_u32) {
            let mut pins = PinnedSvmps::default();
            for (first, count) in ranges {
                pins.pin(Svmp(first), count);
            }
            let free = Vec::from_iter((0..end).filter(|&page| !pins.holds(Svmp(page))));
            let gaps = pins.gaps(end);
            prop_assert!(gaps.iter().all(|gap| !gap.is_empty()));
            prop_assert_eq!(Vec::from_iter(gaps.into_iter().flatten()), free);
        }
    }
}
