//! No commit waits longer than 5 ms for a persistent collection, with objects of 50 MB in the heap.
//!
//! On an emulated bank the wait is modelled time, the same in every run. `gordon-versus` measures
//! the real time.

use gordon::flash::{Erase, Model};
use gordon::{Array, ByteArray, Bytes, Collector, Heap, Limits, Options, Persist, Ref, Slice};
use std::collections::HashMap;

const LARGE: usize = 50_000_000;

#[derive(Clone, Copy, Persist)]
struct World<'t> {
    blob: Bytes<'t>,
    changing: ByteArray<'t>,
    references: Slice<'t, Ref<'t, u64>>,
    table: Array<'t, Option<Ref<'t, u64>>>,
    count: Array<'t, u64>,
}

#[test]
fn a_commit_waits_five_ms_at_most_for_objects_of_fifty_megabytes() {
    let model = Model::intel(32).with_erase(Erase::Background {
        suspend_ns: Some(0),
    });
    let options = Options {
        collector: Collector::AtCommit,
        limits: Limits {
            // High, so that a full log begins no collection.
            log_bytes: Some(400 << 20),
            persistent_bytes: Some(1 << 20),
            ..Limits::default()
        },
        ..Options::default()
    };
    let heap = Heap::emulated(model, 400, options).expect("a heap");
    let before = heap.counters();
    heap.update(|tx| {
        let one = tx.alloc(1);
        tx.set_root(tx.alloc(World {
            blob: tx.bytes(&vec![7; LARGE]),
            changing: tx.byte_array(&vec![8; LARGE]),
            references: tx.slice(&vec![one; LARGE / 8]),
            table: tx.array(&vec![Some(one); LARGE / 8]),
            count: tx.array(&[0]),
        }));
        Ok(())
    })
    .expect("a commit");
    assert_eq!(before.persistent, 0);
    let mut longest = 0;
    let mut number = 0;
    let mut expected = vec![8; LARGE];
    while heap.counters().persistent < 2 {
        number += 1;
        let begun = heap.bank_counters();
        heap.update(|tx| {
            let world = tx.root::<Ref<'_, World<'_>>>()?.expect("set above").read();
            world.count.set(tx, 0, number);
            let at = number as usize * 7919 % (LARGE / 8);
            world.changing.write(tx, at, &number.to_le_bytes());
            expected[at..at + 8].copy_from_slice(&number.to_le_bytes());
            world.table.set(tx, at, Some(tx.alloc(number)));
            Ok(())
        })
        .expect("a commit");
        let now = heap.bank_counters();
        longest = longest.max(now.modelled_ns - begun.modelled_ns);
        assert!(
            number < 1_000_000,
            "the collections end: {:?}",
            heap.counters()
        );
    }
    let waited = heap.counters().slice_max_modelled_ns;
    println!("{number} commits, the longest {longest} ns, slices of {waited} ns at most");
    assert!(
        longest <= 5_000_000 && waited <= 5_000_000,
        "{longest} {waited}"
    );
    heap.view(|view| {
        let world = view
            .root::<Ref<'_, World<'_>>>()?
            .expect("set above")
            .read();
        assert!(world.blob.iter().all(|byte| *byte == 7));
        assert_eq!(world.count.get(0), Some(number));
        assert!(world.references.iter().all(|one| one.read() == 1));
        let mut bytes = vec![0; LARGE];
        world.changing.read(0, &mut bytes);
        assert!(bytes == expected, "the bytes are not what was written");
        let changed: HashMap<usize, u64> = (1..=number)
            .map(|number| (number as usize * 7919 % (LARGE / 8), number))
            .collect();
        for at in 0..LARGE / 8 {
            let one = world.table.get(at).flatten().expect("none was cleared");
            assert_eq!(one.read(), changed.get(&at).copied().unwrap_or(1), "{at}");
        }
        Ok(())
    })
    .expect("a view");
    heap.report().expect("every object is good");
}
