//! Whatever is wrong with an input: the error is clear, and the last commit stays intact.

mod common;

use common::{Change, Plain, Rng, found, small_options};
use gordon::flash::{Erase, FORMAT, Medium, MemoryMedium, Model};
use gordon::{Collector, Error, Heap, Options, Ref, Var, sidney};
use std::path::Path;
use std::sync::Arc;

const SEGMENT: u64 = 64 << 10;

fn options() -> Options {
    small_options(Collector::AtCommit)
}

/// A closed heap with a world in it; its bytes and the world.
fn sample(seed: u64) -> (Vec<u8>, Plain) {
    let mut medium = None;
    let make = |length| {
        let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
        medium = Some(Arc::clone(&made));
        Ok(made)
    };
    let heap = Heap::create_in(make, 24 * SEGMENT, SEGMENT, options()).expect("a heap");
    let medium = medium.expect("was made");
    let mut plain = Plain::default();
    let mut rng = Rng(seed);
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    for _ in 0..40 {
        heap.update(|tx| {
            for _ in 0..10 {
                plain.apply(tx, &Change::random(&mut rng));
            }
            Ok(())
        })
        .expect("a commit");
    }
    heap.close().expect("closed");
    let mut bytes = vec![0; medium.length().expect("a length") as usize];
    medium.read(0, &mut bytes).expect("readable");
    (bytes, plain)
}

fn open(bytes: &[u8]) -> Result<Heap, Error> {
    Heap::open_on(Arc::new(MemoryMedium::from_bytes(bytes)?), options())
}

#[test]
fn a_heap_that_is_no_heap() {
    assert!(matches!(open(&[]), Err(Error::NotABank(_))));
    assert!(matches!(open(&[7; 100_000]), Err(Error::NotABank(_))));
}

#[test]
fn another_version_machine_or_key() {
    let (bytes, _) = sample(1);
    let mut newer = bytes.clone();
    newer[16..20].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    let error = open(&newer).expect_err("a newer format");
    assert!(
        error.to_string().contains(&(FORMAT + 1).to_string()),
        "{error}"
    );
    assert!(matches!(error, Error::Version { .. }));

    let medium = Arc::new(MemoryMedium::from_bytes(&bytes).expect("memory"));
    let wrong = Options {
        key: Some(1),
        ..options()
    };
    assert!(matches!(
        Heap::open_on(medium, wrong),
        Err(Error::WrongKey { given: 1 })
    ));

    let mut other = bytes.clone();
    other[20..24].reverse();
    let hash = xxhash_rust::xxh3::xxh3_64(&other[..72]);
    other[72..80].copy_from_slice(&hash.to_le_bytes());
    assert!(matches!(open(&other), Err(Error::Machine(_))));
}

#[test]
fn a_truncated_heap() {
    let (bytes, _) = sample(2);
    for length in [5000, bytes.len() / 2, bytes.len() - 1] {
        assert!(
            matches!(open(&bytes[..length]), Err(Error::Truncated { .. })),
            "{length}"
        );
    }
}

#[test]
fn a_flipped_bit_is_seen_or_does_not_matter() {
    let (bytes, plain) = sample(3);
    let mut rng = Rng(3);
    let mut refused = 0;
    for _ in 0..1500 {
        let mut damaged = bytes.clone();
        // Most of the bank is unused: prefer the used part.
        let mut at = rng.below(bytes.len());
        while damaged[at] == 0xFF && rng.below(50) != 0 {
            at = rng.below(bytes.len());
        }
        damaged[at] ^= 1 << rng.below(8);
        match open(&damaged) {
            Ok(heap) => assert_eq!(Plain::of(&heap).as_ref(), Some(&plain), "bit in byte {at}"),
            Err(Error::Corrupted(_) | Error::NotABank(_) | Error::Version { .. }) => refused += 1,
            Err(error) => panic!("bit in byte {at}: {error}"),
        }
    }
    assert!(refused > 100, "{refused} of 1500 flips hit something");
}

