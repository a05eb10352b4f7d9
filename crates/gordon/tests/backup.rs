//! Copies of a heap that goes on changing: each is a state of it, and a copy that was cut short is no heap.

mod common;

use common::medium::{Op, Recorder, image, kept};
use common::{Change, Plain, Rng, found, open_once_vacant, small_options};
use gordon::flash::{Medium, MemoryMedium, Model};
use gordon::{Array, Collector, Error, Heap, Options, sidney};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const SEGMENT: u64 = 64 << 10;

/// A heap with a world in it, the world, and its medium.
fn world(seed: u64, collector: Collector) -> (Heap, Plain, Arc<dyn Medium>) {
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let heap =
        Heap::create_in(make, 32 * SEGMENT, SEGMENT, small_options(collector)).expect("a heap");
    let (mut plain, mut rng) = (Plain::default(), Rng(seed));
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    for _ in 0..20 {
        change(&heap, &mut plain, &mut rng, 12);
    }
    (heap, plain, medium.expect("was made"))
}

fn change(heap: &Heap, plain: &mut Plain, rng: &mut Rng, changes: usize) {
    heap.update(|tx| {
        for _ in 0..changes {
            plain.apply(tx, &Change::random(rng));
        }
        Ok(())
    })
    .expect("a commit");
}

fn memory(length: u64) -> Arc<MemoryMedium> {
    Arc::new(MemoryMedium::new(length).expect("memory"))
}

fn open(medium: Arc<dyn Medium>) -> Heap {
    let options = small_options(Collector::AtCommit);
    open_once_vacant(|| Heap::open_on(Arc::clone(&medium), options)).expect("the copy is a heap")
}

#[test]
fn a_backup_has_the_last_commit() {
    for seed in 0..24 {
        let collector =
            [Collector::AtCommit, Collector::Beside, Collector::Stop][seed as usize % 3];
        let (heap, plain, medium) = world(seed, collector);
        // Changes that are not committed are not in it.
        if seed % 2 == 0 {
            heap.run(|tx| {
                let (mut rng, mut plain) = (Rng(seed), plain.clone());
                (0..9).for_each(|_| plain.apply(tx, &Change::random(&mut rng)));
                Ok(())
            })
            .expect("changes");
        }
        let copy = memory(medium.length().expect("a length"));
        heap.backup_on(&*copy).expect("a backup");
        let key = heap.key();
        drop(heap);
        let heap = open(copy);
        assert_eq!(
            (Plain::of(&heap), heap.key()),
            (Some(plain.clone()), key),
            "seed {seed}"
        );
        let mut plain = plain;
        for _ in 0..40 {
            change(&heap, &mut plain, &mut Rng(seed ^ 1), 9);
        }
        heap.collect().expect("a collection");
        heap.report().expect("good");
        assert_eq!(
            Plain::of(&heap),
            Some(plain),
            "seed {seed}: the copy goes on"
        );
    }
}

/// Runs `happen` before each write of `copy`, which wants a medium for all threads.
fn meanwhile<'b>(
    to: &MemoryMedium,
    happen: &'b mut (dyn FnMut() + Send + 'b),
    copy: impl FnOnce(&dyn Medium),
) {
    struct Hooked<'a, 'b> {
        to: &'a MemoryMedium,
        happen: Mutex<&'b mut (dyn FnMut() + Send + 'b)>,
    }

    impl Medium for Hooked<'_, '_> {
        fn length(&self) -> io::Result<u64> {
            self.to.length()
        }

        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            self.to.read(offset, bytes)
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            (self.happen.lock().expect("no panic"))();
            self.to.write(offset, bytes)
        }

        fn sync(&self) -> io::Result<()> {
            self.to.sync()
        }

        fn descriptor(&self) -> BorrowedFd<'_> {
            self.to.descriptor()
        }
    }

    let happen = Mutex::new(happen);
    copy(&Hooked { to, happen });
}

