//! Recovery (section 6.2): finds the newest state whose mini-log entry, log and extents are all
//! intact, rebuilds mutable space from the log, and continues with the intact records that follow.
//!
//! A power cut can leave any part of the writes since the last sync. So the newest mini-log entry
//! may name a missing record; then the previous entry is tried. A state that an entry, a record or
//! the segment table declares stable, and that cannot be read, is damage and is reported.

use super::commit::push_extent;
use super::cycle::CycleKind;
use super::data_segment::DataSegment;
use super::durable::Durable;
use super::handles::HandleTable;
use super::log::{
    Chained, Entry, Extent, MINI_BYTES, Mini, Read, Record, RecordFront, chain, entries,
    next_record,
};
use super::root::KnownRoot;
use super::state::{Counters, Space, State};
use super::store_list::StoreList;
use super::{Limits, ROOT, verify};
use crate::error::{Error, Result};
use crate::flash::{Bank, Identity};
use crate::region::{Area, Region, WORD};
use std::sync::Arc;

/// Which data an open checks: the rest is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// All checksums, objects and pointers.
    Everything,
    /// The log, and the extents of states that nothing declares stable: only these can a crash leave incomplete.
    Unstable,
}

/// A run's sequence numbers begin at the next multiple of this, above those of all earlier runs.
const RUN: u64 = 1 << 20;

/// The region for a bank: each area could hold the whole bank.
pub(crate) fn region_for(identity: &Identity) -> Result<Region> {
    Region::reserve(identity.base, identity.area_shift())
}

impl State {
    /// A new heap on an empty bank.
    pub(crate) fn create(
        bank: Bank,
        data_segment: Option<DataSegment>,
        limits: Limits,
    ) -> Result<Self> {
        let region = region_for(bank.identity())?;
        let mut state = Self::assemble(bank, data_segment, region, limits);
        let mut areas = vec![Area::MiniLog0, Area::MiniLog1, Area::Log0];
        if state.data_segment.is_none() {
            areas.push(Area::ImmutableA);
        }
        for area in areas {
            let end = state.region.start(area) + 1;
            state.extend(area, end)?;
        }
        let root = state.mutable.take(&mut state.region, ROOT.words())?;
        state.region.store(root, ROOT.0);
        let mut record = Record::new();
        record.write(root, state.region.words(root, ROOT.words()));
        state.touch(root, ROOT.words());
        let (words, hash) = record.seal(state.log.next, state.sequence, 0, state.log_hash);
        state
            .bank
            .write(state.log.next, bytemuck::cast_slice(&words))?;
        state.log.next += words.len() as u64 * WORD;
        state.log_hash = hash;
        state.compacted_end = state.log.next;
        state.write_mini()?;
        state.bank.sync()?;
        Ok(state)
    }

    fn assemble(
        bank: Bank,
        data_segment: Option<DataSegment>,
        region: Region,
        limits: Limits,
    ) -> Self {
        let sequence = RUN;
        let space = |area| Space::new(area, &region);
        Self {
            handles: Arc::new(HandleTable::default()),
            durable: Arc::new(Durable::new(Arc::clone(bank.medium()), sequence)),
            store_list: StoreList::default(),
            new: space(Area::New),
            old: space(Area::OldA),
            immutable: space(Area::ImmutableA),
            mutable: space(Area::MutableA),
            log: space(Area::Log0),
            log_hash: bank.identity().key,
            mini: space(Area::MiniLog0),
            sequence,
            extents: Vec::new(),
            collected_end: region.start(Area::ImmutableA),
            collected_mutable: 0,
            compacted_end: region.start(Area::Log0),
            unsynced_bytes: 0,
            committed_bytes: 0,
            committed_ns: 0,
            cycle: None,
            leftover: None,
            counters: Counters::default(),
            backups: 0,
            freed: 0,
            known_root: KnownRoot::default(),
            limits,
            bank,
            data_segment,
            region,
        }
    }

