//! The persistent log and the mini-log (section 6.2), as bytes.
//!
//! A log half is a chain of records. Each holds entries: a location, a length and the data to
//! restore there, or the checksum of an extent of immutable space. A record's checksum covers that
//! of the previous record, so the last one covers all. A mini-log entry names the end of the log
//! and the ends of the spaces, and has the checksum of the last record. It is a state of the heap
//! if all of that state's data can be read; intact records that follow advance the state.

use crate::region::WORD;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const RECORD: u64 = u64::from_le_bytes(*b"GorLog1\n");
const MINI: u64 = u64::from_le_bytes(*b"GorMin1\n");
/// Words of a record before its entries: magic, sequence number, newest stable state, words of
/// entries, checksum of these four under the record's address, checksum of the chain.
const RECORD_HEADER: usize = 6;
/// Bytes of a mini-log entry.
pub(crate) const MINI_BYTES: u64 = 64;
const WRITE: u64 = 1;
const EXTENT: u64 = 2;
const DATA: u64 = 3;
const SUMS: u64 = 4;

/// Bytes of immutable space that were written together, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) hash: u64,
}

impl Extent {
    /// The extent of `words` at `start`.
    pub(crate) fn of(start: u64, words: &[u64]) -> Self {
        Self {
            start,
            bytes: words.len() as u64 * WORD,
            hash: hash(start, words),
        }
    }
}

/// Checksum of `words`, under `seed`.
pub(crate) fn hash(seed: u64, words: &[u64]) -> u64 {
    xxh3_64_with_seed(bytemuck::cast_slice(words), seed)
}

/// A record under construction.
#[derive(Debug)]
pub(crate) struct Record {
    words: Vec<u64>,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            words: vec![0; RECORD_HEADER],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.len() == RECORD_HEADER
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.words.len() as u64 * WORD
    }

    pub(crate) fn write(&mut self, address: u64, words: &[u64]) {
        self.words.push(address);
        self.words.push((words.len() as u64) << 8 | WRITE);
        self.words.extend_from_slice(words);
    }

    pub(crate) fn extent(&mut self, extent: Extent) {
        self.words
            .extend([extent.start, extent.bytes << 8 | EXTENT, extent.hash]);
    }

    /// Immutable data to restore at `address`.
    pub(crate) fn data(&mut self, address: u64, words: &[u64]) {
        self.words.push(address);
        self.words.push((words.len() as u64) << 8 | DATA);
        self.words.extend_from_slice(words);
    }

    /// Checksums of the pages of a data segment, from the page at `address` on.
    pub(crate) fn sums(&mut self, address: u64, sums: &[u64]) {
        self.words.push(address);
        self.words.push((sums.len() as u64) << 8 | SUMS);
        self.words.extend_from_slice(sums);
    }

    /// The writes: address and number of words of each.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (u64, u64)> {
        entries(&self.words[RECORD_HEADER..]).filter_map(|entry| match entry {
            Some(Entry::Write { address, words }) => Some((address, words.len() as u64)),
            _ => None,
        })
    }

    /// Closes the record, which is written at `at`, after one with the checksum `previous`; returns
    /// its words and checksum.
    pub(crate) fn seal(
        mut self,
        at: u64,
        sequence: u64,
        stable: u64,
        previous: u64,
    ) -> (Vec<u64>, u64) {
        let entries = (self.words.len() - RECORD_HEADER) as u64;
        self.words[..4].copy_from_slice(&[RECORD, sequence, stable, entries]);
        self.words[4] = hash(at, &self.words[..4]);
        let hash = hash(previous, &self.words);
        self.words[5] = hash;
        (self.words, hash)
    }
}

/// The front of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordFront {
    /// Number of the state that the record makes.
    pub(crate) sequence: u64,
    /// The newest state that was known to be stable when it was written.
    pub(crate) stable: u64,
    entries: usize,
}

impl RecordFront {
    /// The front at the start of `words`, which lie at address `at`, if there is one.
    pub(crate) fn read(at: u64, words: &[u64]) -> Option<Self> {
        let (&[magic, sequence, stable, entries, own], _) = words.split_first_chunk()?;
        if magic != RECORD || own != hash(at, &words[..4]) {
            return None;
        }
        Some(Self {
            sequence,
            stable,
            entries: usize::try_from(entries).ok()?,
        })
    }

    /// Whether the whole record, at address `at`, is in one sector: then it is written completely
    /// or not at all.
    pub(crate) fn is_in_one_sector(&self, at: u64) -> bool {
        const SECTOR: u64 = 512;
        let words = RECORD_HEADER.saturating_add(self.entries) as u64;
        at % SECTOR + words.saturating_mul(WORD) <= SECTOR
    }
}

/// A record that was read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    pub(crate) front: RecordFront,
    pub(crate) entries: &'a [u64],
    pub(crate) hash: u64,
}

/// An entry of a record that is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Write { address: u64, words: &'a [u64] },
    Data { address: u64, words: &'a [u64] },
    Sums { address: u64, sums: &'a [u64] },
    Extent(Extent),
}

/// Takes the first record off `log`, which is at address `at`, if it is intact and follows one with
/// checksum `previous`.
pub(crate) fn next_record<'a>(at: u64, log: &mut &'a [u64], previous: u64) -> Option<Read<'a>> {
    let front = RecordFront::read(at, log)?;
    let length = RECORD_HEADER.checked_add(front.entries)?;
    let (record, rest) = log.split_at_checked(length)?;
    let mut words = record.to_vec();
    let found = std::mem::take(&mut words[5]);
    if hash(previous, &words) != found {
        return None;
    }
    *log = rest;
    Some(Read {
        front,
        entries: &record[RECORD_HEADER..],
        hash: found,
    })
}

