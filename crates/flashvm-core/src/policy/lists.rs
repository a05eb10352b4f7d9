//! Several lists over one column of links. A page is in at most one list; a byte a page holds the
//! number of the list and the policy's bits.
//!
//! The lower half of the byte is the page's place: 0 for none, otherwise a list. The upper half
//! holds bits whose meaning the policy defines. Bits stay with a page that leaves its list.

use super::list::{Links, List};
use crate::ids::PageId;

/// A list by number, from 1; [`NOWHERE`] is none.
pub(super) type ListId = u8;
/// In none of the lists.
pub(super) const NOWHERE: ListId = 0;

/// A bit of a page.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Bit {
    /// Referenced since the policy last cleared it.
    Referenced = 0x10,
    /// The contents differ from those on flash.
    Dirty = 0x20,
    /// Its meaning is the policy's.
    Mark = 0x40,
}

const PLACE: u8 = 0x0F;

/// `N` lists; heads are young, tails old.
pub(super) struct Lists<const N: usize> {
    links: Links,
    lists: [List; N],
    tags: Vec<u8>,
}

impl<const N: usize> Lists<N> {
    pub(super) fn new(pages: u32) -> Self {
        const { assert!(N <= PLACE as usize) };
        Self {
            links: Links::new(pages),
            lists: [List::default(); N],
            tags: vec![0; pages as usize],
        }
    }

    #[inline]
    pub(super) fn place(&self, page: PageId) -> ListId {
        self.tags[page.0 as usize] & PLACE
    }

    pub(super) fn len(&self, place: ListId) -> u32 {
        self.lists[usize::from(place) - 1].len()
    }

    pub(super) fn head(&self, place: ListId) -> Option<PageId> {
        self.lists[usize::from(place) - 1].head()
    }

    pub(super) fn tail(&self, place: ListId) -> Option<PageId> {
        self.lists[usize::from(place) - 1].tail()
    }

    pub(super) fn towards_head(&self, page: PageId) -> Option<PageId> {
        self.links.towards_head(page)
    }

    fn put_place(&mut self, page: PageId, place: ListId) {
        let tag = &mut self.tags[page.0 as usize];
        *tag = *tag & !PLACE | place;
    }

    /// Removes a page from its list, if it is in one.
    pub(super) fn remove(&mut self, page: PageId) {
        let place = self.place(page);
        if place != NOWHERE {
            self.lists[usize::from(place) - 1].remove(&mut self.links, page);
            self.put_place(page, NOWHERE);
        }
    }

    /// Moves a page to the head of a list.
    pub(super) fn enter(&mut self, page: PageId, place: ListId) {
        self.remove(page);
        self.lists[usize::from(place) - 1].push_head(&mut self.links, page);
        self.put_place(page, place);
    }

    /// Moves a page to the tail of a list.
    pub(super) fn enter_tail(&mut self, page: PageId, place: ListId) {
        self.remove(page);
        self.lists[usize::from(place) - 1].push_tail(&mut self.links, page);
        self.put_place(page, place);
    }

    /// Takes the oldest page of a list.
    pub(super) fn pop(&mut self, place: ListId) -> Option<PageId> {
        let page = self.tail(place)?;
        self.remove(page);
        Some(page)
    }

    #[inline]
    pub(super) fn has(&self, page: PageId, bit: Bit) -> bool {
        self.tags[page.0 as usize] & bit as u8 != 0
    }

    #[inline]
    pub(super) fn set(&mut self, page: PageId, bit: Bit) {
        self.tags[page.0 as usize] |= bit as u8;
    }

    #[inline]
    pub(super) fn clear(&mut self, page: PageId, bit: Bit) {
        self.tags[page.0 as usize] &= !(bit as u8);
    }

    /// Clears a bit; returns whether it was set.
    pub(super) fn take(&mut self, page: PageId, bit: Bit) -> bool {
        let had = self.has(page, bit);
        self.clear(page, bit);
        had
    }

    /// Forgets a page: place and bits.
    pub(super) fn forget(&mut self, page: PageId) {
        self.remove(page);
        self.tags[page.0 as usize] = 0;
    }

    /// Moves place and bits from `from` to `to`.
    pub(super) fn relocate(&mut self, from: PageId, to: PageId) {
        self.forget(to);
        let place = self.place(from);
        if place != NOWHERE {
            self.lists[usize::from(place) - 1].replace(&mut self.links, from, to);
        }
        self.tags[to.0 as usize] = std::mem::take(&mut self.tags[from.0 as usize]);
    }
}
