//! The work of a persistent collection in small steps: copying, following pointers, writing, and
//! repeating the program's changes. No step takes long, however large an object is.

use super::buffer::Buffer;
use super::forwarding::Forwarding;
use super::{CHUNK, CycleKind, STEP};
use crate::error::Result;
use crate::heap::commit::{PENDING, push_extent};
use crate::heap::log::{Extent, Record};
use crate::heap::state::{Space, State};
use crate::heap::store_list::Span;
use crate::object::Header;
use crate::region::WORD;
use std::collections::VecDeque;

/// The cost of following a pointer, in copied words.
const POINTER: u64 = 4;
/// Words of an extent in the log.
const EXTENT_WORDS: u64 = 3;

/// The current persistent collection.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub(super) kind: CycleKind,
    /// Changes in from-space to repeat on the copies.
    pub(crate) dirty: VecDeque<Span>,
    pub(super) forward: Forwarding,
    /// To-space on flash, up to the last place that was given out.
    pub(super) immutable: Space,
    buffer: Buffer,
    immutable_copies: Copies,
    immutable_scan: Scan,
    /// End of the part of immutable to-space that is written.
    written: u64,
    pub(super) extents: Vec<Extent>,
    extents_logged: usize,
    /// To-space in DRAM; below, the ends of the parts that are copied and logged.
    pub(super) mutable: Space,
    mutable_copies: Copies,
    mutable_copied: u64,
    mutable_scan: Scan,
    pub(super) mutable_logged: u64,
    pub(super) log: Space,
    pub(super) log_hash: u64,
    /// Words written at once: at most a slice.
    chunk: u64,
}

/// Objects whose copies have a place but lack words: address and number of missing words, in the
/// order of the copies.
type Copies = VecDeque<(u64, u64)>;

/// The position of the scan: all pointers before it are final.
#[derive(Debug)]
struct Scan {
    /// The object, as address or position.
    object: u64,
    header: Option<Header>,
    /// Its next pointer.
    pointer: u64,
}

impl Scan {
    fn at(object: u64) -> Self {
        Self {
            object,
            header: None,
            pointer: 0,
        }
    }
}

impl Cycle {
    pub(super) fn new(heap: &State, kind: CycleKind, chunk: u64) -> Self {
        let (immutable, mutable) = match kind {
            CycleKind::Collect => (
                Space::new(heap.immutable.area.other(), &heap.region),
                Space::new(heap.mutable.area.other(), &heap.region),
            ),
            CycleKind::Truncate => (heap.immutable, heap.mutable),
        };
        let start = heap.region.start(mutable.area);
        let chunk = chunk.clamp(1, CHUNK);
        Self {
            kind,
            dirty: VecDeque::new(),
            forward: Forwarding::default(),
            written: immutable.next,
            immutable,
            buffer: Buffer::new(chunk as usize),
            immutable_copies: Copies::new(),
            immutable_scan: Scan::at(0),
            extents: Vec::new(),
            extents_logged: 0,
            mutable,
            mutable_copies: Copies::new(),
            mutable_copied: start,
            mutable_scan: Scan::at(start),
            mutable_logged: start,
            log: Space::new(heap.log.area.other(), &heap.region),
            log_hash: heap.bank.identity().key,
            chunk,
        }
    }

