//! The heap against a plain graph: random changes, with commits, aborts, collections, handles and
//! reopening between them.

mod common;

use common::medium::kept;
use common::{Change, Plain, Rng, found, open_once_vacant, small_options};
use gordon::flash::{MemoryMedium, Model};
use gordon::{Collector, Error, Heap, Options, Ref, Text, Var, sidney};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    /// A number of changes with this seed.
    Change(u64, usize),
    Commit,
    Abort,
    /// An update that fails after its changes.
    Fail(u64),
    /// An update that panics after its changes.
    Panic(u64),
    Collect,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u64>(), 1..30_usize).prop_map(|(seed, count)| Step::Change(seed, count)),
        4 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => any::<u64>().prop_map(Step::Fail),
        1 => any::<u64>().prop_map(Step::Panic),
        1 => Just(Step::Collect),
        1 => Just(Step::Reopen),
    ]
}

fn change(plain: &mut Plain, tx: &gordon::Tx<'_>, seed: u64, count: usize) {
    let mut rng = Rng(seed);
    for _ in 0..count {
        plain.apply(tx, &Change::random(&mut rng));
    }
}

fn check(steps: &[Step], collector: Collector, model: Option<Model>) {
    let options = Options {
        model,
        ..small_options(collector)
    };
    let segment = model.map_or(64 << 10, |model| model.segment_bytes());
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let heap = Heap::create_in(make, 32 * segment, segment, options).expect("a heap");
    let medium = medium.expect("was made");
    check_on(steps, heap, &|| Heap::open_on(Arc::clone(&medium), options));
}

/// The same heap on recoverable virtual memory, whose log is on flash or on disk.
fn check_sidney(steps: &[Step], log: Option<Model>) {
    let options = Options {
        model: log,
        ..small_options(Collector::Stop)
    };
    let (mut log, mut segment) = (None, None);
    let make_log = |length| kept(length, &mut log);
    let make_segment = |length| kept(length, &mut segment);
    let heap = sidney::create_in(make_log, make_segment, 32 << 16, 1 << 16, None, options);
    let (log, segment) = (log.expect("was made"), segment.expect("was made"));
    let open = || sidney::open_on(Arc::clone(&log), Arc::clone(&segment), None, options);
    check_on(steps, heap.expect("a heap"), &open);
}

fn check_on(steps: &[Step], mut heap: Heap, open: &dyn Fn() -> gordon::Result<Heap>) {
    let (kept, texts) = heap
        .run(|tx| {
            found(tx);
            let text = tx.text("kept by a handle, not persistent");
            Ok((tx.hold(tx.var(tx.alloc(7_u64))), tx.hold(text)))
        })
        .expect("a change");
    let mut handles = Some((kept, texts));
    heap.commit().expect("a commit");
    let mut committed = Plain::default();
    let mut live = committed.clone();
    for step in steps {
        match step {
            Step::Change(seed, count) => {
                heap.run(|tx| {
                    change(&mut live, tx, *seed, *count);
                    Ok(())
                })
                .expect("a change");
            }
            Step::Commit => {
                heap.commit().expect("a commit");
                committed = live.clone();
            }
            Step::Abort => {
                heap.abort().expect("an abort");
                live = committed.clone();
            }
            Step::Fail(seed) => {
                let failed = heap.update(|tx| {
                    change(&mut live.clone(), tx, *seed, 9);
                    Err::<(), _>(Error::abort("on purpose"))
                });
                assert!(matches!(failed, Err(Error::Aborted(why)) if why == "on purpose"));
                live = committed.clone();
            }
            Step::Panic(seed) => {
                let heap = std::panic::AssertUnwindSafe(&heap);
                let caught = std::panic::catch_unwind(|| {
                    heap.update(|tx| -> gordon::Result<()> {
                        change(&mut live.clone(), tx, *seed, 9);
                        std::panic::resume_unwind(Box::new(()))
                    })
                });
                assert!(caught.is_err());
                live = committed.clone();
            }
            Step::Collect => heap.collect().expect("a collection"),
            Step::Reopen => {
                handles = None;
                heap.close().expect("closed");
                heap = open_once_vacant(open).expect("a heap");
                live = committed.clone();
            }
        }
        assert_eq!(Plain::of(&heap).as_ref(), Some(&live), "after {step:?}");
        if let Some((number, text)) = &handles {
            heap.view(|view| {
                let number: Var<'_, Ref<'_, u64>> = view.get(number);
                let text: Text<'_> = view.get(text);
                assert_eq!(number.read().read(), 7);
                assert_eq!(&*text, "kept by a handle, not persistent");
                Ok(())
            })
            .expect("a view");
        }
    }
    heap.close().expect("closed");
    let heap = open_once_vacant(open).expect("a heap");
    assert_eq!(Plain::of(&heap), Some(committed), "after the end");
    heap.report().expect("every object is good");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn collections_at_commit(steps in prop::collection::vec(step(), 1..60)) {
        check(&steps, Collector::AtCommit, None);
    }

    #[test]
    fn collections_that_stop(steps in prop::collection::vec(step(), 1..60)) {
        check(&steps, Collector::Stop, None);
    }

    #[test]
    fn collections_beside(steps in prop::collection::vec(step(), 1..60)) {
        check(&steps, Collector::Beside, None);
    }

    #[test]
    fn on_flash_that_ands(steps in prop::collection::vec(step(), 1..40)) {
        check(&steps, Collector::AtCommit, Some(Model::intel(1)));
    }

    #[test]
    fn sidney_on_disk(steps in prop::collection::vec(step(), 1..60)) {
        check_sidney(&steps, None);
    }

    #[test]
    fn sidney_with_a_log_on_flash(steps in prop::collection::vec(step(), 1..40)) {
        check_sidney(&steps, Some(Model::intel(1)));
    }
}

#[test]
fn threads_share_a_heap() {
    let heap = Heap::create_in(
        |length| Ok(Arc::new(MemoryMedium::new(length)?)),
        64 * (64 << 10),
        64 << 10,
        small_options(Collector::Beside),
    )
    .expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.array(&[0_u64; 4]));
        Ok(())
    })
    .expect("a commit");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let heap = &heap;
            scope.spawn(move || {
                for n in 0..500_u64 {
                    heap.update(|tx| {
                        let counts = tx.root::<gordon::Array<'_, u64>>()?.expect("set above");
                        counts.set(tx, thread, counts.get(thread).expect("four") + 1);
                        Ok(())
                    })
                    .expect("a commit");
                    let seen = heap
                        .view(|view| {
                            let counts = view.root::<gordon::Array<'_, u64>>()?.expect("set");
                            Ok(counts.get(thread).expect("four"))
                        })
                        .expect("a view");
                    assert_eq!(seen, n + 1);
                }
            });
        }
    });
    let report = heap.report().expect("good");
    assert!(report.has_root);
}
