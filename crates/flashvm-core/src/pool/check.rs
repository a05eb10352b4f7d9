//! Compares the pool's sums with its blocks.

use super::object::{BLOCK_SLOTS, BlockId, frames_to, padded};
use super::{Block, Home, Pool};

impl Pool {
    /// Live objects, in RAM and on flash.
    pub(crate) fn objects_everywhere(&self) -> usize {
        let live = |block: &Block| block.entries.iter().filter(|entry| entry.page > 0).count();
        self.blocks.iter().map(live).sum()
    }

    /// Compares the sums with the blocks.
    ///
    /// # Panics
    /// If they differ: a bug in this file.
    pub(crate) fn check(&self) {
        let (mut frames, mut filled, mut alive, mut lost) = (0, 0, 0, 0);
        for (id, block) in (0..).map(BlockId).zip(&self.blocks) {
            let live: u32 = self
                .live_in(id)
                .map(|(handle, _)| padded(self.object(handle).bytes))
                .sum();
            assert_eq!(live, block.live, "{id:?}");
            let in_order = self.order.iter().filter(|&&other| other == id).count();
            let ram = block.home == Home::Ram;
            let queued = ram && self.open != Some(id);
            assert_eq!(in_order, usize::from(queued), "{id:?} is {:?}", block.home);
            assert!(live > 0 || block.home != Home::Ram, "{id:?} is empty");
            assert_eq!(block.count as usize, self.live_in(id).count(), "{id:?}");
            if matches!(block.home, Home::Flash(_) | Home::Returning(_)) {
                lost += BLOCK_SLOTS.saturating_sub(block.count);
            }
            if matches!(block.home, Home::Returning(_)) {
                frames += frames_to(block.end);
            }
            if ram || matches!(block.home, Home::Leaving(_)) {
                frames += frames_to(block.end);
                filled += u64::from(block.end);
                alive += u64::from(live);
            }
        }
        assert_eq!(frames, self.frames, "frames miscounted");
        assert_eq!(lost, self.lost, "lost slots miscounted");
        assert_eq!(
            (filled, alive),
            (self.filled, self.live),
            "bytes miscounted"
        );
    }
}
