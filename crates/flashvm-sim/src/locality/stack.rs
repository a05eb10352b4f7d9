//! The rank of a page in the list of pages by recency, at each reference.
//!
//! Each reference puts its page into the next slot. The rank of a page is one more than the number
//! of pages in later slots, which a Fenwick tree counts. When all slots are used, the pages are
//! compacted, with as many free slots again: O(log n) a reference on average, and memory for the
//! pages, not for the references.

/// No slot.
const NONE: u32 = u32::MAX;
const SLOTS_MIN: usize = 1024;

/// The pages by recency. Pages are numbered from 0 without gaps, as far as possible.
#[derive(Clone, Debug, Default)]
pub struct LruStack {
    /// By page, its slot.
    slots: Vec<u32>,
    /// By slot, its page.
    pages: Vec<u32>,
    /// A Fenwick tree over slots: 1 for each that holds a page.
    tree: Vec<u32>,
    /// Slots allocated so far.
    used: usize,
    /// Pages.
    live: u32,
}

impl LruStack {
    /// References a page. Returns its previous rank: 1 for the last referenced page, `None` for a
    /// new one.
    pub fn reference(&mut self, page: u32) -> Option<u32> {
        let index = page as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, NONE);
        }
        let slot = self.slots[index];
        if slot != NONE && slot as usize + 1 == self.used {
            return Some(1);
        }
        if self.used == self.pages.len() {
            self.compact();
        }
        let slot = self.slots[index];
        let rank = (slot != NONE).then(|| {
            let later = self.live - self.held_to(slot as usize);
            self.pages[slot as usize] = NONE;
            self.change(slot as usize, u32::MAX);
            later + 1
        });
        self.live += u32::from(rank.is_none());
        self.pages[self.used] = page;
        self.slots[index] = self.used as u32;
        self.change(self.used, 1);
        self.used += 1;
        rank
    }

    /// Pages in slots up to and including this one.
    fn held_to(&self, slot: usize) -> u32 {
        let (mut at, mut sum) = (slot + 1, 0_u32);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    fn change(&mut self, slot: usize, by: u32) {
        let mut at = slot + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Moves the pages into the first slots, in order, and leaves at least as many slots free.
    fn compact(&mut self) {
        self.pages.retain(|&page| page != NONE);
        self.used = self.pages.len();
        for (slot, &page) in self.pages.iter().enumerate() {
            self.slots[page as usize] = slot as u32;
        }
        let slots = (2 * self.used).next_power_of_two().max(SLOTS_MIN);
        self.pages.resize(slots, NONE);
        self.tree.clear();
        self.tree.resize(slots + 1, 0);
        for at in 1..=slots {
            self.tree[at] = self.tree[at].wrapping_add(u32::from(at <= self.used));
            let above = at + (at & at.wrapping_neg());
            if above <= slots {
                self.tree[above] = self.tree[above].wrapping_add(self.tree[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_are_those_of_a_plain_list(
            references in prop::collection::vec(0..60_u32, 1..4000),
            wide in any::<bool>(),
        ) {
            let mut stack = LruStack::default();
            let mut list: Vec<u32> = Vec::new();
            for page in references {
                let page = if wide { page * 37 } else { page / 3 };
                let place = list.iter().position(|&other| other == page);
                prop_assert_eq!(stack.reference(page), place.map(|place| place as u32 + 1));
                place.map(|place| list.remove(place));
                list.insert(0, page);
            }
        }
    }

    #[test]
    fn a_cycle_finds_every_page_last() {
        let mut stack = LruStack::default();
        for round in 0..20 {
            for page in 0..3000 {
                let expected = (round > 0).then_some(3000);
                assert_eq!(stack.reference(page), expected);
            }
        }
    }
}
