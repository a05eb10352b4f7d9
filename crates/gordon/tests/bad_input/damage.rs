//! Bytes that are not those that were written: cut off, flipped, or from elsewhere.

use super::*;

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
    let make = |length| kept(length, &mut medium);
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
