//! The swap map against a naive model.

use super::*;
use crate::clusters::LocalClusters;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Clusters of which all are shared, or none.
struct Shared {
    local: LocalClusters,
    all_shared: bool,
}

impl ClusterSource for Shared {
    fn lease(&mut self) -> Option<ClusterId> {
        self.local.lease()
    }

    fn release(&mut self, cluster: ClusterId) {
        self.local.release(cluster);
    }

    fn shared(&self, _cluster: ClusterId) -> bool {
        self.all_shared
    }
}

fn alone(clusters: u32) -> Shared {
    Shared {
        local: LocalClusters::new(clusters),
        all_shared: false,
    }
}

fn slots(map: &mut SwapMap, source: &mut Shared, pages: std::ops::Range<u32>) -> Vec<u32> {
    pages
        .map(|p| map.allocate(PageId(p), false, source).expect("room").0)
        .collect()
}

#[test]
fn slots_follow_each_other_through_clusters_from_the_start() {
    let (mut map, mut source) = (SwapMap::new(64, 8), alone(8));
    assert_eq!(slots(&mut map, &mut source, 0..20), Vec::from_iter(0..20));
}

/// A cluster of at least an erase block begins at an erase block, for all cluster sizes of FlashVM, 4.1.1.
#[test]
fn clusters_are_aligned_with_erase_blocks() {
    let erase_block = 32;
    for shift in 0..=9 {
        let cluster_pages = 2 << shift;
        let (mut map, mut source) = (SwapMap::new(8192, cluster_pages), alone(8192));
        let mut starts = Vec::new();
        for page in 0..4 * cluster_pages {
            let slot = map
                .allocate(PageId(page), false, &mut source)
                .expect("room");
            if page % cluster_pages == 0 {
                starts.push(slot.0);
            }
        }
        assert!(starts.iter().all(|s| s % cluster_pages == 0));
        let aligned = starts.iter().all(|s| s % erase_block == 0);
        assert!(aligned || cluster_pages < erase_block);
    }
}

#[test]
fn free_clusters_come_before_partly_free_ones_and_the_first_of_them_first() {
    let (mut map, mut source) = (SwapMap::new(32, 8), alone(4));
    slots(&mut map, &mut source, 0..32);
    assert_eq!(map.allocate(PageId(99), false, &mut source), None);
    assert!(map.is_full());
    map.free(SlotId(3), &mut source);
    assert!(!map.is_full());
    for slot in 16..24 {
        map.free(SlotId(slot), &mut source);
    }
    let next = slots(&mut map, &mut source, 40..49);
    assert_eq!(next, [16, 17, 18, 19, 20, 21, 22, 23, 3]);
    map.check();
}

#[test]
fn bad_slots_are_never_used_again() {
    let (mut map, mut source) = (SwapMap::new(16, 8), alone(2));
    slots(&mut map, &mut source, 0..8);
    map.mark_bad(SlotId(5), &mut source);
    assert_eq!(map.view(SlotId(5)), SlotView::Bad);
    for slot in [0, 1, 2, 3, 4, 6, 7] {
        map.free(SlotId(slot), &mut source);
    }
    let mut again = slots(&mut map, &mut source, 20..35);
    again.sort_unstable();
    assert_eq!(again, Vec::from_iter((0..16).filter(|s| *s != 5)));
    assert_eq!(map.allocate(PageId(99), false, &mut source), None);
    map.check();
}

#[test]
fn after_a_fork_nothing_is_allocated_in_clusters_that_are_shared() {
    let (mut map, mut source) = (SwapMap::new(24, 8), alone(3));
    slots(&mut map, &mut source, 0..12);
    map.seal(&mut source);
    source.all_shared = true;
    map.free(SlotId(2), &mut source);
    // Slots 12..16 of the second cluster stay unused.
    assert_eq!(slots(&mut map, &mut source, 20..28), Vec::from_iter(16..24));
    assert_eq!(map.allocate(PageId(99), false, &mut source), None);
    source.all_shared = false;
    map.retry();
    let mut rest = slots(&mut map, &mut source, 30..35);
    rest.sort_unstable();
    assert_eq!(rest, [2, 12, 13, 14, 15]);
    map.check();
}

