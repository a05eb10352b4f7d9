//! What an ELF file says about the program in it: pure reading, of files that may be anything.

use std::fs::File;
use std::os::unix::fs::FileExt;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
/// `ET_DYN`: the program runs at any address.
const MOVABLE: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
/// Longest name of a dynamic linker.
const NAME_BYTES_MAX: u64 = 4096;

/// The mappings of a program, and how it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Whether it runs at any address.
    pub is_movable: bool,
    /// Address of its first instruction. Where the program is movable, all addresses here count from its base.
    pub entry: u64,
    /// Its dynamic linker, if it has one.
    pub interpreter: Option<Vec<u8>>,
    /// What is mapped, in the order of the file.
    pub segments: Vec<Segment>,
    /// Address of the program header table, if a segment holds it.
    pub headers: Option<u64>,
    /// Entries of that table.
    pub header_count: u16,
}

/// A mapping of a program (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it goes.
    pub address: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes from the file.
    pub file_bytes: u64,
    /// Bytes in memory; those past `file_bytes` are zeros.
    pub memory_bytes: u64,
    /// Access: 1 to execute, 2 to write, 4 to read.
    pub access: u32,
}

/// Reading at an offset: of a file, or of bytes in a test.
pub(super) trait ReadAt {
    /// Fills `buffer` from `at`; `false` if it cannot.
    fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool;
}

impl ReadAt for File {
    fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool {
        self.read_exact_at(buffer, at).is_ok()
    }
}

/// The little-endian numbers of a record. All offsets are within it.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().unwrap_or_default())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap_or_default())
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap_or_default())
    }
}

impl Image {
    /// Reads a program of this machine's kind.
    ///
    /// # Errors
    /// Why it cannot run here, with the remedy.
    pub fn read(file: &File) -> Result<Self, String> {
        Self::parse(file)
    }

    pub(super) fn parse(file: &impl ReadAt) -> Result<Self, String> {
        let truncated = || "a truncated ELF file: build or copy it again".to_owned();
        let mut header = [0_u8; HEADER_BYTES];
        if !file.read_all_at(&mut header[..20], 0) {
            return Err(truncated());
        }
        if header[4] != 2 {
            return Err("a 32-bit program: use a 64-bit build".to_owned());
        }
        if header[5] != 1 || Record(&header).half(18) != MACHINE {
            return Err(
                "a program for another architecture: use a build for this machine".to_owned(),
            );
        }
        if !file.read_all_at(&mut header, 0) {
            return Err(truncated());
        }
        let header = Record(&header);
        let (table, size, count) = (header.long(32), header.half(54), header.half(56));
        if usize::from(size) < SEGMENT_BYTES {
            return Err(truncated());
        }
        let mut image = Self {
            is_movable: header.half(16) == MOVABLE,
            entry: header.long(24),
            interpreter: None,
            segments: Vec::new(),
            headers: None,
            header_count: count,
        };
        for index in 0..u64::from(count) {
            let mut bytes = [0_u8; SEGMENT_BYTES];
            let at = table.checked_add(index * u64::from(size));
            if !at.is_some_and(|at| file.read_all_at(&mut bytes, at)) {
                return Err(truncated());
            }
            let entry = Record(&bytes);
            let segment = Segment {
                access: entry.word(4),
                offset: entry.long(8),
                address: entry.long(16),
                file_bytes: entry.long(32),
                memory_bytes: entry.long(40),
            };
            match entry.word(0) {
                PT_LOAD if segment.memory_bytes > 0 => image.segments.push(segment),
                PT_INTERP if image.interpreter.is_none() => {
                    let mut name = vec![0_u8; segment.file_bytes.min(NAME_BYTES_MAX) as usize];
                    if !file.read_all_at(&mut name, segment.offset) {
                        return Err(truncated());
                    }
                    name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
                    image.interpreter = Some(name);
                }
                _ => {}
            }
        }
        let holds = |segment: &&Segment| {
            table
                .checked_sub(segment.offset)
                .is_some_and(|from| from < segment.file_bytes)
        };
        let holder = image.segments.iter().find(holds);
        image.headers = holder.map(|held| held.address.wrapping_add(table - held.offset));
        Ok(image)
    }

    /// First address and number of bytes from the first mapped page to the last, or `None` if the segments make no
    /// sense: none, one that ends past the address space, or one whose place in its page differs from that in the file.
    #[must_use]
    pub fn span(&self, page: u64) -> Option<(u64, u64)> {
        let makes_sense = |segment: &Segment| {
            segment.file_bytes <= segment.memory_bytes
                && segment.address % page == segment.offset % page
                && segment.offset.checked_add(segment.file_bytes).is_some()
        };
        let mut ends = Vec::new();
        for segment in &self.segments {
            let end = segment.address.checked_add(segment.memory_bytes)?;
            ends.push(end.checked_next_multiple_of(page)?);
            if !makes_sense(segment) {
                return None;
            }
        }
        let first = self.segments.iter().map(|segment| segment.address).min()?;
        let first = first - first % page;
        Some((first, ends.into_iter().max()? - first))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    impl ReadAt for Vec<u8> {
        fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool {
            let from = usize::try_from(at).ok().and_then(|at| self.get(at..));
            from.and_then(|from| from.get(..buffer.len()))
                .map(|from| buffer.copy_from_slice(from))
                .is_some()
        }
    }

    /// A program with one program header: its dynamic linker, or a segment of the whole file at 0x400000.
    pub(in crate::program) fn elf(interpreter: Option<&[u8]>) -> Vec<u8> {
        let mut elf = vec![0_u8; HEADER_BYTES + SEGMENT_BYTES];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        if let Some(name) = interpreter {
            elf[64] = 3;
            elf[64 + 8] = 120;
            elf[64 + 32] = name.len() as u8;
            elf.extend_from_slice(name);
        } else {
            elf[64] = 1;
            elf[64 + 16 + 2] = 0x40;
            elf[64 + 32] = 120;
            elf[64 + 40] = 240;
        }
        elf
    }

    #[test]
    fn the_interpreter_is_found() {
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        let image = Image::parse(&elf(Some(glibc))).unwrap();
        assert_eq!(image.interpreter.unwrap(), glibc[..glibc.len() - 1]);
        assert_eq!(Image::parse(&elf(None)).unwrap().interpreter, None);
    }

    #[test]
    fn segments_and_headers_are_found() {
        let image = Image::parse(&elf(None)).unwrap();
        let segment = image.segments[0];
        assert_eq!((segment.address, segment.file_bytes), (0x40_0000, 120));
        assert_eq!(image.headers, Some(0x40_0040));
        assert_eq!(image.span(4096), Some((0x40_0000, 4096)));
        let mut skewed = image.clone();
        skewed.segments[0].offset = 8;
        assert_eq!(skewed.span(4096), None);
        let mut huge = image;
        huge.segments[0].memory_bytes = u64::MAX;
        assert_eq!(huge.span(4096), None);
    }

    #[test]
    fn refusals_name_the_problem() {
        let mut narrow = elf(None);
        narrow[4] = 1;
        assert!(Image::parse(&narrow).unwrap_err().contains("32-bit"));
        let mut foreign = elf(None);
        foreign[18] = 0xf3;
        let refusal = Image::parse(&foreign).unwrap_err();
        assert!(refusal.contains("architecture"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            tail in prop::collection::vec(any::<u8>(), 0..400),
            keep in 0_usize..130,
        ) {
            let mut bytes = elf(None);
            bytes.truncate(keep);
            bytes.extend(tail);
            if let Ok(image) = Image::parse(&bytes) {
                let _ = image.span(4096);
            }
        }
    }
}
