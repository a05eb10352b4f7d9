//! `flashvm`: our own format. Compact, fast to read, with provenance and an explicit end.
//!
//! ```text
//! file    = "FLASHVMT" version:u8 granularity:u8 0:u16 length:u32 provenance zstd(block* end)
//! block   = count:u32 length:u32 tag:u8{count} deltas:u8{length}     count is 1 to 16,384
//! end     = 0:u32 references:u64
//! tag     = kind | size << 2 | width << 5
//! ```
//!
//! Numbers are little-endian; the provenance is a JSON object of `length` bytes, at most 64 KiB;
//! granularity is 0 for bytes and 1 for pages. A reference is a tag, and the deltas that the tag
//! announces:
//!
//! - kind: 0 read, 1 write, 2 instruction;
//! - size: 0 to 6 for 1 to 64 bytes by powers of two, 7 for a `u32` that follows the address; 0 where
//!   the granularity is pages;
//! - width: 0 to 6 for as many bytes of address, 7 for 8 bytes. These bytes hold, zigzag-coded, the
//!   distance of the address from the end of the previous reference of the same kind: 0 bytes in a
//!   sequence of fetches or a scan.
//!
//! The zstd frame has a checksum, and the end has the number of references: truncation and damage
//! are detected.

use super::error::{Fault, Position};
use super::input::Input;
use super::{BATCH, Granularity, Kind, Opened, Provenance, Reference, Source};
use std::io::{self, BufRead, Read, Write};

const MAGIC: &[u8; 8] = b"FLASHVMT";
const VERSION: u8 = 1;
const PROVENANCE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a reference beside its tag.
const DELTA_BYTES_MAX: usize = 12;
/// zstd's level: 12 makes the traces of six programs one percent smaller and takes twice the time.
const LEVEL: i32 = 6;
const KINDS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Instruction];
const WIDTHS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
/// The mask of an eight-byte word for each width.
const MASKS: [u64; 8] = [
    0,
    0xff,
    0xffff,
    0xff_ffff,
    u32::MAX as u64,
    0xff_ffff_ffff,
    0xffff_ffff_ffff,
    u64::MAX,
];
/// The size code for a `u32` that follows.
const SIZE_FOLLOWS: u8 = 7;

