//! The count of mappings against a kernel that keeps them page by page.

use super::*;
use crate::LocalClusters;
use crate::chameleon::BackPointer;
use crate::chameleon::engine::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The mappings of a process: each mapped page and its frame. It refuses what needs more than `allowed` mappings.
struct Kernel {
    pages: BTreeMap<u32, u32>,
    allowed: usize,
}

impl Kernel {
    fn new(allowed: usize) -> Self {
        Self {
            pages: BTreeMap::new(),
            allowed,
        }
    }

    /// One mapping covers adjacent pages with adjacent frames.
    fn count(pages: &BTreeMap<u32, u32>) -> usize {
        let begins = |(page, frame): &(&u32, &u32)| {
            let before = page.checked_sub(1).and_then(|page| pages.get(&page));
            before.is_none() || before.copied() != frame.checked_sub(1)
        };
        pages.iter().filter(begins).count()
    }

    fn change_to(&mut self, pages: BTreeMap<u32, u32>) -> Result<(), Refused> {
        let count = Self::count(&pages);
        if count > self.allowed && count > Self::count(&self.pages) {
            return Err(Refused);
        }
        self.pages = pages;
        Ok(())
    }
}

impl Host for Kernel {
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused> {
        let mut pages = self.pages.clone();
        for i in 0..count {
            let before = pages.insert(first.0 + i, frame.0 + i);
            assert_eq!(before, None, "page {} is mapped twice", first.0 + i);
        }
        self.change_to(pages)
    }

    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused> {
        let mut pages = self.pages.clone();
        pages.retain(|page, _| !(first.0..first.0 + count).contains(page));
        self.change_to(pages)
    }

    fn fill_zeros(&mut self, _: FrameId, _: Shape) {
        unreachable!("only mappings change")
    }

    fn is_zero(&mut self, _: FrameId, _: Shape) -> bool {
        unreachable!("only mappings change")
    }

    fn checksum(&mut self, _: FrameId, _: Shape) -> u64 {
        unreachable!("only mappings change")
    }

    fn drop_frame(&mut self, _: FrameId) {
        unreachable!("only mappings change")
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        unreachable!("only mappings change")
    }

    fn block_checksum(&mut self, _: &BackPointer) -> u64 {
        unreachable!("only mappings change")
    }

    fn keep(&mut self, _: &BackPointer, _: u32) {
        unreachable!("only mappings change")
    }

    fn gather(&mut self, _: FrameId, _: Shape, _: u32) -> u64 {
        unreachable!("only mappings change")
    }

    fn write_header(&mut self, _: &[BackPointer]) {
        unreachable!("only mappings change")
    }

    fn frames_target(&mut self) -> u32 {
        unreachable!("only mappings change")
    }

    fn borrow_frames(&mut self, _: u32) -> u32 {
        unreachable!("only mappings change")
    }

    fn return_frames(&mut self, _: u32) {
        unreachable!("only mappings change")
    }

    fn commit(&mut self, _: u64) -> bool {
        unreachable!("only mappings change")
    }

    fn uncommit(&mut self, _: u64) {
        unreachable!("only mappings change")
    }

    fn store_blocks(&mut self) -> (u32, u32) {
        unreachable!("only mappings change")
    }

    fn call_writer(&mut self) {
        unreachable!("only mappings change")
    }

    fn tell_lost(&mut self, _: Svmp, _: Shape) {
        unreachable!("only mappings change")
    }

    fn fail(&self, why: Failure) -> ! {
        panic!("{why}")
    }
}

const PAGES: u32 = 24;
const FRAMES: u32 = 32;

fn engine(mappings_most: u32) -> Engine<LocalClusters> {
    let config = Config {
        frames_most: FRAMES,
        mappings_most,
        by_page: false,
        spill: false,
        log_structuring: true,
        blocks: 4,
        budget_bytes: 1 << 20,
    };
    Engine::new(config, LocalClusters::new(4))
}

