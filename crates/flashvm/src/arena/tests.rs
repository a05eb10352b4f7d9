//! An arena beside a naive model: objects are aligned, lie apart, keep their contents, and go with the arena.

use super::Heap;
use crate::Error;
use crate::pages::PAGE;
use crate::pages::testing::Memory;
use proptest::prelude::*;
use std::alloc::Layout;
use std::ptr::NonNull;

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align: u32 },
    Free { which: usize },
    Resize { which: usize, size: usize },
    Clear,
    Limit { bytes: usize },
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..200, 2 => 0_usize..6000, 1 => 0_usize..40_000]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (sizes(), 0_u32..13).prop_map(|(size, align)| Step::Allocate { size, align }),
        30 => any::<usize>().prop_map(|which| Step::Free { which }),
        20 => (any::<usize>(), sizes()).prop_map(|(which, size)| Step::Resize { which, size }),
        1 => Just(Step::Clear),
        2 => (0_usize..1 << 20).prop_map(|bytes| Step::Limit { bytes }),
    ]
}

/// An allocated object, whose bytes are all `mark`.
struct Object {
    at: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

impl Object {
    fn new(at: NonNull<[u8]>, layout: Layout, mark: u8) -> Self {
        assert!(at.len() >= layout.size());
        let at = at.cast::<u8>();
        assert!(at.as_ptr().addr().is_multiple_of(layout.align()));
        let object = Self { at, layout, mark };
        object.fill();
        object
    }

    fn fill(&self) {
        // SAFETY: the object has so many bytes.
        unsafe { self.at.write_bytes(self.mark, self.layout.size()) };
    }

    fn check(&self, bytes: usize) {
        // SAFETY: the object has so many bytes, which were written.
        let found = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), bytes) };
        assert!(found.iter().all(|&byte| byte == self.mark));
    }

    fn range(&self) -> (usize, usize) {
        let start = self.at.as_ptr().addr();
        (start, start + self.layout.size())
    }
}

fn lie_apart(objects: &[Object]) {
    let used = objects.iter().filter(|object| object.layout.size() > 0);
    let mut ranges: Vec<_> = used.map(Object::range).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

fn run(steps: Vec<Step>) {
    let memory = Memory::new(1 << 20);
    let mut heap = Heap::new(&memory, 16 << 10).expect("an arena");
    let mut objects: Vec<Object> = Vec::new();
    for (turn, step) in steps.into_iter().enumerate() {
        let mark = turn as u8 | 1;
        match step {
            Step::Allocate { size, align } => {
                let layout = Layout::from_size_align(size, 1 << align).expect("a layout");
                match heap.allocate(layout) {
                    Ok(at) => objects.push(Object::new(at, layout, mark)),
                    Err(error) => assert!(matches!(error, Error::NoRoom { .. }), "{error}"),
                }
            }
            Step::Free { which } if !objects.is_empty() => {
                let object = objects.swap_remove(which % objects.len());
                object.check(object.layout.size());
                // SAFETY: the model forgets it.
                unsafe { heap.free(object.at, object.layout) };
            }
            Step::Resize { which, size } if !objects.is_empty() => {
                let which = which % objects.len();
                let object = &objects[which];
                let layout = Layout::from_size_align(size, object.layout.align()).expect("it");
                // SAFETY: the model forgets the old one unless the result is an error.
                match unsafe { heap.resize(object.at, object.layout, layout) } {
                    Ok(at) => {
                        let kept = object.layout.size().min(size);
                        let moved = Object {
                            at: at.cast(),
                            layout,
                            mark: object.mark,
                        };
                        moved.check(kept);
                        objects[which] = Object::new(at, layout, mark);
                    }
                    Err(error) => assert!(matches!(error, Error::NoRoom { .. }), "{error}"),
                }
            }
            Step::Free { .. } | Step::Resize { .. } => {}
            Step::Clear => {
                heap.clear();
                objects.clear();
                assert_eq!((memory.mapped.get(), heap.mapped_bytes()), (0, 0));
            }
            Step::Limit { bytes } => memory.limit.set(bytes),
        }
        lie_apart(&objects);
        assert_eq!(heap.mapped_bytes(), memory.mapped.get());
    }
    for object in &objects {
        object.check(object.layout.size());
    }
    drop(heap);
    assert_eq!(memory.mapped.get(), 0, "all goes with the arena");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn objects_are_those_of_a_naive_model(steps in proptest::collection::vec(steps(), 0..300)) {
        run(steps);
    }
}

#[test]
fn freed_objects_serve_later_ones_without_new_memory() {
    let memory = Memory::new(1 << 20);
    let mut heap = Heap::new(&memory, 16 << 10).expect("an arena");
    let layout = Layout::from_size_align(100, 8).expect("a layout");
    let fill = |heap: &mut Heap<&Memory>| {
        let objects: Vec<_> = (0..1000)
            .map(|_| heap.allocate(layout).expect("room").cast())
            .collect();
        // SAFETY: the objects are this function's.
        objects
            .iter()
            .for_each(|&at| unsafe { heap.free(at, layout) });
    };
    fill(&mut heap);
    let once = heap.mapped_bytes();
    fill(&mut heap);
    assert_eq!(heap.mapped_bytes(), once);
}

#[test]
fn a_large_object_goes_back_at_once_and_grows_where_it_is_mapped() {
    let memory = Memory::new(1 << 20);
    let mut heap = Heap::new(&memory, 16 << 10).expect("an arena");
    let layout = |size| Layout::from_size_align(size, 8).expect("a layout");
    let at = heap.allocate(layout(5000)).expect("room").cast();
    assert_eq!(memory.mapped.get(), 2 * PAGE);
    // SAFETY: the object is the test's.
    let at = unsafe { heap.resize(at, layout(5000), layout(9000)) }.expect("room");
    assert_eq!(memory.mapped.get(), 3 * PAGE);
    // SAFETY: the object is the test's.
    unsafe { heap.free(at.cast(), layout(9000)) };
    assert_eq!(memory.mapped.get(), 0);
}

#[test]
fn a_full_store_is_an_error_and_the_arena_goes_on() {
    let memory = Memory::new(16 << 10);
    let mut heap = Heap::new(&memory, 16 << 10).expect("an arena");
    let layout = Layout::from_size_align(4096, 8).expect("a layout");
    let objects: Vec<_> = (0..4)
        .map(|_| heap.allocate(layout).expect("room"))
        .collect();
    let error = heap.allocate(layout).expect_err("the store is full");
    assert!(matches!(error, Error::NoRoom { bytes: 16_384 }), "{error}");
    // SAFETY: the object is the test's.
    unsafe { heap.free(objects[0].cast(), layout) };
    let again = heap.allocate(layout).expect("the freed object");
    assert_eq!(again, objects[0]);
}
