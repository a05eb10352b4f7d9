//! The state of an open heap (Figures 2 and 3): its spaces, the store list, the ends of the logs,
//! and the current persistent collection.
//!
//! The state between two operations: no object in new or old space is forwarded; every pointer in
//! persistent space points into persistent space, except words in the store list; old space points
//! into new space only in words of the store list.

use super::Limits;
use super::cycle::{Cycle, Leftover};
use super::data_segment::DataSegment;
use super::durable::Durable;
use super::handles::HandleTable;
use super::log::Extent;
use super::root::KnownRoot;
use super::store_list::{Span, StoreList};
use crate::error::{Error, Result};
use crate::flash::Bank;
use crate::object::Header;
use crate::region::{Area, Region, WORD};
use std::sync::Arc;

/// A space that is allocated front to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) area: Area,
    /// Address of the next object.
    pub(crate) next: u64,
}

impl Space {
    pub(crate) fn new(area: Area, region: &Region) -> Self {
        Self {
            area,
            next: region.start(area),
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self, region: &Region) -> u64 {
        self.next - region.start(self.area)
    }

    /// Makes room for `words` at the end, in DRAM.
    pub(crate) fn take(&mut self, region: &mut Region, words: u64) -> Result<u64> {
        let end = self.next + words * WORD;
        if end > region.end(self.area) {
            region.grow(self.area, end - region.start(self.area))?;
        }
        Ok(std::mem::replace(&mut self.next, end))
    }
}

/// Counters of a heap since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commits that changed something.
    pub commits: u64,
    /// Aborts.
    pub aborts: u64,
    /// Collections of new space into old space.
    pub minor: u64,
    /// Collections of old space.
    pub major: u64,
    /// Completed collections of persistent space.
    pub persistent: u64,
    /// Times the persistent log was compacted into its other half.
    pub truncations: u64,
    /// Bytes of immutable data that commits wrote.
    pub immutable_bytes: u64,
    /// Bytes of log records that commits wrote.
    pub log_bytes: u64,
    /// Longest time that a commit, or the collector between commits, spent on a persistent
    /// collection, in real ns.
    pub slice_max_ns: u64,
    /// The same in modelled ns of an emulated bank.
    pub slice_max_modelled_ns: u64,
}

/// An open heap, without its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bank: Bank,
    /// Makes persistent space stable if it is all in DRAM: see [`super::sidney`].
    pub(crate) data_segment: Option<DataSegment>,
    pub(crate) limits: Limits,
    pub(crate) handles: Arc<HandleTable>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) store_list: StoreList,
    pub(crate) new: Space,
    pub(crate) old: Space,
    pub(crate) immutable: Space,
    pub(crate) mutable: Space,
    pub(crate) log: Space,
    pub(crate) log_hash: u64,
    pub(crate) mini: Space,
    pub(crate) sequence: u64,
    /// Checksums of all of immutable space, in order of address.
    pub(crate) extents: Vec<Extent>,
    /// End of immutable space after the last collection.
    pub(crate) collected_end: u64,
    /// Bytes of mutable space after the last collection.
    pub(crate) collected_mutable: u64,
    /// End of the log after the last compaction.
    pub(crate) compacted_end: u64,
    /// Bytes of immutable data that may be stable in the log only, not in their place.
    pub(crate) unsynced_bytes: u64,
    /// Bytes written by the last commit.
    pub(crate) committed_bytes: u64,
    /// Modelled ns of the last commit.
    pub(crate) committed_ns: u64,
    pub(crate) cycle: Option<Cycle>,
    /// The remains of the last collection.
    pub(crate) leftover: Option<Leftover>,
    pub(crate) counters: Counters,
    /// Backups under way: what a collection replaces stays until they end, unless a commit needs the room.
    pub(crate) backups: u32,
    /// Frees of segments of a half.
    pub(crate) freed: u64,
    pub(crate) known_root: KnownRoot,
    /// Last, because all other fields refer to addresses in it.
    pub(crate) region: Region,
}