    /// The state of the last commit. Writes nothing except immutable data that is in the log and has not reached its place.
    pub(crate) fn recover(
        mut bank: Bank,
        data_segment: Option<DataSegment>,
        key: Option<u64>,
        limits: Limits,
        check: Check,
    ) -> Result<Self> {
        let key = key.unwrap_or(bank.identity().key);
        let mut region = region_for(bank.identity())?;
        bank.recover(&mut region, key)?;
        let mut state = Self::assemble(bank, data_segment, region, limits);
        let minis = state.read_minis(key);
        let Some(&(at, newest)) = minis.first() else {
            return Err(Error::corrupted("no entry of the mini-log can be read"));
        };
        let stable = minis.iter().map(|(_, mini)| mini.stable).max().unwrap_or(0);
        let stable = stable.max(state.bank.stable());
        let trusted = (check == Check::Unstable).then_some(stable);
        let newest_whole = minis
            .iter()
            .find_map(|(_, mini)| state.restore(mini, key, trusted));
        let Some(recovered) = newest_whole else {
            return Err(Error::corrupted(
                "the log of no entry of the mini-log can be read",
            ));
        };
        let (later, known) = state.later_records(recovered)?;
        let stable = stable.max(known);
        if recovered < stable {
            return Err(Error::corrupted(format!(
                "state {stable} was stable and cannot be read, but only state {recovered}"
            )));
        }
        state.mini = Space {
            area: state.region.area(at).expect("a mini-log"),
            next: at + MINI_BYTES,
        };
        let newest = newest.sequence.max(recovered).max(later);
        state.sequence = (newest / RUN + 1) * RUN;
        let medium = Arc::clone(state.bank.medium());
        state.durable = Arc::new(Durable::new(medium, recovered));
        // The share of garbage is unknown: until the next collection everything counts as live.
        state.collected_end = state.immutable.next;
        state.collected_mutable = state.mutable.used(&state.region);
        match check {
            Check::Everything => {
                verify::verify(&state)?;
            }
            Check::Unstable => verify::verify_root(&state)?,
        }
        Ok(state)
    }

    /// All intact entries of the mini-log with their addresses, newest first.
    fn read_minis(&self, key: u64) -> Vec<(u64, Mini)> {
        let mut minis = Vec::new();
        for area in [Area::MiniLog0, Area::MiniLog1] {
            let start = self.region.start(area);
            let words = self
                .region
                .words(start, (self.region.end(area) - start) / WORD);
            for (index, words) in words.as_chunks::<8>().0.iter().enumerate() {
                if let Some(mini) = Mini::decode(words, key) {
                    minis.push((start + index as u64 * MINI_BYTES, mini));
                }
            }
        }
        minis.sort_unstable_by_key(|(_, mini)| std::cmp::Reverse(mini.sequence));
        minis
    }

    /// Restores the state that `mini` names, if all of its data exists, and advances it by the
    /// intact records that follow; returns the number of the final state. Extents are trusted up to state `trusted`, and
    /// up to those that the log declares stable; all are checked if it is `None`.
    fn restore(&mut self, mini: &Mini, key: u64, trusted: Option<u64>) -> Option<u64> {
        let area_of_end = |end: u64| self.region.area(end.saturating_sub(1));
        let immutable = match self.region.area(mini.immutable_end) {
            Some(area) if self.region.start(area) == mini.immutable_end => Some(area),
            _ => area_of_end(mini.immutable_end),
        };
        let (Some(immutable), Some(mutable), Some(log)) = (
            immutable,
            area_of_end(mini.mutable_end),
            area_of_end(mini.log_end),
        ) else {
            return None;
        };
        self.region.zap(mutable, 0);
        self.immutable = Space {
            area: immutable,
            next: mini.immutable_end,
        };
        self.mutable = Space {
            area: mutable,
            next: mini.mutable_end,
        };
        self.log = Space {
            area: log,
            next: mini.log_end,
        };
        self.extents.clear();
        self.collected_end = self.region.start(immutable);
        let sane = matches!(immutable, Area::ImmutableA | Area::ImmutableB)
            && matches!(mutable, Area::MutableA | Area::MutableB)
            && matches!(log, Area::Log0 | Area::Log1)
            && [mini.immutable_end, mini.mutable_end, mini.log_end]
                .iter()
                .all(|end| end.is_multiple_of(WORD))
            && mini.log_end <= self.region.end(log)
            && mini.immutable_end <= self.region.end(immutable);
        if !sane {
            return None;
        }
        if let Some(segment) = &mut self.data_segment {
            segment
                .load(&mut self.region, mutable, mini.mutable_end)
                .ok()?;
        }
        self.replay(mini, key, trusted)
    }

