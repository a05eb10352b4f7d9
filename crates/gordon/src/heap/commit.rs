//! Commit (section 6.2): a collection moves the objects that have become reachable from persistent
//! space into it, immutable objects to flash and mutable ones to DRAM; the log gets the writes and
//! the new mutable objects; last of all the mini-log gets the end of the log. A small commit needs no
//! entry of the mini-log: recovery finds its record by its place in the chain. On a real bank the record
//! also holds the immutable data, so that such a commit is one write.
//!
//! All of this is written without waiting; [`super::durable`] waits. A commit without room is
//! undone, so that the update can be aborted, or retried after a collection.

use super::log::{Extent, MINI_BYTES, Mini, Record};
use super::state::{Space, State};
use super::store_list::Span;
use crate::error::{Error, Result};
use crate::object::Header;
use crate::region::{Area, Region, WORD};

/// Spans closer than this many bytes are logged as one: an entry costs two words.
const GAP: u64 = 16;

/// The collection that makes objects persistent.
#[derive(Debug)]
struct CommitGc {
    /// The address of the first immutable copy on flash, and the copies.
    immutable: u64,
    staged: Vec<u64>,
    mutable: Space,
    /// Whether immutable objects go to DRAM as well (Sidney).
    all_in_dram: bool,
    /// Headers that forwarding addresses replaced.
    forwarded: Vec<(u64, u64)>,
    /// Pointers in persistent space that were replaced: their places and old values.
    fixed: Vec<(u64, u64)>,
}

impl CommitGc {
    fn forward(&mut self, region: &mut Region, address: u64) -> Result<u64> {
        if !region.area(address).is_some_and(Area::is_transitory) {
            return Ok(address);
        }
        let word = region.load(address);
        if !Header::is_valid(word) {
            return Ok(word);
        }
        let header = Header(word);
        let copy = if header.is_mutable() || self.all_in_dram {
            let copy = self.mutable.take(region, header.words())?;
            region.copy(address, copy, header.words());
            copy
        } else {
            let copy = self.immutable + self.staged.len() as u64 * WORD;
            self.staged
                .extend_from_slice(region.words(address, header.words()));
            copy
        };
        region.store(address, copy);
        self.forwarded.push((address, word));
        Ok(copy)
    }

    /// Redirects the pointers at `slots`, in written persistent objects, into persistent space, and
    /// copies everything reachable from there.
    fn copy(&mut self, region: &mut Region, slots: impl Iterator<Item = u64>) -> Result<()> {
        let (mut staged, mut mutable) = (0, self.mutable.next);
        for slot in slots {
            let target = region.load(slot);
            let forwarded = self.forward(region, target)?;
            if forwarded != target {
                self.fixed.push((slot, target));
                region.store(slot, forwarded);
            }
        }
        loop {
            if staged < self.staged.len() {
                let header = Header(self.staged[staged]);
                for offset in header.pointer_offsets() {
                    let slot = staged + offset as usize;
                    self.staged[slot] = self.forward(region, self.staged[slot])?;
                }
                staged += header.words() as usize;
            } else if mutable < self.mutable.next {
                let header = Header(region.load(mutable));
                for offset in header.pointer_offsets() {
                    let slot = mutable + offset * WORD;
                    let target = self.forward(region, region.load(slot))?;
                    region.store(slot, target);
                }
                mutable += header.words() * WORD;
            } else {
                return Ok(());
            }
        }
    }

    /// Whether there is little immutable data.
    fn is_small(&self) -> bool {
        const WORDS: usize = 4096;
        self.staged.len() <= WORDS
    }

    /// Undoes everything.
    fn undo(self, region: &mut Region) {
        for (slot, target) in self.fixed {
            region.store(slot, target);
        }
        for (address, header) in self.forwarded {
            region.store(address, header);
        }
    }
}

