//! FAB: evicts, as a whole, the flash block with the most resident pages; among equals the least
//! recently used (Jo, Kang, Park, Kim and Lee 2006; CRAW paper, II.B).

use super::PolicyContext;
use super::blocks::{Block, BlockPolicy, Blocks, Order};
use crate::event::Access;

/// Blocks in lists by their number of pages.
pub(super) struct BySize;

/// The policy.
pub(super) type Fab = BlockPolicy<BySize>;

impl Fab {
    pub(super) fn new(context: &PolicyContext) -> Self {
        Self::of(context, BySize)
    }
}

impl Order for BySize {
    fn used(&self, blocks: &mut Blocks, block: Block, _by: Option<Access>, _had: bool) {
        blocks.list(block, blocks.len(block));
    }

    fn shrunk(&self, blocks: &mut Blocks, block: Block) {
        blocks.list_last(block, blocks.len(block));
    }

    fn victim(&self, blocks: &Blocks) -> Option<Block> {
        blocks.largest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageId;
    use crate::policy::{Policy, Proposal};

    #[test]
    fn the_largest_block_leaves_as_a_whole() {
        let mut fab = Fab::new(&PolicyContext::of_pages(128));
        for page in [0, 32, 64, 1, 33, 65, 2] {
            fab.inserted(PageId(page), Some(Access::Read));
        }
        fab.touched(PageId(32), Access::Read);
        let mut order = Vec::new();
        while let Some(Proposal::Evict(page)) = fab.propose() {
            order.push((page.0, fab.leaves_with_next()));
        }
        let expected = [(0, true), (1, true), (2, false), (64, true), (65, false)];
        assert_eq!(order[..5], expected);
        assert_eq!(order[5..], [(32, true), (33, false)]);
    }
}
