//! The allocator against a naive model: random steps, and threads that pass objects on.

use flashvm_malloc::testing::{Model, Object, Step};
use proptest::prelude::*;
use std::sync::{Barrier, Mutex};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<[u8; 4]>().prop_map(Step::from), 1..400)
}

proptest! {
    // Each case takes one of the process's 1024 keys of thread-specific data, and keeps it.
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 500, ..ProptestConfig::default() })]
    #[test]
    fn any_steps(
        steps in steps(),
        smallest in prop::sample::select(vec![512_usize, 4096]),
        padding in prop::sample::select(vec![0_usize, 3]),
    ) {
        let mut model = Model::new(1 << 12, smallest, padding);
        for step in steps {
            model.step(step);
        }
        model.clear();
    }
}

/// Pages without allocated objects are returned, except those kept in the only arena in use (512 at
/// most) and in the thread's cache (256 at most).
#[test]
fn free_pages_are_given_back() {
    for size in [16, 512, 4000] {
        let mut model = Model::new(1 << 14, 512, 0);
        let per_page = if size == 16 { 32 } else { 1 };
        for _ in 0..4000 * per_page / 250 {
            model.step(Step::AllocateMany { size, count: 250 });
        }
        let most = model.pages().out();
        assert!(most >= 3900, "{most} pages of objects of {size}");
        model.clear();
        let kept = model.pages().out();
        assert!(
            kept <= 512 + 256,
            "{kept} of {most} pages of objects of {size}"
        );
        let (base, bytes) = model.pages().range();
        let known = (base..base + bytes)
            .step_by(4096)
            .filter(|&page| model.allocator().room(page as *mut u8).is_ok());
        assert_eq!(
            known.count(),
            kept,
            "the allocator keeps exactly these pages"
        );
    }
}

/// Requests of more than a page with padding, or aligned to more than a sector, are refused; so are
/// all requests while there is no room.
#[test]
fn requests_that_cannot_be_served_are_refused() {
    let model = Model::new(1 << 10, 512, 16);
    let allocator = model.allocator();
    assert_eq!(allocator.allocate(4097 - 16, 1), None);
    assert_eq!(allocator.allocate(usize::MAX, 1), None);
    assert_eq!(allocator.allocate(1, 1024), None);
    let object = allocator.allocate(4096 - 16, 512).expect("room").as_ptr();
    assert_eq!(allocator.room(object), Ok(4096 - 16));
    for (size, fits) in [
        (4096 - 16, true),
        (4096 - 15, false),
        (1021, true),
        (1020, false),
    ] {
        assert_eq!(allocator.fits(object, size), Ok(fits), "{size}");
    }
    model.pages().refuse(true);
    assert_eq!(allocator.allocate(1, 1), None);
    model.pages().refuse(false);
    assert!(allocator.allocate(1, 1).is_some());
}

/// Without new pages, a thread gets the objects that another thread freed.
#[test]
fn an_ended_thread_leaves_its_objects_to_all() {
    let model = Model::new(1 << 10, 512, 0);
    let (allocator, pages) = (model.allocator(), model.pages());
    let addresses = std::thread::scope(|scope| {
        let fill_and_free = || {
            let objects: Vec<Object> = (0..500)
                .filter_map(|_| Object::new(allocator, pages, 64, 1, 1))
                .collect();
            let addresses = objects.iter().map(|object| object.address);
            let addresses: std::collections::BTreeSet<usize> = addresses.collect();
            objects
                .into_iter()
                .for_each(|object| object.free(allocator, pages));
            addresses
        };
        scope.spawn(fill_and_free).join().expect("no panic")
    });
    assert_eq!(addresses.len(), 500);
    pages.refuse(true);
    let mut again = 0;
    while let Some(object) = Object::new(allocator, pages, 64, 1, 2) {
        again += usize::from(addresses.contains(&object.address));
    }
    assert_eq!(again, 500);
}

/// Threads pass objects on; any thread can free them, and finds their contents intact.
#[test]
fn threads_pass_objects_on() {
    const THREADS: u8 = 12;
    let mut model = Model::new(1 << 14, 512, 0);
    let (allocator, pages) = (model.allocator(), model.pages().clone());
    let passed: Mutex<Vec<Object>> = Mutex::default();
    let start = Barrier::new(THREADS.into());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (passed, start, pages) = (&passed, &start, &pages);
            scope.spawn(move || {
                let mut own = Vec::new();
                let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(thread);
                start.wait();
                for round in 0..30_000_u32 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let size = 1 << (random >> 60 & 7);
                    let size = size + (random >> 40) as usize % (size * 7);
                    let fill = thread.wrapping_mul(17) ^ round as u8;
                    own.extend(Object::new(allocator, pages, size, 1, fill));
                    if own.len() > 200 || random >> 33 & 3 == 0 {
                        let at = (random >> 20) as usize % own.len().max(1);
                        let mut passed = passed.lock().expect("no panic");
                        if at < own.len() {
                            passed.push(own.swap_remove(at));
                        }
                        let other = (passed.len() > 100).then(|| {
                            let at = (random >> 10) as usize % passed.len();
                            passed.swap_remove(at)
                        });
                        drop(passed);
                        other
                            .into_iter()
                            .for_each(|object| object.free(allocator, pages));
                    }
                }
                own.into_iter()
                    .for_each(|object| object.free(allocator, pages));
            });
        }
    });
    let rest = passed.into_inner().expect("no panic");
    rest.into_iter()
        .for_each(|object| object.free(allocator, &pages));
    // Afterwards the returned pages serve a single thread.
    pages.refuse(true);
    model.step(Step::AllocateMany {
        size: 100,
        count: 255,
    });
    assert_eq!(model.len(), 255, "no new page is needed");
    model.clear();
}