impl State {
    /// Writes all changes; returns the sequence number that has to become stable, if there were
    /// any.
    pub(crate) fn commit(&mut self) -> Result<Option<u64>> {
        self.check_failed()?;
        let persistent = self.mutable.area;
        if self
            .store_list
            .spans_in(&self.region, persistent)
            .is_empty()
        {
            // No persistent change. New space can be emptied, as the store list, which may point
            // into it, ends here.
            self.after_commit()?;
            self.store_list.clear();
            return Ok(None);
        }
        let no_room = |appended: &Result<u64>| {
            matches!(appended, Err(Error::Full { .. } | Error::WornOut { .. }))
        };
        let mut appended = self.append();
        if no_room(&appended) && self.leftover.is_some() {
            self.give_back(true).map_err(|error| self.fail(error))?;
            appended = self.append();
        }
        if no_room(&appended) {
            self.collect_now()?;
            appended = self.append();
        }
        let appended = appended?;
        self.counters.commits += 1;
        self.note_dirty();
        self.store_list.clear();
        self.after_commit().map_err(|error| self.fail(error))?;
        Ok(Some(appended))
    }

    fn append(&mut self) -> Result<u64> {
        let spans = self.store_list.spans_in(&self.region, self.mutable.area);
        let mut gc = CommitGc {
            immutable: self.immutable.next,
            staged: Vec::new(),
            mutable: self.mutable,
            all_in_dram: self.data_segment.is_some(),
            forwarded: Vec::new(),
            fixed: Vec::new(),
        };
        let prepared = gc
            .copy(&mut self.region, spans.iter().flat_map(Span::slots))
            .and_then(|()| self.prepare(&gc, &spans));
        match prepared {
            Ok(record) => self
                .write_commit(&gc, record)
                .map_err(|error| self.fail(error)),
            Err(error) => {
                gc.undo(&mut self.region);
                match error {
                    Error::Full { .. } | Error::WornOut { .. } => Err(error),
                    error => Err(self.fail(error)),
                }
            }
        }
    }

    /// The log record of a commit, once there is room for all of it.
    fn prepare(&mut self, gc: &CommitGc, spans: &[Span]) -> Result<Record> {
        let mut record = Record::new();
        let written = spans.iter().map(|span| {
            (
                span.address(),
                span.address() + u64::from(span.words) * WORD,
            )
        });
        for (start, end) in merged(written) {
            record.write(start, self.region.words(start, (end - start) / WORD));
        }
        let promoted = self.mutable.next;
        if gc.mutable.next > promoted {
            let words = (gc.mutable.next - promoted) / WORD;
            record.write(promoted, self.region.words(promoted, words));
        }
        if gc.staged.is_empty() {
            // No new immutable objects.
        } else if self.is_record_all(gc) {
            record.data(gc.immutable, &gc.staged);
        } else {
            record.extent(Extent::of(gc.immutable, &gc.staged));
        }
        let immutable_end = gc.immutable + gc.staged.len() as u64 * WORD;
        self.room(immutable_end, self.log.next + record.bytes())?;
        if let Some(segment) = &self.data_segment {
            let (live, capacity) = (gc.mutable.used(&self.region), segment.capacity());
            if live > capacity {
                return Err(Error::Full { live, capacity });
            }
        }
        Ok(record)
    }

    /// Whether the record holds the whole commit. On a real bank it also holds the immutable data
    /// if there is little: so a small commit is one stable write, and the data in its own place
    /// becomes stable with the next sync.
    fn is_record_all(&self, gc: &CommitGc) -> bool {
        match self.data_segment {
            Some(_) => true,
            None => self.bank.model().is_none() && gc.is_small(),
        }
    }

    /// Whether recovery finds the commit without an entry of the mini-log. On an emulated bank a commit with little
    /// immutable data needs none: the order of its writes is that of the paper, and the record's extent has a checksum.
    fn is_found_by_chain(&self, gc: &CommitGc) -> bool {
        self.bank.model().is_some() && gc.is_small()
    }

    fn write_commit(&mut self, gc: &CommitGc, record: Record) -> Result<u64> {
        let begun = self.bank.now();
        if !gc.staged.is_empty() {
            self.bank
                .write(gc.immutable, bytemuck::cast_slice(&gc.staged))?;
            let extent = Extent::of(gc.immutable, &gc.staged);
            self.immutable.next += extent.bytes;
            self.counters.immutable_bytes += extent.bytes;
            push_extent(&mut self.extents, extent, &self.region);
        }
        self.counters.log_bytes += record.bytes();
        for (address, words) in record.writes() {
            self.touch(address, words);
        }
        self.committed_bytes = gc.staged.len() as u64 * WORD + record.bytes();
        self.mutable = gc.mutable;
        self.sequence += 1;
        let at = self.log.next;
        let stable = self.durable.stable();
        let (words, hash) = record.seal(at, self.sequence, stable, self.log_hash);
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        self.bank.write(at, bytes)?;
        self.log.next += bytes.len() as u64;
        self.log_hash = hash;
        let together = self.bank.offset_of(at, bytes.len() as u64);
        match together.filter(|_| self.is_record_all(gc)) {
            Some(offset) => {
                self.unsynced_bytes += gc.staged.len() as u64 * WORD;
                self.durable.appended_at(self.sequence, offset, bytes);
            }
            None => {
                if !self.is_found_by_chain(gc) {
                    self.write_mini()?;
                }
                self.durable.appended(self.sequence);
            }
        }
        self.committed_ns = self.bank.now() - begun;
        Ok(self.sequence)
    }

