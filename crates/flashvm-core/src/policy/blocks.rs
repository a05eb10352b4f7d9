//! Pages grouped by their flash block, for FAB, BPLRU and CLC: the resident pages of each block,
//! lists of blocks, and the block that is being evicted.
//!
//! A block is the CRAW paper's NAND block (V): 64 flash pages of 2 KiB, 32 pages of memory. Live, a
//! page's neighbours on flash are its neighbours in the address space: pages evicted together are
//! written together, in the order of their addresses. A trace numbers pages by first reference, so
//! a column has the place of each.

use super::list::{Links, List};
use super::{Policy, PolicyContext, Proposal};
use crate::event::Access;
use crate::ids::PageId;
use std::sync::Arc;

/// Pages of memory in a NAND block.
pub const BLOCK_PAGES: u32 = 32;

/// Lists of blocks: list n for blocks of n resident pages, list 0 for any other order.
const LISTS: usize = BLOCK_PAGES as usize + 1;

/// The number of a block, as a page: [`List`] links pages.
pub(super) type Block = PageId;

/// Resident pages by block, and lists of blocks; heads are young.
pub(super) struct Blocks {
    places: Option<Arc<[u32]>>,
    in_ram: Vec<bool>,
    page_links: Links,
    /// By block: the list of its resident pages, as [`List::into_words`] gives it.
    members: Vec<[u32; 3]>,
    block_links: Links,
    lists: [List; LISTS],
    /// By block: the number of its list, plus one; 0: none.
    list_of: Vec<u8>,
    /// Blocks in lists.
    listed: u32,
    /// The block that is being evicted.
    leaving: Option<Block>,
}

impl Blocks {
    fn new(context: &PolicyContext) -> Self {
        let most = match &context.places {
            Some(places) => places.iter().max().map_or(0, |place| place + 1),
            None => context.pages,
        };
        let blocks = most.div_ceil(BLOCK_PAGES);
        Self {
            places: context.places.clone(),
            in_ram: vec![false; context.pages as usize],
            page_links: Links::new(context.pages),
            members: vec![[0; 3]; blocks as usize],
            block_links: Links::new(blocks),
            lists: [List::default(); LISTS],
            list_of: vec![0; blocks as usize],
            listed: 0,
            leaving: None,
        }
    }

    fn block(&self, page: PageId) -> Block {
        let place = match &self.places {
            Some(places) => places[page.0 as usize],
            None => page.0,
        };
        PageId(place / BLOCK_PAGES)
    }

    /// Resident pages of a block.
    pub(super) fn len(&self, block: Block) -> u32 {
        self.members(block).len()
    }

    fn members(&self, block: Block) -> List {
        List::from_words(self.members[block.0 as usize])
    }

    fn change_members(&mut self, block: Block, change: impl FnOnce(&mut List, &mut Links)) {
        let mut members = self.members(block);
        change(&mut members, &mut self.page_links);
        self.members[block.0 as usize] = members.into_words();
    }

    fn is_in(&self, page: PageId) -> bool {
        self.in_ram[page.0 as usize]
    }

    /// Notes that a page is resident; returns its block, which is no longer being evicted. The
    /// policy lists it.
    fn add(&mut self, page: PageId) -> Block {
        let block = self.block(page);
        if !std::mem::replace(&mut self.in_ram[page.0 as usize], true) {
            self.change_members(block, |members, links| members.push_head(links, page));
        }
        self.leaving = self.leaving.filter(|&leaving| leaving != block);
        block
    }

    /// Notes that a page left RAM; returns its block if other pages remain, for the policy to list
    /// anew.
    fn remove(&mut self, page: PageId) -> Option<Block> {
        if !std::mem::take(&mut self.in_ram[page.0 as usize]) {
            return None;
        }
        let block = self.block(page);
        self.change_members(block, |members, links| members.remove(links, page));
        if self.len(block) == 0 {
            self.unlist(block);
            self.leaving = self.leaving.filter(|&leaving| leaving != block);
            return None;
        }
        (self.leaving != Some(block)).then_some(block)
    }

