//! The data segment of recoverable virtual memory (section 7.1, after Satyanarayanan et al.): a
//! copy on disk of the data in DRAM, as of the last truncation of the redo log.
//!
//! ```text
//! offset 0: "FlashVM segment\n", persistent key, bytes of a half, XXH3 of these, filled up to a page
//! then:     half A, half B: pages of mutable space A and B
//! ```
//!
//! A truncation writes changed pages in place. It may be interrupted at any sector: the log is
//! freed only afterwards, and replaying it repairs the pages. A page that the log does not change
//! is as the last truncation left it; the log begins with the checksums of all pages at that time.

use crate::error::{Error, Result};
use crate::flash::{Identity, Medium, Model, PAGE};
use crate::region::{Area, Region, WORD};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 16] = b"FlashVM segment\n";

/// A data segment, and the changes in memory since its last truncation.
pub(crate) struct DataSegment {
    medium: Arc<dyn Medium>,
    /// The timing of a modelled disk.
    disk: Option<Model>,
    half_bytes: u64,
    current: Half,
    /// The other half, as soon as a collection has filled it.
    other: Option<Half>,
}

#[derive(Debug, Default)]
struct Half {
    /// Pages that the log has changed.
    changed: BTreeSet<u64>,
    /// Checksums of the pages as they are on disk.
    sums: Vec<u64>,
}

impl std::fmt::Debug for DataSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataSegment")
            .field("pages", &self.current.sums.len())
            .field("changed", &self.current.changed.len())
            .finish_non_exhaustive()
    }
}

impl DataSegment {
    /// Bytes of the data segment for a log.
    pub(crate) fn length(log: &Identity) -> u64 {
        PAGE + 2 * Self::half_bytes(log)
    }

    /// A half holds as much as the whole log.
    fn half_bytes(log: &Identity) -> u64 {
        log.segment_bytes * log.segments
    }

    fn front(log: &Identity) -> Vec<u8> {
        let mut page = MAGIC.to_vec();
        page.extend_from_slice(&log.key.to_le_bytes());
        page.extend_from_slice(&Self::half_bytes(log).to_le_bytes());
        page.extend_from_slice(&xxh3_64(&page).to_le_bytes());
        page
    }

    /// Makes an empty one, for this log.
    pub(crate) fn create(
        medium: Arc<dyn Medium>,
        log: &Identity,
        disk: Option<Model>,
    ) -> Result<Self> {
        medium
            .write(0, &Self::front(log))
            .and_then(|()| medium.sync())
            .map_err(|error| Error::io("writing the data segment", error))?;
        Self::open(medium, log, disk)
    }

    /// Opens the one that belongs to this log.
    pub(crate) fn open(
        medium: Arc<dyn Medium>,
        log: &Identity,
        disk: Option<Model>,
    ) -> Result<Self> {
        let failed = |error| Error::io("reading the data segment", error);
        let found = medium.length().map_err(failed)?;
        let expected = Self::length(log);
        if found < expected {
            return Err(Error::Truncated { found, expected });
        }
        let front = Self::front(log);
        let mut bytes = vec![0; front.len()];
        medium.read(0, &mut bytes).map_err(failed)?;
        if bytes != front {
            return Err(Error::corrupted(
                "the data segment is not that of this redo log",
            ));
        }
        Ok(Self {
            medium,
            disk,
            half_bytes: Self::half_bytes(log),
            current: Half::default(),
            other: None,
        })
    }

    /// Bytes that mutable space may have.
    pub(crate) fn capacity(&self) -> u64 {
        self.half_bytes
    }

    /// Checksums of the pages on disk, for the log that follows.
    pub(crate) fn sums(&self) -> &[u64] {
        &self.other.as_ref().unwrap_or(&self.current).sums
    }

    /// The log has changed `bytes` bytes, `from` bytes into the half.
    pub(crate) fn touch(&mut self, from: u64, bytes: u64) {
        self.current.touch(from, bytes);
    }