    /// Writes a mini-log entry for the current state; changes halves when one is full.
    pub(crate) fn write_mini(&mut self) -> Result<()> {
        if self.mini.next + MINI_BYTES > self.region.end(self.mini.area) {
            // The other half has long been superseded.
            let other = Space::new(self.mini.area.other(), &self.region);
            let segments = (self.region.end(other.area) - other.next) / self.segment();
            self.bank.erase(&mut self.region, other.next, segments)?;
            self.mini = other;
        }
        let mini = self.mini_entry(self.sequence, self.durable.stable());
        let words = mini.encode(self.bank.identity().key);
        self.bank
            .write(self.mini.next, bytemuck::cast_slice(&words))?;
        self.mini.next += MINI_BYTES;
        Ok(())
    }

    /// The entry that names the current ends as the state `sequence`.
    pub(crate) fn mini_entry(&self, sequence: u64, stable: u64) -> Mini {
        Mini {
            sequence,
            stable,
            log_end: self.log.next,
            immutable_end: self.immutable.next,
            mutable_end: self.mutable.next,
            record_hash: self.log_hash,
        }
    }

    /// Maps segments up to the new ends of the spaces, and reserves enough for a collection.
    fn room(&mut self, immutable_end: u64, log_end: u64) -> Result<()> {
        let missing =
            self.missing(self.immutable.area, immutable_end) + self.missing(self.log.area, log_end);
        if missing > 0 {
            let reserve = self.reserve(immutable_end);
            let available = self.bank.available();
            if available < missing + reserve {
                let capacity = self.bank.segments().len() as u64 * self.segment();
                let live = capacity - available * self.segment();
                return Err(Error::Full { live, capacity });
            }
            self.extend(self.immutable.area, immutable_end)?;
            self.extend(self.log.area, log_end)?;
        }
        Ok(())
    }

    /// Upper bound of the segments that a collection needs beyond those that its halves have: for a
    /// copy of all of immutable space, and for a log of all of mutable space.
    pub(crate) fn reserve(&self, immutable_end: u64) -> u64 {
        let segment = self.segment();
        let immutable = immutable_end - self.region.start(self.immutable.area);
        let mutable = self.mutable.used(&self.region);
        // Checksums of extents and headers of records take less than a sixteenth. Sidney's new log
        // holds only checksums of pages.
        let log = match self.data_segment {
            Some(_) => mutable / 256,
            None => mutable + mutable / 16 + immutable / 64,
        };
        let had = |area: Area| (self.region.end(area) - self.region.start(area)) / segment;
        let copies = immutable
            .div_ceil(segment)
            .saturating_sub(had(self.immutable.area.other()));
        copies + (log / segment + 1).saturating_sub(had(self.log.area.other()))
    }
}

/// Adds an extent; small adjacent ones are merged, so that there are few.
pub(crate) fn push_extent(extents: &mut Vec<Extent>, extent: Extent, region: &Region) {
    const LEAST: u64 = 64 << 10;
    match extents.last_mut() {
        Some(last) if last.bytes < LEAST && last.start + last.bytes == extent.start => {
            last.bytes += extent.bytes;
            last.hash = PENDING;
        }
        _ => extents.push(extent),
    }
    // The hash of a merged extent is computed once, when it is full or requested.
    let last = extents.last_mut().expect("just pushed");
    if last.bytes >= LEAST && last.hash == PENDING {
        *last = Extent::of(last.start, region.words(last.start, last.bytes / WORD));
    }
}

/// The hash of an extent that has grown since it was computed.
pub(crate) const PENDING: u64 = 0;

/// Merges ranges that overlap or are close to each other.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 + GAP => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}
