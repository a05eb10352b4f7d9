//! The clocks against a naive model: a list of ranges, searched from its end.

use super::*;
use proptest::prelude::*;

const FRAMES: u32 = 5;

/// One shape's clock as the paper draws it; heads come first.
#[derive(Default)]
struct Naive {
    active: Vec<u32>,
    inactive: Vec<u32>,
}

/// All clocks, with the reference bit of every range of every frame.
#[derive(Default)]
struct Model {
    clocks: Vec<Naive>,
    running: Vec<bool>,
    referenced: [[bool; 16]; FRAMES as usize],
}

fn overlap(one: Shape, other: Shape) -> bool {
    one.offset() < other.offset() + other.size() && other.offset() < one.offset() + one.size()
}

impl Model {
    fn new() -> Self {
        Self {
            clocks: (0..16).map(|_| Naive::default()).collect(),
            running: vec![false; 16],
            ..Self::default()
        }
    }

    fn keep(&mut self, frame: u32, page: Shape) {
        for shape in Shape::ALL.into_iter().filter(|shape| overlap(*shape, page)) {
            let at = shape.number() as usize;
            if !self.running[at] {
                continue;
            }
            let clock = &mut self.clocks[at];
            let queued = clock.active.contains(&frame) || clock.inactive.contains(&frame);
            self.referenced[frame as usize][at] = queued;
            if !queued {
                clock.active.insert(0, frame);
            }
        }
    }

    fn reference(&mut self, frame: u32, page: Shape) {
        for shape in Shape::ALL.into_iter().filter(|shape| overlap(*shape, page)) {
            self.referenced[frame as usize][shape.number() as usize] = true;
        }
    }

    fn step(&mut self, shape: Shape, in_use: impl Fn(u32) -> bool) -> Option<Step> {
        let at = shape.number() as usize;
        let clock = &mut self.clocks[at];
        if !self.running[at] {
            self.running[at] = true;
            clock.active = (0..FRAMES).rev().filter(|&frame| in_use(frame)).collect();
            for &frame in &clock.active {
                self.referenced[frame as usize][at] = false;
            }
        }
        let mut patience = 2 * (clock.active.len() + clock.inactive.len());
        let mut was = |frame: u32| std::mem::take(&mut self.referenced[frame as usize][at]);
        loop {
            let lacking =
                clock.inactive.is_empty() || clock.active.len() > 3 * clock.inactive.len();
            if lacking && let Some(frame) = clock.active.pop() {
                if in_use(frame) && was(frame) {
                    clock.active.insert(0, frame);
                } else if in_use(frame) {
                    clock.inactive.insert(0, frame);
                    return Some(Step::Unmap(FrameId(frame)));
                }
                patience = patience.saturating_sub(1);
                if patience > 0 || clock.inactive.is_empty() {
                    continue;
                }
            }
            let frame = clock.inactive.pop()?;
            if in_use(frame) {
                if patience == 0 || !was(frame) {
                    return Some(Step::Evict(FrameId(frame)));
                }
                patience -= 1;
                clock.active.insert(0, frame);
            }
        }
    }
}

fn order(queue: &VecDeque<FrameId>) -> Vec<u32> {
    queue.iter().map(|frame| frame.0).collect()
}

