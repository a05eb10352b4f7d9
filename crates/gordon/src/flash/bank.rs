//! A bank: segments that are allocated, written once, and erased (section 4.1). [`super::Flash`] is
//! its Table 2 interface; the heap uses the bank directly.
//!
//! One type serves three kinds of flash. An *emulated* bank holds real ones and zeros: a write
//! ANDs, and fails if it would set a bit. *Battery-backed DRAM* may be updated in place. A
//! *durable* bank of a heap is a file or a block device: its segments are written front to back. A
//! freed segment is not filled with ones again: sequence numbers and checksums end the log, and
//! nobody reads beyond it.

use super::Addresses;
use super::identity::{Holds, Identity};
use super::medium::Medium;
use super::model::{Clock, Model};
use super::table::{Segment, SegmentState, Table};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Counters of a bank since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BankCounters {
    /// Calls of `write`.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Segments erased.
    pub erases: u64,
    /// Bytes that the erased segments held.
    pub erased_bytes_written: u64,
    /// Calls of `sync`, each of which waits until all writes are stable.
    pub syncs: u64,
    /// Nanoseconds of the modelled clock; 0 for a durable bank.
    pub modelled_ns: u64,
}

/// A bank of flash.
pub(crate) struct Bank {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) identity: Identity,
    pub(super) table: Table,
    pub(super) model: Option<Model>,
    pub(super) clock: Clock,
    mapped: BTreeMap<u64, usize>,
    /// Segments waiting for an erase, in order.
    pub(super) dirty: VecDeque<usize>,
    /// Bytes from the start of each segment written since its erase, as far as known.
    pub(super) written: Vec<u64>,
    pub(super) counters: BankCounters,
}