#[test]
fn a_sealed_cluster_goes_back_when_its_last_slot_is_freed() {
    let (mut map, mut source) = (SwapMap::new(16, 8), alone(2));
    slots(&mut map, &mut source, 0..8);
    map.seal(&mut source);
    source.all_shared = true;
    for slot in 0..8 {
        map.free(SlotId(slot), &mut source);
    }
    assert_eq!(source.lease(), Some(ClusterId(0)));
}

#[test]
fn clusters_in_a_discard_are_not_used_and_held_ones_only_when_there_is_no_other() {
    let (mut map, mut source) = (SwapMap::new(32, 8), alone(4));
    map.keep_emptied(true);
    slots(&mut map, &mut source, 0..32);
    for slot in 0..24 {
        map.free(SlotId(slot), &mut source);
    }
    while let Some(cluster) = map.pop_emptied() {
        map.hold(cluster);
    }
    assert_eq!(map.held_slots(), 24);
    let mut ranges = std::collections::VecDeque::new();
    map.begin_discard(10, &mut ranges);
    assert_eq!(ranges, [(SlotId(8), 16)], "two clusters, adjacent");
    map.check();
    assert_eq!(slots(&mut map, &mut source, 40..48), Vec::from_iter(0..8));
    assert_eq!(map.allocate(PageId(99), false, &mut source), None);
    map.end_discard(&mut source);
    assert!(!map.is_full());
    assert_eq!(slots(&mut map, &mut source, 50..66), Vec::from_iter(8..24));
    map.check();
}

proptest! {
    #[test]
    fn matches_a_set_of_slots(
        keep in any::<bool>(),
        ops in prop::collection::vec((0..13_u8, any::<prop::sample::Index>()), 0..400),
        shift in 0..5_u32,
    ) {
        let cluster_pages = 2 << shift;
        let clusters = 96 / cluster_pages;
        let mut map = SwapMap::new(96, cluster_pages);
        let mut source = alone(clusters);
        map.keep_emptied(keep);
        let mut used: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        let mut bad = BTreeSet::new();
        for (page, (op, index)) in (0..).zip(ops) {
            let slot = (!used.is_empty()).then(|| *index.get(&Vec::from_iter(used.keys().copied())));
            match (op, slot) {
                (0..=6, _) => {
                    let zero = op == 0;
                    let slot = map.allocate(PageId(page), zero, &mut source);
                    if let Some(slot) = slot {
                        prop_assert!(!bad.contains(&slot.0));
                        prop_assert_eq!(used.insert(slot.0, (page, zero)), None);
                    } else if !source.all_shared {
                        let room = (clusters * cluster_pages) as usize - bad.len();
                        prop_assert_eq!(used.len(), room, "full with slots to spare");
                    }
                }
                (7..=8, Some(slot)) => {
                    map.free(SlotId(slot), &mut source);
                    used.remove(&slot);
                }
                (9, Some(slot)) => {
                    map.mark_bad(SlotId(slot), &mut source);
                    used.remove(&slot);
                    bad.insert(slot);
                }
                (10, _) => map.seal(&mut source),
                (11, _) => source.all_shared = !source.all_shared,
                (12, _) => map.let_go_all(&mut source),
                _ => {}
            }
            map.check();
            for (&slot, &(page, zero)) in &used {
                prop_assert_eq!(map.owner(SlotId(slot)), Some(PageId(page)));
                prop_assert_eq!(map.is_zero(SlotId(slot)), zero);
                prop_assert_eq!(map.view(SlotId(slot)), SlotView::Page(PageId(page)));
            }
        }
    }
}
