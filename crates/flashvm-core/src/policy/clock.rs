//! CLOCK: first in, first out, with a second chance for pages whose reference bit is set.
//!
//! The ring is a list whose tail is under the hand. A page whose bit is set is unreferenced and
//! passed by; one whose bit is clear is evicted. The bit is set by the access that brings a page
//! in ([`Insert::Set`]), as the hardware does it, or starts clear ([`Insert::Clear`]), so that a
//! page has to be touched once more to earn its second chance.

use super::list::{Links, List};
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

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mark {
    Out = 0,
    Clear,
    Referenced,
}

/// The ring.
pub(super) struct Clock {
    links: Links,
    ring: List,
    marks: Vec<u8>,
    insert: Insert,
}

impl Clock {
    pub(super) fn new(pages: u32, insert: Insert) -> Self {
        Self {
            links: Links::new(pages),
            ring: List::default(),
            marks: vec![0; pages as usize],
            insert,
        }
    }

    fn is_in(&self, page: PageId) -> bool {
        self.marks[page.0 as usize] != Mark::Out as u8
    }

    fn mark(&mut self, page: PageId, mark: Mark) {
        self.marks[page.0 as usize] = mark as u8;
    }

    fn enter(&mut self, page: PageId, mark: Mark) {
        if !self.is_in(page) {
            self.ring.push_head(&mut self.links, page);
        }
        self.mark(page, mark);
    }
}

impl Policy for Clock {
    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        let referenced = by.is_some() && self.insert == Insert::Set;
        let mark = if referenced {
            Mark::Referenced
        } else {
            Mark::Clear
        };
        self.enter(page, mark);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.enter(page, Mark::Referenced);
    }

    fn removed(&mut self, page: PageId) {
        if self.is_in(page) {
            self.ring.remove(&mut self.links, page);
            self.mark(page, Mark::Out);
        }
    }

    fn cooled(&mut self, page: PageId) {
        if self.is_in(page) {
            self.ring.remove(&mut self.links, page);
            self.ring.push_tail(&mut self.links, page);
            self.mark(page, Mark::Clear);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let page = self.ring.pop_tail(&mut self.links)?;
        if self.marks[page.0 as usize] == Mark::Referenced as u8 {
            self.ring.push_head(&mut self.links, page);
            self.mark(page, Mark::Clear);
            return Some(Proposal::Unreference(page));
        }
        self.mark(page, Mark::Out);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        if self.is_in(from) {
            self.ring.replace(&mut self.links, from, to);
            self.marks[to.0 as usize] = std::mem::take(&mut self.marks[from.0 as usize]);
        }
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