    /// The highest number of any record after the end of the log, and the newest state that one of
    /// them declares stable.
    fn later_records(&self, recovered: u64) -> Result<(u64, u64)> {
        let (start, end) = (self.log.next, self.region.end(self.log.area));
        let rest = self.region.words(start, (end - start) / WORD);
        // The record that should follow. A power cut leaves a sector whole or not at all: if the
        // record's front is there, so is the rest in the same sector.
        if let Some(front) = RecordFront::read(start, rest)
            && front.sequence > recovered
            && front.is_in_one_sector(start)
            && next_record(start, &mut { rest }, self.log_hash).is_none()
        {
            return Err(Error::corrupted(format!(
                "the record of state {} was written and cannot be read, but only state {recovered}",
                front.sequence
            )));
        }
        let at = (start..end).step_by(WORD as usize);
        let fronts = at
            .zip(0..)
            .filter_map(|(at, word)| RecordFront::read(at, &rest[word..]));
        Ok(fronts.fold((0, 0), |(number, stable), front| {
            (number.max(front.sequence), stable.max(front.stable))
        }))
    }

    /// Replays the log up to its end, and the records that follow.
    fn replay(&mut self, mini: &Mini, key: u64, trusted: Option<u64>) -> Option<u64> {
        let start = self.region.start(self.log.area);
        self.compacted_end = start;
        self.log_hash = key;
        let mapped = self.region.end(self.log.area) - start;
        let log = self.region.words(start, mapped / WORD).to_vec();
        let chain = chain(start, &log, key);
        let (named, later) =
            chain.split_at(chain.partition_point(|record| record.end <= mini.log_end));
        let last = named.last();
        let (end, hash) = last.map_or((start, key), |record| (record.end, record.read.hash));
        if (end, hash) != (mini.log_end, mini.record_hash) {
            return None;
        }
        let trusted = trusted.map(|noted| {
            let declared = chain.iter().map(|record| record.read.front.stable).max();
            declared.unwrap_or(0).max(noted)
        });
        let is_trusted = |sequence| trusted.is_some_and(|newest| sequence <= newest);

        let mut expected = Vec::new();
        // A collection numbers its records like the state before it. Their data is stable with the entry that names them.
        for record in named {
            self.replay_record(&record.read, &mut expected, is_trusted(mini.sequence))?;
        }
        let mut recovered = mini.sequence;
        for Chained { end, read } in later {
            let trusted = is_trusted(read.front.sequence);
            // The data of a record that was in flight may be missing.
            if !self.follows(read, trusted) {
                break;
            }
            self.replay_record(read, &mut expected, trusted)?;
            recovered = read.front.sequence;
            self.log.next = *end;
        }
        let whole = self
            .data_segment
            .as_ref()
            .is_none_or(|segment| segment.is_whole(&expected));
        whole.then_some(recovered)
    }

    /// Advances the ends of the spaces to those of a record, if all of its data exists.
    fn follows(&mut self, read: &Read<'_>, trusted: bool) -> bool {
        let (mut immutable, mut mutable) = (self.immutable.next, self.mutable.next);
        for entry in entries(read.entries) {
            match entry {
                None => return false,
                Some(Entry::Write { address, words }) => {
                    mutable = mutable.max(address.saturating_add(words.len() as u64 * WORD));
                }
                Some(Entry::Data { address, words }) => {
                    immutable = immutable.max(address.saturating_add(words.len() as u64 * WORD));
                }
                Some(Entry::Sums { .. }) => return false,
                Some(Entry::Extent(extent)) => {
                    immutable = immutable.max(extent.start.saturating_add(extent.bytes));
                    if !self.has(extent, trusted) {
                        return false;
                    }
                }
            }
        }
        let mapped = immutable <= self.region.end(self.immutable.area);
        if mapped {
            self.immutable.next = immutable;
            self.mutable.next = mutable;
        }
        mapped
    }

