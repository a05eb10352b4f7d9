//! Growth of an open heap: a power cut at any moment leaves the old size or the new one, and no commit is lost.

mod common;

use common::medium::{Recorder, image, kept};
use common::{Change, Plain, Rng, found, open_once_vacant, small_options};
use gordon::flash::{Medium, MemoryMedium, Model};
use gordon::{Array, Bytes, Collector, Error, Heap, Options, sidney};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEGMENT: u64 = 64 << 10;

fn change(heap: &Heap, plain: &mut Plain, rng: &mut Rng) {
    heap.update(|tx| {
        for _ in 0..12 {
            plain.apply(tx, &Change::random(rng));
        }
        Ok(())
    })
    .expect("a commit");
}

fn bytes(heap: &Heap) -> u64 {
    let identity = heap.report().expect("good").identity;
    identity.segments * identity.segment_bytes
}

#[test]
fn every_write_and_sync_of_a_growth() {
    let mut sizes = [0, 0];
    for seed in 0..8 {
        // Tables of the new size may take more pages than those of the old one.
        let [old, new] = [[12, 40], [160, 400], [12, 1193], [169, 170]][seed as usize % 4];
        let mut recorder = None;
        let make = |length| {
            let made = Recorder::new(MemoryMedium::new(length + (new - old) * SEGMENT)?);
            recorder = Some(Arc::clone(&made));
            Ok(made as Arc<dyn Medium>)
        };
        let options = small_options(Collector::AtCommit);
        let heap = Heap::create_in(make, old * SEGMENT, SEGMENT, options).expect("a heap");
        let recorder = recorder.expect("was made");
        heap.update(|tx| {
            found(tx);
            Ok(())
        })
        .expect("a commit");
        let (mut plain, mut rng) = (Plain::default(), Rng(seed));
        // The newest table is in either slot.
        (0..10 + seed).for_each(|_| change(&heap, &mut plain, &mut rng));
        let mut base = vec![0; recorder.length().expect("a length") as usize];
        recorder.read(0, &mut base).expect("readable");
        recorder.ops.lock().expect("ops").clear();
        let before = plain.clone();
        assert_eq!(heap.grow(new * SEGMENT).expect("a growth"), new * SEGMENT);
        let grown = recorder.count();
        change(&heap, &mut plain, &mut rng);
        assert_eq!(bytes(&heap), new * SEGMENT);
        drop(heap);
        let ops = recorder.ops.lock().expect("ops").clone();
        for cut in 0..=ops.len() {
            let image = image(&base, &ops, cut, &mut rng);
            let medium = Arc::new(MemoryMedium::from_bytes(&image).expect("memory"));
            let open = || Heap::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options);
            let heap = open_once_vacant(open)
                .unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            let now = Plain::of(&heap);
            assert!(
                now == Some(before.clone()) || now == Some(plain.clone()),
                "seed {seed}, cut {cut}"
            );
            let size = bytes(&heap);
            assert!(
                size == old * SEGMENT || size == new * SEGMENT,
                "seed {seed}, cut {cut}: {size}"
            );
            assert!(
                cut < grown || size == new * SEGMENT,
                "seed {seed}, cut {cut}: stable when it has returned"
            );
            sizes[usize::from(size == new * SEGMENT)] += 1;
            let mut now = now.expect("a world");
            (0..4).for_each(|_| change(&heap, &mut now, &mut rng));
            // What a growth that was cut has left behind is overwritten by the next.
            if cut % 4 == 0 && size == old * SEGMENT {
                heap.grow(new * SEGMENT).expect("a growth");
                (0..4).for_each(|_| change(&heap, &mut now, &mut rng));
            }
            heap.close().expect("closed");
            let heap = open_once_vacant(open).expect("a heap");
            assert_eq!(Plain::of(&heap), Some(now), "seed {seed}, cut {cut}");
        }
    }
    assert!(sizes.iter().all(|count| *count > 10), "{sizes:?}");
}

