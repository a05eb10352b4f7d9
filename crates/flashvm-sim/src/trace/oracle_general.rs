//! `oracle-general`: libCacheSim's binary traces, packed records of 24 bytes, little-endian: `u32`
//! time, `u64` object, `u32` size, `i64` number of the object's next request, -1 for never. Each
//! record is a read of the page that the object stands for.

use super::error::{Fault, Position};
use super::input::Input;
use super::{BATCH, Granularity, Kind, Opened, Provenance, Reference, Source};
use std::io::{BufRead, Read};

const RECORD_BYTES: usize = 24;

struct Record {
    time: u32,
    object: u64,
    size: u32,
    next: i64,
}

impl Record {
    fn of(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (time, rest) = bytes.split_first_chunk().expect("4 of 24 bytes");
        let (object, rest) = rest.split_first_chunk().expect("8 of 20 bytes");
        let (size, next) = rest.split_first_chunk().expect("4 of 12 bytes");
        Self {
            time: u32::from_le_bytes(*time),
            object: u64::from_le_bytes(*object),
            size: u32::from_le_bytes(*size),
            next: i64::from_le_bytes(next.try_into().expect("8 bytes")),
        }
    }
}

/// Binary, with monotonic times, objects with a size, and next requests in the future.
pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    let (records, rest) = head.as_chunks();
    let mut time = 0;
    let mut plausible = |(index, bytes): (usize, &[u8; RECORD_BYTES])| {
        let record = Record::of(bytes);
        let ahead =
            record.next == -1 || usize::try_from(record.next).is_ok_and(|next| next > index);
        let good = record.time >= time && record.size > 0 && ahead;
        time = record.time;
        good
    };
    !records.is_empty()
        && (!whole || rest.is_empty())
        && head.contains(&0)
        && records.iter().enumerate().all(&mut plausible)
}

pub(super) fn open(input: Input) -> Opened {
    Opened {
        granularity: Granularity::Pages,
        provenance: Provenance::default(),
        source: Box::new(OracleGeneral {
            reader: input.into_reader(),
            at: 0,
        }),
    }
}

struct OracleGeneral {
    reader: Box<dyn BufRead + Send>,
    at: u64,
}

impl Source for OracleGeneral {
    fn fill(&mut self, batch: &mut Vec<Reference>) -> Result<(), Fault> {
        let place = Position::Byte(self.at);
        let mut bytes = Vec::with_capacity(BATCH * RECORD_BYTES);
        let limited = (&mut self.reader).take((BATCH * RECORD_BYTES) as u64);
        let read = { limited }.read_to_end(&mut bytes);
        read.map_err(|e| Fault::io(place, e))?;
        let (records, rest) = bytes.as_chunks();
        self.at += (bytes.len() - rest.len()) as u64;
        if !rest.is_empty() {
            let why = format!(
                "the last record has {} of its {RECORD_BYTES} bytes: the trace is cut short, or in another format",
                rest.len()
            );
            return Err(Fault::bad(Position::Byte(self.at), why));
        }
        batch.extend(records.iter().map(|bytes| Reference {
            address: Record::of(bytes).object,
            bytes: 0,
            kind: Kind::Read,
        }));
        Ok(())
    }
}
