//! The free lists against a naive model: one byte a sector.

use super::*;
use proptest::prelude::*;

const FRAMES: u32 = 6;

/// The page in each sector of each frame.
#[derive(Default)]
struct Naive {
    sectors: Vec<[Option<u32>; 8]>,
}

impl Naive {
    fn range(shape: Shape) -> std::ops::Range<usize> {
        let first = shape.first_sector() as usize;
        first..first + shape.sectors() as usize
    }

    fn is_free(&self, frame: usize, shape: Shape) -> bool {
        self.sectors[frame][Self::range(shape)]
            .iter()
            .all(Option::is_none)
    }

    /// Frames from this one on, up to `most`, in which a range is free.
    fn free_from(&self, first: usize, shape: Shape, most: u32) -> u32 {
        let frames = (first..self.sectors.len()).take(most as usize);
        frames
            .take_while(|&frame| self.is_free(frame, shape))
            .count() as u32
    }

    /// The maximal free ranges, which must be on the free lists.
    fn maximal(&self, frame: usize) -> u16 {
        let free = |shape: &Shape| self.is_free(frame, *shape);
        let maximal = |shape: &Shape| shape.parent().is_none_or(|parent| !free(&parent));
        let all = Shape::ALL.into_iter().filter(free).filter(maximal);
        all.fold(0, |set, shape| set | shape.bit())
    }
}

fn check(frames: &Frames, naive: &Naive) {
    for frame in 0..naive.sectors.len() {
        assert_eq!(frames.free[frame], naive.maximal(frame), "frame {frame}");
    }
    for shape in Shape::ALL {
        let list = frames.lists[shape.number() as usize];
        let (mut at, mut before, mut len) = (list.first, NIL, 0);
        while at != NIL {
            let frame = FrameId(at / SECTORS);
            assert_eq!(node(frame, shape), at as usize, "an entry of another shape");
            assert!(frames.free[frame.0 as usize] & shape.bit() != 0);
            assert_eq!(frames.sectors[at as usize][0], before);
            (before, at) = (at, frames.sectors[at as usize][1]);
            len += 1;
        }
        assert_eq!((before, len), (list.last, list.len));
        let holds = |frame: usize| {
            shape
                .and_holders()
                .any(|s| naive.maximal(frame) & s.bit() != 0)
        };
        let naive = (0..naive.sectors.len())
            .filter(|&frame| holds(frame))
            .count() as u32;
        assert_eq!(frames.available(shape), naive, "{shape:?}");
    }
}

