//! The persistent collection (section 6.3), made concurrent by replication: live objects are copied to
//! the other halves in slices while the program goes on with the originals. What commits change
//! meanwhile is noted and repeated on the copies. When the copies are complete the heap flips to
//! them, between two updates.
//!
//! Forwarding addresses are kept in a table in DRAM, and copies bound for flash in a buffer until
//! their pointers are final. The copies of mutable objects go to the other log half as they are
//! finished, and what changes after that is appended. So the flip writes little: the
//! last changes, the checksums of extents, and one mini-log entry, which makes it.
//!
//! When only the log is full, the same is done without moving anything: the log is *truncated*.

use super::commit::{PENDING, push_extent};
use super::log::{Extent, Record};
use super::state::{Space, State};
use super::store_list::Span;
use crate::error::{Error, Result};
use crate::object::Header;
use crate::region::{Area, WORD};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

/// Words that are handled between two looks at the budget.
const STEP: u64 = 512;
/// Most words that are written at once.
const CHUNK: u64 = 1 << 14;

/// What a cycle does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Copy what is alive.
    Collect,
    /// Move nothing; begin a new log.
    Truncate,
}

/// Addresses are multiples of eight: multiply and take the upper bits.
#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("addresses are hashed as numbers")
    }

    fn write_u64(&mut self, address: u64) {
        self.0 = (address >> 3)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }
}

/// A persistent collection under way.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub(crate) kind: Kind,
    /// Changes in from-space that are to be repeated on the copies.
    pub(crate) dirty: VecDeque<Span>,
    forward: HashMap<u64, u64, BuildHasherDefault<AddressHasher>>,
    /// To-space on flash; `buffer` holds what follows `written`.
    immutable: Space,
    written: u64,
    buffer: Vec<u64>,
    scanned: usize,
    extents: Vec<Extent>,
    /// To-space in DRAM, and how far it has been scanned and logged.
    mutable: Space,
    mutable_scanned: u64,
    mutable_logged: u64,
    log: Space,
    log_hash: u64,
    /// Words that are written at once: no more than a slice.
    chunk: u64,
}

impl State {
    /// Begins a collection if a limit says so.
    pub(crate) fn start_cycle_if_due(&mut self) {
        if self.cycle.is_some() {
            return;
        }
        let segment = self.segment();
        let used = |space: &Space, end: u64| end - self.region.start(space.area);
        let mutable = self.mutable.used(&self.region);
        let new_mutable = mutable.saturating_sub(self.collected_mutable);
        let live = used(&self.immutable, self.collected_end);
        let tight = self.bank.available() < self.reserve(self.immutable.next) + 2;

        // Limits fall on segment boundaries, so that every segment is full when it is erased. A
        // collection begins a few commits ahead, to be done before the next segment is begun.
        let lead = 8 * self.committed_bytes;
        let is_due = |space: &Space, limit: u64| {
            space.used(&self.region) + lead >= limit.max(1).next_multiple_of(segment)
        };
        let limit = self
            .limits
            .persistent_bytes
            .unwrap_or((live + self.collected_mutable).max(self.capacity() / 8));
        let new = self.immutable.next.saturating_sub(self.collected_end) + new_mutable;
        let collect = (new_mutable < new && is_due(&self.immutable, live + limit))
            || new_mutable >= limit
            || (tight && new >= segment.max(live / 4));

        let limit = self.limits.log_bytes.unwrap_or(self.capacity() / 16);
        // At least half of the log is new before it is compacted.
        let compacted = used(&self.log, self.compacted_end);
        let truncate = is_due(&self.log, limit.max(2 * compacted))
            || (tight && self.log.next - self.compacted_end >= segment.max(mutable));

        if collect {
            self.start_cycle(Kind::Collect);
        } else if truncate {
            // The new log holds all of mutable space: it is shorter without the garbage.
            let grown = new_mutable > self.collected_mutable;
            self.start_cycle(if grown { Kind::Collect } else { Kind::Truncate });
        }
    }

    fn capacity(&self) -> u64 {
        self.bank.segments().len() as u64 * self.segment()
    }

