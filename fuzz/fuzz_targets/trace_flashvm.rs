//! FlashVM's own format. The first byte chooses how to read the fuzzer's bytes: as a file; as chunks, compressed
//! here behind a valid header, as the fuzzer cannot make a zstd frame; as references, written and read again.
#![no_main]

use flashvm_fuzz::references;
use flashvm_sim::trace::flashvm::Writer;
use flashvm_sim::trace::{Format, Granularity, Kind, Provenance, Reference, read};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    match choice % 8 {
        0 => references(bytes, Some(Format::Flashvm)),
        1 => written(bytes),
        // Both granularities.
        choice => blocks(choice % 2, bytes),
    }
});

fn blocks(granularity: u8, bytes: &[u8]) {
    let mut file = b"FLASHVMT\x01".to_vec();
    file.extend([granularity, 0, 0, 2, 0, 0, 0, b'{', b'}']);
    file.extend(zstd::bulk::compress(bytes, 1).expect("memory"));
    references(&file, Some(Format::Flashvm));
}

fn written(bytes: &[u8]) {
    let all = bytes.as_chunks::<13>().0.iter().map(|record| Reference {
        address: u64::from_le_bytes(*record.first_chunk().expect("eight of them")),
        bytes: u32::from_le_bytes(*record[8..].first_chunk().expect("four of them")).max(1),
        kind: [Kind::Read, Kind::Write, Kind::Instruction][usize::from(record[12]) % 3],
    });
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        return;
    }
    let writer = Writer::new(Vec::new(), Granularity::Bytes, &Provenance::default());
    let mut writer = writer.expect("memory");
    for &reference in &all {
        writer.push(reference).expect("memory");
    }
    let file = Cursor::new(writer.finish().expect("memory"));
    let trace = read("fuzz".as_ref(), file, None).expect("what was written");
    assert!(trace.map(|reference| reference.expect("what was written")).eq(all));
}