/// A power cut tears only between sectors. So damage differs from a cut if a later record proves
/// it, or if the last record is in one sector with its front.
#[test]
fn damage_to_the_records_of_a_heap_that_was_not_closed() {
    const WORDS: usize = 9;
    let mut medium = None;
    let make = |length| {
        let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
        medium = Some(Arc::clone(&made));
        Ok(made)
    };
    let heap = Heap::create_in(make, 24 * SEGMENT, SEGMENT, options()).expect("a heap");
    let medium = medium.expect("was made");
    heap.update(|tx| {
        tx.set_root(tx.var(0_u64));
        Ok(())
    })
    .expect("a commit");
    let count = |heap: &Heap| {
        let read = |view: &gordon::View<'_>| Ok(view.root::<Var<'_, u64>>()?.map(Var::read));
        heap.view(read).expect("a view").expect("set above")
    };
    let contents = || {
        let mut bytes = vec![0; medium.length().expect("a length") as usize];
        medium.read(0, &mut bytes).expect("readable");
        bytes
    };
    let records = |bytes: &[u8]| -> Vec<usize> {
        let words = bytes.chunks_exact(8).enumerate();
        words
            .filter(|(_, word)| word == b"GorLog1\n")
            .map(|(at, _)| at * 8)
            .collect()
    };
    let mut last = 0;
    let (bytes, places) = loop {
        last += 1;
        heap.update(|tx| {
            let root = tx.root::<Var<'_, u64>>()?.expect("set above");
            root.write(tx, last);
            Ok(())
        })
        .expect("a commit");
        let bytes = contents();
        let places = records(&bytes);
        let at = *places.last().expect("records");
        if places.len() > 20 && at % 512 + WORDS * 8 <= 512 {
            break (bytes, places);
        }
    };
    drop(heap);
    assert_eq!(count(&open(&bytes).expect("whole")), last);
    let damaged = |place: usize, word: usize, bit: usize| {
        let mut damaged = bytes.clone();
        damaged[place + word * 8 + bit / 8] ^= 1 << (bit % 8);
        open(&damaged)
    };
    let (newest, earlier) = places.split_last().expect("records");
    for bit in 0..64 {
        for word in 5..WORDS {
            let found = damaged(*newest, word, bit);
            assert!(
                matches!(found, Err(Error::Corrupted(_))),
                "{word} {bit}: {found:?}"
            );
        }
        // Without its front the last record does not exist.
        for word in 0..5 {
            let found = damaged(*newest, word, bit).map(|heap| count(&heap));
            assert!(
                matches!(found, Ok(found) if found == last - 1),
                "{word} {bit}: {found:?}"
            );
        }
        let place = earlier[bit % earlier.len()];
        let found = damaged(place, bit % WORDS, bit);
        assert!(
            matches!(found, Err(Error::Corrupted(_))),
            "{place} {bit}: {found:?}"
        );
    }
}

#[test]
fn random_damage_never_does_worse_than_an_error() {
    let (bytes, plain) = sample(4);
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let mut damaged = bytes.clone();
        for _ in 0..=rng.below(6) {
            let at = rng.below(damaged.len() - 4096);
            let length = 1 + rng.below(4096);
            match rng.below(3) {
                0 => damaged[at..at + length].fill(rng.next() as u8),
                1 => damaged[at..at + length]
                    .iter_mut()
                    .for_each(|byte| *byte = rng.next() as u8),
                _ => {
                    let from = rng.below(bytes.len() - length);
                    damaged[at..at + length].copy_from_slice(&bytes[from..from + length]);
                }
            }
        }
        if let Ok(heap) = open(&damaged) {
            assert_eq!(Plain::of(&heap).as_ref(), Some(&plain), "seed {seed}");
        }
    }
}

#[test]
fn addresses_that_are_taken() {
    let (bytes, plain) = sample(5);
    let first = open(&bytes).expect("a heap");
    assert!(matches!(open(&bytes), Err(Error::AddressTaken { .. })));
    drop(first);
    assert_eq!(Plain::of(&open(&bytes).expect("free again")), Some(plain));
}

#[test]
fn sizes_that_cannot_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let make = |size| Heap::create(&path, size, Options::default());
    assert!(matches!(make(0), Err(Error::TooSmall { .. })));
    assert!(matches!(make(100_000), Err(Error::TooSmall { .. })));
    assert!(matches!(make(1 << 50), Err(Error::TooLarge { .. })));
    assert!(!path.exists(), "nothing is left behind");
    for segment in [
        0,
        1,
        SEGMENT - 1,
        SEGMENT + 1,
        3 * SEGMENT,
        SEGMENT / 2,
        128 << 20,
    ] {
        let never = |_| panic!("no medium for segments of {segment} bytes");
        let made = Heap::create_in(never, 4 << 30, segment, Options::default());
        assert!(matches!(made, Err(Error::SegmentSize { .. })), "{segment}");
    }
}

