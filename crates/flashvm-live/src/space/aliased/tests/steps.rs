//! Random steps of pager, program and kernel: after each, every page is as in the model.

use super::model::{Model, Page};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pages have contents only within a few pages from here on: around the ends of both chunks.
const STARTS: [u32; 3] = [0, CHUNK_PAGES - 10, PAGES - 16];
const NEAR: u32 = 16;
const CASES: u32 = 64;

#[derive(Clone, Copy, Debug)]
enum From {
    Zeros,
    /// As many pages as there are to fill, of this byte and those after it.
    Bytes(u8),
    /// The same pages in the shadow.
    Shadow,
    /// Other pages, from this one on.
    Page(Place, u32),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Copy(Place, Run, From),
    Shift(Place, Run),
    Zap(Place, Run),
    Poison(u32),
    Fork(Option<u32>),
    ProgramStores(u32, u8),
    ProgramZaps(Run),
    ProgramMaps(Run, ProtFlags),
    ProgramUnmaps(Run),
    ProgramProtects(Run, ProtFlags),
    KernelMaps(Run),
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![Just(Place::Region), Just(Place::Shadow)]
}

fn near() -> impl Strategy<Value = u32> {
    (0..STARTS.len(), 0..NEAR).prop_map(|(start, behind)| STARTS[start] + behind)
}

/// A run of few pages, which may have contents.
fn few() -> impl Strategy<Value = Run> {
    (near(), 1..10u32).prop_map(|(first, count)| run(first, count.min(PAGES - first)))
}

/// A run of few or many pages.
fn any_run() -> impl Strategy<Value = Run> {
    let many = (0..PAGES, 1..PAGES).prop_map(|(first, count)| run(first, count.min(PAGES - first)));
    prop_oneof![5 => few(), 1 => many]
}

fn rights() -> impl Strategy<Value = ProtFlags> {
    prop_oneof![
        1 => Just(ProtFlags::empty()),
        1 => Just(ProtFlags::READ),
        1 => Just(ProtFlags::READ | ProtFlags::EXEC),
        4 => Just(LOAD_STORE),
    ]
}