/// Puts pages into frames, unmapped, and maps them.
fn map(
    engine: &mut Engine<LocalClusters>,
    kernel: &mut Kernel,
    first: u32,
    count: u32,
    frame: u32,
) {
    for i in 0..count {
        let place = SvmpState::Unmapped(FrameId(frame + i), None);
        engine.table.set(Svmp(first + i), Shape::WHOLE, place);
    }
    engine.map(kernel, Svmp(first), count);
}

fn mapped(engine: &Engine<LocalClusters>) -> BTreeMap<u32, u32> {
    let frames = (0..PAGES).map(|page| Some((page, engine.mapped_frame(page)?)));
    frames.flatten().collect()
}

#[derive(Clone, Debug)]
enum Step {
    Map { first: u32, count: u32, frame: u32 },
    Unmap { first: u32, count: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..PAGES, 1..6_u32);
    let range = range.prop_map(|(first, count)| (first, count.min(PAGES - first)));
    // Few offsets, so that neighbours often merge.
    let offset = prop_oneof![3 => Just(0), 1 => 0..3_u32];
    prop_oneof![
        (range.clone(), offset).prop_map(|((first, count), offset)| Step::Map {
            first,
            count,
            frame: first + offset,
        }),
        range.prop_map(|(first, count)| Step::Unmap { first, count }),
    ]
}

proptest! {
    /// The engine counts as many mappings as the kernel has, and knows the most that there were, whatever merges and
    /// splits.
    #[test]
    fn the_count_is_the_kernels(steps in vec(step(), 1..60)) {
        let (mut engine, mut kernel) = (engine(1000), Kernel::new(usize::MAX));
        let mut most = 0;
        for step in steps {
            match step {
                Step::Map { first, count, frame } => {
                    if (first..first + count).any(|page| kernel.pages.contains_key(&page)) {
                        continue;
                    }
                    map(&mut engine, &mut kernel, first, count, frame);
                }
                Step::Unmap { first, count } => {
                    engine.unmap_run(&mut kernel, first..first + count);
                }
            }
            prop_assert_eq!(mapped(&engine), kernel.pages.clone());
            prop_assert_eq!(engine.mappings.count as usize, Kernel::count(&kernel.pages));
            most = most.max(engine.mappings.count);
            prop_assert_eq!(engine.mappings.most_seen, most);
        }
    }
}

#[test]
fn a_used_up_budget_splits_no_mapping() {
    let (mut engine, mut kernel) = (engine(1), Kernel::new(usize::MAX));
    map(&mut engine, &mut kernel, 3, 5, 10);
    engine.unmap_run(&mut kernel, 5..6);
    assert_eq!(mapped(&engine), BTreeMap::new());
    assert_eq!(engine.mappings.count, 0);
}

#[test]
fn a_pinned_page_stays_mapped_if_the_kernel_splits() {
    let (mut engine, mut kernel) = (engine(1), Kernel::new(usize::MAX));
    map(&mut engine, &mut kernel, 3, 5, 10);
    engine.pins.pin(Svmp(7), 1);
    engine.unmap_run(&mut kernel, 5..6);
    let left = BTreeMap::from([(3, 10), (4, 11), (6, 13), (7, 14)]);
    assert_eq!(mapped(&engine), left);
    assert_eq!(engine.mappings.count, 2);
}

#[test]
fn a_refused_split_unmaps_the_whole_mapping() {
    let (mut engine, mut kernel) = (engine(1000), Kernel::new(1));
    map(&mut engine, &mut kernel, 3, 5, 10);
    engine.unmap_run(&mut kernel, 5..6);
    assert_eq!(kernel.pages, BTreeMap::new());
    assert_eq!(mapped(&engine), BTreeMap::new());
    assert_eq!(engine.mappings.count, 0);
}

#[test]
fn ends_of_a_mapping_leave_without_a_split() {
    let (mut engine, mut kernel) = (engine(1), Kernel::new(1));
    map(&mut engine, &mut kernel, 3, 5, 10);
    engine.unmap_run(&mut kernel, 3..4);
    engine.unmap_run(&mut kernel, 6..8);
    assert_eq!(mapped(&engine), BTreeMap::from([(4, 11), (5, 12)]));
    assert_eq!(engine.mappings.count, 1);
}
