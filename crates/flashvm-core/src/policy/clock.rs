//! CLOCK: first in, first out, with a second chance for pages whose reference bit is set
//! (Corbato, *A Paging Experiment with the Multics System*, 1969).
//!
//! The ring is a list whose tail is under the hand. The hand clears a set bit and passes the page;
//! it evicts a page whose bit is clear. By default ([`Insert::Set`]) the access that brings a
//! page in sets the bit, as the hardware does when it retries the access. With [`Insert::Clear`]
//! the bit starts clear, so that a page has to be touched once more to earn its second chance: the
//! convention of cache simulators such as libCacheSim.

use super::lists::{Bit, Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// The reference bit of a page that comes in by a fault; prefetched pages enter with it clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insert {
    /// Set by the faulting access.
    Set,
    /// Clear: the faulting access does not count.
    Clear,
}

const RING: u8 = 1;

/// The ring.
pub(super) struct Clock {
    lists: Lists<1>,
    insert: Insert,
}

impl Clock {
    pub(super) fn new(pages: u32, insert: Insert) -> Self {
        Self {
            lists: Lists::new(pages),
            insert,
        }
    }

    fn link(&mut self, page: PageId) {
        if self.lists.place(page) == NOWHERE {
            self.lists.enter(page, RING);
        }
    }
}

impl Policy for Clock {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        self.link(page);
        if by.is_some() && self.insert == Insert::Set {
            self.lists.set(page, Bit::Referenced);
        } else {
            self.lists.clear(page, Bit::Referenced);
        }
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.link(page);
        self.lists.set(page, Bit::Referenced);
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) == RING {
            self.lists.enter_tail(page, RING);
            self.lists.clear(page, Bit::Referenced);
        }
    }

    fn ignores_stores(&self) -> bool {
        true
    }

    fn propose(&mut self) -> Option<Proposal> {
        let page = self.lists.tail(RING)?;
        if self.lists.take(page, Bit::Referenced) {
            self.lists.enter(page, RING);
            return Some(Proposal::Unreference(page));
        }
        self.lists.remove(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    #[test]
    fn referenced_pages_get_a_second_chance() {
        let mut clock = Clock::new(8, Insert::Set);
        clock.inserted(PageId(0), Some(Access::Read));
        clock.inserted(PageId(1), None);
        clock.inserted(PageId(2), Some(Access::Write));
        assert_eq!(clock.propose(), Some(Unreference(PageId(0))));
        assert_eq!(clock.propose(), Some(Evict(PageId(1))));
        assert_eq!(clock.propose(), Some(Unreference(PageId(2))));
        clock.touched(PageId(0), Access::Read);
        assert_eq!(clock.propose(), Some(Unreference(PageId(0))));
        assert_eq!(clock.propose(), Some(Evict(PageId(2))));
        assert_eq!(clock.propose(), Some(Evict(PageId(0))));
        assert_eq!(clock.propose(), None);
    }

    #[test]
    fn with_clear_inserts_the_first_access_does_not_count() {
        let mut clock = Clock::new(8, Insert::Clear);
        clock.inserted(PageId(0), Some(Access::Read));
        assert_eq!(clock.propose(), Some(Evict(PageId(0))));
    }
}
