//! BPLRU: flash blocks in the order of their last write; whole blocks are evicted, padded (Kim and
//! Ahn, FAST 2008; CRAW paper, II.B).
//!
//! A write moves its block to the MRU end; a read leaves its block in place, and brings a new one
//! in at the MRU end. *LRU compensation*: a block whose last page was brought in by a write, so
//! that all its pages are resident, is not expected to be written soon, and goes to the LRU end.
//! *Page padding*: before a block with dirty pages is written, its other pages are read, so that
//! the block is written whole. A policy does no I/O: [`Order::PADS`] requests these reads from the
//! executor. The simulator pads; the live pager has nothing to pad, as it writes pages evicted
//! together into a fresh cluster, with no old block to merge.

use super::PolicyContext;
use super::blocks::{BLOCK_PAGES, Block, BlockPolicy, Blocks, Order};
use crate::event::Access;

const STACK: u32 = 0;

/// The blocks, the last written at the head.
pub(super) struct ByWrite;

/// The policy.
pub(super) type Bplru = BlockPolicy<ByWrite>;

impl Bplru {
    pub(super) fn new(context: &PolicyContext) -> Self {
        Self::of(context, ByWrite)
    }
}

impl Order for ByWrite {
    const PADS: bool = true;

    fn used(&self, blocks: &mut Blocks, block: Block, by: Option<Access>, had: bool) {
        if by == Some(Access::Write) && !had && blocks.len(block) == BLOCK_PAGES {
            blocks.list_last(block, STACK);
        } else if by == Some(Access::Write) || blocks.list_of(block).is_none() {
            blocks.list(block, STACK);
        }
    }

    fn shrunk(&self, _blocks: &mut Blocks, _block: Block) {
        // A block with remaining pages stays in place.
    }

    fn victim(&self, blocks: &Blocks) -> Option<Block> {
        blocks.oldest(STACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageId;
    use crate::policy::{Policy, Proposal};

    fn victims(bplru: &mut Bplru) -> Vec<u32> {
        let next = || match bplru.propose()? {
            Proposal::Evict(page) => Some(page.0),
            Proposal::Unreference(_) => unreachable!("it clears no bits"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn blocks_leave_in_the_order_of_their_last_write() {
        let mut bplru = Bplru::new(&PolicyContext::of_pages(128));
        for page in [0, 32, 64] {
            bplru.inserted(PageId(page), Some(Access::Write));
        }
        bplru.touched(PageId(0), Access::Write);
        bplru.touched(PageId(32), Access::Read);
        bplru.inserted(PageId(33), Some(Access::Read));
        assert_eq!(victims(&mut bplru), [32, 33, 64, 0]);
    }

    #[test]
    fn a_full_block_leaves_first() {
        let mut bplru = Bplru::new(&PolicyContext::of_pages(128));
        bplru.inserted(PageId(100), Some(Access::Write));
        for page in 0..BLOCK_PAGES {
            bplru.inserted(PageId(page), Some(Access::Write));
        }
        assert_eq!(victims(&mut bplru)[0], 0);
    }
}