    pub(crate) fn start_cycle(&mut self, kind: Kind) {
        assert!(self.cycle.is_none(), "one persistent collection at a time");
        let (immutable, mutable) = match kind {
            Kind::Collect => (
                Space::new(self.immutable.area.other(), &self.region),
                Space::new(self.mutable.area.other(), &self.region),
            ),
            Kind::Truncate => (self.immutable, self.mutable),
        };
        let log = Space::new(self.log.area.other(), &self.region);
        let start = self.region.start(mutable.area);
        self.cycle = Some(Cycle {
            kind,
            dirty: VecDeque::new(),
            forward: HashMap::default(),
            written: immutable.next,
            immutable,
            buffer: Vec::new(),
            scanned: 0,
            extents: Vec::new(),
            mutable,
            mutable_scanned: start,
            mutable_logged: start,
            log,
            log_hash: self.bank.identity().key,
            chunk: (self.slice_bytes() / WORD).clamp(1, CHUNK),
        });
    }

    /// Works on the collection under way until about `words` have been handled. Returns whether it
    /// is complete, as far as committed data goes.
    pub(crate) fn step(&mut self, words: u64) -> Result<bool> {
        let Some(mut cycle) = self.cycle.take() else {
            return Ok(false);
        };
        let done = cycle.step(self, words);
        match done {
            Ok(_) => self.cycle = Some(cycle),
            // What was copied is of no use; the heap goes on with the originals.
            Err(Error::Full { .. } | Error::WornOut { .. }) => {
                cycle.abandon(self)?;
            }
            Err(error) => return Err(self.fail(error)),
        }
        done
    }

    /// Bytes of a slice: an emulated bank bounds what it may write, memory bounds the rest.
    fn slice_bytes(&self) -> u64 {
        let by_default = self.bank.model().map_or(1 << 20, |model| {
            (2_000_000 * model.ways)
                .checked_div(model.write_ns)
                .unwrap_or(1 << 20)
        });
        self.limits.slice_bytes.unwrap_or(by_default)
    }

    /// A slice of work for a commit: as much as two milliseconds allow.
    pub(crate) fn slice(&mut self) -> Result<()> {
        self.start_cycle_if_due();
        if self.cycle.is_none() {
            return Ok(());
        }
        let (begun, modelled) = (Instant::now(), self.bank.now());
        // Beside that as much as the commit itself has made to do, or the collection never ends.
        let slice = self.slice_bytes() + 8 * self.committed_bytes;
        let words = slice / WORD;
        let complete = self.step(words)?;
        if complete {
            self.flip()?;
        }
        let counters = &mut self.counters;
        counters.slice_max_ns = counters.slice_max_ns.max(begun.elapsed().as_nanos() as u64);
        let modelled = self.bank.now() - modelled;
        counters.slice_max_modelled_ns = counters.slice_max_modelled_ns.max(modelled);
        Ok(())
    }

    /// A whole persistent collection, now. Changes that are not committed stay as they are.
    pub(crate) fn collect_now(&mut self) -> Result<()> {
        self.store_list.undo(&mut self.region);
        let collected = self.collect_committed();
        self.store_list.redo(&mut self.region);
        collected
    }

    fn collect_committed(&mut self) -> Result<()> {
        // What an unfinished cycle has copied may hold words that have just been undone.
        self.note_dirty();
        if self
            .cycle
            .as_ref()
            .is_some_and(|cycle| cycle.kind == Kind::Truncate)
        {
            self.run_cycle()?;
        }
        if self.cycle.is_none() {
            self.start_cycle(Kind::Collect);
        }
        self.run_cycle()
    }

    /// Runs the cycle to its end and flips.
    pub(crate) fn run_cycle(&mut self) -> Result<()> {
        while !self.step(u64::MAX)? {}
        self.flip()
    }

    /// Makes the copies the heap. The store list is empty, or undone.
    pub(crate) fn flip(&mut self) -> Result<()> {
        let Some(mut cycle) = self.cycle.take() else {
            return Ok(());
        };
        match cycle.finish(self) {
            Ok(()) => {}
            Err(error @ (Error::Full { .. } | Error::WornOut { .. })) => {
                cycle.abandon(self)?;
                return Err(error);
            }
            Err(error) => return Err(self.fail(error)),
        }
        self.switch(cycle).map_err(|error| self.fail(error))
    }

