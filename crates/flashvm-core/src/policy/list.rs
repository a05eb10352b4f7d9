//! Doubly linked lists of pages through one shared column of index pairs: eight bytes a page, which
//! take no RAM where no page was ever linked.

use crate::ids::PageId;

/// The column: next (towards the tail) and previous; 0 is none, otherwise page + 1. A page is in
/// at most one list.
pub(super) struct Links(Vec<[u32; 2]>);

const NEXT: usize = 0;
const PREV: usize = 1;

/// The ends of one list.
#[derive(Clone, Copy, Default)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Links {
    pub(super) fn new(pages: u32) -> Self {
        Self(vec![[0; 2]; pages as usize])
    }

    /// The neighbour towards the head.
    pub(super) fn towards_head(&self, page: PageId) -> Option<PageId> {
        self.0[page.0 as usize][PREV].checked_sub(1).map(PageId)
    }

    fn set(&mut self, link: u32, side: usize, to: u32) {
        self.0[link as usize - 1][side] = to;
    }
}

impl List {
    /// A list from what [`into_words`](Self::into_words) gave; zeros are an empty list.
    pub(super) fn from_words([head, tail, len]: [u32; 3]) -> Self {
        Self { head, tail, len }
    }

    /// The list as integers, of which a vector of zeros takes no RAM until something is stored there.
    pub(super) fn into_words(self) -> [u32; 3] {
        [self.head, self.tail, self.len]
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn tail(&self) -> Option<PageId> {
        self.tail.checked_sub(1).map(PageId)
    }

    pub(super) fn head(&self) -> Option<PageId> {
        self.head.checked_sub(1).map(PageId)
    }

    pub(super) fn push_head(&mut self, links: &mut Links, page: PageId) {
        let link = page.0 + 1;
        links.0[page.0 as usize] = [self.head, 0];
        match self.head {
            0 => self.tail = link,
            head => links.set(head, PREV, link),
        }
        self.head = link;
        self.len += 1;
    }

    pub(super) fn push_tail(&mut self, links: &mut Links, page: PageId) {
        let link = page.0 + 1;
        links.0[page.0 as usize] = [0, self.tail];
        match self.tail {
            0 => self.head = link,
            tail => links.set(tail, NEXT, link),
        }
        self.tail = link;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, links: &mut Links, page: PageId) {
        let [next, prev] = links.0[page.0 as usize];
        match prev {
            0 => self.head = next,
            prev => links.set(prev, NEXT, next),
        }
        match next {
            0 => self.tail = prev,
            next => links.set(next, PREV, prev),
        }
        self.len -= 1;
    }

    /// Replaces `from` by `to`.
    pub(super) fn replace(&mut self, links: &mut Links, from: PageId, to: PageId) {
        let [next, prev] = links.0[from.0 as usize];
        links.0[to.0 as usize] = [next, prev];
        match prev {
            0 => self.head = to.0 + 1,
            prev => links.set(prev, NEXT, to.0 + 1),
        }
        match next {
            0 => self.tail = to.0 + 1,
            next => links.set(next, PREV, to.0 + 1),
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
            at = links.0[at as usize - 1][NEXT];
        }
        let mut back = Vec::new();
        let mut at = list.tail();
        while let Some(page) = at {
            back.push(page.0);
            at = links.towards_head(page);
        }
        back.reverse();
        assert_eq!(pages, back);
        pages
    }

    proptest! {
        #[test]
        fn matches_a_deque(ops in prop::collection::vec((0..4u8, 0..16u32), 0..200)) {
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
                        let last = list.tail();
                        prop_assert_eq!(last.map(|p| p.0), model.pop_back());
                        if let Some(last) = last {
                            list.remove(&mut links, last);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(contents(&list, &links), Vec::from(model.clone()));
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.head().map(|p| p.0), model.front().copied());
            }
        }
    }
}