proptest! {
    #[test]
    fn matches_the_model_of_figure_3(
        steps in prop::collection::vec((0u8..10, 1u8..=15, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut frames = Frames::new(FRAMES);
        (0..FRAMES).for_each(|_| assert!(frames.grow().is_some()));
        let (mut clocks, mut model) = (Clocks::new(FRAMES), Model::new());
        let mut pages: Vec<(FrameId, Shape)> = Vec::new();
        for (kind, number, index) in steps {
            let shape = Shape::from_number(number).unwrap();
            match kind {
                0..=3 => {
                    if let Some(frame) = frames.take(shape) {
                        clocks.keep(frame, shape);
                        model.keep(frame.0, shape);
                        pages.push((frame, shape));
                    }
                }
                4 | 5 if !pages.is_empty() => {
                    let (frame, shape) = pages[index.index(pages.len())];
                    clocks.reference(frame, shape);
                    model.reference(frame.0, shape);
                }
                6 if !pages.is_empty() => {
                    let (frame, shape) = pages.swap_remove(index.index(pages.len()));
                    frames.release(frame, shape);
                }
                _ => {
                    let step = clocks.step(shape, &frames);
                    let naive = model.step(shape, |frame| !frames.is_free(FrameId(frame), shape));
                    prop_assert_eq!(step, naive);
                    if let Some(Step::Evict(frame)) = step {
                        for page in frames.pages_in(frame, shape) {
                            frames.release(frame, page);
                            pages.retain(|other| *other != (frame, page));
                        }
                        prop_assert!(frames.is_free(frame, shape));
                    }
                }
            }
            let mut queued = 0;
            for shape in Shape::ALL {
                let (at, clock) = (shape.number() as usize, &model.clocks[shape.number() as usize]);
                prop_assert_eq!(order(&clocks.active[at].0), clock.active.clone());
                prop_assert_eq!(order(&clocks.inactive[at].0), clock.inactive.clone());
                queued += clock.active.len() + clock.inactive.len();
            }
            prop_assert!(clocks.bytes(FRAMES) >= 4 * (FRAMES as usize + queued));
            prop_assert_eq!(frames.bytes(), 100 * FRAMES as usize);
        }
    }
}

fn shape(size: usize, offset: usize) -> Shape {
    Shape::new(size, offset).unwrap()
}

#[test]
fn a_reference_counts_for_outer_and_inner_ranges() {
    let mut clocks = Clocks::new(1);
    let frame = FrameId(0);
    clocks.reference(frame, shape(1024, 0));
    for (size, offset, counts) in [
        (512, 0, true),
        (512, 512, true),
        (512, 1024, false),
        (1024, 0, true),
        (1024, 1024, false),
        (2048, 0, true),
        (2048, 2048, false),
        (4096, 0, true),
    ] {
        assert_eq!(
            clocks.is_referenced(frame, shape(size, offset)),
            counts,
            "{size} at {offset}"
        );
    }
}

/// Several small cold pages give way to a larger one; one large cold page gives way to a small one.
#[test]
fn victims_may_have_other_sizes() {
    let mut frames = Frames::new(2);
    (0..2).for_each(|_| assert!(frames.grow().is_some()));
    let mut clocks = Clocks::new(2);
    let lay = |frames: &mut Frames, clocks: &mut Clocks, frame: u32, shape: Shape| {
        assert!(frames.take_at(FrameId(frame), shape));
        clocks.keep(FrameId(frame), shape);
    };
    lay(&mut frames, &mut clocks, 0, shape(512, 0));
    lay(&mut frames, &mut clocks, 0, shape(512, 512));
    lay(&mut frames, &mut clocks, 1, shape(2048, 0));
    let wanted = shape(1024, 0);
    let mut evicted = Vec::new();
    while let Some(step) = clocks.step(wanted, &frames) {
        if let Step::Evict(frame) = step {
            let victims: Vec<Shape> = frames.pages_in(frame, wanted).collect();
            victims.iter().for_each(|&page| frames.release(frame, page));
            evicted.push((frame.0, victims));
        }
    }
    evicted.sort();
    assert_eq!(
        evicted,
        [
            (0, vec![shape(512, 0), shape(512, 512)]),
            (1, vec![shape(2048, 0)])
        ]
    );
}

/// With all ranges of 512 bytes queued, what a frame takes stays within the paper's share: 5 % of RAM with its entries in the
/// table, 8 bytes a page.
#[test]
fn fifos_keep_little_room_to_spare() {
    const MANY: u32 = 5000;
    let small = |offset: usize| shape(512, offset * 512);
    let mut frames = Frames::new(MANY);
    while frames.grow().is_some() {}
    for offset in 0..8 {
        while frames.take(small(offset)).is_some() {}
    }
    let mut clocks = Clocks::new(MANY);
    for round in 0..MANY {
        for offset in 0..8 {
            if let Some(Step::Evict(frame)) = clocks.step(small(offset), &frames) {
                clocks.keep(frame, small(offset));
            }
            clocks.reference(FrameId(round * 7 % MANY), small(offset));
        }
        let bytes = clocks.bytes(MANY) + frames.bytes() + 64 * MANY as usize;
        assert!(
            bytes * 20 <= 4096 * MANY as usize,
            "round {round}: {bytes} bytes of {MANY} frames"
        );
    }
}