    fn switch(&mut self, cycle: Cycle) -> Result<()> {
        let (old_log, old_immutable, old_mutable) =
            (self.log.area, self.immutable.area, self.mutable.area);
        self.compacted_end = cycle.log.next;
        self.log = cycle.log;
        self.log_hash = cycle.log_hash;
        if cycle.kind == Kind::Collect {
            self.immutable = cycle.immutable;
            self.mutable = cycle.mutable;
            self.collected_end = cycle.immutable.next;
            self.collected_mutable = cycle.mutable.used(&self.region);
            self.extents.clone_from(&cycle.extents);
        }
        self.sequence += 1;
        self.write_mini()?;
        self.durable.appended(self.sequence);
        self.durable.wait(self.sequence)?;
        match cycle.kind {
            Kind::Truncate => self.counters.truncations += 1,
            Kind::Collect => {
                self.counters.persistent += 1;
                self.redirect(&cycle, old_mutable);
                self.region.discard(old_mutable, 0);
                self.release(old_immutable)?;
            }
        }
        self.release(old_log)
    }

    /// Pointers of the transitory heap, handles and store list into from-space.
    fn redirect(&mut self, cycle: &Cycle, old_mutable: Area) {
        let forward = |address: u64| cycle.forward.get(&address).copied().unwrap_or(address);
        for address in &mut self.handles.lock().addresses {
            *address = forward(*address);
        }
        self.store_list
            .for_each_address(|address| *address = forward(*address));
        for slot in self.transitory_slots() {
            let target = self.region.load(slot);
            self.region.store(slot, forward(target));
        }
        debug_assert_ne!(self.mutable.area, old_mutable);
    }

    /// Addresses of all pointers in new and old space.
    fn transitory_slots(&self) -> Vec<u64> {
        let mut slots = Vec::new();
        for space in [self.new, self.old] {
            let mut at = self.region.start(space.area);
            while at < space.next {
                let header = Header(self.region.load(at));
                slots.extend(header.pointer_offsets().map(|offset| at + offset * WORD));
                at += header.words() * WORD;
            }
        }
        slots
    }
}

impl Cycle {
    /// Where the copy of the object at `address` is; makes it if there is none.
    fn forward(&mut self, heap: &mut State, address: u64) -> Result<u64> {
        let area = heap.region.area(address);
        // A change that was repeated before its copy was scanned.
        if area == Some(self.immutable.area) || area == Some(self.mutable.area) {
            return Ok(address);
        }
        // A pointer into the transitory heap is not committed: whatever takes its place, a commit
        // or an abort, is noted as dirty.
        if area != Some(heap.immutable.area) && area != Some(heap.mutable.area) {
            return Ok(0);
        }
        if let Some(&copy) = self.forward.get(&address) {
            return Ok(copy);
        }
        let header = Header(heap.region.load(address));
        let words = header.words();
        let copy = if header.is_mutable() {
            let copy = self.mutable.take(&mut heap.region, words)?;
            heap.region.copy(address, copy, words);
            copy
        } else {
            self.buffer
                .extend_from_slice(heap.region.words(address, words));
            let copy = self.immutable.next;
            self.immutable.next += words * WORD;
            copy
        };
        self.forward.insert(address, copy);
        Ok(copy)
    }

    /// Returns whether nothing is left to do.
    fn step(&mut self, heap: &mut State, words: u64) -> Result<bool> {
        let mut left = words;
        if self.kind == Kind::Collect && self.forward.is_empty() {
            self.forward(heap, heap.root())?;
        }
        while left > 0 {
            let did = self.advance(heap)?;
            if did == 0 {
                return Ok(true);
            }
            left = left.saturating_sub(did);
        }
        Ok(false)
    }

    /// Does the next thing there is to do; returns about how many words that took.
    fn advance(&mut self, heap: &mut State) -> Result<u64> {
        if let Some(span) = self.dirty.pop_front() {
            return self.repeat(heap, span);
        }
        if self.scanned < self.buffer.len() {
            return self.scan_immutable(heap);
        }
        if self.mutable_scanned < self.mutable.next && self.kind == Kind::Collect {
            return self.scan_mutable(heap);
        }
        if self.kind == Kind::Truncate {
            self.mutable = heap.mutable;
        }
        if self.mutable_logged < self.mutable.next {
            let words = ((self.mutable.next - self.mutable_logged) / WORD).min(self.chunk);
            let mut record = Record::new();
            record.write(
                self.mutable_logged,
                heap.region.words(self.mutable_logged, words),
            );
            self.append(heap, record, heap.sequence)?;
            self.mutable_logged += words * WORD;
            return Ok(words + STEP.min(self.chunk));
        }
        if !self.buffer.is_empty() {
            return self.write_buffer(heap);
        }
        Ok(0)
    }

