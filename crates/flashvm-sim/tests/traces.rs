//! Trace formats: known counts, round trips, the guess from the content, and damage.

use flashvm_sim::trace::{
    Format, Granularity, Kind, Provenance, Reference, Trace, TraceError, flashvm::Writer, open,
    read,
};
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn text(bytes: &[u8], format: Option<Format>) -> Result<Trace, TraceError> {
    read("some.trace".as_ref(), Cursor::new(bytes.to_vec()), format)
}

fn all(trace: Result<Trace, TraceError>) -> Result<Vec<Reference>, TraceError> {
    trace?.collect()
}

fn reference(kind: Kind, address: u64, bytes: u32) -> Reference {
    Reference {
        address,
        bytes,
        kind,
    }
}

/// References, pages and written pages of a trace.
fn counts(name: &str, format: Format) -> (u64, usize, usize) {
    let trace = open(&shipped(name), None).expect("a trace");
    assert_eq!(trace.format(), format, "{name}");
    let granularity = trace.granularity();
    let (mut references, mut pages, mut written) = (0, HashSet::new(), HashSet::new());
    for reference in trace {
        let reference = reference.expect("a reference");
        references += 1;
        pages.extend(granularity.pages(reference));
        if reference.kind == Kind::Write {
            written.extend(granularity.pages(reference));
        }
    }
    (references, pages.len(), written.len())
}

#[test]
fn known_counts() {
    let keys = counts("cloudPhysicsIO.txt.zst", Format::Keys);
    assert_eq!(keys, (113_872, 48_974, 0));
    let objects = counts(
        "cloudPhysicsIO.oracleGeneral.bin.zst",
        Format::OracleGeneral,
    );
    assert_eq!(objects, (113_872, 48_974, 0));
    let gcc = counts("gcc.trace.gz", Format::Tagged);
    assert_eq!(gcc, (515_683, 294, 154));
}

#[test]
fn keys_and_objects_are_the_same_requests() {
    let keys = all(open(&shipped("cloudPhysicsIO.txt.zst"), None)).expect("keys");
    let objects = all(open(&shipped("cloudPhysicsIO.oracleGeneral.bin.zst"), None));
    assert_eq!(keys, objects.expect("objects"));
}

