//! Recovery (section 6.2): finds the newest state whose mini-log entry, log and extents are all
//! whole, and rebuilds mutable space from the log.
//!
//! A power cut can leave any part of what was written since the last sync. So the newest mini-log
//! entry may speak of a record that is not there; then the entry before it is tried. It is not
//! tried beyond what an entry says to have been stable: a state that was stable and cannot be read
//! is damage, and is reported.

use super::commit::push_extent;
use super::cycle::Kind;
use super::durable::Durable;
use super::handles::HandleTable;
use super::log::{Entry, Extent, MINI_BYTES, Mini, Record, entries, next_record};
use super::state::{Counters, Space, State};
use super::store_list::StoreList;
use super::{Limits, ROOT, verify};
use crate::error::{Error, Result};
use crate::flash::{Bank, Identity};
use crate::region::{Area, Region, WORD};
use std::sync::Arc;

/// Sequence numbers that no state of an earlier run can have used begin at a multiple of this.
const RUN: u64 = 1 << 20;

/// The region for a bank: areas that hold more than the whole bank could.
pub(crate) fn region_for(identity: &Identity) -> Result<Region> {
    Region::reserve(identity.base, area_shift(identity))
}

/// Two to this power bytes is an area.
pub(crate) fn area_shift(identity: &Identity) -> u32 {
    let capacity = identity.segment_bytes * identity.segments;
    capacity.next_power_of_two().max(1 << 30).ilog2()
}

impl State {
    /// A new heap on an empty bank.
    pub(crate) fn create(bank: Bank, limits: Limits) -> Result<Self> {
        let region = region_for(bank.identity())?;
        let mut state = Self::assemble(bank, region, limits);
        for area in [Area::MiniLog0, Area::MiniLog1, Area::Log0, Area::ImmutableA] {
            let end = state.region.start(area) + 1;
            state.extend(area, end)?;
        }
        let root = state.mutable.take(&mut state.region, ROOT.words())?;
        state.region.store(root, ROOT.0);
        let mut record = Record::new();
        record.write(root, state.region.words(root, ROOT.words()));
        let (words, hash) = record.seal(state.sequence, state.log_hash);
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

    fn assemble(bank: Bank, region: Region, limits: Limits) -> Self {
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
            committed_bytes: 0,
            cycle: None,
            counters: Counters::default(),
            limits,
            bank,
            region,
        }
    }

    /// The state of the last commit, all of it checked. Writes nothing.
    pub(crate) fn recover(mut bank: Bank, key: Option<u64>, limits: Limits) -> Result<Self> {
        let key = key.unwrap_or(bank.identity().key);
        let mut region = region_for(bank.identity())?;
        bank.recover(&mut region, key)?;
        let mut state = Self::assemble(bank, region, limits);
        let minis = state.read_minis(key);
        let Some(&(at, newest)) = minis.first() else {
            return Err(Error::corrupted("no entry of the mini-log can be read"));
        };
        let stable = minis.iter().map(|(_, mini)| mini.stable).max();
        let stable = stable.unwrap_or(0).max(state.bank.stable());
        let readable = minis
            .iter()
            .filter(|(_, mini)| mini.sequence >= stable)
            .find(|(_, mini)| state.restore(mini, key));
        let Some((_, restored)) = readable else {
            return Err(Error::corrupted(format!(
                "the log of commit {stable}, which was stable, cannot be read"
            )));
        };
        state.mini = Space {
            area: state.region.area(at).expect("a mini-log"),
            next: at + MINI_BYTES,
        };
        state.sequence = (newest.sequence / RUN + 1) * RUN;
        let medium = Arc::clone(state.bank.medium());
        state.durable = Arc::new(Durable::new(medium, restored.sequence));
        // How much of it is garbage is not known: the next collection is due when it has doubled.
        state.collected_end = state.immutable.next;
        state.collected_mutable = state.mutable.used(&state.region);
        verify::verify(&state)?;
        Ok(state)
    }

    /// All whole entries of the mini-log and where they are, newest first.
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

    /// Restores the state that `mini` names; returns whether all of it is there.
    fn restore(&mut self, mini: &Mini, key: u64) -> bool {
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
            return false;
        };
        self.region.discard(mutable, 0);
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
        sane && self.replay(mini, key).is_some()
    }

    /// Replays the log up to its end-pointer.
    fn replay(&mut self, mini: &Mini, key: u64) -> Option<()> {
        let mutable = self.region.start(self.mutable.area);
        self.region
            .grow(self.mutable.area, self.mutable.next - mutable)
            .ok()?;
        let start = self.region.start(self.log.area);
        self.compacted_end = start;
        let log = self
            .region
            .words(start, (mini.log_end - start) / WORD)
            .to_vec();
        let mut rest = &log[..];
        let mut hash = key;
        while !rest.is_empty() {
            let (words, next) = next_record(&mut rest, hash)?;
            hash = next;
            for entry in entries(words) {
                match entry? {
                    Entry::Write { address, words } => self.restore_words(address, words)?,
                    Entry::Extent(extent) => self.restore_extent(extent)?,
                }
            }
        }
        self.log_hash = hash;
        (hash == mini.record_hash).then_some(())
    }

    fn restore_words(&mut self, address: u64, words: &[u64]) -> Option<()> {
        let end = address.checked_add(words.len() as u64 * WORD)?;
        let start = self.region.start(self.mutable.area);
        let inside = address >= start && end <= self.mutable.next && address.is_multiple_of(WORD);
        inside.then(|| {
            self.region
                .words_mut(address, words.len() as u64)
                .copy_from_slice(words);
        })
    }

    fn restore_extent(&mut self, extent: Extent) -> Option<()> {
        let end = extent.start.checked_add(extent.bytes)?;
        let start = self.region.start(self.immutable.area);
        let follows = self
            .extents
            .last()
            .is_none_or(|last| last.start + last.bytes <= extent.start);
        let inside = extent.start >= start
            && end <= self.immutable.next
            && extent.start.is_multiple_of(WORD)
            && extent.bytes.is_multiple_of(WORD);
        if !inside || !follows {
            return None;
        }
        let words = self.region.words(extent.start, extent.bytes / WORD);
        if Extent::of(extent.start, words) != extent {
            return None;
        }
        push_extent(&mut self.extents, extent, &self.region);
        Some(())
    }

    /// Makes a recovered heap ready to be written: gives back what no state needs, and steps over
    /// cells that a crash has left written behind the last commit.
    pub(crate) fn resume(&mut self) -> Result<()> {
        // After a kill what was read may have been on its way only.
        self.bank.sync()?;
        for area in [self.log.area.other(), self.immutable.area.other()] {
            self.release(area)?;
        }
        for area in [Area::MiniLog0, Area::MiniLog1] {
            self.extend(area, self.region.start(area) + 1)?;
        }
        let erased = |state: &Self, at: u64| state.bank.first_erased(&state.region, at);
        self.mini.next = erased(self, self.mini.next).next_multiple_of(MINI_BYTES);
        self.immutable.next = erased(self, self.immutable.next).next_multiple_of(WORD);
        if erased(self, self.log.next) != self.log.next {
            self.start_cycle(Kind::Truncate);
            self.run_cycle()?;
        }
        Ok(())
    }

    /// Notes on flash that the last commit was stable, so that damage to it is seen as such.
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