/// Checks that a heap was not created because its file exists.
#[track_caller]
fn exists(made: gordon::Result<Heap>) {
    let error = made.map(drop).expect_err("it exists");
    let is_there = |source: &std::io::Error| source.kind() == std::io::ErrorKind::AlreadyExists;
    assert!(
        matches!(&error, Error::Io { source, .. } if is_there(source)),
        "{error}"
    );
}

#[test]
fn a_second_writer_and_a_file_that_exists() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, Options::default()).expect("a heap");
    assert!(matches!(
        Heap::open(&path, Options::default()),
        Err(Error::Locked(_))
    ));
    drop(heap);
    exists(Heap::create(&path, 1 << 20, Options::default()));
    Heap::open(&path, Options::default()).expect("not in use any more");
    let missing = Heap::open(Path::new("/nonexistent/heap"), Options::default());
    assert!(matches!(missing, Err(Error::Io { .. })));
}

#[test]
fn operations_inside_each_other() {
    let heap = Heap::emulated(Model::intel(1).fast(), 12, options()).expect("a heap");
    heap.update(|_| {
        assert!(matches!(heap.commit(), Err(Error::Nested(_))));
        assert!(matches!(heap.abort(), Err(Error::Nested(_))));
        assert!(matches!(heap.update(|_| Ok(())), Err(Error::Nested(_))));
        assert!(matches!(heap.view(|_| Ok(())), Err(Error::Nested(_))));
        assert!(matches!(heap.collect(), Err(Error::Nested(_))));
        Ok(())
    })
    .expect("the outer one goes on");
}