/// A small sample of each foreign format, as its tool writes it, and its references.
fn samples() -> Vec<(Format, &'static str, Vec<Reference>)> {
    use Kind::{Instruction, Read, Write};
    vec![
        (
            Format::Lackey,
            "==8263== Lackey, an example Valgrind tool\n==8263== \nI  0401ab70,3\n S 1fff000678,8\n M 1fff000670,16\n L 04222c,1\n==8263== Exit code:       0\n",
            vec![
                reference(Instruction, 0x0401_ab70, 3),
                reference(Write, 0x1f_ff00_0678, 8),
                reference(Read, 0x1f_ff00_0670, 16),
                reference(Write, 0x1f_ff00_0670, 16),
                reference(Read, 0x0004_222c, 1),
            ],
        ),
        (
            Format::Tagged,
            "s 0x1fffff50 1\r\nl 0x1fffff58 6\n\nl 4096\n",
            vec![
                reference(Write, 0x1fff_ff50, 1),
                reference(Read, 0x1fff_ff58, 1),
                reference(Read, 4096, 1),
            ],
        ),
        (
            Format::Keys,
            "42932745\n0xff\n18446744073709551615",
            vec![
                reference(Read, 42_932_745, 0),
                reference(Read, 255, 0),
                reference(Read, u64::MAX, 0),
            ],
        ),
        (
            Format::Msr,
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,hm,1,Read,2096128,512,1131\n128166372016382155,hm,0,Write,4096,65536,2326\n128166372026382245,hm,1,Write,0,4096,2153\n",
            vec![
                reference(Read, 2_096_128, 512),
                reference(Write, (1 << 52) | 4096, 65_536),
                reference(Write, 0, 4096),
            ],
        ),
        (
            Format::Blkparse,
            "  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,3) 6490\n  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n  8,0    3        3     0.000002000   697  C   W 223490 + 8 [0]\n  8,16   1        1     0.100000000   700  Q  RA 16 + 64 [my prog]\n  8,0    3        4     0.200000000   697  Q FWS [jbd2]\n  8,0    3        5     0.300000000   697  Q   D 100 + 8 [fstrim]\n  8,0    3        6     0.400000000     0  m   N cfq697 insert_request\nCPU3 (8,0):\n Reads Queued:           0,        0KiB\n",
            vec![
                reference(Write, 223_490 * 512, 4096),
                reference(Read, (1 << 52) | (16 * 512), 64 * 512),
            ],
        ),
        (
            Format::Drcachesim,
            "Output format:\n<--record#-> <--instr#->: <---tid---> <record details>\n------------------------------------------------------------\n           1           0:     2765542 <marker: version 5>\n       47742       37769:     2765543 ifetch       6 byte(s) @ 0x0000000000404a78 0f 84 5b 01 00 00    jz     $0x0000000000404bd9 (untaken)\n   173370: T1774669 read         8 byte(s) @ 0x00007f8881e37c70 by PC 0x0000000000402680\nT468608     write  8 byte(s) @ 0x7fff9f5fd9b0\n     9     9:     1 prefetch-read-l1 0 byte(s) @ 0x10 by PC 0x20\nView tool results:\n            3 : total instructions\n",
            vec![
                reference(Instruction, 0x40_4a78, 6),
                reference(Read, 0x7f88_81e3_7c70, 8),
                reference(Write, 0x7fff_9f5f_d9b0, 8),
            ],
        ),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("memory")
}

fn oracle_general(objects: &[u64]) -> Vec<u8> {
    let record = |(index, object): (usize, &u64)| {
        let mut record = Vec::new();
        record.extend((index as u32).to_le_bytes());
        record.extend(object.to_le_bytes());
        record.extend(512_u32.to_le_bytes());
        record.extend((-1_i64).to_le_bytes());
        record
    };
    objects.iter().enumerate().flat_map(record).collect()
}

#[test]
fn every_format_is_known_by_its_content_and_read() {
    let mut samples: Vec<(Format, Vec<u8>, Vec<Reference>)> = samples()
        .into_iter()
        .map(|(format, text, expected)| (format, text.as_bytes().to_vec(), expected))
        .collect();
    let objects = [7, 1 << 40];
    let expected = objects
        .map(|object| reference(Kind::Read, object, 0))
        .to_vec();
    samples.push((Format::OracleGeneral, oracle_general(&objects), expected));
    let stored = vec![reference(Kind::Write, 0x7fff_0000, 24)];
    samples.push((
        Format::Flashvm,
        written(Granularity::Bytes, &stored),
        stored,
    ));
    for info in Format::ALL {
        let known = samples.iter().any(|(format, ..)| *format == info.format);
        assert!(known, "a sample of {}", info.name);
    }
    for (format, bytes, expected) in samples {
        for packed in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
            let trace = text(&packed, None).expect("a trace");
            assert_eq!(trace.format(), format);
            assert_eq!(all(Ok(trace)).expect("references"), expected, "{format}");
        }
        let named = all(text(&bytes, Some(format)));
        assert_eq!(named.expect("references"), expected, "{format}");
    }
}

#[test]
fn two_members_of_gzip_and_two_frames_of_zstd_are_one_trace() {
    for pack in [gzip, zstd] {
        let both = [pack(b"1\n2\n"), pack(b"3\n")].concat();
        let keys = all(text(&both, None)).expect("keys");
        assert_eq!(
            keys.iter().map(|key| key.address).collect::<Vec<_>>(),
            [1, 2, 3]
        );
    }
}

fn written(granularity: Granularity, references: &[Reference]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), granularity, &Provenance::default()).expect("memory");
    for &reference in references {
        writer.push(reference).expect("memory");
    }
    writer.finish().expect("memory")
}

