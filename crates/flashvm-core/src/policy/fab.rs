//! FAB: the flash block with the most pages in RAM leaves, as a whole (Jo, Kang, Park, Kim and Lee
//! 2006; CRAW paper, II.B). Of several, the one that was used the longest ago.

use super::blocks::Blocks;
use super::{Ground, Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// Blocks in lists by their number of pages.
pub(super) struct Fab {
    blocks: Blocks,
}

impl Fab {
    pub(super) fn new(ground: &Ground) -> Self {
        Self {
            blocks: Blocks::new(ground),
        }
    }
}

impl Policy for Fab {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        let block = self.blocks.add(page);
        self.blocks.list(block, self.blocks.len(block));
    }

    fn touched(&mut self, page: PageId, access: Access) {
        self.inserted(page, Some(access));
    }

    fn removed(&mut self, page: PageId) {
        if let Some(block) = self.blocks.remove(page) {
            self.blocks.list_last(block, self.blocks.len(block));
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.blocks.propose(Blocks::largest)
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
    fn the_largest_block_leaves_as_a_whole() {
        let mut fab = Fab::new(&Ground::of_pages(128));
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