/// Commits in the same thread, between the parts of a copy, are not in it; collections that they start keep what the copy needs.
#[test]
fn commits_between_the_parts_of_a_backup_are_not_in_it() {
    let mut collections = 0;
    for seed in 0..24 {
        let (heap, plain, medium) = world(
            seed,
            [Collector::AtCommit, Collector::Stop][seed as usize % 2],
        );
        let copy = memory(medium.length().expect("a length"));
        let (mut later, mut rng) = (plain.clone(), Rng(seed));
        // Inside of a backup this thread cannot commit; another one can.
        let (heap_of, later_of) = (&heap, &mut later);
        let mut left = 40;
        let mut happen = || {
            left -= 1;
            assert!(left > 0, "seed {seed}: the backup began again");
            std::thread::scope(|scope| {
                let done =
                    scope.spawn(|| (0..8).for_each(|_| change(heap_of, later_of, &mut rng, 20)));
                done.join().expect("commits go on");
            });
        };
        let before = heap.counters().persistent;
        meanwhile(&copy, &mut happen, |to| {
            heap.backup_on(to).expect("a backup")
        });
        collections += heap.counters().persistent - before;
        assert_eq!(Plain::of(&heap), Some(later), "seed {seed}");
        change(&heap, &mut Plain::of(&heap).expect("a world"), &mut rng, 9);
        heap.collect().expect("what a backup kept is freed");
        heap.report().expect("good");
        drop(heap);
        assert_eq!(Plain::of(&open(copy)), Some(plain), "seed {seed}");
    }
    // One for each: the next waits until the copy is complete.
    assert!(
        collections >= 20,
        "{collections} collections during backups"
    );
}

/// A commit that needs the room of what a backup copies gets it, and the backup begins again.
#[test]
fn a_backup_of_a_full_heap_begins_again() {
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let options = Options {
        collector: Collector::Stop,
        ..small_options(Collector::Stop)
    };
    let heap = Heap::create_in(make, 10 * SEGMENT, SEGMENT, options).expect("a heap");
    let length = medium.expect("was made").length().expect("a length");
    let write = |n: u64| {
        heap.update(|tx| {
            let bytes = tx.bytes(&vec![n as u8; 20_000]);
            tx.set_root(tx.alloc((n, bytes)));
            Ok(())
        })
        .expect("garbage has room");
    };
    write(0);
    let copy = memory(length);
    let mut number = 0;
    let mut happen = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..30 {
                    number += 1;
                    write(number);
                }
            });
        });
    };
    // Commits of this backup's last try would wait for it: they end before.
    let mut left = 5;
    let mut some = || {
        if left > 0 {
            left -= 1;
            happen();
        }
    };
    meanwhile(&copy, &mut some, |to| heap.backup_on(to).expect("a backup"));
    drop(heap);
    let heap = open(copy);
    heap.view(|view| {
        let (n, bytes) = view
            .root::<gordon::Ref<'_, (u64, gordon::Bytes<'_>)>>()?
            .expect("set")
            .read();
        assert!(bytes.iter().all(|byte| *byte == n as u8) && bytes.len() == 20_000);
        Ok(())
    })
    .expect("one state of it");
}

/// Until its last write the copy is no heap; after that it is the whole one.
#[test]
fn a_backup_that_was_cut_short_is_no_heap() {
    let mut whole = 0;
    for seed in 0..6 {
        let (heap, plain, medium) = world(seed, Collector::AtCommit);
        let length = medium.length().expect("a length");
        let copy =
            Recorder::new(MemoryMedium::from_bytes(&vec![0; length as usize]).expect("memory"));
        heap.backup_on(&*copy).expect("a backup");
        drop(heap);
        let ops: Vec<Op> = copy.ops.lock().expect("ops").clone();
        let base = vec![0; length as usize];
        let mut rng = Rng(seed);
        for cut in 0..=ops.len() {
            for _ in 0..4 {
                let image = image(&base, &ops, cut, &mut rng);
                let medium = Arc::new(MemoryMedium::from_bytes(&image).expect("memory"));
                let options = small_options(Collector::AtCommit);
                match open_once_vacant(|| {
                    Heap::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options)
                }) {
                    Ok(heap) => {
                        assert_eq!(
                            Plain::of(&heap),
                            Some(plain.clone()),
                            "seed {seed}, cut {cut}"
                        );
                        whole += 1;
                    }
                    Err(error) => {
                        assert!(
                            matches!(error, Error::NotABank(_)),
                            "seed {seed}, cut {cut}: {error}"
                        );
                        assert!(cut < ops.len(), "seed {seed}: complete");
                    }
                }
            }
        }
    }
    assert!(whole >= 24, "{whole}");
}