    /// The address of the copy of the object at `address`; creates the copy if necessary.
    fn forward(&mut self, heap: &mut State, address: u64) -> Result<u64> {
        let area = heap.region.area(address);
        // Already a copy's address: a repeated change put it here before the scan came.
        if area == Some(self.immutable.area) || area == Some(self.mutable.area) {
            return Ok(address);
        }
        // A pointer into the transitory heap is not committed. The commit or abort that replaces it
        // notes the place as dirty.
        if area != Some(heap.immutable.area) && area != Some(heap.mutable.area) {
            return Ok(0);
        }
        if let Some(copy) = self.forward.get(address) {
            return Ok(copy);
        }
        let header = Header(heap.region.load(address));
        let words = header.words();
        let small = words <= self.chunk;
        let copy = if heap.is_kept_in_dram(header) {
            let copy = self.mutable.take(&mut heap.region, words)?;
            if small && self.mutable_copies.is_empty() {
                heap.region.copy(address, copy, words);
                self.mutable_copied += words * WORD;
            } else {
                self.mutable_copies.push_back((address, words));
            }
            copy
        } else {
            let copy = self.immutable.next;
            self.immutable.next += words * WORD;
            if small && self.immutable_copies.is_empty() {
                self.buffer.push(heap.region.words(address, words));
            } else {
                self.immutable_copies.push_back((address, words));
            }
            copy
        };
        self.forward.insert(address, copy);
        Ok(copy)
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

    /// Works until about `words` words have been processed; returns whether nothing is left to do.
    pub(super) fn step(&mut self, heap: &mut State, words: u64) -> Result<bool> {
        let mut left = words;
        while left > 0 {
            let mut did = self.advance(heap)?;
            if did == 0 {
                did = self.roots(heap)?;
            }
            if did == 0 {
                return Ok(true);
            }
            left = left.saturating_sub(did);
        }
        Ok(false)
    }

    /// Copies the objects to which the root, handles, store list and transitory heap refer. Returns
    /// [`STEP`] if there were new ones, otherwise 0.
    fn roots(&mut self, heap: &mut State) -> Result<u64> {
        if self.kind == CycleKind::Truncate {
            return Ok(0);
        }
        let before = (self.immutable.next, self.mutable.next);
        // The root comes first in mutable space.
        self.forward(heap, heap.root())?;
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
        Ok(u64::from(before != (self.immutable.next, self.mutable.next)) * STEP)
    }

    /// Takes the next step; returns the approximate number of words it processed.
    fn advance(&mut self, heap: &mut State) -> Result<u64> {
        if !self.dirty.is_empty() {
            return self.repeat(heap);
        }
        if let Some(block) = self.buffer.take(self.settled(), false) {
            return self.write(heap, block);
        }
        if self.kind == CycleKind::Collect {
            let did = self.scan_immutable(heap)? + self.scan_mutable(heap)?;
            let did = did + self.copy_some(heap);
            if did > 0 {
                return Ok(did);
            }
        } else {
            self.mutable = heap.mutable;
        }
        if self.mutable_logged < self.mutable.next {
            return self.log_some(heap);
        }
        if let Some(block) = self.buffer.take(self.settled(), true) {
            return self.write(heap, block);
        }
        // The last extent may still grow.
        let full = self.extents_to_log(heap).len().saturating_sub(1);
        let batch = full
            .saturating_sub(self.extents_logged)
            .min(self.chunk.div_ceil(EXTENT_WORDS) as usize);
        if batch > 0 {
            let from = self.extents_logged;
            let mut record = Record::new();
            for &extent in &self.extents_to_log(heap)[from..from + batch] {
                record.extent(extent);
            }
            self.append(heap, record, heap.sequence)?;
            self.extents_logged += batch;
        }
        Ok(batch as u64 * EXTENT_WORDS)
    }

    /// Copies a part of an object that is too large for one step.
    fn copy_some(&mut self, heap: &mut State) -> u64 {
        let mut did = 0;
        if let Some((from, left)) = self.immutable_copies.front_mut() {
            let words = self.chunk.min(*left);
            self.buffer.push(heap.region.words(*from, words));
            (*from, *left, did) = (*from + words * WORD, *left - words, did + words);
            if *left == 0 {
                self.immutable_copies.pop_front();
            }
        }
        if let Some((from, left)) = self.mutable_copies.front_mut() {
            let words = self.chunk.min(*left);
            heap.region.copy(*from, self.mutable_copied, words);
            self.mutable_copied += words * WORD;
            (*from, *left, did) = (*from + words * WORD, *left - words, did + words);
            if *left == 0 {
                self.mutable_copies.pop_front();
            }
        }
        did
    }

    /// The position up to which the buffer is final.
    fn settled(&self) -> u64 {
        let Scan {
            object,
            header,
            pointer,
        } = self.immutable_scan;
        let end = self.buffer.end();
        match header {
            Some(header) if pointer < header.pointer_count() => {
                end.min(object + header.pointer_offset(pointer))
            }
            Some(_) => end,
            None => object,
        }
    }

    fn scan_immutable(&mut self, heap: &mut State) -> Result<u64> {
        let end = self.buffer.end();
        let object = self.immutable_scan.object;
        if object >= end {
            return Ok(0);
        }
        let header = match self.immutable_scan.header {
            Some(header) => header,
            None => Header(self.buffer.get(object)),
        };
        self.immutable_scan.header = Some(header);
        let mut did = 0;
        while did < STEP && self.immutable_scan.pointer < header.pointer_count() {
            let slot = object + header.pointer_offset(self.immutable_scan.pointer);
            if slot >= end {
                return Ok(did);
            }
            let target = self.buffer.get(slot);
            if target != 0 {
                let before = self.buffer.end();
                let copy = self.forward(heap, target)?;
                self.buffer.set(slot, copy);
                did += self.buffer.end() - before;
            }
            self.immutable_scan.pointer += 1;
            did += POINTER;
        }
        let whole = object + header.words() <= self.buffer.end();
        if whole && self.immutable_scan.pointer == header.pointer_count() {
            self.immutable_scan = Scan::at(object + header.words());
            did += 1;
        }
        Ok(did)
    }

    fn scan_mutable(&mut self, heap: &mut State) -> Result<u64> {
        let object = self.mutable_scan.object;
        if object >= self.mutable_copied {
            return Ok(0);
        }
        let header = Header(heap.region.load(object));
        let mut did = 0;
        while did < STEP && self.mutable_scan.pointer < header.pointer_count() {
            let slot = object + header.pointer_offset(self.mutable_scan.pointer) * WORD;
            if slot >= self.mutable_copied {
                return Ok(did);
            }
            let before = self.mutable_copied;
            self.forward_slot(heap, slot)?;
            did += POINTER + (self.mutable_copied - before) / WORD;
            self.mutable_scan.pointer += 1;
        }
        let whole = object + header.words() * WORD <= self.mutable_copied;
        if whole && self.mutable_scan.pointer == header.pointer_count() {
            self.mutable_scan = Scan::at(object + header.words() * WORD);
            did += 1;
        }
        Ok(did)
    }

    /// Writes a part of mutable to-space to the new log; for Sidney all changes to the data
    /// segment.
    fn log_some(&mut self, heap: &mut State) -> Result<u64> {
        if heap.data_segment.is_some() {
            let end = self.mutable.next;
            let words = heap.write_pages(self.mutable)?;
            self.mutable_logged = end;
            return Ok(words + STEP);
        }
        let words = ((self.mutable.next - self.mutable_logged) / WORD).min(self.chunk);
        let mut record = Record::new();
        record.write(
            self.mutable_logged,
            heap.region.words(self.mutable_logged, words),
        );
        self.append(heap, record, heap.sequence)?;
        self.mutable_logged += words * WORD;
        Ok(words + STEP.min(self.chunk))
    }

    /// Writes a chunk whose pointers are final to flash.
    fn write(&mut self, heap: &mut State, (at, words): (u64, Vec<u64>)) -> Result<u64> {
        let start = heap.region.start(self.immutable.area) + at * WORD;
        debug_assert_eq!(start, self.written);
        let extent = Extent::of(start, &words);
        heap.extend(self.immutable.area, start + extent.bytes)?;
        heap.bank.write(start, bytemuck::cast_slice(&words))?;
        push_extent(&mut self.extents, extent, &heap.region);
        self.written += extent.bytes;
        Ok(words.len() as u64)
    }

    /// Repeats some changes of from-space on the copies.
    fn repeat(&mut self, heap: &mut State) -> Result<u64> {
        let mut record = Record::new();
        let mut did = 0;
        while did < self.chunk
            && let Some(mut span) = self.dirty.pop_front()
        {
            if u64::from(span.words) > self.chunk {
                let (first, rest) = span.split(self.chunk as u32);
                self.dirty.push_front(rest);
                span = first;
            }
            did += 1;
            if self.kind == CycleKind::Collect {
                let Some(copy) = self.forward.get(span.object) else {
                    // No copy yet. If the object is alive, its copy will have the changed contents.
                    continue;
                };
                let to = Span {
                    object: copy,
                    ..span
                };
                heap.region
                    .copy(span.address(), to.address(), span.words.into());
                for slot in to.slots() {
                    self.forward_slot(heap, slot)?;
                }
                span = to;
            }
            if span.address() < self.mutable_logged {
                let words = heap.region.words(span.address(), span.words.into());
                record.write(span.address(), words);
            }
            did += u64::from(span.words) * 2;
        }
        if !record.is_empty() {
            self.append(heap, record, heap.sequence)?;
        }
        Ok(did)
    }

    /// Appends to the new log half.
    fn append(&mut self, heap: &mut State, record: Record, sequence: u64) -> Result<()> {
        heap.extend(self.log.area, self.log.next + record.bytes())?;
        let (words, hash) = record.seal(
            self.log.next,
            sequence,
            heap.durable.stable(),
            self.log_hash,
        );
        heap.bank
            .write(self.log.next, bytemuck::cast_slice(&words))?;
        self.log.next += words.len() as u64 * WORD;
        self.log_hash = hash;
        Ok(())
    }

    /// Completes the work, and ends the new log with the checksums of the data that it does not
    /// hold.
    pub(super) fn finish(&mut self, heap: &mut State) -> Result<()> {
        while !self.step(heap, u64::MAX)? {}
        let logged = self.extents_logged;
        let extents = match self.kind {
            CycleKind::Collect => &mut self.extents,
            CycleKind::Truncate => &mut heap.extents,
        };
        let mut record = Record::new();
        for extent in &mut extents[logged..] {
            if extent.hash == PENDING {
                let words = heap.region.words(extent.start, extent.bytes / WORD);
                *extent = Extent::of(extent.start, words);
            }
            record.extent(*extent);
        }
        if let Some(segment) = &heap.data_segment {
            record.sums(heap.region.start(self.mutable.area), segment.sums());
        }
        self.append(heap, record, heap.sequence + 1)
    }

    fn extents_to_log<'a>(&'a self, heap: &'a State) -> &'a [Extent] {
        match self.kind {
            CycleKind::Collect => &self.extents,
            CycleKind::Truncate => &heap.extents,
        }
    }

    /// Frees to-space.
    pub(super) fn abandon(self, heap: &mut State) -> Result<()> {
        if self.kind == CycleKind::Collect {
            heap.release(self.immutable.area)?;
            heap.region.zap(self.mutable.area, 0);
        }
        heap.release(self.log.area)
    }
}