fn zigzag(delta: u64) -> u64 {
    (delta << 1) ^ ((delta as i64 >> 63) as u64)
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

fn code_of(granularity: Granularity) -> u8 {
    match granularity {
        Granularity::Bytes => 0,
        Granularity::Pages => 1,
    }
}

/// Writes a trace.
///
/// ```
/// use flashvm_sim::trace::{Granularity, Kind, Provenance, Reference, flashvm::Writer, read};
/// let mut writer = Writer::new(Vec::new(), Granularity::Bytes, &Provenance::default())?;
/// let store = Reference { address: 0x1000, bytes: 8, kind: Kind::Write };
/// writer.push(store)?;
/// let file = writer.finish()?;
/// let trace = read("memory".as_ref(), std::io::Cursor::new(file), None)?;
/// assert_eq!(trace.collect::<Result<Vec<_>, _>>()?, [store]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Writer<W: Write> {
    out: zstd::stream::write::Encoder<'static, W>,
    granularity: Granularity,
    tags: Vec<u8>,
    deltas: Vec<u8>,
    /// The end of the last reference of each kind.
    ends: [u64; 3],
    references: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// If `out` fails, or the provenance is longer than 64 KiB.
    pub fn new(mut out: W, granularity: Granularity, provenance: &Provenance) -> io::Result<Self> {
        let json = serde_json::to_vec(provenance)?;
        if json.len() > PROVENANCE_BYTES_MAX {
            let why = "the provenance is longer than 64 KiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        out.write_all(MAGIC)?;
        out.write_all(&[VERSION, code_of(granularity), 0, 0])?;
        out.write_all(&(json.len() as u32).to_le_bytes())?;
        out.write_all(&json)?;
        let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Self {
            out: encoder,
            granularity,
            tags: Vec::with_capacity(BATCH),
            deltas: Vec::with_capacity(BATCH * 4),
            ends: [0; 3],
            references: 0,
        })
    }

    /// Adds a reference. With [`Granularity::Pages`] its length is not stored.
    ///
    /// # Errors
    /// If the output fails.
    #[inline]
    pub fn push(&mut self, reference: Reference) -> io::Result<()> {
        let kind = reference.kind as usize;
        let bytes = match self.granularity {
            Granularity::Bytes => reference.bytes.max(1),
            Granularity::Pages => 0,
        };
        let coded = zigzag(reference.address.wrapping_sub(self.ends[kind]));
        let least = (u64::BITS - coded.leading_zeros()).div_ceil(8) as usize;
        let width = WIDTHS.iter().position(|&width| width >= least);
        let width = width.expect("the last width holds every number");
        let size = match bytes {
            0 => 0,
            _ if bytes.is_power_of_two() && bytes <= 64 => bytes.trailing_zeros() as u8,
            _ => SIZE_FOLLOWS,
        };
        self.tags.push(kind as u8 | size << 2 | (width as u8) << 5);
        let delta = coded.to_le_bytes();
        self.deltas.extend_from_slice(&delta[..WIDTHS[width]]);
        if size == SIZE_FOLLOWS {
            self.deltas.extend_from_slice(&bytes.to_le_bytes());
        }
        self.ends[kind] = reference.address.wrapping_add(bytes.into());
        self.references += 1;
        if self.tags.len() == BATCH {
            self.flush_block()?;
        }
        Ok(())
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    fn flush_block(&mut self) -> io::Result<()> {
        if self.tags.is_empty() {
            return Ok(());
        }
        self.out
            .write_all(&(self.tags.len() as u32).to_le_bytes())?;
        self.out
            .write_all(&(self.deltas.len() as u32).to_le_bytes())?;
        self.out.write_all(&self.tags)?;
        self.out.write_all(&self.deltas)?;
        self.tags.clear();
        self.deltas.clear();
        Ok(())
    }

    /// Writes the end; a trace without it counts as truncated.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_block()?;
        self.out.write_all(&0_u32.to_le_bytes())?;
        self.out.write_all(&self.references.to_le_bytes())?;
        self.out.finish()
    }
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("granularity", &self.granularity)
            .field("references", &self.references)
            .finish_non_exhaustive()
    }
}

pub(super) fn looks_like(head: &[u8], _whole: bool) -> bool {
    head.starts_with(MAGIC)
}

pub(super) fn open(input: Input) -> Result<Opened, Fault> {
    let bad = |at, why: String| Err(Fault::bad(Position::Byte(at), why));
    if !input.head().starts_with(MAGIC) {
        let why = "this is not a FlashVM trace: leave --format out";
        return bad(0, why.to_owned());
    }
    let mut reader = input.into_reader();
    let mut header = [0; 16];
    let io = |e| Fault::io(Position::Byte(0), e);
    reader.read_exact(&mut header).map_err(io)?;
    if header[8] != VERSION {
        let why = format!(
            "version {} of the format: this flashvm reads version {VERSION}",
            header[8]
        );
        return bad(8, why);
    }
    let granularity = match header[9] {
        0 => Granularity::Bytes,
        1 => Granularity::Pages,
        other => {
            return bad(
                9,
                format!("granularity {other}: 0 and 1 are known, the trace is damaged"),
            );
        }
    };
    if header[10..12] != [0; 2] {
        return bad(
            10,
            "reserved bytes that are not zero: the trace is damaged".to_owned(),
        );
    }
    let length = le_u32(&header[12..]) as usize;
    if length > PROVENANCE_BYTES_MAX {
        return bad(
            12,
            format!("a provenance of {length} bytes: the trace is damaged"),
        );
    }
    let mut json = vec![0; length];
    reader.read_exact(&mut json).map_err(io)?;
    let provenance = serde_json::from_slice(&json);
    let provenance: Provenance = match provenance {
        Ok(provenance) => provenance,
        Err(e) => {
            return bad(
                16,
                format!("the provenance cannot be read ({e}): the trace is damaged"),
            );
        }
    };
    let place = Position::Byte(16 + length as u64);
    let blocks =
        zstd::stream::read::Decoder::with_buffer(reader).map_err(|e| Fault::io(place, e))?;
    Ok(Opened {
        granularity,
        provenance,
        source: Box::new(Blocks {
            reader: blocks,
            granularity,
            ends: [0; 3],
            references: 0,
            tags: Vec::new(),
            deltas: Vec::new(),
            at: 0,
            ended: false,
        }),
    })
}

fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"))
}

/// The references of a file. Places in errors are bytes after decompression.
struct Blocks {
    reader: zstd::stream::read::Decoder<'static, Box<dyn BufRead + Send>>,
    granularity: Granularity,
    ends: [u64; 3],
    references: u64,
    tags: Vec<u8>,
    deltas: Vec<u8>,
    at: u64,
    ended: bool,
}

impl Source for Blocks {
    fn fill(&mut self, batch: &mut Vec<Reference>) -> Result<(), Fault> {
        if self.ended {
            return Ok(());
        }
        let begin = self.at;
        let count = self.u32()? as usize;
        if count == 0 {
            return self.end();
        }
        let length = self.u32()? as usize;
        if count > BATCH || length > count * DELTA_BYTES_MAX {
            let why =
                format!("a block of {count} references in {length} bytes: the trace is damaged");
            return Err(Fault::bad(Position::Byte(begin), why));
        }
        self.tags.resize(count, 0);
        // `decode` reads eight bytes whatever the width: this leaves room behind the last.
        self.deltas.clear();
        self.deltas.resize(length + DELTA_BYTES_MAX, 0);
        let place = Position::Byte(self.at);
        let read = self.reader.read_exact(&mut self.tags);
        let read = read.and_then(|()| self.reader.read_exact(&mut self.deltas[..length]));
        read.map_err(|e| Fault::io(place, e))?;
        self.at += (count + length) as u64;
        let used = match self.granularity {
            Granularity::Bytes => decode::<true>(&self.tags, &self.deltas, &mut self.ends, batch),
            Granularity::Pages => decode::<false>(&self.tags, &self.deltas, &mut self.ends, batch),
        };
        if used != Some(length) {
            let why = "tags and deltas of a block do not agree: the trace is damaged";
            return Err(Fault::bad(Position::Byte(begin), why));
        }
        self.references += count as u64;
        Ok(())
    }
}

impl Blocks {
    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        let place = Position::Byte(self.at);
        let read = self.reader.read_exact(&mut bytes);
        read.map_err(|e| Fault::io(place, e))?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// The end of the trace: the number of references, and nothing after it.
    fn end(&mut self) -> Result<(), Fault> {
        let place = Position::Byte(self.at);
        let references = u64::from_le_bytes(self.bytes()?);
        if references != self.references {
            let why = format!(
                "{references} references were written and {} read: the trace is damaged",
                self.references
            );
            return Err(Fault::bad(place, why));
        }
        // The read also verifies the checksum.
        match self.reader.read(&mut [0]) {
            Ok(0) => self.ended = true,
            Ok(_) => {
                return Err(Fault::bad(
                    place,
                    "bytes behind the end: the trace is damaged",
                ));
            }
            Err(e) => return Err(Fault::io(place, e)),
        }
        Ok(())
    }
}

/// Decodes a block. Returns the number of bytes of `deltas` that were used, `None` if a tag is invalid
/// or its bytes are missing. `deltas` has [`DELTA_BYTES_MAX`] bytes more than the block.
#[inline]
fn decode<const SIZED: bool>(
    tags: &[u8],
    deltas: &[u8],
    ends: &mut [u64; 3],
    batch: &mut Vec<Reference>,
) -> Option<usize> {
    let mut at = 0;
    for &tag in tags {
        let kind = usize::from(tag & 3);
        let size = tag >> 2 & 7;
        let width = usize::from(tag >> 5);
        let word = u64::from_le_bytes(*deltas.get(at..)?.first_chunk()?) & MASKS[width];
        at += WIDTHS[width];
        let bytes = if !SIZED {
            if size != 0 {
                return None;
            }
            0
        } else if size == SIZE_FOLLOWS {
            let bytes = u32::from_le_bytes(*deltas.get(at..)?.first_chunk()?);
            at += 4;
            if bytes == 0 {
                return None;
            }
            bytes
        } else {
            1 << size
        };
        let end = ends.get_mut(kind)?;
        let address = end.wrapping_add(unzigzag(word));
        *end = address.wrapping_add(bytes.into());
        batch.push(Reference {
            address,
            bytes,
            kind: KINDS[kind],
        });
    }
    Some(at)
}