/// A record of a chain, and the address of its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chained<'a> {
    pub(crate) end: u64,
    pub(crate) read: Read<'a>,
}

/// All intact records of the chain at the start of `log`, which is at address `start`.
pub(crate) fn chain(start: u64, log: &[u64], key: u64) -> Vec<Chained<'_>> {
    let (mut rest, mut end, mut hash) = (log, start, key);
    std::iter::from_fn(|| {
        let read = next_record(end, &mut rest, hash)?;
        end = start + (log.len() - rest.len()) as u64 * WORD;
        hash = read.hash;
        Some(Chained { end, read })
    })
    .collect()
}

/// The entries of a record; `None` for one that cannot be read.
pub(crate) fn entries(mut words: &[u64]) -> impl Iterator<Item = Option<Entry<'_>>> {
    std::iter::from_fn(move || {
        if words.is_empty() {
            return None;
        }
        let entry = next_entry(&mut words);
        if entry.is_none() {
            words = &[];
        }
        Some(entry)
    })
}

fn next_entry<'a>(words: &mut &'a [u64]) -> Option<Entry<'a>> {
    let (&[address, length], rest) = words.split_first_chunk()?;
    let (kind, length) = (length & 0xFF, length >> 8);
    match kind {
        WRITE | DATA | SUMS => {
            let (data, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            *words = rest;
            Some(match kind {
                WRITE => Entry::Write {
                    address,
                    words: data,
                },
                DATA => Entry::Data {
                    address,
                    words: data,
                },
                _ => Entry::Sums {
                    address,
                    sums: data,
                },
            })
        }
        EXTENT => {
            let (&hash, rest) = rest.split_first()?;
            *words = rest;
            Some(Entry::Extent(Extent {
                start: address,
                bytes: length,
                hash,
            }))
        }
        _ => None,
    }
}

/// An entry of the mini-log: a state of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mini {
    /// The number of the state; never reused.
    pub(crate) sequence: u64,
    /// The newest state that was known to be stable when this was written.
    pub(crate) stable: u64,
    /// End of the persistent log, which also identifies its half.
    pub(crate) log_end: u64,
    /// End of persistent immutable space.
    pub(crate) immutable_end: u64,
    /// End of persistent mutable space.
    pub(crate) mutable_end: u64,
    /// Checksum of the last record.
    pub(crate) record_hash: u64,
}

impl Mini {
    pub(crate) fn encode(&self, key: u64) -> [u64; 8] {
        let mut words = [
            MINI,
            self.sequence,
            self.stable,
            self.log_end,
            self.immutable_end,
            self.mutable_end,
            self.record_hash,
            0,
        ];
        words[7] = hash(key, &words[..7]);
        words
    }

    pub(crate) fn decode(words: &[u64; 8], key: u64) -> Option<Self> {
        let [
            magic,
            sequence,
            stable,
            log_end,
            immutable_end,
            mutable_end,
            record_hash,
            own,
        ] = *words;
        (magic == MINI && own == hash(key, &words[..7])).then_some(Self {
            sequence,
            stable,
            log_end,
            immutable_end,
            mutable_end,
            record_hash,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_in_a_chain() {
        let extent = Extent::of(64, &[1, 2, 3]);
        let mut first = Record::new();
        first.write(0x1000, &[7, 8]);
        first.extent(extent);
        let (mut log, hash) = first.seal(0, 1, 0, 99);
        let mut second = Record::new();
        second.write(0x2000, &[]);
        let end = log.len() as u64 * WORD;
        log.extend(second.seal(end, 2, 1, hash).0);

        let mut rest = &log[..];
        let Read {
            front,
            entries: words,
            hash,
        } = next_record(0, &mut rest, 99).expect("whole");
        assert_eq!((front.sequence, front.stable), (1, 0));
        let read: Vec<_> = entries(words).collect();
        let write = Entry::Write {
            address: 0x1000,
            words: &[7, 8],
        };
        assert_eq!(read, [Some(write), Some(Entry::Extent(extent))]);
        assert!(
            next_record(end, &mut rest, hash + 1).is_none(),
            "another chain"
        );
        assert!(next_record(0, &mut rest, hash).is_none(), "another place");
        assert!(next_record(end, &mut rest, hash).is_some());
        assert!(rest.is_empty());
        for at in 0..log.len() - 1 {
            let mut torn = log.clone();
            torn[at] ^= 1 << (at % 64);
            let mut rest = &torn[..];
            let whole = next_record(0, &mut rest, 99)
                .and_then(|read| next_record(end, &mut rest, read.hash));
            assert!(whole.is_none(), "a flipped bit in word {at} is detected");
        }
    }

    #[test]
    fn a_mini_log_entry_is_valid_for_one_key() {
        let mini = Mini {
            sequence: 5,
            stable: 4,
            log_end: 1,
            immutable_end: 2,
            mutable_end: 3,
            record_hash: 6,
        };
        let words = mini.encode(7);
        assert_eq!(Mini::decode(&words, 7), Some(mini));
        assert_eq!(Mini::decode(&words, 8), None);
        assert_eq!(Mini::decode(&[u64::MAX; 8], 7), None);
    }
}
