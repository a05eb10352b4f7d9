//! First in, first out: pages leave in the order in which they came.
//!
//! References are ignored, except one: a page that is touched after it was proposed starts anew
//! as the youngest.

use super::list::{Links, List};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// The queue; its tail is the oldest page.
pub(super) struct Fifo {
    links: Links,
    queue: List,
    linked: Vec<bool>,
}

impl Fifo {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            links: Links::new(pages),
            queue: List::default(),
            linked: vec![false; pages as usize],
        }
    }

    fn link(&mut self, page: PageId) {
        if !self.linked[page.0 as usize] {
            self.linked[page.0 as usize] = true;
            self.queue.push_head(&mut self.links, page);
        }
    }
}

impl Policy for Fifo {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.link(page);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.link(page);
    }

    fn removed(&mut self, page: PageId) {
        if std::mem::take(&mut self.linked[page.0 as usize]) {
            self.queue.remove(&mut self.links, page);
        }
    }

    fn cooled(&mut self, page: PageId) {
        if self.linked[page.0 as usize] {
            self.queue.remove(&mut self.links, page);
            self.queue.push_tail(&mut self.links, page);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let page = self.queue.pop_tail(&mut self.links)?;
        self.linked[page.0 as usize] = false;
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        if std::mem::take(&mut self.linked[from.0 as usize]) {
            self.queue.replace(&mut self.links, from, to);
            self.linked[to.0 as usize] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_goes_first_whatever_was_touched() {
        let mut fifo = Fifo::new(8);
        for page in 0..4 {
            fifo.inserted(PageId(page), Some(Access::Read));
        }
        fifo.touched(PageId(0), Access::Read);
        fifo.removed(PageId(1));
        fifo.relocated(PageId(2), PageId(7));
        let order: Vec<_> = std::iter::from_fn(|| fifo.propose()).collect();
        assert_eq!(order, [0, 7, 3].map(|p| Proposal::Evict(PageId(p))));
    }
}