#[test]
fn a_full_heap_grows_and_takes_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, Options::default()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.array(&[None::<Bytes<'_>>; 4096]));
        Ok(())
    })
    .expect("a commit");
    let fill = |slot: usize| {
        heap.update(|tx| {
            let root = tx.root::<Array<'_, Option<Bytes<'_>>>>()?.expect("set");
            root.set(tx, slot, Some(tx.bytes(&vec![slot as u8; 30_000])));
            Ok(())
        })
    };
    let (mut slots, mut sizes) = (0, vec![1 << 20]);
    for size in [2 << 20, 3 << 20, 16 << 20] {
        let error = loop {
            match fill(slots) {
                Ok(()) => slots += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert_eq!(heap.grow(size).expect("a growth"), size);
        sizes.push(size);
        fill(slots).expect("there is room");
        slots += 1;
    }
    heap.close().expect("closed");
    let heap = Heap::open(&path, Options::default()).expect("a heap");
    assert_eq!(bytes(&heap), 16 << 20);
    heap.view(|view| {
        let root = view.root::<Array<'_, Option<Bytes<'_>>>>()?.expect("set");
        for slot in 0..slots {
            let bytes = root.get(slot).flatten().expect("filled");
            assert!(bytes.len() == 30_000 && bytes.iter().all(|byte| *byte == slot as u8));
        }
        Ok(())
    })
    .expect("a view");
}

#[test]
fn threads_commit_while_it_grows_and_is_copied() {
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let heap = Heap::create_in(
        make,
        24 * SEGMENT,
        SEGMENT,
        small_options(Collector::Beside),
    )
    .expect("a heap");
    let medium = medium.expect("was made");
    heap.update(|tx| {
        tx.set_root(tx.array(&[0_u64; 2]));
        Ok(())
    })
    .expect("a commit");
    let stop = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let (heap, stop) = (&heap, &stop);
            scope.spawn(move || {
                let mut n = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    heap.update(|tx| {
                        let all = tx.root::<Array<'_, u64>>()?.expect("set");
                        let _garbage = tx.bytes(&[1; 900]);
                        all.set(tx, thread, n);
                        Ok(())
                    })
                    .expect("a commit");
                }
                n
            })
        });
        for segments in [25, 60, 200, 1000] {
            let copy = MemoryMedium::new(medium.length().expect("a length")).expect("memory");
            heap.backup_on(&copy).expect("a backup");
            heap.grow(segments * SEGMENT).expect("a growth");
        }
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().expect("commits go on"))
    });
    heap.close().expect("closed");
    let options = small_options(Collector::AtCommit);
    let heap = open_once_vacant(|| Heap::open_on(Arc::clone(&medium), options)).expect("a heap");
    assert_eq!(bytes(&heap), 1000 * SEGMENT);
    heap.view(|view| {
        let all = view.root::<Array<'_, u64>>()?.expect("set");
        assert_eq!([all.get(0), all.get(1)], counts.map(Some));
        Ok(())
    })
    .expect("a view");
}

#[test]
fn sizes_that_a_heap_cannot_grow_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let heap = Heap::create(&path, 4 << 20, Options::default()).expect("a heap");
    let length = |path: &Path| std::fs::metadata(path).expect("a file").len();
    let before = length(&path);
    for size in [0, 1, (4 << 20) - 1, 1194 * SEGMENT, 1 << 40, u64::MAX] {
        let error = heap.grow(size).expect_err("not that size");
        assert!(matches!(error, Error::Growth { .. }), "{size}: {error}");
        for named in ["4194304", &(1193 * SEGMENT).to_string(), &size.to_string()] {
            assert!(error.to_string().contains(named), "{error}");
        }
    }
    assert_eq!(heap.grow(4 << 20).expect("as it is"), 4 << 20);
    assert_eq!(heap.grow((4 << 20) + 1).expect("whole segments"), 4 << 20);
    assert_eq!(length(&path), before);
    assert!(matches!(
        heap.view(|_| heap.grow(5 << 20)),
        Err(Error::Nested(_))
    ));
    heap.update(|_| Ok(())).expect("it goes on");

    let folder = tempfile::tempdir().expect("a folder");
    let heap = sidney::create(folder.path(), 1 << 20, Options::default()).expect("a heap");
    assert!(matches!(heap.grow(2 << 20), Err(Error::Unsupported(_))));
}

/// A medium that has no room leaves the heap as it was.
#[test]
fn a_growth_without_room() {
    let mut recorder = None;
    let make = |length| {
        let made = Recorder::new(MemoryMedium::new(length + 8 * SEGMENT)?);
        recorder = Some(Arc::clone(&made));
        Ok(made as Arc<dyn Medium>)
    };
    let options = small_options(Collector::AtCommit);
    let heap = Heap::create_in(make, 12 * SEGMENT, SEGMENT, options).expect("a heap");
    let recorder = recorder.expect("was made");
    heap.update(|tx| {
        tx.set_root(tx.var(1_u64));
        Ok(())
    })
    .expect("a commit");
    let fail_after = |ops| *recorder.fails_from.lock().expect("a number") = recorder.count() + ops;
    fail_after(0);
    assert!(matches!(heap.grow(20 * SEGMENT), Err(Error::Io { .. })));
    *recorder.fails_from.lock().expect("a number") = usize::MAX;
    assert_eq!(bytes(&heap), 12 * SEGMENT);
    heap.update(|tx| {
        tx.root::<gordon::Var<'_, u64>>()
            .map(|root| root.expect("set").write(tx, 2))
    })
    .expect("it goes on");
    // The extension works, the tables do not: only reopening tells which size it has.
    fail_after(2);
    assert!(heap.grow(20 * SEGMENT).is_err());
    assert!(matches!(heap.update(|_| Ok(())), Err(Error::Failed(_))));
}

#[test]
fn emulated_flash_grows() {
    let model = Model::intel(1).fast();
    let heap = Heap::emulated(model, 12, small_options(Collector::AtCommit)).expect("a heap");
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    let (mut plain, mut rng) = (Plain::default(), Rng(5));
    for segments in [13, 30, 90] {
        heap.grow(segments * model.segment_bytes())
            .expect("a growth");
        (0..60).for_each(|_| change(&heap, &mut plain, &mut rng));
        assert_eq!(Plain::of(&heap), Some(plain.clone()));
    }
}
