//! LRU-WSR: LRU with one more chance for dirty pages (Jung, Shim, Park, Kang and Cha 2008; CRAW
//! paper, II.B).
//!
//! A clean page at the LRU end is evicted. A dirty one is evicted if its cold flag is set;
//! otherwise the flag is set and the page moves to the MRU end. A reference to a dirty page clears
//! its flag. A page comes in without the flag.

use super::lists::{Bit, Lists, NOWHERE};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::PageId;

const STACK: u8 = 1;
const COLD: Bit = Bit::Mark;

/// The stack; its head was referenced last, or given a chance.
pub(super) struct LruWsr {
    lists: Lists<1>,
}

impl LruWsr {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            lists: Lists::new(pages),
        }
    }
}

impl Policy for LruWsr {
    fn inserted(&mut self, page: PageId, _by: Option<Access>) {
        self.lists.enter(page, STACK);
        self.lists.clear(page, COLD);
    }

    fn touched(&mut self, page: PageId, _access: Access) {
        if self.lists.head(STACK) != Some(page) {
            self.lists.enter(page, STACK);
        }
        // The flag of a clean page does not matter: clearing it is harmless.
        self.lists.clear(page, COLD);
    }

    fn dirtied(&mut self, page: PageId) {
        self.lists.set(page, Bit::Dirty);
    }

    fn cleaned(&mut self, page: PageId) {
        self.lists.clear(page, Bit::Dirty);
    }

    fn removed(&mut self, page: PageId) {
        self.lists.forget(page);
    }

    fn cooled(&mut self, page: PageId) {
        if self.lists.place(page) != NOWHERE {
            self.lists.enter_tail(page, STACK);
            self.lists.set(page, COLD);
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        loop {
            let page = self.lists.tail(STACK)?;
            if !self.lists.has(page, Bit::Dirty) || self.lists.has(page, COLD) {
                self.lists.remove(page);
                return Some(Proposal::Evict(page));
            }
            self.lists.set(page, COLD);
            self.lists.enter(page, STACK);
        }
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.lists.relocate(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Naive, agree, trace};
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    struct Buffer {
        page: u32,
        dirty: bool,
        cold: bool,
    }

    /// The LRU end is the front.
    struct Plain {
        frames: usize,
        buffers: VecDeque<Buffer>,
    }

    impl Naive for Plain {
        fn reference(&mut self, page: u32, write: bool) -> Option<u32> {
            if let Some(at) = self.buffers.iter().position(|buffer| buffer.page == page) {
                let mut buffer = self.buffers.remove(at).expect("just found");
                buffer.dirty |= write;
                buffer.cold &= !buffer.dirty;
                self.buffers.push_back(buffer);
                return None;
            }
            let mut victim = None;
            while victim.is_none() && self.buffers.len() == self.frames {
                let mut last = self.buffers.pop_front().expect("frames");
                if last.dirty && !last.cold {
                    last.cold = true;
                    self.buffers.push_back(last);
                } else {
                    victim = Some(last.page);
                }
            }
            self.buffers.push_back(Buffer {
                page,
                dirty: write,
                cold: false,
            });
            victim
        }
    }

    proptest! {
        #[test]
        fn matches_a_plain_queue(trace in trace(), frames in 1..16_u32) {
            let mut plain = Plain {
                frames: frames as usize,
                buffers: VecDeque::new(),
            };
            agree("lru-wsr", &mut plain, frames, &trace);
        }
    }

    #[test]
    fn dirty_pages_get_one_more_chance() {
        let mut wsr = LruWsr::new(8);
        for page in 0..4 {
            wsr.inserted(PageId(page), Some(Access::Write));
        }
        wsr.dirtied(PageId(0));
        wsr.dirtied(PageId(1));
        assert_eq!(wsr.propose(), Some(Proposal::Evict(PageId(2))));
        // 0 is cold now; a reference clears that.
        wsr.touched(PageId(0), Access::Read);
        let order: Vec<_> = std::iter::from_fn(|| wsr.propose()).collect();
        assert_eq!(order, [3, 1, 0].map(|p| Proposal::Evict(PageId(p))));
    }
}
