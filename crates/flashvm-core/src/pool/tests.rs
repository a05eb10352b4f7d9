//! The pool against a naive model: a map from page to length.

use super::*;
use crate::ids::PAGE_SIZE;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    /// Remove the n-th page.
    Remove(usize),
    /// Begin to write the oldest block.
    Leave,
    /// End the write of the n-th block that is leaving, well or not.
    End(usize, bool),
    /// Begin to read a sparse block back.
    Return,
    /// End the read of the block, well or not.
    Back(bool),
    /// Pack a block.
    Pack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..=OBJECT_MAX).prop_map(Step::Insert),
        8 => any::<usize>().prop_map(Step::Remove),
        2 => Just(Step::Leave),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(n, good)| Step::End(n, good)),
        1 => Just(Step::Return),
        1 => any::<bool>().prop_map(Step::Back),
        1 => Just(Step::Pack),
    ]
}

/// The pool, and what it should hold.
#[derive(Default)]
struct Model {
    pool: Pool,
    pages: BTreeMap<PageId, (Handle, u32)>,
    leaving: Vec<BlockId>,
    returning: Vec<BlockId>,
    next_page: u32,
    next_slot: u32,
    /// Slots that blocks lie in.
    slots: BTreeMap<SlotId, BlockId>,
}

impl Model {
    fn freed(&mut self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            assert!(self.slots.remove(&slot).is_some(), "{slot:?} freed twice");
        }
    }

    fn take(&mut self, step: &Step) {
        self.pool.recycle();
        match *step {
            Step::Insert(bytes) => {
                let before = self.pool.frames();
                let more = self.pool.frames_for(bytes);
                let page = PageId(self.next_page);
                self.next_page += 1;
                let handle = self.pool.insert(page, bytes);
                assert_eq!(self.pool.frames(), before + more, "told otherwise");
                self.pages.insert(page, (handle, bytes));
            }
            Step::Remove(n) if !self.pages.is_empty() => {
                let page = *self.pages.keys().nth(n % self.pages.len()).expect("there");
                let (handle, _) = self.pages.remove(&page).expect("there");
                let freed = self.pool.remove(handle);
                self.freed(freed);
            }
            Step::Leave => {
                if let Some(block) = self.pool.oldest() {
                    let slot = SlotId(self.next_slot);
                    self.next_slot += BLOCK_SLOTS;
                    self.pool.leaves(block, slot);
                    self.slots.insert(slot, block);
                    self.leaving.push(block);
                }
            }
            Step::End(n, good) if !self.leaving.is_empty() => {
                let block = self.leaving.swap_remove(n % self.leaving.len());
                if !good {
                    self.slots.retain(|_, of| *of != block);
                    self.pool.stays(block);
                } else {
                    let freed = self.pool.has_left(block);
                    self.freed(freed);
                }
            }
            Step::Return if self.returning.is_empty() => {
                if let Some(block) = self.pool.sparsest() {
                    let slot = self.pool.returns(block);
                    assert_eq!(self.slots[&slot], block);
                    self.returning.push(block);
                }
            }
            Step::Back(good) => {
                if let Some(block) = self.returning.pop() {
                    let freed = self.pool.has_returned(block, good);
                    self.freed(freed);
                }
            }
            Step::Pack => {
                let Some(block) = self.pool.wasteful() else {
                    return;
                };
                let live: Vec<_> = self.pool.live_in(block).collect();
                for (old, page) in live {
                    let new = self.pool.relocate(old);
                    self.pages.get_mut(&page).expect("alive").0 = new;
                    let freed = self.pool.remove(old);
                    self.freed(freed);
                }
                assert!(self.pool.vacated().contains(&block), "it is empty");
            }
            Step::Remove(_) | Step::End(..) | Step::Return => {}
        }
    }

    /// Every page has an object of its length, and no two objects of a block overlap.
    fn check(&self) {
        self.pool.check();
        assert_eq!(self.pool.objects_everywhere(), self.pages.len());
        let mut places: BTreeMap<(BlockId, u32), u32> = BTreeMap::new();
        for (&page, &(handle, bytes)) in &self.pages {
            assert_eq!(self.pool.owner(handle), Some(page));
            let object = self.pool.object(handle);
            assert_eq!(object.bytes, bytes);
            assert!(object.offset + bytes <= BLOCK_BYTES as u32, "{object:?}");
            let (first, count) = object.slots();
            assert!(count <= 2 && first + count <= BLOCK_SLOTS, "{object:?}");
            let old = places.insert((object.block, object.offset), bytes);
            assert_eq!(old, None, "{object:?} twice");
        }
        for ((&(a, at), &bytes), (&(b, next), _)) in places.iter().zip(places.iter().skip(1)) {
            assert!(
                a != b || at + bytes <= next,
                "{a:?}: {at} and {next} overlap"
            );
        }
        assert_eq!(self.pool.blocks_on_flash() as usize, self.slots.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_have_their_places(steps in prop::collection::vec(step(), 1..400)) {
        let mut model = Model::default();
        for step in &steps {
            model.take(step);
            model.check();
        }
    }
}

/// Holes take at most a twelfth of the pool, plus two blocks.
#[test]
fn packing_bounds_the_waste() {
    let mut model = Model::default();
    for i in 0..20_000_u32 {
        model.take(&Step::Insert(700 + i * 37 % 900));
        if i > 3000 {
            let n = (i as usize).wrapping_mul(0x9e37_79b9) >> 5;
            model.take(&Step::Remove(n));
        }
        for _ in 0..4 {
            model.take(&Step::Pack);
        }
        if i % 500 == 0 {
            model.check();
        }
    }
    let frames = u64::from(model.pool.frames()) * PAGE_SIZE as u64;
    let most = model.pool.live * 112 / 100 + 2 * BLOCK_BYTES as u64;
    assert!(frames <= most, "{frames} bytes for {most}");
}

/// The tail is the oldest part of the order; a leaving block belongs to it.
#[test]
fn the_oldest_blocks_are_the_tail() {
    let mut pool = Pool::default();
    let bytes = PAGE_SIZE as u32 / 2;
    let handles: Vec<Handle> = (0..10 * 2 * BLOCK_SLOTS)
        .map(|page| pool.insert(PageId(page), bytes))
        .collect();
    let tail = |pool: &Pool, frames| {
        let is_in = |&&handle: &&Handle| pool.is_in_tail(handle, frames);
        handles.iter().take_while(is_in).count() as u32 / (2 * BLOCK_SLOTS)
    };
    assert_eq!(pool.frames(), 10 * BLOCK_SLOTS);
    assert_eq!(tail(&pool, 0), 0);
    assert_eq!(tail(&pool, 3 * BLOCK_SLOTS), 3);
    assert!(!pool.is_in_tail(*handles.last().expect("some"), 9 * BLOCK_SLOTS));
    let oldest = pool.oldest().expect("a block");
    pool.leaves(oldest, SlotId(0));
    assert!(pool.is_in_tail(handles[0], 0));
}

/// Pages come and go, and nothing leaves: new objects fill the places of freed ones, so few objects move.
#[test]
fn freed_places_are_filled() {
    let mut model = Model::default();
    let bytes = |i: u32| 400 + i * 37 % 200;
    (0..4000).for_each(|i| model.take(&Step::Insert(bytes(i))));
    let mut moved = 0;
    for i in 0..4000_u32 {
        let n = (i as usize).wrapping_mul(0x9e37_79b9) >> 5;
        model.take(&Step::Remove(n));
        model.take(&Step::Insert(bytes(i)));
        let before = model.pages.clone();
        model.take(&Step::Pack);
        let now = model.pages.iter();
        moved += now.filter(|&(page, place)| before[page] != *place).count();
    }
    model.check();
    assert!(moved < 1000, "{moved} moved for 4,000 new ones");
}
