//! Pages that have to stay where they are while the kernel works on them: those of a system call.

use super::Chameleon;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::Svmp;

/// Most pages of one range that are kept: a call that is given more meets what the kernel says to
/// addresses at which nothing is.
const PAGES_MAX: u32 = 64;

/// The ranges that are pinned.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    ranges: Vec<(Svmp, u32)>,
}

impl Pinned {
    /// Whether a page has to stay.
    pub(super) fn holds(&self, page: Svmp) -> bool {
        let inside = |&(first, count): &(Svmp, u32)| page.0.wrapping_sub(first.0) < count;
        self.ranges.iter().any(inside)
    }

    /// After a fork: nobody is in a system call.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

impl Chameleon {
    /// Keeps the pages of a range, as far as it is the heap's, once they are there. What to give to
    /// [`Chameleon::unpin`].
    pub(crate) fn pin(&self, address: usize, len: usize) -> Option<(Svmp, u32)> {
        if len == 0 || !self.holds(address, len) {
            return None;
        }
        let first = self.page_at(address.max(self.base))?;
        let last = address.saturating_add(len - 1);
        let last = self.page_at(last.min(self.base + super::hole::BYTES - 1))?;
        let range = (first, (last.0 - first.0 + 1).min(PAGES_MAX));
        self.lock().pins.ranges.push(range);
        Some(range)
    }

    /// Lets pages go.
    pub(crate) fn unpin(&self, range: (Svmp, u32)) {
        let mut core = self.lock();
        let ranges = &mut core.pins.ranges;
        // Equal ranges stand for each other.
        if let Some(at) = ranges.iter().position(|other| *other == range) {
            ranges.swap_remove(at);
        }
    }

    /// Bytes from an address to the end of the most that is pinned of a range.
    pub(crate) const PINNED_BYTES_MAX: usize = PAGES_MAX as usize * PAGE_SIZE;
}
