//! A CPU's caches as a filter: references of the program go in, references to memory come out.
//!
//! CRAW (section V.A) filters its traces in this way, "and also reflects the write-back property".
//! There are two first-level caches, for instructions and data, and a last level behind both, all
//! with LRU replacement within a set. A load or fetch that misses all of them references its line
//! in memory. A store only makes its line dirty: it becomes a reference when the line leaves the last
//! level, perhaps much later (section III.A). According to the paper a store that misses is "just
//! written to the cache memory", so its line is not read first; with [`WriteMiss::Fetch`] it is, as
//! in most CPUs. Lines that are dirty when the program ends are never written: its memory is gone.

use super::{Kind, Reference};
use std::fmt;
use std::str::FromStr;

/// Size, ways and line of one cache, as Valgrind writes them: `32768,8,64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Bytes it holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
}

impl CacheShape {
    const fn new(bytes: u64, ways: u32) -> Self {
        Self {
            bytes,
            ways,
            line_bytes: 64,
        }
    }

    fn sets(self) -> u64 {
        self.bytes / (u64::from(self.ways) * u64::from(self.line_bytes))
    }
}

impl FromStr for CacheShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut parts = text.split(',').map(|part| part.parse::<u64>().ok());
            let mut part = || parts.next().flatten();
            let (bytes, ways, line) = (part()?, part()?, part()?);
            let shape = Self {
                bytes,
                ways: u32::try_from(ways).ok()?,
                line_bytes: u32::try_from(line).ok()?,
            };
            let whole = ways.checked_mul(line).filter(|&set| set > 0)?;
            let good = (1..=64).contains(&ways)
                && (16..=4096).contains(&line)
                && line.is_power_of_two()
                && bytes.is_multiple_of(whole)
                && shape.sets().is_power_of_two()
                && bytes <= 1 << 30
                && parts.next().is_none();
            good.then_some(shape)
        };
        parse().ok_or_else(|| {
            format!(
                "'{text}' is no cache: write BYTES,WAYS,LINE such as 32768,8,64: up to 1 GiB, 64 ways, lines of 16 to 4096 bytes, \
                 a power of two of sets"
            )
        })
    }
}

impl fmt::Display for CacheShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.bytes, self.ways, self.line_bytes)
    }
}

/// A store that misses all caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMiss {
    /// The store goes to the cache alone.
    #[default]
    Allocate,
    /// Its line is read first.
    Fetch,
}

/// The configuration of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCacheOptions {
    /// First level, instructions.
    pub instruction: CacheShape,
    /// First level, data.
    pub data: CacheShape,
    /// Last level, behind both.
    pub last: CacheShape,
    /// What a store does that misses.
    pub write_miss: WriteMiss,
}

impl Default for CpuCacheOptions {
    /// Cachegrind's defaults for an unknown CPU: 32 KiB for instructions, 32 KiB for data and a last
    /// level of 256 KiB, all with 8 ways.
    fn default() -> Self {
        Self {
            instruction: CacheShape::new(32 << 10, 8),
            data: CacheShape::new(32 << 10, 8),
            last: CacheShape::new(256 << 10, 8),
            write_miss: WriteMiss::default(),
        }
    }
}

