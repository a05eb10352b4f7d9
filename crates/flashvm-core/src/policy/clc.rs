//! CLC: evicts, as a whole, the flash block with the most resident pages among those not used
//! recently (Kang, Park, Jung, Shim and Cha 2009; CRAW paper, II.B).
//!
//! Every use moves a block to the head of a list by recency. That list keeps a share of the blocks,
//! a tenth by default; blocks that leave it at the tail are listed by size. If none is, the oldest
//! recent block is evicted.

use super::PolicyContext;
use super::blocks::{Block, BlockPolicy, Blocks, Order};
use super::window::MILLION;
use crate::event::Access;

const RECENT: u32 = 0;

/// Recently used blocks by recency, the others by size.
pub(super) struct ByRecencyAndSize {
    share: u32,
}

/// The policy.
pub(super) type Clc = BlockPolicy<ByRecencyAndSize>;

impl Clc {
    /// `share` / 10^6 of the blocks are recent.
    pub(super) fn new(context: &PolicyContext, share: u32) -> Self {
        Self::of(context, ByRecencyAndSize { share })
    }
}

impl Order for ByRecencyAndSize {
    fn used(&self, blocks: &mut Blocks, block: Block, _by: Option<Access>, _had: bool) {
        blocks.list(block, RECENT);
        let share = u64::from(blocks.listed()) * u64::from(self.share) / u64::from(MILLION);
        while u64::from(blocks.list_len(RECENT)) > share.max(1)
            && let Some(block) = blocks.oldest(RECENT)
        {
            blocks.list(block, blocks.len(block));
        }
    }

    fn shrunk(&self, blocks: &mut Blocks, block: Block) {
        if blocks.list_of(block) != Some(RECENT) {
            blocks.list_last(block, blocks.len(block));
        }
    }

    fn victim(&self, blocks: &Blocks) -> Option<Block> {
        blocks.largest().or(blocks.oldest(RECENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageId;
    use crate::policy::{Policy, Proposal};

    #[test]
    fn the_largest_block_leaves_unless_it_was_just_used() {
        let mut clc = Clc::new(&PolicyContext::of_pages(128), 100_000);
        for page in [64, 65, 0, 32, 33, 34] {
            clc.inserted(PageId(page), Some(Access::Write));
        }
        let mut order = Vec::new();
        while let Some(Proposal::Evict(page)) = clc.propose() {
            order.push(page.0);
        }
        // The block of 32 to 34 is the largest, and the most recent.
        assert_eq!(order, [64, 65, 0, 32, 33, 34]);
    }
}