fn from() -> impl Strategy<Value = From> {
    prop_oneof![
        Just(From::Zeros),
        any::<u8>().prop_map(From::Bytes),
        Just(From::Shadow),
        (place(), near()).prop_map(|(place, first)| From::Page(place, first)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (place(), few(), from()).prop_map(|(place, run, from)| Step::Copy(place, run, from)),
        6 => (place(), few()).prop_map(|(place, run)| Step::Shift(place, run)),
        2 => (place(), any_run()).prop_map(|(place, run)| Step::Zap(place, run)),
        1 => near().prop_map(Step::Poison),
        1 => prop::option::of(near()).prop_map(Step::Fork),
        4 => (near(), any::<u8>()).prop_map(|(page, byte)| Step::ProgramStores(page, byte)),
        1 => any_run().prop_map(Step::ProgramZaps),
        3 => (any_run(), rights()).prop_map(|(run, rights)| Step::ProgramMaps(run, rights)),
        1 => any_run().prop_map(Step::ProgramUnmaps),
        2 => (any_run(), rights()).prop_map(|(run, rights)| Step::ProgramProtects(run, rights)),
        1 => any_run().prop_map(Step::KernelMaps),
    ]
}

/// What a call says that has done the first pages of a run.
fn done(pages: usize, of: Run, why: Stop) -> Done {
    match pages as u32 {
        all if all == of.count => Done::all(all),
        0 => Done::stopped(0, why),
        some => Done::stopped(some, Stop::Again),
    }
}

fn copy(space: &Aliased, model: &mut Model, place: Place, run: Run, from: From) {
    // The source has to be there.
    let sources: Vec<Page> = match from {
        From::Shadow => (run.pages())
            .map(|page| model.0[page.0 as usize])
            .take_while(|page| page.in_shadow)
            .collect(),
        From::Page(place, first) => (model.0[first as usize..].iter().copied())
            .take(run.count as usize)
            .take_while(|page| page.is_in(place))
            .collect(),
        From::Zeros | From::Bytes(_) => model.of(run).to_vec(),
    };
    let run = Run::new(run.first, sources.len() as u32);
    if run.count == 0 {
        return;
    }
    let bytes: Vec<u8> = match from {
        From::Bytes(byte) => (0..run.count as u8)
            .flat_map(|index| page(byte.wrapping_add(index)))
            .collect(),
        _ => Vec::new(),
    };
    let source = match from {
        From::Zeros => Source::Zeros,
        From::Bytes(_) => Source::Bytes(&bytes),
        From::Shadow => Source::Page(Place::Shadow, run.first),
        From::Page(place, first) => Source::Page(place, PageId(first)),
    };
    let from_shadow = place == Place::Region
        && matches!(source, Source::Page(Place::Shadow, first) if first == run.first);
    let copied = space.copy(place, run, source, false);
    let pages = model.of(run);
    if place == Place::Region && !pages.iter().all(|page| page.managed) {
        return assert_eq!(copied, Done::stopped(0, Stop::Missing));
    }
    let mut count = 0;
    for (index, (page, source)) in pages.iter_mut().zip(sources).enumerate() {
        if page.in_region || page.in_shadow != from_shadow {
            break;
        }
        page.bytes = match from {
            From::Zeros => (0, 0),
            From::Bytes(byte) => [byte.wrapping_add(index as u8); 2].into(),
            From::Shadow | From::Page(..) => source.bytes,
        };
        page.set(place, true);
        count += 1;
    }
    assert_eq!(copied, done(count, run, Stop::Exists));
}

fn shift(mut space: &Aliased, model: &mut Model, to: Place, run: Run) {
    let moved = space.shift(to, run);
    let pages = model.of(run);
    if !pages.iter().all(|page| page.managed) {
        return assert_eq!(moved, Done::stopped(0, Stop::Invalid));
    }
    let from = match to {
        Place::Region => Place::Shadow,
        Place::Shadow => Place::Region,
    };
    let why = match pages[0].is_in(to) {
        true => Stop::Exists,
        false => Stop::Missing,
    };
    let mut count = 0;
    for page in pages {
        if !page.is_in(from) || page.is_in(to) {
            break;
        }
        page.set(from, false);
        page.set(to, true);
        count += 1;
    }
    assert_eq!(moved, done(count, run, why));
}

/// What a fork does to the parent: first no page of the file can be touched but a pinned one, and the copy has the contents
/// of the file.
fn fork(space: &Aliased, model: &Model, pinned: Option<u32>) {
    // The kernel works on it, so the program has rights to it.
    let pinned = pinned.filter(|&page| space.load(page).is_some());
    if let Some(page) = pinned {
        space.pin(run(page, 1), true);
    }
    let memory = space.prepare_fork(pinned.map(PageId).as_slice()).unwrap();
    // SAFETY: the descriptor is open as long as `memory`.
    let file = unsafe { BorrowedFd::borrow_raw(memory.descriptor()) };
    for (index, expected) in (0..).zip(&model.0) {
        let mut copy = page(255);
        let offset = space.offset(PageId(index));
        assert_eq!(rustix::io::pread(file, &mut copy, offset), Ok(PAGE_SIZE));
        // What the program has unmapped is nobody's, also if the pager has not dropped it from the shadow yet.
        let is_there = expected.managed && (expected.in_region || expected.in_shadow);
        let (first, rest) = if is_there { expected.bytes } else { (0, 0) };
        if space.is_private(PageId(index)) {
            continue;
        }
        assert!(copy[0] == first && copy[1..] == [rest; PAGE_SIZE - 1]);
        if expected.in_region && pinned != Some(index) {
            assert!(!store(space.at(index), 1), "no store during a fork");
        }
    }
    if let Some(page) = pinned {
        model.0[page as usize].check(space, page);
        space.pin(run(page, 1), false);
    }
    space.resume().unwrap();
}

fn apply(space: &Aliased, model: &mut Model, step: Step) {
    let mut pages = space;
    match step {
        Step::Copy(place, run, from) => copy(space, model, place, run, from),
        Step::Shift(to, run) => shift(space, model, to, run),
        Step::Zap(place, run) => {
            AddressSpace::zap(&mut pages, place, &[run]).unwrap();
            (model.of(run).iter_mut()).for_each(|page| page.set(place, false));
        }
        Step::Poison(page) => {
            let there = model.0[page as usize].in_region;
            let expected = if there { Err(Stop::Exists) } else { Ok(()) };
            assert_eq!(pages.poison(PageId(page)), expected);
        }
        Step::Fork(pinned) => fork(space, model, pinned),
        Step::ProgramStores(page, byte) => {
            let expected = &mut model.0[page as usize];
            assert_eq!(space.store(page, byte), expected.can_be_stored_to());
            if expected.can_be_stored_to() && expected.managed {
                expected.bytes.0 = byte;
            } else if expected.can_be_stored_to() {
                expected.kernel = byte;
            }
        }
        Step::ProgramZaps(run) => {
            space.zap(run).unwrap();
            for page in model.of(run) {
                page.in_region = false;
                if !page.managed {
                    page.kernel = 0;
                }
            }
        }
        Step::ProgramMaps(run, rights) => {
            space.map_anew(run, Some(rights)).unwrap();
            for page in model.of(run) {
                page.leave(rights);
                page.managed = true;
            }
        }
        Step::ProgramUnmaps(run) => {
            space.map_anew(run, None).unwrap();
            (model.of(run).iter_mut()).for_each(|page| page.leave(ProtFlags::empty()));
        }
        Step::ProgramProtects(run, rights) => {
            let prot = MprotectFlags::from_bits_retain(rights.bits());
            space.set_rights(run, prot).unwrap();
            (model.of(run).iter_mut()).for_each(|page| page.rights = rights);
        }
        Step::KernelMaps(run) => {
            space.range.map_anew(run, LOAD_STORE).unwrap();
            space.give_up(run);
            (model.of(run).iter_mut()).for_each(|page| page.leave(LOAD_STORE));
        }
    }
}

fn check(space: &Aliased, model: &Model) {
    for (index, page) in (0..).zip(&model.0) {
        page.check_state(space, index);
        // Around the pages of `few`.
        let near = |&start: &u32| index + 4 >= start && index < start + NEAR + 14;
        if STARTS.iter().any(near) {
            page.check(space, index);
        }
    }
}

/// Tells a thread at the end of a scope, or of a test that fails, to end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check_steps(way: Way) {
    let mut runner = TestRunner::new(Config::with_cases(CASES));
    // What is unmapped at first; steps; whether another thread carries out the drops; whether fresh pages are always
    // private.
    let cases = (
        any_run(),
        prop::collection::vec(step(), 1..60),
        any::<bool>(),
        any::<bool>(),
    );
    let passed = runner.run(&cases, |(unmapped, steps, deferred, private)| {
        let Some(space) = way.open("steps_of_pager_and_program_like_a_model") else {
            return Ok(());
        };
        let all = space.range.all();
        let mut model = Model::new();
        let start = [
            Step::ProgramMaps(all, LOAD_STORE),
            Step::ProgramUnmaps(unmapped),
        ];
        // Addresses stay reserved: at the end there is nothing left in them.
        let end = [Step::ProgramUnmaps(all), Step::Zap(Place::Shadow, all)];
        space.defer_drops(deferred);
        let through = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !through.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                    space.finish_drops();
                }
            });
            let _end = Ends(&through);
            for step in start.into_iter().chain(steps).chain(end) {
                if private {
                    space.private.lock().begin_again();
                }
                apply(&space, &mut model, step);
                check(&space, &model);
            }
        });
        Ok(())
    });
    passed.unwrap_or_else(|failed| panic!("{way:?}: {failed}\n{runner}"));
}

#[test]
fn steps_of_pager_and_program_like_a_model() {
    for way in WAYS {
        check_steps(way);
    }
}