    fn scan_immutable(&mut self, heap: &mut State) -> Result<u64> {
        let before = self.buffer.len();
        let header = Header(self.buffer[self.scanned]);
        for offset in header.pointer_offsets() {
            let slot = self.scanned + offset as usize;
            let target = self.buffer[slot];
            if target != 0 {
                self.buffer[slot] = self.forward(heap, target)?;
            }
        }
        self.scanned += header.words() as usize;
        let copied = (self.buffer.len() - before) as u64;
        // Full and final: to flash with it.
        if self.scanned as u64 >= self.chunk {
            return Ok(copied + self.write_buffer(heap)?);
        }
        Ok(header.words() + copied)
    }

    fn scan_mutable(&mut self, heap: &mut State) -> Result<u64> {
        let header = Header(heap.region.load(self.mutable_scanned));
        for offset in header.pointer_offsets() {
            self.forward_slot(heap, self.mutable_scanned + offset * WORD)?;
        }
        self.mutable_scanned += header.words() * WORD;
        Ok(header.words() * 2)
    }

    fn forward_slot(&mut self, heap: &mut State, slot: u64) -> Result<()> {
        let target = heap.region.load(slot);
        let copy = if target == 0 {
            0
        } else {
            self.forward(heap, target)?
        };
        heap.region.store(slot, copy);
        Ok(())
    }

    /// Writes the scanned front of the buffer to flash.
    fn write_buffer(&mut self, heap: &mut State) -> Result<u64> {
        let words = &self.buffer[..self.scanned];
        let end = self.written + words.len() as u64 * WORD;
        heap.extend(self.immutable.area, end)?;
        let extent = Extent::of(self.written, words);
        heap.bank.write(self.written, bytemuck::cast_slice(words))?;
        push_extent(&mut self.extents, extent, &heap.region);
        self.written = end;
        let words = self.buffer.drain(..self.scanned).len() as u64;
        self.scanned = 0;
        Ok(words)
    }

    /// Repeats a change of from-space on the copy.
    fn repeat(&mut self, heap: &mut State, span: Span) -> Result<u64> {
        let mut to = span;
        if self.kind == Kind::Collect {
            match self.forward.get(&span.object) {
                Some(&copy) => to.object = copy,
                // It will be copied as it then is, if it is alive.
                None => return Ok(1),
            }
            heap.region
                .copy(span.address(), to.address(), span.words.into());
            for slot in to.slots() {
                self.forward_slot(heap, slot)?;
            }
        }
        if to.address() < self.mutable_logged {
            let mut record = Record::new();
            record.write(
                to.address(),
                heap.region.words(to.address(), to.words.into()),
            );
            self.append(heap, record, heap.sequence)?;
        }
        Ok(u64::from(span.words) * 2 + 16)
    }

    /// Appends to the new log half.
    fn append(&mut self, heap: &mut State, record: Record, sequence: u64) -> Result<()> {
        heap.extend(self.log.area, self.log.next + record.bytes())?;
        let (words, hash) = record.seal(sequence, heap.durable.stable(), self.log_hash);
        heap.bank
            .write(self.log.next, bytemuck::cast_slice(&words))?;
        self.log.next += words.len() as u64 * WORD;
        self.log_hash = hash;
        Ok(())
    }

    /// Copies what only the transitory heap and handles refer to, and writes the rest.
    fn finish(&mut self, heap: &mut State) -> Result<()> {
        if self.kind == Kind::Collect {
            let mut roots = heap.handles.lock().addresses.clone();
            heap.store_list
                .for_each_address(|address| roots.push(*address));
            roots.extend(
                heap.transitory_slots()
                    .iter()
                    .map(|&slot| heap.region.load(slot)),
            );
            for root in roots {
                self.forward(heap, root)?;
            }
        }
        while self.advance(heap)? > 0 {}
        let extents = match self.kind {
            Kind::Collect => &mut self.extents,
            Kind::Truncate => &mut heap.extents,
        };
        let mut record = Record::new();
        for extent in extents.iter_mut() {
            if extent.hash == PENDING {
                let words = heap.region.words(extent.start, extent.bytes / WORD);
                *extent = Extent::of(extent.start, words);
            }
            record.extent(*extent);
        }
        self.append(heap, record, heap.sequence + 1)
    }

    /// Gives to-space back.
    fn abandon(self, heap: &mut State) -> Result<()> {
        if self.kind == Kind::Collect {
            heap.release(self.immutable.area)?;
            heap.region.discard(self.mutable.area, 0);
        }
        heap.release(self.log.area)
    }
}
