//! Recovery of a bank that the fuzzer has edited: an error, or a heap without damage. `cargo test` runs the
//! same with bounded mutations (`crates/gordon/tests/bad_input/damage.rs`).
#![no_main]

use gordon::flash::{Medium, MemoryMedium};
use gordon::{Heap, Options, Var};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, OnceLock};

/// A heap with some commits.
fn seed() -> &'static [u8] {
    static SEED: OnceLock<Vec<u8>> = OnceLock::new();
    SEED.get_or_init(|| {
        let mut medium = None;
        let make = |length| {
            let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
            medium = Some(Arc::clone(&made));
            Ok(made)
        };
        let heap = Heap::create_in(make, 8 << 16, 1 << 16, Options::default()).expect("a heap");
        for number in 0..20_u64 {
            heap.update(|tx| {
                tx.set_root(tx.var((number, tx.bytes(&[7; 100]))));
                Ok(())
            })
            .expect("a commit");
        }
        drop(heap);
        let medium = medium.expect("was made");
        let mut bytes = vec![0; medium.length().expect("a length") as usize];
        medium.read(0, &mut bytes).expect("readable");
        bytes
    })
}

// Edits: four bytes of offset, one of length, the bytes.
fuzz_target!(|edits: &[u8]| {
    let mut bytes = seed().to_vec();
    let mut rest = edits;
    while let Some((offset, tail)) = rest.split_first_chunk::<4>() {
        let Some((&length, tail)) = tail.split_first() else { break };
        let length = usize::from(length).min(tail.len());
        let offset = u32::from_le_bytes(*offset) as usize % (bytes.len() - 255);
        bytes[offset..offset + length].copy_from_slice(&tail[..length]);
        rest = &tail[length..];
    }
    let medium = Arc::new(MemoryMedium::from_bytes(&bytes).expect("memory"));
    if let Ok(heap) = Heap::open_on(medium, Options::default()) {
        heap.report().expect("an opened heap is undamaged");
        let _ = heap.view(|view| Ok(view.root::<Var<'_, (u64, gordon::Bytes<'_>)>>()?.map(Var::read).is_some()));
        // What the types say may be false, but not what they are: an error at most.
        let _ = heap.view(|view| Ok(view.types()?.map(|types| types.to_string())));
        let _ = heap.view(|view| view.export(&mut std::io::sink()));
        let _ = heap.view(|view| view.statistics().map(|_| ()));
        let _ = heap.update(|tx| tx.migrate::<Var<'_, (u64, gordon::Bytes<'_>)>>());
    }
});