impl CpuCacheOptions {
    /// Checks that the three have lines of the same length.
    ///
    /// # Errors
    /// If they have not.
    pub fn check(&self) -> Result<(), String> {
        let line = self.last.line_bytes;
        for cache in [self.instruction, self.data] {
            if cache.line_bytes != line {
                return Err(format!(
                    "lines of {} and of {line} bytes: give all caches the same line",
                    cache.line_bytes
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for CpuCacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_miss = match self.write_miss {
            WriteMiss::Allocate => "allocates",
            WriteMiss::Fetch => "fetches",
        };
        write!(
            f,
            "CPU caches, write-back: I1 {}, D1 {}, LL {}, a store that misses {write_miss} its line",
            self.instruction, self.data, self.last
        )
    }
}

/// A cached line: its number, and whether it is dirty.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    /// No line: line numbers are smaller.
    const EMPTY: Self = Self(u64::MAX);

    fn new(line: u64, dirty: bool) -> Self {
        Self(line << 1 | u64::from(dirty))
    }

    fn line(self) -> u64 {
        self.0 >> 1
    }

    fn is_dirty(self) -> bool {
        self.0 & 1 != 0
    }
}

/// One cache. The lines of a set are ordered by last use, the latest first.
struct Level {
    entries: Vec<Entry>,
    ways: usize,
    set_mask: u64,
}

impl Level {
    fn new(shape: CacheShape) -> Self {
        let sets = shape.sets();
        let ways = shape.ways as usize;
        Self {
            entries: vec![Entry::EMPTY; sets as usize * ways],
            ways,
            set_mask: sets - 1,
        }
    }

    fn set(&mut self, line: u64) -> &mut [Entry] {
        let first = (line & self.set_mask) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    /// Uses a line if it is cached; returns whether it is.
    #[inline]
    fn hit(&mut self, line: u64, dirty: bool) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|entry| entry.line() == line) else {
            return false;
        };
        let dirty = dirty | set[at].is_dirty();
        set.copy_within(..at, 1);
        set[0] = Entry::new(line, dirty);
        true
    }

    /// Inserts a missing line; returns the dirty line that it evicts.
    fn insert(&mut self, line: u64, dirty: bool) -> Option<u64> {
        let set = self.set(line);
        let victim = set[set.len() - 1];
        set.copy_within(..set.len() - 1, 1);
        set[0] = Entry::new(line, dirty);
        (victim != Entry::EMPTY && victim.is_dirty()).then(|| victim.line())
    }
}

/// The caches.
pub struct CpuCache {
    instruction: Level,
    data: Level,
    last: Level,
    line_bytes: u32,
    write_miss: WriteMiss,
}

impl CpuCache {
    /// Empty caches. All use the last level's line length: see [`CpuCacheOptions::check`].
    #[must_use]
    pub fn new(options: &CpuCacheOptions) -> Self {
        Self {
            instruction: Level::new(options.instruction),
            data: Level::new(options.data),
            last: Level::new(options.last),
            line_bytes: options.last.line_bytes,
            write_miss: options.write_miss,
        }
    }

    /// Takes a reference of the program, in bytes; appends the references to memory, in whole lines.
    #[inline]
    pub fn access(&mut self, reference: Reference, memory: &mut Vec<Reference>) {
        let shift = self.line_bytes.trailing_zeros();
        let bytes = u64::from(reference.bytes.max(1));
        let first = reference.address >> shift;
        let last = reference.address.saturating_add(bytes - 1) >> shift;
        for line in first..=last {
            let store = reference.kind == Kind::Write;
            let level = match reference.kind {
                Kind::Instruction => &mut self.instruction,
                Kind::Read | Kind::Write => &mut self.data,
            };
            if !level.hit(line, store) {
                self.miss(line, reference.kind, memory);
            }
        }
    }

    /// Handles a miss of the first level.
    fn miss(&mut self, line: u64, kind: Kind, memory: &mut Vec<Reference>) {
        let store = kind == Kind::Write;
        let level = match kind {
            Kind::Instruction => &mut self.instruction,
            Kind::Read | Kind::Write => &mut self.data,
        };
        if let Some(victim) = level.insert(line, store)
            && !self.last.hit(victim, true)
        {
            let victim = self.last.insert(victim, true);
            self.write_back(victim, memory);
        }
        if self.last.hit(line, false) {
            return;
        }
        let victim = self.last.insert(line, false);
        self.write_back(victim, memory);
        let fetched = match kind {
            Kind::Write if self.write_miss == WriteMiss::Allocate => return,
            Kind::Write => Kind::Read,
            other => other,
        };
        memory.push(self.line(line, fetched));
    }

    fn write_back(&self, victim: Option<u64>, memory: &mut Vec<Reference>) {
        memory.extend(victim.map(|line| self.line(line, Kind::Write)));
    }

    fn line(&self, line: u64, kind: Kind) -> Reference {
        Reference {
            address: line * u64::from(self.line_bytes),
            bytes: self.line_bytes,
            kind,
        }
    }
}

impl fmt::Debug for CpuCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First level: two sets of two lines. Last level: one set of four lines.
    fn small(write_miss: WriteMiss) -> CpuCache {
        let first = CacheShape {
            bytes: 256,
            ways: 2,
            line_bytes: 64,
        };
        let last = CacheShape {
            bytes: 256,
            ways: 4,
            line_bytes: 64,
        };
        CpuCache::new(&CpuCacheOptions {
            instruction: first,
            data: first,
            last,
            write_miss,
        })
    }

    fn run(cache: &mut CpuCache, kind: Kind, lines: &[u64]) -> Vec<(Kind, u64)> {
        let mut memory = Vec::new();
        for line in lines {
            cache.access(
                Reference {
                    address: line * 64 + 4,
                    bytes: 8,
                    kind,
                },
                &mut memory,
            );
        }
        memory
            .iter()
            .map(|reference| (reference.kind, reference.address / 64))
            .collect()
    }

    #[test]
    fn loads_reach_memory_once_while_their_line_is_cached() {
        let mut cache = small(WriteMiss::Allocate);
        assert_eq!(
            run(&mut cache, Kind::Read, &[1, 1, 2, 1]),
            [(Kind::Read, 1), (Kind::Read, 2)]
        );
        assert_eq!(
            run(&mut cache, Kind::Instruction, &[1, 9]),
            [(Kind::Instruction, 9)]
        );
    }

    #[test]
    fn a_store_reaches_memory_when_its_line_leaves_the_last_level() {
        let mut cache = small(WriteMiss::Allocate);
        assert_eq!(run(&mut cache, Kind::Write, &[2]), []);
        // These loads push line 2 out of the first level into the last.
        assert_eq!(
            run(&mut cache, Kind::Read, &[4, 6]),
            [(Kind::Read, 4), (Kind::Read, 6)]
        );
        let gone = run(&mut cache, Kind::Read, &[8, 10, 12, 14]);
        assert_eq!(
            gone.iter()
                .filter(|seen| **seen == (Kind::Write, 2))
                .count(),
            1
        );
        let mut fetching = small(WriteMiss::Fetch);
        assert_eq!(run(&mut fetching, Kind::Write, &[2]), [(Kind::Read, 2)]);
    }

    #[test]
    fn references_across_lines_are_of_both() {
        let mut memory = Vec::new();
        let across = Reference {
            address: 60,
            bytes: 8,
            kind: Kind::Read,
        };
        small(WriteMiss::Allocate).access(across, &mut memory);
        assert_eq!(
            memory.iter().map(|r| r.address).collect::<Vec<_>>(),
            [0, 64]
        );
        assert!(memory.iter().all(|r| r.bytes == 64));
    }

    #[test]
    fn shapes() {
        assert_eq!("32768,8,64".parse(), Ok(CacheShape::new(32768, 8)));
        for text in [
            "",
            "32K,8,64",
            "32768,8",
            "32768,8,64,1",
            "32768,3,64",
            "0,1,64",
            "32768,0,64",
            "65,1,65",
        ] {
            assert!(text.parse::<CacheShape>().is_err(), "{text}");
        }
        let unlike = CpuCacheOptions {
            data: CacheShape {
                line_bytes: 32,
                ..CacheShape::new(32 << 10, 8)
            },
            ..CpuCacheOptions::default()
        };
        assert!(unlike.check().unwrap_err().contains("32"));
    }

    /// A cache as lists of lines, the latest used first.
    struct Plain {
        sets: Vec<Vec<(u64, bool)>>,
        ways: usize,
    }

    impl Plain {
        fn new(shape: CacheShape) -> Self {
            Self {
                sets: vec![Vec::new(); shape.sets() as usize],
                ways: shape.ways as usize,
            }
        }

        /// Uses or inserts a line; returns whether it was cached, and the dirty line that it
        /// evicts.
        fn touch(&mut self, line: u64, store: bool) -> (bool, Option<u64>) {
            let number = self.sets.len() as u64;
            let set = &mut self.sets[(line % number) as usize];
            if let Some(at) = set.iter().position(|entry| entry.0 == line) {
                let (_, dirty) = set.remove(at);
                set.insert(0, (line, dirty || store));
                return (true, None);
            }
            set.insert(0, (line, store));
            let left = (set.len() > self.ways).then(|| set.pop()).flatten();
            (false, left.filter(|left| left.1).map(|left| left.0))
        }
    }

    proptest::proptest! {
        #[test]
        fn memory_references_match_plain_lists(
            references in proptest::collection::vec((0..40_u64, 0..3_usize), 1..600),
        ) {
            let mut cache = small(WriteMiss::Allocate);
            let shape = |ways| CacheShape { bytes: 256, ways, line_bytes: 64 };
            let (mut first, mut last) = ([2, 2].map(|ways| Plain::new(shape(ways))), Plain::new(shape(4)));
            for (line, kind) in references {
                let kind = [Kind::Read, Kind::Write, Kind::Instruction][kind];
                let store = kind == Kind::Write;
                let mut expected = Vec::new();
                let level = &mut first[usize::from(kind == Kind::Instruction)];
                let (hit, left) = level.touch(line, store);
                if let Some(left) = left {
                    expected.extend(last.touch(left, true).1.map(|line| (Kind::Write, line)));
                }
                if !hit {
                    let (hit, left) = last.touch(line, false);
                    expected.extend(left.map(|line| (Kind::Write, line)));
                    if !hit && !store {
                        expected.push((kind, line));
                    }
                }
                proptest::prop_assert_eq!(run(&mut cache, kind, &[line]), expected);
            }
        }
    }
}
