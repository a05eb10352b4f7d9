//! Pins: pages that stay in place while the kernel works on them for a system call that cannot be repeated. The
//! engine's moves of them are refused, as the kernel refuses moves of pages that it has pinned itself.

use super::Pager;
use crate::chameleon::Chameleon;
use flashvm_core::chameleon::Svmp;
use flashvm_core::{PageId, Run};

/// Pinned pages: `frames / SHARE` at most, so that the other frames suffice for other threads. Frames of the pool hold
/// no pages.
const SHARE: u32 = 4;
/// With few frames a range may use min(3 * frames / SHARE, DATAGRAM) pages. `DATAGRAM` pages hold 64 KiB in up to four
/// parts: a socket copies that much at once or fails with `EFAULT` (Linux 6.18).
const DATAGRAM: u32 = 20;
/// Ranges of at most `FEW` pages, mostly structures, may use `3 * frames / SHARE`.
const FEW: u32 = 2;

/// The limit on pinned pages, of `frames` frames, if a range of `wanted` pages is to be pinned.
fn share(frames: u32, wanted: u32) -> u32 {
    let few = 3 * frames / SHARE;
    if wanted <= FEW {
        few
    } else {
        (frames / SHARE).max(few.min(DATAGRAM))
    }
}

/// Ranges whose pages stay in RAM, once they are there, until this is dropped.
pub(crate) struct Pins {
    pager: &'static Pager,
    ranges: Vec<(PageId, u32)>,
    /// Ranges in the heap of small pages.
    small: Vec<(Svmp, u32)>,
    any: bool,
    fell_short: bool,
    crowded: bool,
}

impl Pins {
    pub(crate) fn none(pager: &'static Pager) -> Self {
        Self {
            pager,
            ranges: Vec::new(),
            small: Vec::new(),
            any: false,
            fell_short: false,
            crowded: false,
        }
    }

    /// Pins the first `most` bytes of a range, or fewer if too much is pinned already. Returns the bytes to fault in;
    /// unmanaged bytes need no pin.
    pub(crate) fn add(&mut self, address: usize, len: usize, most: usize) -> usize {
        self.fell_short |= len > most;
        let len = len.min(most);
        if let Some(heap) = self.pager.chameleon()
            && let Some(range) = heap.pin(self.pager, address, len)
        {
            self.any = true;
            self.small.push(range);
            self.fell_short |= len > Chameleon::PINNED_BYTES_MAX;
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
        let own: u32 = self.ranges.iter().map(|range| range.1).sum();
        let mut locked = self.pager.lock();
        let frames = locked.engine.plain_frames();
        let share = share(frames, wanted);
        let count = wanted.min(share.saturating_sub(locked.placement.pins.pages()));
        if count > 0 {
            locked.placement.pins.pin((first, count));
            self.pager.space.pin(Run::new(first, count), true);
            self.ranges.push((first, count));
        }
        // At least a page, even if it cannot be pinned.
        let end_of = self.pager.address(first.plus(count.max(1)));
        self.fell_short |= count < wanted;
        self.crowded |= count < wanted.min(share.saturating_sub(own));
        len.min(end_of - address)
    }

    /// Whether some of the added bytes could not be pinned.
    pub(crate) fn fell_short(&self) -> bool {
        self.fell_short
    }

    /// Whether more bytes can be pinned once other threads release theirs.
    pub(crate) fn crowded(&self) -> bool {
        self.crowded
    }

    /// Whether any added range has managed memory.
    pub(crate) fn any(&self) -> bool {
        self.any
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for &range in &self.small {
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
            self.pager.space.pin(Run::new(range.0, range.1), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::PAGE_SIZE;

    /// The fewest frames that a process has.
    const FRAMES: u32 = 32;

    #[test]
    fn a_process_with_the_fewest_frames_can_move_64_kib_of_two_parts() {
        // Each part begins and ends within a page.
        let pages = (64 << 10) / PAGE_SIZE as u32 + 2;
        assert!(share(FRAMES, pages) >= pages);
        // Structures still fit, and so do the pages of other threads.
        assert!(share(FRAMES, FEW) >= pages + FEW);
        assert!(share(FRAMES, FEW) < FRAMES);
    }

    #[test]
    fn of_many_frames_a_quarter_is_pinned_for_long_ranges() {
        assert_eq!(share(1024, 500), 256);
        assert_eq!(share(1024, FEW), 768);
    }
}
