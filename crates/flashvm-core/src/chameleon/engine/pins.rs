//! Pinned pages: those of a system call, which stay where they are while the kernel works on them.

use super::super::Svmp;

/// Most pages pinned for one range: a call with a longer range gets EFAULT for the rest.
pub const PINNED_PAGES_MAX: u32 = 64;

/// The pinned ranges. Equal ranges are interchangeable.
#[derive(Clone, Debug, Default)]
pub(super) struct PinnedRanges {
    ranges: Vec<(Svmp, u32)>,
}

impl PinnedRanges {
    /// Whether a page is pinned.
    pub(super) fn holds(&self, page: Svmp) -> bool {
        let inside = |&(first, count): &(Svmp, u32)| page.0.wrapping_sub(first.0) < count;
        self.ranges.iter().any(inside)
    }

    pub(super) fn add(&mut self, first: Svmp, count: u32) {
        self.ranges.push((first, count));
    }

    pub(super) fn remove(&mut self, first: Svmp, count: u32) {
        if let Some(at) = self
            .ranges
            .iter()
            .position(|&range| range == (first, count))
        {
            self.ranges.swap_remove(at);
        }
    }

    /// In a forked child: no thread is in a system call.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}
