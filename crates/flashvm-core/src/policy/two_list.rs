//! Two lists, active and inactive: the clock of Linux 2.6.28 for anonymous memory.
//!
//! New pages start active. When the inactive list is short of its share, the oldest active page
//! is deactivated (its reference bit is cleared); an inactive page that is touched becomes
//! active again; victims are the oldest inactive pages. Prefetched pages start inactive.
//!
//! The same order with a small inactive share is the segmented FIFO of Turner and Levy (1981):
//! every deactivation costs a move into the shadow and perhaps a fault to come back, so a pager
//! that sees references only that way keeps the observed part small.

use super::list::{Links, List};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    Out = 0,
    Active,
    Inactive,
}

/// The lists; their tails are the oldest pages.
pub(super) struct TwoList {
    links: Links,
    active: List,
    inactive: List,
    places: Vec<u8>,
    /// One in so many pages is to be inactive.
    share: u32,
}

impl TwoList {
    pub(super) fn new(pages: u32, share: u32) -> Self {
        Self {
            links: Links::new(pages),
            active: List::default(),
            inactive: List::default(),
            places: vec![0; pages as usize],
            share,
        }
    }

    fn place(&self, page: PageId) -> Place {
        match self.places[page.0 as usize] {
            0 => Place::Out,
            1 => Place::Active,
            _ => Place::Inactive,
        }
    }

    fn unlink(&mut self, page: PageId) {
        match self.place(page) {
            Place::Out => {}
            Place::Active => self.active.remove(&mut self.links, page),
            Place::Inactive => self.inactive.remove(&mut self.links, page),
        }
        self.places[page.0 as usize] = Place::Out as u8;
    }

    fn enter(&mut self, page: PageId, place: Place) {
        self.unlink(page);
        match place {
            Place::Out => {}
            Place::Active => self.active.push_head(&mut self.links, page),
            Place::Inactive => self.inactive.push_head(&mut self.links, page),
        }
        self.places[page.0 as usize] = place as u8;
    }

    fn inactive_is_short(&self) -> bool {
        let total = self.active.len() + self.inactive.len();
        self.inactive.len() < (total / self.share).max(1)
    }
}

impl Policy for TwoList {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let place = if by.is_some() {
            Place::Active
        } else {
            Place::Inactive
        };
        self.enter(page, place);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.place(page) != Place::Active {
            self.enter(page, Place::Active);
        }
    }

    fn removed(&mut self, page: PageId) {
        self.unlink(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.place(page) != Place::Out {
            self.unlink(page);
            self.inactive.push_tail(&mut self.links, page);
            self.places[page.0 as usize] = Place::Inactive as u8;
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        if self.inactive_is_short()
            && let Some(page) = self.active.tail()
        {
            self.enter(page, Place::Inactive);
            return Some(Proposal::Unreference(page));
        }
        let page = self.inactive.tail()?;
        self.unlink(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        let list = match self.place(from) {
            Place::Out => return,
            Place::Active => &mut self.active,
            Place::Inactive => &mut self.inactive,
        };
        list.replace(&mut self.links, from, to);
        self.places[to.0 as usize] = std::mem::take(&mut self.places[from.0 as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    #[test]
    fn touched_inactive_pages_become_active_again() {
        let mut lists = TwoList::new(16, 3);
        for page in 0..6 {
            lists.inserted(PageId(page), Some(Access::Read));
        }
        assert_eq!(lists.propose(), Some(Unreference(PageId(0))));
        assert_eq!(lists.propose(), Some(Unreference(PageId(1))));
        lists.touched(PageId(0), Access::Read);
        assert_eq!(lists.propose(), Some(Unreference(PageId(2))));
        assert_eq!(lists.propose(), Some(Evict(PageId(1))));
        assert_eq!(lists.propose(), Some(Evict(PageId(2))));
        let mut rest = Vec::new();
        while let Some(proposal) = lists.propose() {
            if let Evict(page) = proposal {
                rest.push(page.0);
            }
        }
        assert_eq!(rest, [3, 4, 5, 0]);
    }

    #[test]
    fn prefetched_pages_leave_before_demanded_ones() {
        let mut lists = TwoList::new(16, 3);
        lists.inserted(PageId(0), Some(Access::Read));
        lists.inserted(PageId(1), None);
        assert_eq!(lists.propose(), Some(Evict(PageId(1))));
    }
}