    fn offset(&self, area: Area, page: u64) -> u64 {
        let half = match area {
            Area::MutableA => 0,
            Area::MutableB => 1,
            _ => unreachable!("a data segment holds mutable space"),
        };
        PAGE + half * self.half_bytes + page * PAGE
    }

    /// Writes all changed pages of `area`, which ends at `end`, in order; returns bytes and
    /// modelled ns. The pages are stable when this returns.
    pub(crate) fn write_changed(
        &mut self,
        region: &Region,
        area: Area,
        end: u64,
    ) -> Result<(u64, u64)> {
        let mut half = std::mem::take(&mut self.current);
        let written = self.write(&mut half, region, area, end);
        self.current = half;
        written
    }

    /// Writes all of `area`, which becomes the other half.
    pub(crate) fn write_other(
        &mut self,
        region: &Region,
        area: Area,
        end: u64,
    ) -> Result<(u64, u64)> {
        let mut half = Half::default();
        half.touch(0, end - region.start(area));
        let written = self.write(&mut half, region, area, end)?;
        self.other = Some(half);
        Ok(written)
    }

    /// Makes the other half, if it was written, the current one.
    pub(crate) fn flip(&mut self) {
        if let Some(other) = self.other.take() {
            self.current = other;
        }
    }

    fn write(&self, half: &mut Half, region: &Region, area: Area, end: u64) -> Result<(u64, u64)> {
        let failed = |error| Error::io("writing the data segment", error);
        let start = region.start(area);
        half.sums.resize((end - start).div_ceil(PAGE) as usize, 0);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &page in &half.changed {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end = page + 1,
                _ => runs.push(page..page + 1),
            }
        }
        let (mut written, mut ns) = (0, 0);
        for run in runs {
            // The last page ends with the last object.
            let from = start + run.start * PAGE;
            let to = (start + run.end * PAGE).min(end);
            let words = region.words(from, (to - from) / WORD);
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let offset = self.offset(area, run.start);
            self.medium.write(offset, bytes).map_err(failed)?;
            let pages = bytes.chunks(PAGE as usize);
            for (sum, page) in half.sums[run.start as usize..].iter_mut().zip(pages) {
                *sum = xxh3_64(page);
            }
            written += bytes.len() as u64;
            let took = |disk: Model| disk.write_time(offset, bytes.len() as u64);
            ns += self.disk.map_or(0, took);
        }
        self.medium.sync().map_err(failed)?;
        half.changed.clear();
        Ok((written, ns))
    }

    /// Fills `area`, which ends at `end`, from its half on disk. The changes in the log are still
    /// missing.
    pub(crate) fn load(&mut self, region: &mut Region, area: Area, end: u64) -> Result<()> {
        self.current = Half::default();
        let length = end - region.start(area);
        if length > self.half_bytes {
            return Err(Error::corrupted("the data segment is too small"));
        }
        region.grow(area, length)?;
        let words = region.words_mut(region.start(area), length / WORD);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        self.medium
            .read(self.offset(area, 0), bytes)
            .map_err(|error| Error::io("reading the data segment", error))?;
        self.current.sums = bytes.chunks(PAGE as usize).map(xxh3_64).collect();
        Ok(())
    }

    /// Whether all pages without changes in the log match its initial checksums.
    pub(crate) fn is_whole(&self, expected: &[u64]) -> bool {
        let Half { changed, sums } = &self.current;
        let mut unchanged = (0..)
            .zip(expected)
            .filter(|(page, _)| !changed.contains(page));
        unchanged.all(|(page, sum)| sums.get(page as usize) == Some(sum))
    }
}

impl Half {
    fn touch(&mut self, from: u64, bytes: u64) {
        if bytes > 0 {
            self.changed.extend(from / PAGE..=(from + bytes - 1) / PAGE);
        }
    }
}
