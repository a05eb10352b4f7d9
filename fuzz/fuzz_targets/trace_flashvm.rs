//! Our own format: the fuzzer's bytes as a file, then as blocks behind a good header (the frame's checksum
//! would keep the fuzzer out of them), then as references that are written and read again.
#![no_main]

use flashvm_fuzz::references;
use flashvm_sim::trace::flashvm::Writer;
use flashvm_sim::trace::{Format, Granularity, Kind, Provenance, Reference, read};
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};

fuzz_target!(|bytes: &[u8]| {
    references(bytes, Some(Format::Flashvm));
    for granularity in [0, 1] {
        let mut file = b"FLASHVMT\x01".to_vec();
        file.extend([granularity, 0, 0, 2, 0, 0, 0, b'{', b'}']);
        let mut frame = zstd::stream::write::Encoder::new(file, 1).expect("memory");
        frame.write_all(bytes).expect("memory");
        references(&frame.finish().expect("memory"), Some(Format::Flashvm));
    }
    let all = bytes.as_chunks::<13>().0.iter().map(|record| Reference {
        address: u64::from_le_bytes(*record.first_chunk().expect("eight of them")),
        bytes: u32::from_le_bytes(*record[8..].first_chunk().expect("four of them")).max(1),
        kind: [Kind::Read, Kind::Write, Kind::Instruction][usize::from(record[12]) % 3],
    });
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        return;
    }
    let mut writer = Writer::new(Vec::new(), Granularity::Bytes, &Provenance::default()).expect("memory");
    for &reference in &all {
        writer.push(reference).expect("memory");
    }
    let file = Cursor::new(writer.finish().expect("memory"));
    let trace = read("fuzz".as_ref(), file, None).expect("what was written");
    assert!(trace.map(|reference| reference.expect("what was written")).eq(all));
});
