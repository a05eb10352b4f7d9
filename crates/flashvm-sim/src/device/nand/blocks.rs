//! The closed blocks by their number of valid pages: one list for each number, and a mark below
//! which all lists are empty. So greedy cleaning finds its victim in constant time.

const NONE: u32 = u32::MAX;

/// Lists of blocks; a block is in at most one.
pub(super) struct ValidLists {
    next: Vec<u32>,
    prev: Vec<u32>,
    heads: Vec<u32>,
    tails: Vec<u32>,
    /// The mark: all lists for fewer valid pages are empty.
    least: usize,
}

impl ValidLists {
    pub(super) fn new(blocks: u32, pages_per_block: u32) -> Self {
        Self {
            next: vec![NONE; blocks as usize],
            prev: vec![NONE; blocks as usize],
            heads: vec![NONE; pages_per_block as usize + 1],
            tails: vec![NONE; pages_per_block as usize + 1],
            least: pages_per_block as usize + 1,
        }
    }

    /// Adds a block behind the others with as many valid pages.
    pub(super) fn insert(&mut self, block: u32, valid: u32) {
        let list = valid as usize;
        let tail = self.tails[list];
        self.prev[block as usize] = tail;
        self.next[block as usize] = NONE;
        match tail {
            NONE => self.heads[list] = block,
            tail => self.next[tail as usize] = block,
        }
        self.tails[list] = block;
        self.least = self.least.min(list);
    }

    pub(super) fn remove(&mut self, block: u32, valid: u32) {
        let (next, prev) = (self.next[block as usize], self.prev[block as usize]);
        match prev {
            NONE => self.heads[valid as usize] = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tails[valid as usize] = prev,
            next => self.prev[next as usize] = prev,
        }
    }

    /// The block with the fewest valid pages; among equals the first to reach that number.
    pub(super) fn least(&mut self) -> Option<u32> {
        while self.least < self.heads.len() {
            match self.heads[self.least] {
                NONE => self.least += 1,
                block => return Some(block),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_least_matches_a_map(ops in prop::collection::vec((0..20_u32, 0..9_u32), 0..300)) {
            let mut lists = ValidLists::new(20, 8);
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (block, valid) in ops {
                if let Some(old) = model.remove(&block) {
                    lists.remove(block, old);
                } else {
                    lists.insert(block, valid);
                    model.insert(block, valid);
                }
                let least = lists.least().map(|block| model[&block]);
                prop_assert_eq!(least, model.values().min().copied());
            }
        }
    }
}
