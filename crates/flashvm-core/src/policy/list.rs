//! Doubly linked lists of pages through two shared columns of indices: eight bytes a page, which
//! take no RAM where no page was ever linked.

use crate::ids::PageId;

/// The columns; 0 is none, otherwise page + 1. A page is in at most one list.
pub(super) struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

/// The ends of one list.
#[derive(Default)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Links {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            next: vec![0; pages as usize],
            prev: vec![0; pages as usize],
        }
    }
}

impl List {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn tail(&self) -> Option<PageId> {
        self.tail.checked_sub(1).map(PageId)
    }

    pub(super) fn push_head(&mut self, links: &mut Links, page: PageId) {
        let link = page.0 + 1;
        links.next[page.0 as usize] = self.head;
        links.prev[page.0 as usize] = 0;
        match self.head {
            0 => self.tail = link,
            head => links.prev[head as usize - 1] = link,
        }
        self.head = link;
        self.len += 1;
    }

    pub(super) fn push_tail(&mut self, links: &mut Links, page: PageId) {
        let link = page.0 + 1;
        links.prev[page.0 as usize] = self.tail;
        links.next[page.0 as usize] = 0;
        match self.tail {
            0 => self.head = link,
            tail => links.next[tail as usize - 1] = link,
        }
        self.tail = link;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, links: &mut Links, page: PageId) {
        let (next, prev) = (links.next[page.0 as usize], links.prev[page.0 as usize]);
        match prev {
            0 => self.head = next,
            prev => links.next[prev as usize - 1] = next,
        }
        match next {
            0 => self.tail = prev,
            next => links.prev[next as usize - 1] = prev,
        }
        self.len -= 1;
    }

    pub(super) fn pop_tail(&mut self, links: &mut Links) -> Option<PageId> {
        let page = self.tail()?;
        self.remove(links, page);
        Some(page)
    }

    /// Puts `to` in the place of `from`.
    pub(super) fn replace(&mut self, links: &mut Links, from: PageId, to: PageId) {
        let (next, prev) = (links.next[from.0 as usize], links.prev[from.0 as usize]);
        links.next[to.0 as usize] = next;
        links.prev[to.0 as usize] = prev;
        match prev {
            0 => self.head = to.0 + 1,
            prev => links.next[prev as usize - 1] = to.0 + 1,
        }
        match next {
            0 => self.tail = to.0 + 1,
            next => links.prev[next as usize - 1] = to.0 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn contents(list: &List, links: &Links) -> Vec<u32> {
        let mut pages = Vec::new();
        let mut at = list.head;
        while at != 0 {
            pages.push(at - 1);
            at = links.next[at as usize - 1];
        }
        pages
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(ops in prop::collection::vec((0..4u8, 0..16u32), 0..200)) {
            let (mut links, mut list) = (Links::new(32), List::default());
            let mut model: VecDeque<u32> = VecDeque::new();
            for (op, page) in ops {
                let at = model.iter().position(|&p| p == page);
                match (op, at) {
                    (0, None) => {
                        list.push_head(&mut links, PageId(page));
                        model.push_front(page);
                    }
                    (1, None) => {
                        list.push_tail(&mut links, PageId(page));
                        model.push_back(page);
                    }
                    (2, Some(at)) => {
                        list.remove(&mut links, PageId(page));
                        model.remove(at);
                    }
                    (3, Some(at)) if !model.contains(&(page + 16)) => {
                        list.replace(&mut links, PageId(page), PageId(page + 16));
                        model[at] = page + 16;
                    }
                    (3, None) => {
                        let popped = list.pop_tail(&mut links);
                        prop_assert_eq!(popped.map(|p| p.0), model.pop_back());
                    }
                    _ => {}
                }
                prop_assert_eq!(contents(&list, &links), Vec::from(model.clone()));
                prop_assert_eq!(list.len() as usize, model.len());
            }
        }
    }
}