    fn unlist(&mut self, block: Block) {
        if let Some(list) = std::mem::take(&mut self.list_of[block.0 as usize]).checked_sub(1) {
            self.lists[usize::from(list)].remove(&mut self.block_links, block);
            self.listed -= 1;
        }
    }

    /// Moves a block to the head of a list.
    pub(super) fn list(&mut self, block: Block, list: u32) {
        self.unlist(block);
        self.lists[list as usize].push_head(&mut self.block_links, block);
        self.list_of[block.0 as usize] = list as u8 + 1;
        self.listed += 1;
    }

    /// Moves a block to the tail of a list.
    pub(super) fn list_last(&mut self, block: Block, list: u32) {
        self.unlist(block);
        self.lists[list as usize].push_tail(&mut self.block_links, block);
        self.list_of[block.0 as usize] = list as u8 + 1;
        self.listed += 1;
    }

    /// The list of a block.
    pub(super) fn list_of(&self, block: Block) -> Option<u32> {
        let list = self.list_of[block.0 as usize].checked_sub(1);
        list.map(u32::from)
    }

    pub(super) fn list_len(&self, list: u32) -> u32 {
        self.lists[list as usize].len()
    }

    /// The block at the tail of a list.
    pub(super) fn oldest(&self, list: u32) -> Option<Block> {
        self.lists[list as usize].tail()
    }

    /// The oldest block of those with the most resident pages, if blocks are listed by size.
    pub(super) fn largest(&self) -> Option<Block> {
        (1..=BLOCK_PAGES).rev().find_map(|list| self.oldest(list))
    }

    /// Blocks in lists.
    pub(super) fn listed(&self) -> u32 {
        self.listed
    }

    /// The next page of the block being evicted; `choose` picks a block if there is none.
    fn propose(&mut self, choose: impl FnOnce(&Self) -> Option<Block>) -> Option<Proposal> {
        let block = self.leaving.or_else(|| choose(self))?;
        self.unlist(block);
        self.leaving = Some(block);
        let page = self.members(block).tail()?;
        self.remove(page);
        Some(Proposal::Evict(page))
    }

    /// Whether a block is being evicted and has pages left.
    fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

/// The order in which blocks are evicted.
pub(super) trait Order: Send {
    /// Whether blocks are padded; see [`Policy::pads_blocks`].
    const PADS: bool = false;

    /// A page of a block came in or was used: lists the block. `had`: the page was already
    /// resident.
    fn used(&self, blocks: &mut Blocks, block: Block, by: Option<Access>, had: bool);

    /// A block has lost a page and has others: lists it anew, if necessary.
    fn shrunk(&self, blocks: &mut Blocks, block: Block);

    /// The next block to evict.
    fn victim(&self, blocks: &Blocks) -> Option<Block>;
}

/// A policy that evicts whole blocks.
pub(super) struct BlockPolicy<O> {
    blocks: Blocks,
    order: O,
}

impl<O: Order> BlockPolicy<O> {
    pub(super) fn of(context: &PolicyContext, order: O) -> Self {
        Self {
            blocks: Blocks::new(context),
            order,
        }
    }
}

impl<O: Order> Policy for BlockPolicy<O> {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let had = self.blocks.is_in(page);
        let block = self.blocks.add(page);
        self.order.used(&mut self.blocks, block, by, had);
    }

    fn touched(&mut self, page: PageId, access: Access) {
        self.inserted(page, Some(access));
    }

    fn removed(&mut self, page: PageId) {
        if let Some(block) = self.blocks.remove(page) {
            self.order.shrunk(&mut self.blocks, block);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.blocks.propose(|blocks| self.order.victim(blocks))
    }

    fn leaves_with_next(&self) -> bool {
        self.blocks.is_leaving()
    }

    fn pads_blocks(&self) -> bool {
        O::PADS
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