    /// Applies a record; `expected` gets the checksums of a data segment.
    fn replay_record(
        &mut self,
        read: &Read<'_>,
        expected: &mut Vec<u64>,
        trusted: bool,
    ) -> Option<()> {
        for entry in entries(read.entries) {
            match entry? {
                Entry::Write { address, words } => self.restore_words(address, words)?,
                Entry::Data { address, words } => self.restore_data(address, words)?,
                Entry::Extent(extent) => self.restore_extent(extent, trusted)?,
                Entry::Sums { address, sums } => {
                    if address != self.root() {
                        return None;
                    }
                    expected.clear();
                    expected.extend_from_slice(sums);
                }
            }
        }
        self.log_hash = read.hash;
        Some(())
    }

    fn restore_words(&mut self, address: u64, words: &[u64]) -> Option<()> {
        let end = address.checked_add(words.len() as u64 * WORD)?;
        let start = self.region.start(self.mutable.area);
        self.region
            .grow(self.mutable.area, self.mutable.next - start)
            .ok()?;
        let inside = address >= start && end <= self.mutable.next && address.is_multiple_of(WORD);
        inside.then(|| {
            self.region
                .words_mut(address, words.len() as u64)
                .copy_from_slice(words);
            self.touch(address, words.len() as u64);
        })
    }

    /// Immutable data in the log may not have reached its place.
    fn restore_data(&mut self, address: u64, words: &[u64]) -> Option<()> {
        let extent = Extent::of(address, words);
        if !self.is_inside(extent) {
            return None;
        }
        if !self.has(extent, false) {
            self.bank.write(address, bytemuck::cast_slice(words)).ok()?;
        }
        self.restore_extent(extent, false)
    }

    /// Whether the extent is in the mapped part of immutable space.
    fn is_inside(&self, extent: Extent) -> bool {
        let mapped = self.region.start(self.immutable.area)..=self.region.end(self.immutable.area);
        let end = extent.start.checked_add(extent.bytes);
        mapped.contains(&extent.start)
            && end.is_some_and(|end| mapped.contains(&end))
            && extent.start.is_multiple_of(WORD)
            && extent.bytes.is_multiple_of(WORD)
    }

    /// Whether the bank has this extent, with this checksum unless it is trusted.
    fn has(&self, extent: Extent, trusted: bool) -> bool {
        let found = || {
            let words = self.region.words(extent.start, extent.bytes / WORD);
            Extent::of(extent.start, words)
        };
        self.is_inside(extent) && (trusted || found() == extent)
    }

    fn restore_extent(&mut self, extent: Extent, trusted: bool) -> Option<()> {
        let follows = self
            .extents
            .last()
            .is_none_or(|last| last.start + last.bytes <= extent.start);
        let inside = extent.start.checked_add(extent.bytes)? <= self.immutable.next;
        if !follows || !inside || !self.has(extent, trusted) {
            return None;
        }
        if extent.bytes > 0 {
            push_extent(&mut self.extents, extent, &self.region);
        }
        Some(())
    }

    /// Prepares a recovered heap for writing: frees what no state needs, and skips cells that a
    /// crash has left written after the last commit.
    pub(crate) fn resume(&mut self) -> Result<()> {
        // After a kill, what recovery has read may not be stable yet.
        self.bank.sync()?;
        for area in [self.log.area.other(), self.immutable.area.other()] {
            self.release(area)?;
        }
        for area in [Area::MiniLog0, Area::MiniLog1] {
            self.extend(area, self.region.start(area) + 1)?;
        }
        let erased = |state: &Self, at: u64| {
            let region = &state.region;
            state.bank.first_erased(at, || {
                let area = region.area(at).expect("an address of the heap");
                region.bytes(at, region.end(area) - at)
            })
        };
        self.mini.next = erased(self, self.mini.next).next_multiple_of(MINI_BYTES);
        self.immutable.next = erased(self, self.immutable.next).next_multiple_of(WORD);
        if erased(self, self.log.next) != self.log.next {
            self.start_cycle(CycleKind::Truncate);
            self.run_cycle()?;
        }
        Ok(())
    }

    /// Records on flash that the last commit was stable, so that its damage is detected.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.check_failed()?;
        self.sequence += 1;
        self.write_mini().map_err(|error| self.fail(error))?;
        self.durable.appended(self.sequence);
        self.durable.wait(self.sequence)?;
        let noted = self.bank.note_stable(self.sequence);
        noted.map_err(|error| self.fail(error))
    }
}