impl State {
    /// Address of the root: a mutable record of one pointer and a schema, first in mutable space.
    pub(crate) fn root(&self) -> u64 {
        self.region.start(self.mutable.area)
    }

    /// Whether a persistent object lies in DRAM.
    pub(crate) fn is_kept_in_dram(&self, header: Header) -> bool {
        header.is_mutable() || self.data_segment.is_some()
    }

    /// A new object in new space, with its payload filled by `fill`.
    pub(crate) fn allocate(&mut self, header: Header, fill: impl FnOnce(&mut [u64])) -> u64 {
        let address = match self.new.take(&mut self.region, header.words()) {
            Ok(address) => address,
            Err(error) => panic!("an update allocates too much: {error}"),
        };
        self.region.store(address, header.0);
        fill(self.region.words_mut(address + WORD, header.payload()));
        address
    }

    /// `write`: replaces words of an object, the first `pointers` of which are pointers.
    pub(crate) fn mutate(&mut self, object: u64, start: u64, words: &[u64], pointers: usize) {
        let span = Span {
            object,
            start,
            words: words.len() as u32,
            pointers: pointers as u32,
        };
        // New space did not exist at the last commit, and every collection scans it.
        if self.region.area(object) != Some(Area::New) {
            self.store_list.push(&self.region, span);
        }
        self.region
            .words_mut(span.address(), words.len() as u64)
            .copy_from_slice(words);
    }

    /// `abort`: restores the contents as of the last commit.
    pub(crate) fn abort(&mut self) {
        if !self.store_list.is_empty() {
            self.store_list.undo(&mut self.region);
            self.note_dirty();
            self.store_list.clear();
            self.known_root.forget();
            self.counters.aborts += 1;
        }
    }

    /// Notifies the current persistent collection of the changes in mutable space.
    pub(crate) fn note_dirty(&mut self) {
        if let Some(cycle) = &mut self.cycle {
            cycle
                .dirty
                .extend(self.store_list.spans_in(&self.region, self.mutable.area));
        }
    }

    /// Returns the error of an earlier failure.
    pub(crate) fn check_failed(&self) -> Result<()> {
        match self.durable.failure() {
            Some(why) => Err(Error::Failed(why)),
            None => Ok(()),
        }
    }

    /// Records that the state on flash is unknown from here on.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.durable.fail(&error);
        error
    }

    /// Makes immutable data stable in its place.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.unsynced_bytes = 0;
        self.bank.sync().map_err(|error| self.fail(error))
    }

    /// Bytes of a segment.
    pub(crate) fn segment(&self) -> u64 {
        self.bank.identity().segment_bytes
    }

    /// Segments that `area` lacks to reach `end`.
    pub(crate) fn missing(&self, area: Area, end: u64) -> u64 {
        end.saturating_sub(self.region.end(area))
            .div_ceil(self.segment())
    }

    /// Maps erased segments until `area`, of flash, reaches to `end`.
    pub(crate) fn extend(&mut self, area: Area, end: u64) -> Result<()> {
        let missing = self.missing(area, end);
        if end > self.region.start(area) + self.region.extent() {
            let capacity = self.region.extent();
            return Err(Error::Full {
                live: capacity,
                capacity,
            });
        }
        if missing > 0 {
            let at = self.region.end(area);
            self.bank.alloc(&mut self.region, missing, at)?;
        }
        Ok(())
    }

    /// Frees all segments of `area`.
    pub(crate) fn release(&mut self, area: Area) -> Result<()> {
        self.release_last(area, u64::MAX)
    }

    /// Frees at most `count` segments of `area`, from its end.
    pub(crate) fn release_last(&mut self, area: Area, count: u64) -> Result<()> {
        self.freed += 1;
        let (start, segment) = (self.region.start(area), self.segment());
        let mapped = (self.region.end(area) - start) / segment;
        let keep = mapped.saturating_sub(count) * segment;
        self.region.unmap_flash(area, keep)?;
        if mapped > 0 {
            self.bank.free(start + keep, mapped - keep / segment)?;
        }
        Ok(())
    }
}
