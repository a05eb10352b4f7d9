//! Pages that have to stay where they are while the kernel works on them: those of a system call
//! that cannot be repeated. Moves of them are refused to the engine, as the kernel refuses those
//! of pages that it has pinned itself.

use super::Pager;
use crate::chameleon::Chameleon;
use flashvm_core::chameleon::Svmp;
use flashvm_core::{PageId, Run};

/// At most one in so many of the frames: the rest has to be enough for everybody else.
const SHARE: u32 = 4;
/// Ranges of so few pages, structures as a rule, may take three times as much.
const FEW: u32 = 2;

/// Ranges that stay in RAM, once they are there, until this is dropped.
pub(crate) struct Pins {
    pager: &'static Pager,
    ranges: Vec<(PageId, u32)>,
    /// Those in the heap of small pages.
    small: Vec<(Svmp, u32)>,
    any: bool,
    fell_short: bool,
}

impl Pins {
    pub(crate) fn none(pager: &'static Pager) -> Self {
        Self {
            pager,
            ranges: Vec::new(),
            small: Vec::new(),
            any: false,
            fell_short: false,
        }
    }

    /// Adds the first `most` bytes of a range, or fewer if too much is pinned already; bytes of it
    /// that are to be brought in. What is not managed of it is in RAM anyway.
    pub(crate) fn add(&mut self, address: usize, len: usize, most: usize) -> usize {
        self.fell_short |= len > most;
        let len = len.min(most);
        if let Some(heap) = self.pager.chameleon()
            && let Some(range) = heap.pin(self.pager, address, len)
        {
            self.any = true;
            self.small.push(range);
            return len.min(Chameleon::PINNED_BYTES_MAX);
        }
        let Some(Run {
            first,
            count: wanted,
        }) = self.pager.space.range().pages_of(address, len)
        else {
            return len;
        };
        self.any = true;
        let mut locked = self.pager.lock();
        let share = locked.engine.frames_limit() / SHARE;
        let share = if wanted <= FEW { 3 * share } else { share };
        let count = wanted.min(share.saturating_sub(locked.placement.pins.pages()));
        if count > 0 {
            locked.placement.pins.pin((first, count));
            self.ranges.push((first, count));
        }
        // At least a page, even if it may not be kept.
        let end_of = self.pager.address(first.plus(count.max(1)));
        self.fell_short |= count < wanted;
        len.min(end_of - address)
    }

    /// Whether not everything that was added could be pinned.
    pub(crate) fn fell_short(&self) -> bool {
        self.fell_short
    }

    /// Whether any managed memory is concerned.
    pub(crate) fn any(&self) -> bool {
        self.any
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for &range in &self.small {
            // In a forked child it is another one, which has none pinned.
            if let Some(pager) = super::pager()
                && let Some(heap) = pager.chameleon()
            {
                heap.unpin(pager, range);
            }
        }
        if self.ranges.is_empty() {
            return;
        }
        let mut locked = self.pager.lock();
        for &range in &self.ranges {
            locked.placement.pins.unpin(range);
        }
    }
}
