//! CLC: of the flash blocks that were not used recently, the one with the most pages in RAM leaves,
//! as a whole (Kang, Park, Jung, Shim and Cha 2009; CRAW paper, II.B).
//!
//! Every use takes a block to the head of a list by recency. That list keeps a share of the blocks, a
//! tenth unless asked otherwise; what leaves it at the tail is filed by size. Only if nothing is filed
//! does the oldest of the recent ones leave.

use super::blocks::Blocks;
use super::window::MILLION;
use super::{Ground, Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const RECENT: u32 = 0;

/// The blocks.
pub(super) struct Clc {
    blocks: Blocks,
    share: u32,
}

impl Clc {
    /// `share` parts in a million of the blocks are recent.
    pub(super) fn new(ground: &Ground, share: u32) -> Self {
        Self {
            blocks: Blocks::new(ground),
            share,
        }
    }
}

impl Policy for Clc {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        let block = self.blocks.add(page);
        self.blocks.list(block, RECENT);
        let share = u64::from(self.blocks.listed()) * u64::from(self.share) / u64::from(MILLION);
        while u64::from(self.blocks.list_len(RECENT)) > share.max(1)
            && let Some(block) = self.blocks.oldest(RECENT)
        {
            self.blocks.list(block, self.blocks.len(block));
        }
    }

    fn touched(&mut self, page: PageId, access: Access) {
        self.inserted(page, Some(access));
    }

    fn removed(&mut self, page: PageId) {
        if let Some(block) = self.blocks.remove(page)
            && self.blocks.list_of(block) != Some(RECENT)
        {
            self.blocks.list_last(block, self.blocks.len(block));
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.blocks
            .propose(|blocks| blocks.largest().or(blocks.oldest(RECENT)))
    }

    fn leaves_with_next(&self) -> bool {
        self.blocks.is_leaving()
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        let was_in = self.blocks.is_in(from);
        self.removed(from);
        self.removed(to);
        if was_in {
            self.inserted(to, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_block_leaves_unless_it_was_just_used() {
        let mut clc = Clc::new(&Ground::of_pages(128), 100_000);
        for page in [64, 65, 0, 32, 33, 34] {
            clc.inserted(PageId(page), Some(Access::Write));
        }
        let mut order = Vec::new();
        while let Some(Proposal::Evict(page)) = clc.propose() {
            order.push(page.0);
        }
        // The block of 32 to 34 is the largest, and the recent one.
        assert_eq!(order, [64, 65, 0, 32, 33, 34]);
    }
}
