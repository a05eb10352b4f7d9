//! Whatever is wrong with an input: the error is clear, and the last commit stays intact.

#[path = "../common/mod.rs"]
mod common;
mod damage;

use common::medium::kept;
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
    let make = |length| kept(length, &mut medium);
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
        assert!(matches!(
            view.root::<Var<'_, u32>>(),
            Err(Error::RootType(_))
        ));
        assert!(matches!(
            view.root::<Ref<'_, u64>>(),
            Err(Error::RootType(_))
        ));
        assert_eq!(view.root::<Var<'_, u64>>()?.expect("set").read(), 5);
        Ok(())
    })
    .expect("a view");
}

#[test]
fn a_full_bank_keeps_the_last_commit_and_takes_deletions() {
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
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

/// Trust is what its name says: damage of data that was stable is found by `open` and `inspect`, not by `open_trusted`.
#[test]
#[allow(unsafe_code, reason = "opens a heap unchecked")]
fn damage_of_trusted_data_is_found_by_a_check() {
    static BLOB: [u8; 100_000] = [0xA7; 100_000];
    let mut medium = None;
    let make = |length| kept(length, &mut medium);
    let heap = Heap::create_in(make, 24 * SEGMENT, SEGMENT, options()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.alloc(tx.bytes(&BLOB)));
        Ok(())
    })
    .expect("a commit");
    heap.close().expect("closed");
    let medium = medium.expect("was made");
    let mut bytes = vec![0; medium.length().expect("a length") as usize];
    medium.read(0, &mut bytes).expect("readable");
    // The middle of the blob, also where a collection has freed it.
    let middles: Vec<_> = (50_000..bytes.len() - 50_000)
        .filter(|at| bytes[at - 49_000..at + 49_000] == BLOB[..98_000])
        .collect();
    assert!(!middles.is_empty(), "the blob is on the bank");
    middles.iter().for_each(|at| bytes[*at] = 0);

    let copy = || Arc::new(MemoryMedium::from_bytes(&bytes).expect("memory")) as Arc<dyn Medium>;
    assert!(matches!(open(&bytes), Err(Error::Corrupted(_))));
    assert!(matches!(
        Heap::inspect(copy(), None),
        Err(Error::Corrupted(_))
    ));
    // SAFETY: the damage is in bytes, which are never followed.
    let heap = unsafe { Heap::open_trusted_on(copy(), options()) }.expect("not checked");
    heap.view(|view| {
        let root = view.root::<Ref<'_, gordon::Bytes<'_>>>()?.expect("set");
        assert_eq!(root.read()[50_000], 0);
        Ok(())
    })
    .expect("a view");
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
