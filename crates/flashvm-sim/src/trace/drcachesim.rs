//! `drcachesim`: output of DynamoRIO's `drrun -t drmemtrace -indir DIR -tool view`. The leading
//! columns differ between versions; `ifetch|read|write N byte(s) @ 0xADDRESS` is stable, and this
//! reader parses only that. drmemtrace's own files have no stable format: its maintainers may change
//! them without notice, and want them read through their library.
//!
//! Markers, thread switches and prefetches are skipped. Views before 2022 print instructions
//! without `ifetch`; of these only the data references are read.

use super::input::Input;
use super::lines::{Line, Lines, decimal, first_line, hexadecimal, quoted, words};
use super::{Granularity, Kind, Opened, Reference};

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| {
        let known = is_title(line) || has(line, b"<marker: ") || has(line, UNIT);
        known.then_some(true)
    })
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Bytes, View)
}

/// The text between the number of bytes and the address.
const UNIT: &[u8] = b" byte(s) @ 0x";

struct View;

impl Line for View {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        let Some(at) = find(line, UNIT) else {
            return Ok(());
        };
        let before = words(&line[..at]);
        let [mut kind, mut bytes] = [&b""[..]; 2];
        for word in before {
            (kind, bytes) = (bytes, word);
        }
        let kind = match kind {
            b"ifetch" => Kind::Instruction,
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            // Prefetches, flushes.
            _ => return Ok(()),
        };
        let address = words(&line[at + UNIT.len()..]).next().and_then(hexadecimal);
        let bytes = decimal(bytes).and_then(|bytes| u32::try_from(bytes).ok());
        let (Some(address), Some(bytes @ 1..)) = (address, bytes) else {
            let line = quoted(line);
            return Err(format!(
                "{line} names no bytes: they are written 'read 8 byte(s) @ 0xADDRESS'"
            ));
        };
        references.push(Reference {
            address,
            bytes,
            kind,
        });
        Ok(())
    }
}

fn is_title(line: &[u8]) -> bool {
    line == b"Output format:"
}

fn has(line: &[u8], text: &[u8]) -> bool {
    find(line, text).is_some()
}

fn find(line: &[u8], text: &[u8]) -> Option<usize> {
    line.windows(text.len()).position(|window| window == text)
}