proptest! {
    #[test]
    fn free_lists_match_a_bitmap(
        steps in prop::collection::vec((0u8..8, 1u8..=15, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut frames = Frames::new(FRAMES);
        let mut naive = Naive::default();
        let mut pages: Vec<(FrameId, Shape, u32)> = Vec::new();
        for (count, (kind, number, index)) in (0..).zip(steps) {
            let shape = Shape::from_number(number).unwrap();
            match kind {
                0 => {
                    let more = naive.sectors.len() < FRAMES as usize;
                    prop_assert_eq!(frames.grow().is_some(), more);
                    if more {
                        naive.sectors.push([None; 8]);
                    }
                }
                1..=3 => {
                    // For the first of several pages: at the start of a run of frames that has room for all, or of the longest.
                    let run = if kind == 3 { 1 + index.index(FRAMES as usize) as u32 } else { 1 };
                    let room = |first| naive.free_from(first, shape, run);
                    let longest = (0..naive.sectors.len()).map(room).max().unwrap_or(0);
                    let frame = frames.take_run(shape, run);
                    prop_assert_eq!(frame.is_some(), longest > 0);
                    if let Some(frame) = frame {
                        prop_assert_eq!(room(frame.0 as usize), longest);
                        let first = frame.0 as usize;
                        let begins = |first: usize| first == 0 || !naive.is_free(first - 1, shape);
                        prop_assert!(run == 1 || begins(first));
                        let long = |first: usize| naive.free_from(first, shape, run + 1);
                        let fits = |&first: &usize| begins(first) && long(first) == run;
                        // Among runs of whole frames, as there is one list of them.
                        if run > 1 && shape == Shape::WHOLE && (0..naive.sectors.len()).any(|first| fits(&first)) {
                            prop_assert!(fits(&first));
                        }
                        prop_assert!(naive.is_free(frame.0 as usize, shape));
                        naive.sectors[frame.0 as usize][Naive::range(shape)].fill(Some(count));
                        frames.set_owner(frame, shape, count);
                        frames.set_check(frame, shape, u64::MAX - u64::from(count));
                        pages.push((frame, shape, count));
                    }
                }
                4 => {
                    let frame = index.index(FRAMES as usize);
                    let could = frame < naive.sectors.len() && naive.is_free(frame, shape);
                    prop_assert_eq!(frames.take_at(FrameId(frame as u32), shape), could);
                    if could {
                        let frame = FrameId(frame as u32);
                        naive.sectors[frame.0 as usize][Naive::range(shape)].fill(Some(count));
                        frames.set_owner(frame, shape, count);
                        frames.set_check(frame, shape, u64::MAX - u64::from(count));
                        pages.push((frame, shape, count));
                    }
                }
                _ if !pages.is_empty() => {
                    let (frame, shape, owner) = pages.swap_remove(index.index(pages.len()));
                    prop_assert_eq!(frames.owner(frame, shape), owner);
                    prop_assert_eq!(frames.check(frame, shape), u64::MAX - u64::from(owner));
                    frames.release(frame, shape);
                    naive.sectors[frame.0 as usize][Naive::range(shape)].fill(None);
                }
                _ => {}
            }
            check(&frames, &naive);
            for &(frame, shape, owner) in &pages {
                prop_assert_eq!(frames.owner(frame, shape), owner);
                prop_assert!(frames.pages_in(frame, shape).eq([shape]));
            }
            let used: u32 = pages.iter().map(|(_, shape, _)| shape.sectors()).sum();
            prop_assert_eq!(frames.used_sectors(), used);
        }
    }
}

#[test]
fn only_free_frames_leave_the_pool() {
    let mut frames = Frames::new(2);
    assert_eq!(frames.shrink(), None);
    frames.grow();
    let sector = Shape::new(512, 2048).unwrap();
    let frame = frames.take(sector).unwrap();
    assert_eq!(frames.shrink(), None);
    frames.release(frame, sector);
    assert_eq!((frames.shrink(), frames.len()), (Some(frame), 0));
    assert_eq!(frames.take(sector), None);
    assert_eq!((frames.grow(), frames.len()), (Some(frame), 1));
}

#[test]
fn sequential_pages_get_sequential_frames() {
    let mut frames = Frames::new(16);
    (0..16).for_each(|_| assert!(frames.grow().is_some()));
    let mut shape = Shape::new(512, 0).unwrap();
    for _ in 0..8 {
        let got: Vec<u32> = (0..16).map(|_| frames.take(shape).unwrap().0).collect();
        assert!(
            got.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "{shape:?}: {got:?}"
        );
        shape = shape.next();
    }
    assert_eq!(frames.used_sectors(), 16 * SECTORS);
}

#[test]
fn a_neighbour_splits_no_whole_frame_while_others_have_room() {
    let mut frames = Frames::new(3);
    (0..3).for_each(|_| assert!(frames.grow().is_some()));
    let (first, second) = (Shape::new(512, 0).unwrap(), Shape::new(512, 512).unwrap());
    assert_eq!(frames.take(first), Some(FrameId(0)));
    // Only whole frames have room for another page of this shape.
    assert!(frames.take_beside(FrameId(1), first));
    assert!(!frames.take_beside(FrameId(1), first));
    // A divided frame has room for this one.
    assert!(!frames.take_beside(FrameId(2), second));
    assert!(frames.take_beside(FrameId(1), second));
    assert!(!frames.take_beside(FrameId(9), second));
}