#[test]
fn a_root_of_another_type() {
    let heap = Heap::emulated(Model::intel(1).fast(), 12, options()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.var(5_u64));
        Ok(())
    })
    .expect("a commit");
    heap.view(|view| {
        assert!(matches!(view.root::<Var<'_, u32>>(), Err(Error::RootType)));
        assert!(matches!(view.root::<Ref<'_, u64>>(), Err(Error::RootType)));
        assert_eq!(view.root::<Var<'_, u64>>()?.expect("set").read(), 5);
        Ok(())
    })
    .expect("a view");
}

#[test]
fn a_full_bank_keeps_the_last_commit_and_takes_deletions() {
    let mut medium = None;
    let make = |length| {
        let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
        medium = Some(Arc::clone(&made));
        Ok(made)
    };
    let heap = Heap::create_in(make, 16 * SEGMENT, SEGMENT, options()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.array(&[None::<gordon::Bytes<'_>>; 64]));
        Ok(())
    })
    .expect("a commit");
    let fill = |slot: usize| {
        heap.update(|tx| {
            let root = tx
                .root::<gordon::Array<'_, Option<gordon::Bytes<'_>>>>()?
                .expect("set");
            root.set(tx, slot, Some(tx.bytes(&vec![slot as u8; 30_000])));
            Ok(())
        })
    };
    let full = (0..64).find_map(|slot| fill(slot).err().map(|error| (slot, error)));
    let (count, error) = full.expect("two megabytes do not fit into one");
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(
        count >= 8,
        "a third of the bank can be used: {count} of 30 KB"
    );
    let sum = || {
        heap.view(|view| {
            let root = view
                .root::<gordon::Array<'_, Option<gordon::Bytes<'_>>>>()?
                .expect("set");
            Ok((0..64)
                .filter_map(|at| root.get(at).flatten())
                .map(|bytes| bytes.len())
                .sum())
        })
        .expect("a view")
    };
    let before: usize = sum();
    assert_eq!(before, count * 30_000);
    heap.update(|tx| {
        let root = tx
            .root::<gordon::Array<'_, Option<gordon::Bytes<'_>>>>()?
            .expect("set");
        for slot in 0..count - 1 {
            root.set(tx, slot, None);
        }
        Ok(())
    })
    .expect("what frees room has room");
    for slot in 0..5 {
        fill(slot).expect("there is room again");
    }
    heap.close().expect("closed");
    let heap = Heap::open_on(medium.expect("was made"), options()).expect("a heap");
    heap.report().expect("good");
}

#[test]
fn a_log_or_data_segment_of_sidney_that_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    for (folder, seed) in [(&here, 6), (&there, 7)] {
        std::fs::create_dir(folder).expect("a folder");
        let heap = sidney::create(folder, 1 << 20, options()).expect("a heap");
        let mut rng = Rng(seed);
        let mut plain = Plain::default();
        heap.update(|tx| {
            found(tx);
            Ok(())
        })
        .expect("a commit");
        for _ in 0..200 {
            heap.update(|tx| {
                (0..10).for_each(|_| plain.apply(tx, &Change::random(&mut rng)));
                Ok(())
            })
            .expect("a commit");
        }
        let counters = heap.counters();
        assert!(counters.persistent > 0, "{counters:?}");
        // Afterwards the data segment holds everything, and the log has no changes.
        heap.collect().expect("a collection");
        assert_eq!(Plain::of(&heap), Some(plain));
    }
    exists(sidney::create(&here, 1 << 20, options()));
    assert!(matches!(
        Heap::open(&here.join("log"), options()),
        Err(Error::NotABank(_))
    ));

    let segment = std::fs::read(here.join("segment")).expect("the segment");
    let mut refused = 0;
    let mut rng = Rng(8);
    for _ in 0..100 {
        let mut damaged = segment.clone();
        // Most of the segment has never been written.
        let at = (0..)
            .map(|_| rng.below(segment.len()))
            .find(|at| segment[*at] != 0xFF);
        let at = at.expect("something is written");
        damaged[at] ^= 1 << rng.below(8);
        std::fs::write(here.join("segment"), &damaged).expect("damage");
        match sidney::open(&here, options()) {
            Ok(heap) => assert!(Plain::of(&heap).is_some(), "bit in byte {at}"),
            Err(Error::Corrupted(_)) => refused += 1,
            Err(error) => panic!("bit in byte {at}: {error}"),
        }
        std::fs::write(here.join("segment"), &segment).expect("mended");
    }
    assert!(refused > 0, "{refused} of 100 flips hit something");
    std::fs::write(here.join("segment"), &segment[..segment.len() - 1]).expect("damage");
    assert!(matches!(
        sidney::open(&here, options()),
        Err(Error::Truncated { .. })
    ));
    std::fs::copy(there.join("segment"), here.join("segment")).expect("another one");
    let error = sidney::open(&here, options()).expect_err("the segment of another log");
    assert!(error.to_string().contains("this redo log"), "{error}");
    std::fs::write(here.join("segment"), &segment).expect("mended");
    assert!(Plain::of(&sidney::open(&here, options()).expect("a heap")).is_some());
}

#[test]
fn a_bank_that_wears_out_says_so() {
    let model = Model {
        endurance: 12,
        ..Model::intel(1)
    }
    .with_erase(Erase::Background { suspend_ns: None });
    let heap = Heap::emulated(model, 16, options()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.var(None::<gordon::Bytes<'_>>));
        Ok(())
    })
    .expect("a commit");
    let mut last = 0_u64;
    let error = loop {
        let committed = heap.update(|tx| {
            let root = tx
                .root::<Var<'_, Option<gordon::Bytes<'_>>>>()?
                .expect("set");
            let mut data = vec![0; 4000];
            data[..8].copy_from_slice(&(last + 1).to_le_bytes());
            root.write(tx, Some(tx.bytes(&data)));
            Ok(())
        });
        match committed {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
        assert!(
            last < 100_000,
            "twelve erases of sixteen blocks cannot take that much"
        );
    };
    assert!(matches!(error, Error::WornOut { .. }), "{error}");
    let report = heap.report().expect("still good");
    let most = report.segments.iter().map(|segment| segment.erases).max();
    let worn = report
        .segments
        .iter()
        .filter(|segment| segment.erases >= 10)
        .count();
    assert!(
        most <= Some(13) && worn >= 10,
        "wear is spread: {:?}",
        report.segments
    );
    heap.view(|view| {
        let root = view
            .root::<Var<'_, Option<gordon::Bytes<'_>>>>()?
            .expect("set");
        let found = root.read().expect("set");
        assert_eq!(found[..8], last.to_le_bytes());
        Ok(())
    })
    .expect("the last commit is intact");
}