impl std::fmt::Debug for Bank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bank")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Bank {
    /// Formats a new bank on `medium`: nothing is allocated.
    pub(crate) fn create(
        medium: Arc<dyn Medium>,
        identity: Identity,
        model: Option<Model>,
    ) -> Result<Self> {
        let found = medium
            .length()
            .map_err(|error| Error::io("measuring the bank", error))?;
        if found < identity.length() {
            return Err(Error::Truncated {
                found,
                expected: identity.length(),
            });
        }
        let mut table = Table::new(&identity);
        table.store(&identity, &*medium)?;
        identity.write(&*medium)?;
        medium
            .sync()
            .map_err(|error| Error::io("syncing the bank", error))?;
        Ok(Self::assemble(medium, identity, table, model))
    }

    /// Opens a bank. Segments that were being erased when it was closed are erased again.
    pub(crate) fn open(
        medium: Arc<dyn Medium>,
        holds: Holds,
        model: Option<Model>,
    ) -> Result<Self> {
        let identity = Identity::read(&*medium, holds)?;
        let table = Table::load(&identity, &*medium)?;
        let mut bank = Self::assemble(medium, identity, table, model);
        for segment in 0..bank.table.segments.len() {
            if bank.table.segments[segment].state == SegmentState::Dirty {
                bank.release(segment)?;
            }
        }
        Ok(bank)
    }

    fn assemble(
        medium: Arc<dyn Medium>,
        identity: Identity,
        table: Table,
        model: Option<Model>,
    ) -> Self {
        Self {
            medium,
            identity,
            model,
            clock: Clock::default(),
            mapped: BTreeMap::new(),
            dirty: VecDeque::new(),
            written: vec![0; table.segments.len()],
            table,
            counters: BankCounters::default(),
        }
    }

    /// The constant properties of this bank.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The lines of the segment table.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.table.segments
    }

    /// Counters.
    pub(crate) fn counters(&self) -> BankCounters {
        BankCounters {
            modelled_ns: self.clock.now,
            ..self.counters
        }
    }

    /// The number last given to [`Bank::note_stable`].
    pub(crate) fn stable(&self) -> u64 {
        self.table.stable
    }

    /// Stores a number beside the segment table. A heap that is closed stores that of its last
    /// state.
    pub(crate) fn note_stable(&mut self, number: u64) -> Result<()> {
        self.table.stable = number;
        self.table.store(&self.identity, &*self.medium)
    }

    /// Segments that can be allocated, now or after their erase.
    pub(crate) fn available(&self) -> u64 {
        let usable = |s: &&Segment| matches!(s.state, SegmentState::Erased | SegmentState::Dirty);
        self.table.segments.iter().filter(usable).count() as u64
    }

    /// `Flash_alloc`: maps `count` erased segments, the least worn ones, at `address` under the
    /// bank's persistent key, which it returns. The map is stable when this returns.
    pub(crate) fn alloc(
        &mut self,
        addresses: &mut impl Addresses,
        count: u64,
        address: u64,
    ) -> Result<u64> {
        if self.available() < count {
            return Err(self.exhausted());
        }
        let mut taken = Vec::new();
        for index in 0..count {
            let at = address + index * self.identity.segment_bytes;
            let segment = match self.take_erased(at, index > 0) {
                Ok(segment) => segment,
                Err(error) => {
                    // They are unused: back to the pool.
                    for &segment in &taken {
                        self.table.segments[segment as usize].state = SegmentState::Erased;
                    }
                    return Err(error);
                }
            };
            taken.push(segment as u64);
        }
        self.table.store(&self.identity, &*self.medium)?;
        for (index, &segment) in taken.iter().enumerate() {
            let at = address + index as u64 * self.identity.segment_bytes;
            self.map(addresses, segment as usize, at)?;
        }
        Ok(self.identity.key)
    }

    /// `Flash_free`: frees the `count` segments at `address`, to be erased later. The caller has
    /// unmapped them.
    pub(crate) fn free(&mut self, address: u64, count: u64) -> Result<()> {
        for segment in self.mapped_at(address, count)? {
            self.release(segment)?;
        }
        for index in 0..count {
            self.mapped
                .remove(&(address + index * self.identity.segment_bytes));
        }
        self.table.store(&self.identity, &*self.medium)
    }

    /// The `count` segments from `address` on, all of them allocated.
    fn mapped_at(&self, address: u64, count: u64) -> Result<Vec<usize>> {
        let places = (0..count).map(|index| address + index * self.identity.segment_bytes);
        places
            .map(|at| self.mapped.get(&at).copied().ok_or(Error::NotAllocated(at)))
            .collect()
    }

    /// Whether a segment is mapped at `address`.
    pub(crate) fn is_mapped(&self, address: u64) -> bool {
        self.mapped.contains_key(&address)
    }

    /// Segments of the buffer that one call allocated at `address`.
    pub(crate) fn buffer(&self, address: u64) -> Result<u64> {
        let continues = |segment: usize| match self.table.segments[segment].state {
            SegmentState::Allocated { continues, .. } => continues,
            _ => unreachable!("what is mapped is allocated"),
        };
        match self.mapped.get(&address) {
            Some(&first) if !continues(first) => {}
            _ => return Err(Error::NotAllocated(address)),
        }
        let next = |count: &u64| {
            let at = address + count * self.identity.segment_bytes;
            !self
                .mapped
                .get(&at)
                .is_some_and(|&segment| continues(segment))
        };
        Ok((1..).find(next).expect("addresses end"))
    }

    /// `Flash_erase`: the `count` segments at `address` become all ones. Erased segments from the
    /// pool are mapped in their place, and the old ones are erased in the background if the pool
    /// suffices.
    pub(crate) fn erase(
        &mut self,
        addresses: &mut impl Addresses,
        address: u64,
        count: u64,
    ) -> Result<()> {
        for (index, old) in (0..).zip(self.mapped_at(address, count)?) {
            let at = address + index * self.identity.segment_bytes;
            let SegmentState::Allocated { continues, .. } = self.table.segments[old].state else {
                unreachable!("what is mapped is allocated");
            };
            self.release(old)?;
            self.mapped.remove(&at);
            let segment = self.take_erased(at, continues)?;
            self.map(addresses, segment, at)?;
        }
        self.table.store(&self.identity, &*self.medium)
    }

    /// `Flash_recover`: maps all segments of `key` at their addresses, which it returns.
    pub(crate) fn recover(&mut self, addresses: &mut impl Addresses, key: u64) -> Result<Vec<u64>> {
        if key != self.identity.key {
            return Err(Error::WrongKey { given: key });
        }
        let mut found: Vec<_> = (self.table.segments.iter().enumerate())
            .filter_map(|(index, segment)| match segment.state {
                SegmentState::Allocated {
                    key: of, address, ..
                } if of == key => Some((address, index)),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        let segment_bytes = self.identity.segment_bytes;
        for &(address, segment) in &found {
            let aligned = address.wrapping_sub(self.identity.base) % segment_bytes == 0;
            if !aligned
                || self.mapped.contains_key(&address)
                || !addresses.accepts(address, segment_bytes)
            {
                return Err(Error::corrupted(format!(
                    "segment {segment} at {address:#x}"
                )));
            }
            self.map(addresses, segment, address)?;
        }
        Ok(found.into_iter().map(|(address, _)| address).collect())
    }

    /// Writes `bytes` at `address`, inside allocated segments; stable after [`Bank::sync`]. Writes
    /// all or nothing.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut parts = Vec::new();
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let (&start, &segment) = self
                .mapped
                .range(..=at)
                .next_back()
                .ok_or(Error::NotAllocated(at))?;
            let within = at - start;
            let left = self
                .identity
                .segment_bytes
                .checked_sub(within)
                .filter(|left| *left > 0)
                .ok_or(Error::NotAllocated(at))?;
            let part = &bytes[done..done + (left as usize).min(bytes.len() - done)];
            self.check(segment, within, part, at)?;
            parts.push((segment, within, part));
            done += part.len();
        }
        for (segment, within, part) in parts {
            self.program(segment, within, part)?;
        }
        self.counters.writes += 1;
        self.counters.bytes_written += bytes.len() as u64;
        Ok(())
    }

    /// A write ANDs. The caller expects the bytes it writes: setting a bit is an error.
    fn check(&self, segment: usize, within: u64, bytes: &[u8], address: u64) -> Result<()> {
        let first = match self.model {
            Some(model) if model.update_in_place => None,
            Some(_) => {
                let mut cells = vec![0; bytes.len()];
                self.medium
                    .read(self.identity.offset(segment) + within, &mut cells)
                    .map_err(|error| Error::io("reading the bank", error))?;
                let mut pairs = cells.iter().zip(bytes);
                pairs.position(|(cell, byte)| byte & !cell != 0)
            }
            None => (within < self.written[segment]).then_some(0),
        };
        match first {
            Some(at) => Err(Error::WriteOnce {
                address: address + at as u64,
            }),
            None => Ok(()),
        }
    }

    fn program(&mut self, segment: usize, within: u64, bytes: &[u8]) -> Result<()> {
        if let Some(model) = self.model {
            self.clock
                .write(model.write_time(within, bytes.len() as u64), model.erase);
        }
        self.medium
            .write(self.identity.offset(segment) + within, bytes)
            .map_err(|error| Error::io("writing the bank", error))?;
        self.written[segment] = self.written[segment].max(within + bytes.len() as u64);
        Ok(())
    }

    /// Returns when all writes are stable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.counters.syncs += 1;
        self.medium
            .sync()
            .map_err(|error| Error::io("syncing the bank", error))
    }

    /// The medium, for a sync beside other work.
    pub(crate) fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// The offset of `bytes` bytes at `address` on the medium, if they are contiguous there.
    pub(crate) fn offset_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let (&start, &segment) = self.mapped.range(..=address).next_back()?;
        let within = address - start;
        (within + bytes <= self.identity.segment_bytes)
            .then(|| self.identity.offset(segment) + within)
    }

    /// The timing of an emulated bank.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// The first address at or after `address` from which on its area holds only erased cells. A
    /// crash may have left written cells beyond the last commit; a real bank and DRAM may overwrite
    /// them.
    ///
    /// `rest` reads the area from `address` on.
    pub(crate) fn first_erased<'r>(&self, address: u64, rest: impl FnOnce() -> &'r [u8]) -> u64 {
        if self.model.is_none_or(|model| model.update_in_place) {
            return address;
        }
        let dirty = rest()
            .iter()
            .rposition(|&byte| byte != 0xFF)
            .map_or(0, |at| at as u64 + 1);
        address + dirty
    }

    /// Modelled nanoseconds so far.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now
    }

    /// Charges the time of another device for which the program waited.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.clock.now += ns;
    }

    fn map(&mut self, addresses: &mut impl Addresses, segment: usize, address: u64) -> Result<()> {
        let offset = self.identity.offset(segment);
        addresses.map(
            address,
            self.medium.descriptor(),
            offset,
            self.identity.segment_bytes,
        )?;
        self.mapped.insert(address, segment);
        Ok(())
    }
}