/// Addresses of all sizes, near each other and far.
fn any_reference() -> impl Strategy<Value = Reference> {
    let address = prop_oneof![
        any::<u64>(),
        0..1_u64 << 20,
        Just(u64::MAX),
        (0..64_u32).prop_map(|bit| 1 << bit)
    ];
    let bytes = prop_oneof![1..=64_u32, any::<u32>().prop_map(|bytes| bytes.max(1))];
    let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write), Just(Kind::Instruction)];
    (address, bytes, kind).prop_map(|(address, bytes, kind)| reference(kind, address, bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn written_references_are_read_back(
        references in prop::collection::vec(any_reference(), 1..200),
        copies in 1..120_usize,
        source in ".{0,40}",
        shard_bits in 0..20_u32,
    ) {
        // Repeated, so that some traces have several blocks.
        let references = references.repeat(copies);
        let provenance = Provenance { source, steps: vec!["one".to_owned(), "two".to_owned()], shard_bits };
        for granularity in [Granularity::Bytes, Granularity::Pages] {
            let mut writer = Writer::new(Vec::new(), granularity, &provenance).unwrap();
            for &reference in &references {
                writer.push(reference).unwrap();
            }
            prop_assert_eq!(writer.references(), references.len() as u64);
            let trace = text(&writer.finish().unwrap(), None).unwrap();
            prop_assert_eq!(trace.granularity(), granularity);
            prop_assert_eq!(trace.provenance(), &provenance);
            let read = all(Ok(trace)).unwrap();
            let expected = references.iter().map(|&reference| match granularity {
                Granularity::Bytes => reference,
                Granularity::Pages => Reference { bytes: 0, ..reference },
            });
            prop_assert!(read.into_iter().eq(expected));
        }
    }

    #[test]
    fn batches_and_references_agree(
        references in prop::collection::vec(any_reference(), 1..100),
        ahead in 0..100_usize,
    ) {
        let bytes = written(Granularity::Bytes, &references);
        let mut trace = text(&bytes, None).unwrap();
        let ahead = ahead.min(references.len());
        let mut read = Vec::new();
        for _ in 0..ahead {
            read.push(trace.next().unwrap().unwrap());
        }
        loop {
            let batch = trace.batch().unwrap();
            if batch.is_empty() {
                break;
            }
            read.extend_from_slice(batch);
        }
        prop_assert_eq!(read, references);
        prop_assert!(trace.next().is_none());
    }

    /// A trace truncated anywhere, or with any byte changed, gives an error in one line: never a panic,
    /// and never fewer references without an error.
    #[test]
    fn damage_is_detected(
        references in prop::collection::vec(any_reference(), 1..300),
        at in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let whole = written(Granularity::Bytes, &references);
        let at = at.index(whole.len());
        let error = all(text(&whole[..at], Some(Format::Flashvm))).unwrap_err().to_string();
        prop_assert!(error.starts_with("some.trace: ") && !error.contains('\n'), "{}", error);
        let mut changed = whole.clone();
        changed[at] ^= change;
        // The provenance has no checksum: its text may differ and still be valid.
        if let Ok(read) = all(text(&changed, Some(Format::Flashvm))) {
            prop_assert_eq!(read, references, "byte {}", at);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_in_every_format(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for format in Format::ALL.iter().map(|info| Some(info.format)).chain([None]) {
            if let Err(error) = all(text(&bytes, format)) {
                let line = error.to_string();
                prop_assert!(line.starts_with("some.trace: ") && !line.contains('\n'), "{}", line);
            }
        }
    }
}

#[track_caller]
fn refused(bytes: &[u8], format: Option<Format>, named: &[&str]) {
    let error = all(text(bytes, format)).expect_err("it is bad").to_string();
    for part in named {
        assert!(error.contains(part), "'{part}' in: {error}");
    }
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn bad_traces_name_file_place_and_remedy() {
    refused(b"", None, &["some.trace", "no reference", "again"]);
    refused(b"\n\n", Some(Format::Keys), &["no reference"]);
    refused(&gzip(b""), None, &["no reference"]);
    refused(&written(Granularity::Pages, &[]), None, &["no reference"]);
    refused(
        b"%PDF-1.4 \xff\x00",
        None,
        &["byte 0", "--format", "oracle-general"],
    );
    refused(b"1\n2\nthree\n", None, &["line 3", "'three'", "number"]);
    refused(
        b"18446744073709551616\n",
        Some(Format::Keys),
        &["line 1", "2^64"],
    );
    refused(
        b"l 0x10 1\nx 0x10 1\n",
        None,
        &["line 2", "'x 0x10 1'", "l 0xADDRESS"],
    );
    refused(b"l 0x10 1 7\n", Some(Format::Tagged), &["line 1"]);
    refused(
        b" L 10,8\nhello\n",
        None,
        &["line 2", "'hello'", "--log-file"],
    );
    refused(b" L 10,0\n", Some(Format::Lackey), &["line 1"]);
    refused(
        b"1,hm,0,Read,0,512,1\n1,hm,0,Trim,0,512,1\n",
        None,
        &["line 2", "Read|Write"],
    );
    refused(
        b"1,hm,0,Read,9999999999999999,512,1\n",
        Some(Format::Msr),
        &["line 1", "2^52"],
    );
    refused(
        b"8,0 3 1 0.0 697 Q W\n8,0 3 1 0.0 697 Q\n",
        None,
        &["line 2", "cut short"],
    );
    refused(
        b"hello\n",
        Some(Format::Blkparse),
        &["line 1", "'hello'", "223490 + 8"],
    );
    refused(
        b"8,0 3 1 0.0 697 Q W x + 8 [a]\n",
        Some(Format::Blkparse),
        &["line 1", "SECTOR"],
    );
    refused(
        b" read x byte(s) @ 0x10\n",
        Some(Format::Drcachesim),
        &["line 1", "0xADDRESS"],
    );
    refused(
        &oracle_general(&[1, 2])[..47],
        Some(Format::OracleGeneral),
        &["byte 24", "cut short"],
    );
    refused(
        &vec![b'1'; 70_000],
        Some(Format::Keys),
        &["line 1", "64 KiB"],
    );
    refused(
        &[b'\x1f', b'\x8b', 8, 0, 0],
        None,
        &["damaged or cut short"],
    );
    let packed = zstd(&b"123456\n".repeat(9000));
    refused(&packed[..packed.len() - 3], None, &["damaged or cut short"]);
    let good = written(Granularity::Bytes, &[reference(Kind::Read, 5, 1)]);
    refused(&good[..good.len() - 9], None, &["damaged or cut short"]);
    refused(&[&good[..], b"more"].concat(), None, &["some.trace: byte"]);
    refused(
        &[&good[..8], &[9], &good[9..]].concat(),
        None,
        &["byte 8", "version 9"],
    );
    refused(
        &[&good[..9], &[7], &good[10..]].concat(),
        None,
        &["byte 9", "granularity 7"],
    );
    refused(b"1\n", Some(Format::Flashvm), &["--format"]);
    let error = open("/no/such/trace".as_ref(), None).expect_err("it is not there");
    assert!(error.to_string().starts_with("/no/such/trace: "), "{error}");
    let error = open("/".as_ref(), None).expect_err("it is a folder");
    assert!(error.to_string().contains("directory"), "{error}");
    assert!(
        "floppy"
            .parse::<Format>()
            .expect_err("no format")
            .to_string()
            .contains("'floppy': known are flashvm")
    );
}

#[test]
fn an_error_ends_a_trace() {
    let mut trace = text(b"1\nx\n2\n", Some(Format::Keys)).expect("opened");
    let error = trace.next().expect("an item").expect_err("x is no key");
    let line = error.to_string();
    assert!(line.contains("line 2: 'x' is no key"), "{line}");
    assert!(trace.next().is_none());
}
