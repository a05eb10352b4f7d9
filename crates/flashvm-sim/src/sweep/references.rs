//! A trace as a sweep needs it: read once, pages numbered by first reference, four bytes a
//! reference.
//!
//! The numbers are dense whatever the addresses are, so a policy's columns are only as long as the
//! number of pages. The place of a page is stored separately: pages of one flash block have
//! neighbouring places.

use super::SweepError;
use super::spool::{RAM_BYTES_MAX, Spool};
use crate::trace::{Granularity, Kind, Reference};
use flashvm_core::policy::BLOCK_PAGES;
use flashvm_core::{Access, PageId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Most pages: a reference's number shares its four bytes with a bit for writes.
const PAGES_MAX: u32 = 1 << 30;

/// References that are numbered together.
const CHUNK: usize = 1024;

/// All references of a trace, in order.
#[derive(Debug)]
pub struct References {
    packed: Spool<u32>,
    places: Arc<[u32]>,
    written: u32,
}

/// A reference from its four bytes.
#[inline]
pub(super) fn unpack(reference: u32) -> (PageId, Access) {
    let access = match reference & 1 {
        0 => Access::Read,
        _ => Access::Write,
    };
    (PageId(reference >> 1), access)
}

impl References {
    /// Reads a trace to its end. References to several pages become several references; fetches of
    /// instructions are reads.
    ///
    /// # Errors
    /// If the trace cannot be read, has more than 2^30 pages or pages in too many flash blocks, or a temporary file
    /// fails.
    ///
    /// # Examples
    /// ```
    /// use flashvm_sim::sweep::References;
    /// use flashvm_sim::trace::{Granularity, Kind, Reference, TraceError};
    /// let reference = |address| Reference { address, bytes: 8, kind: Kind::Read };
    /// let trace = [0x1000, 0x1008, 0x2ffc].map(|address| Ok::<_, TraceError>(reference(address)));
    /// let references = References::read(Granularity::Bytes, trace)?;
    /// assert_eq!((references.len(), references.pages()), (4, 3));
    /// # Ok::<(), flashvm_sim::sweep::SweepError>(())
    /// ```
    pub fn read<E: Into<SweepError>>(
        granularity: Granularity,
        trace: impl IntoIterator<Item = Result<Reference, E>>,
    ) -> Result<Self, SweepError> {
        Self::read_within(RAM_BYTES_MAX, granularity, trace)
    }

    pub(super) fn read_within<E: Into<SweepError>>(
        ram_bytes_max: usize,
        granularity: Granularity,
        trace: impl IntoIterator<Item = Result<Reference, E>>,
    ) -> Result<Self, SweepError> {
        let mut reading = Reading {
            granularity,
            numbering: Numbering::default(),
            packed: Spool::new(ram_bytes_max),
        };
        let mut chunk = Vec::with_capacity(CHUNK);
        for reference in trace {
            chunk.push(reference.map_err(Into::into)?);
            if chunk.len() == CHUNK {
                reading.take(&chunk)?;
                chunk.clear();
            }
        }
        reading.take(&chunk)?;
        reading.end()
    }

    /// Number of references.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.packed.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct pages: the footprint.
    #[must_use]
    pub fn pages(&self) -> u32 {
        u32::try_from(self.places.len()).expect("checked when read")
    }

    /// Distinct pages that are written.
    #[must_use]
    pub fn pages_written(&self) -> u32 {
        self.written
    }

    /// By page, its place on the device, in pages.
    #[must_use]
    pub fn places(&self) -> &Arc<[u32]> {
        &self.places
    }

    pub(super) fn packed(&self) -> &Spool<u32> {
        &self.packed
    }

    /// By reference, the number of the next one to the same page, or `u64::MAX`.
    pub(super) fn next_uses(&self) -> Result<Spool<u64>, SweepError> {
        let mut next_uses = self.packed.parallel().map_err(SweepError::Spool)?;
        let mut seen = vec![u64::MAX; self.places.len()];
        let (mut buffer, mut block) = (Vec::new(), Vec::new());
        let mut number = self.packed.len();
        for index in (0..self.packed.blocks()).rev() {
            let references = self.packed.chunk(index, &mut buffer);
            block.clear();
            for &reference in references.map_err(SweepError::Spool)?.iter().rev() {
                number -= 1;
                let (page, _) = unpack(reference);
                block.push(std::mem::replace(&mut seen[page.0 as usize], number));
            }
            block.reverse();
            let put = next_uses.put_block(index, &block);
            put.map_err(SweepError::Spool)?;
        }
        Ok(next_uses)
    }
}

struct Page {
    place: u32,
    written: bool,
}

/// References so far. Not generic: it is compiled here, with optimisation, whatever the caller's crate is compiled with.
struct Reading {
    granularity: Granularity,
    numbering: Numbering,
    packed: Spool<u32>,
}

impl Reading {
    #[inline(never)]
    fn take(&mut self, chunk: &[Reference]) -> Result<(), SweepError> {
        for &reference in chunk {
            let write = u32::from(reference.kind == Kind::Write);
            for address in self.granularity.pages(reference) {
                let page = self.numbering.number(address)?;
                self.numbering.pages[page as usize].written |= write != 0;
                self.packed
                    .push(page << 1 | write)
                    .map_err(SweepError::Spool)?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<References, SweepError> {
        self.packed.finish().map_err(SweepError::Spool)?;
        let pages = &self.numbering.pages;
        let written = pages.iter().filter(|page| page.written).count();
        Ok(References {
            packed: self.packed,
            places: pages.iter().map(|page| page.place).collect(),
            written: u32::try_from(written).expect("no more than there are pages"),
        })
    }
}

/// Gives pages their numbers and places.
#[derive(Default)]
struct Numbering {
    numbers: FxHashMap<u64, u32>,
    blocks: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    last: Option<(u64, u32)>,
}

impl Numbering {
    fn number(&mut self, address: u64) -> Result<u32, SweepError> {
        if let Some((last, number)) = self.last
            && last == address
        {
            return Ok(number);
        }
        let number = match self.numbers.get(&address) {
            Some(&number) => number,
            None => self.add(address)?,
        };
        self.last = Some((address, number));
        Ok(number)
    }

    fn add(&mut self, address: u64) -> Result<u32, SweepError> {
        let number = u32::try_from(self.pages.len()).expect("less than the most");
        let blocks = u32::try_from(self.blocks.len()).expect("no more than pages");
        // Each block takes its whole length in places.
        if number >= PAGES_MAX || blocks >= u32::MAX / BLOCK_PAGES {
            return Err(SweepError::Pages);
        }
        let within = u64::from(BLOCK_PAGES);
        let block = *self.blocks.entry(address / within).or_insert(blocks);
        self.numbers.insert(address, number);
        self.pages.push(Page {
            place: block * BLOCK_PAGES + (address % within) as u32,
            written: false,
        });
        Ok(number)
    }
}