#[test]
fn flash_that_ands_is_copied_too() {
    let model = Model::intel(1).fast();
    let options = Options {
        model: Some(model),
        ..small_options(Collector::AtCommit)
    };
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let segment = model.segment_bytes();
    let heap = Heap::create_in(make, 32 * segment, segment, options).expect("a heap");
    let (mut plain, mut rng) = (Plain::default(), Rng(9));
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    (0..60).for_each(|_| change(&heap, &mut plain, &mut rng, 9));
    let length = medium.expect("was made").length().expect("a length");
    let copy = Arc::new(MemoryMedium::from_bytes(&vec![0; length as usize]).expect("memory"));
    heap.backup_on(&*copy).expect("a backup");
    drop(heap);
    let open = || Heap::open_on(Arc::clone(&copy) as Arc<dyn Medium>, options);
    let heap = open_once_vacant(open).expect("a heap");
    assert_eq!(Plain::of(&heap), Some(plain.clone()));
    (0..60).for_each(|_| change(&heap, &mut plain, &mut rng, 9));
    assert_eq!(Plain::of(&heap), Some(plain));
}

#[test]
fn threads_commit_while_backups_are_made() {
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let heap = Heap::create_in(
        make,
        64 * SEGMENT,
        SEGMENT,
        small_options(Collector::Beside),
    )
    .expect("a heap");
    let length = medium.expect("was made").length().expect("a length");
    heap.update(|tx| {
        tx.set_root(tx.array(&[(0_u64, None::<gordon::Bytes<'_>>); 4]));
        Ok(())
    })
    .expect("a commit");
    let stop = AtomicBool::new(false);
    let returned: Mutex<[u64; 4]> = Mutex::default();
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (heap, stop, returned) = (&heap, &stop, &returned);
            scope.spawn(move || {
                let mut n = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    heap.update(|tx| {
                        let all = tx
                            .root::<Array<'_, (u64, Option<gordon::Bytes<'_>>)>>()?
                            .expect("set");
                        all.set(tx, thread, (n, Some(tx.bytes(&vec![n as u8; 500]))));
                        Ok(())
                    })
                    .expect("a commit");
                    returned.lock().expect("numbers")[thread] = n;
                }
            });
        }
        for _ in 0..20 {
            let before = *returned.lock().expect("numbers");
            let copy = memory(length);
            heap.backup_on(&*copy).expect("a backup");
            copies.push((before, copy, *returned.lock().expect("numbers")));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        heap.counters().persistent > 0,
        "collections went on: {:?}",
        heap.counters()
    );
    drop(heap);
    for (before, copy, after) in copies {
        open(copy)
            .view(|view| {
                let all = view
                    .root::<Array<'_, (u64, Option<gordon::Bytes<'_>>)>>()?
                    .expect("set");
                for (thread, (before, after)) in before.into_iter().zip(after).enumerate() {
                    let (n, bytes) = all.get(thread).expect("four");
                    assert!(
                        (before..=after + 1).contains(&n),
                        "{before} to {after}: {n}"
                    );
                    assert!(bytes.is_none_or(|bytes| bytes.iter().all(|byte| *byte == n as u8)));
                }
                Ok(())
            })
            .expect("a copy");
    }
}

#[test]
fn bad_places_for_a_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, Options::default()).expect("a heap");
    let exists = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists);
    assert!(exists(&heap.backup(&path).expect_err("the heap itself")));
    let missing = heap
        .backup(&folder.path().join("no/such/folder"))
        .expect_err("no folder");
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    let inside = heap.view(|_| heap.backup(&folder.path().join("copy")));
    assert!(matches!(inside, Err(Error::Nested(_))));
    assert_eq!(
        std::fs::read_dir(&folder).expect("the folder").count(),
        1,
        "nothing is left behind"
    );

    let log = folder.path().join("sidney");
    std::fs::create_dir(&log).expect("a folder");
    let heap = sidney::create(&log, 1 << 20, Options::default()).expect("a heap");
    let error = heap
        .backup(&folder.path().join("copy"))
        .expect_err("two files");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert_eq!(
        std::fs::read_dir(&folder).expect("the folder").count(),
        2,
        "nothing is left behind"
    );
}
