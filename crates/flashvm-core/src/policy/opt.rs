//! OPT: evicts the page whose next reference lies the furthest ahead (Belady 1966). It needs the
//! future, so it works on traces only: [`Policy::foresee`] is called before every reference.
//!
//! The pages in RAM are in a heap by their next reference; a column has the position of each page
//! in it.

use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

/// Not in the heap.
const NOWHERE: u32 = 0;

/// The heap: a parent's next reference is later than its children's.
pub(super) struct Opt {
    heap: Vec<PageId>,
    /// Index in the heap, plus one.
    at: Vec<u32>,
    next_use: Vec<u64>,
    foreseen: u64,
}

impl Opt {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            heap: Vec::new(),
            at: vec![NOWHERE; pages as usize],
            next_use: vec![0; pages as usize],
            foreseen: u64::MAX,
        }
    }

    fn key(&self, index: usize) -> u64 {
        self.next_use[self.heap[index].0 as usize]
    }

    fn put(&mut self, index: usize, page: PageId) {
        self.heap[index] = page;
        self.at[page.0 as usize] = u32::try_from(index).expect("at most all pages") + 1;
    }

    /// Restores the heap's order after the key of the page at an index has changed.
    fn settle(&mut self, mut index: usize) {
        let page = self.heap[index];
        let key = self.key(index);
        while index > 0 && self.key((index - 1) / 2) < key {
            self.put(index, self.heap[(index - 1) / 2]);
            index = (index - 1) / 2;
        }
        loop {
            let left = 2 * index + 1;
            if left >= self.heap.len() {
                break;
            }
            let right_is_later = left + 1 < self.heap.len() && self.key(left + 1) > self.key(left);
            let child = left + usize::from(right_is_later);
            if self.key(child) <= key {
                break;
            }
            self.put(index, self.heap[child]);
            index = child;
        }
        self.put(index, page);
    }

    fn reference(&mut self, page: PageId) {
        self.next_use[page.0 as usize] = self.foreseen;
        let index = match self.at[page.0 as usize] {
            NOWHERE => {
                self.heap.push(page);
                self.heap.len() - 1
            }
            at => at as usize - 1,
        };
        self.settle(index);
    }
}

impl Policy for Opt {
    fn foresee(&mut self, next_use: u64) {
        self.foreseen = next_use;
    }

    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.reference(page);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        self.reference(page);
    }

    fn removed(&mut self, page: PageId) {
        let at = std::mem::replace(&mut self.at[page.0 as usize], NOWHERE);
        let Some(index) = at.checked_sub(1) else {
            return;
        };
        let last = self.heap.pop().expect("it is in the heap");
        if last != page {
            self.put(index as usize, last);
            self.settle(index as usize);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let page = *self.heap.first()?;
        self.removed(page);
        Some(Proposal::Evict(page))
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.removed(to);
        if self.at[from.0 as usize] != NOWHERE {
            self.removed(from);
            self.foreseen = self.next_use[from.0 as usize];
            self.reference(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_furthest_is_evicted_first(steps in prop::collection::vec((0..20_u32, 0..1000_u64, 0..4_u8), 0..200)) {
            let mut opt = Opt::new(20);
            let mut model = std::collections::BTreeMap::new();
            for (page, next_use, what) in steps {
                match what {
                    0 => {
                        opt.removed(PageId(page));
                        model.remove(&page);
                    }
                    1 => {
                        let most = model.values().max().copied();
                        let proposed = opt.propose();
                        prop_assert_eq!(proposed.is_none(), model.is_empty());
                        if let Some(Proposal::Evict(page)) = proposed {
                            prop_assert_eq!(model.remove(&page.0), most);
                        }
                    }
                    _ => {
                        opt.foresee(next_use);
                        opt.touched(PageId(page), Access::Read);
                        model.insert(page, next_use);
                    }
                }
            }
        }
    }
}
