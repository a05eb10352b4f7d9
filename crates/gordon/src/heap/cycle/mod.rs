//! The persistent collection (section 6.3), made concurrent by replication: live objects are copied
//! to the other halves in slices while the program continues with the originals. Changes by commits
//! are noted and repeated on the copies. Once the copies are complete the heap flips to them,
//! between two updates.
//!
//! A table in DRAM holds the forwarding addresses ([`forwarding`]), and a buffer holds copies for
//! flash until their pointers are final ([`buffer`]). When everything is copied, mutable to-space
//! goes to the other log half, and later changes are appended ([`replicate`]). So the flip writes
//! little: the last changes, the checksums of extents, and one mini-log entry, which commits it.
//!
//! When only the log is full, the same happens without moving objects: the log is *truncated*.

mod buffer;
mod forwarding;
mod leftover;
mod replicate;

pub(crate) use leftover::Leftover;
pub(crate) use replicate::Cycle;

use super::state::{Space, State};
use crate::error::{Error, Result};
use crate::object::Header;
use crate::region::WORD;
use std::time::Instant;

/// Words processed between two checks of the budget.
const STEP: u64 = 512;
/// Most words written at once.
const CHUNK: u64 = 1 << 14;

/// Modelled ns of the writes of one slice.
const SLICE_NS: u64 = 2_000_000;
/// Most words that a slice processes on an emulated bank.
const SLICE_WORDS: u64 = 1 << 17;

/// The work of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CycleKind {
    /// Copy live objects.
    Collect,
    /// Move nothing; start a new log.
    Truncate,
}

impl State {
    /// Begins a collection if a limit says so.
    pub(crate) fn start_cycle_if_due(&mut self) {
        if self.cycle.is_none()
            && self.leftover.is_none()
            && let Some(kind) = self.due()
        {
            self.start_cycle(kind);
        }
    }

    /// The collection that a limit demands.
    fn due(&self) -> Option<CycleKind> {
        let segment = self.segment();
        let used = |space: &Space, end: u64| end - self.region.start(space.area);
        let mutable = self.mutable.used(&self.region);
        let new_mutable = mutable.saturating_sub(self.collected_mutable);
        let live = used(&self.immutable, self.collected_end);
        let tight = self.bank.available() < self.reserve(self.immutable.next) + 2;

        // A collection begins a few commits early, in order to end before the next segment begins.
        let lead = 8 * self.committed_bytes;
        let is_due = |space: &Space, limit: u64| {
            let boundary = limit.max(1).checked_next_multiple_of(segment);
            let limit = match self.limits.whole_segments {
                true => boundary.unwrap_or(u64::MAX),
                false => limit,
            };
            space.used(&self.region) + lead >= limit
        };
        let limit = self
            .limits
            .persistent_bytes
            .unwrap_or((live + self.collected_mutable).max(self.capacity() / 8));
        let new = self.immutable.next.saturating_sub(self.collected_end) + new_mutable;
        let collect = (new_mutable < new && is_due(&self.immutable, live.saturating_add(limit)))
            || new_mutable >= limit
            || (tight && new >= segment.max(live / 4));

        let limit = self.limits.log_bytes.unwrap_or(self.capacity() / 16);
        // At least half of the log is new before it is compacted.
        let compacted = used(&self.log, self.compacted_end);
        let limit = match self.limits.whole_segments {
            true => limit.max(2 * compacted),
            false => compacted.saturating_add(limit.max(compacted)),
        };
        let truncate = is_due(&self.log, limit)
            || (tight && self.log.next - self.compacted_end >= segment.max(mutable));

        if collect {
            Some(CycleKind::Collect)
        } else if truncate {
            // The new log holds all of mutable space, so collecting the garbage first makes it
            // shorter. Sidney's new log holds only checksums.
            let grown = new_mutable > self.collected_mutable && self.data_segment.is_none();
            Some(if grown {
                CycleKind::Collect
            } else {
                CycleKind::Truncate
            })
        } else {
            None
        }
    }

    fn capacity(&self) -> u64 {
        self.bank.segments().len() as u64 * self.segment()
    }

    pub(crate) fn start_cycle(&mut self, kind: CycleKind) {
        assert!(
            self.cycle.is_none() && self.leftover.is_none(),
            "one persistent collection at a time"
        );
        self.cycle = Some(Cycle::new(self, kind, self.slice_bytes() / WORD));
    }

    /// Runs the current collection until about `words` words have been processed. Returns whether
    /// it is complete for committed data.
    pub(crate) fn step(&mut self, words: u64) -> Result<bool> {
        let Some(mut cycle) = self.cycle.take() else {
            return Ok(false);
        };
        let done = cycle.step(self, words);
        match done {
            Ok(_) => self.cycle = Some(cycle),
            // The copies are useless; the heap continues with the originals.
            Err(Error::Full { .. } | Error::WornOut { .. }) => {
                cycle.abandon(self)?;
            }
            Err(error) => return Err(self.fail(error)),
        }
        done
    }

    /// Bytes that a slice writes at once: `SLICE_NS` of an emulated bank's writes, otherwise 1 MiB.
    fn slice_bytes(&self) -> u64 {
        let by_default = self.bank.model().map_or(1 << 20, |model| {
            (SLICE_NS * model.ways)
                .checked_div(model.write_ns)
                .unwrap_or(1 << 20)
        });
        self.limits.slice_bytes.unwrap_or(by_default)
    }

    /// Whether a collection that fell behind now would soon run out of room.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let spare = self.bank.segments().len() as u64 / 8;
        self.bank.available() <= self.reserve(self.immutable.next) + spare
    }

    /// A slice of work for a commit: on an emulated bank it ends within 5 ms. If the bank is nearly
    /// full, a slice after a long commit takes longer: the collection has to repeat every change,
    /// and must catch up.
    pub(crate) fn slice(&mut self) -> Result<()> {
        self.give_back(false).map_err(|error| self.fail(error))?;
        self.start_cycle_if_due();
        if self.cycle.is_none() {
            return Ok(());
        }
        let (begun, modelled) = (Instant::now(), self.bank.now());
        let timed = self.limits.slice_bytes.is_none() && self.bank.model().is_some();
        let complete = if timed {
            let most = match self.is_nearly_full() {
                false => SLICE_NS,
                true => u64::MAX,
            };
            let budget = SLICE_NS / 2 + (2 * self.committed_ns).min(most);
            let mut left = SLICE_WORDS;
            loop {
                let words = left.min(self.slice_bytes() / WORD).max(1);
                let complete = self.step(words)?;
                left -= words.min(left);
                if complete || left == 0 || self.bank.now() - modelled >= budget {
                    break complete;
                }
            }
        } else {
            let slice = self.slice_bytes() + 8 * self.committed_bytes;
            self.step(slice / WORD)?
        };
        if complete {
            self.flip()?;
        }
        let counters = &mut self.counters;
        counters.slice_max_ns = counters.slice_max_ns.max(begun.elapsed().as_nanos() as u64);
        let modelled = self.bank.now() - modelled;
        counters.slice_max_modelled_ns = counters.slice_max_modelled_ns.max(modelled);
        Ok(())
    }

    /// A whole persistent collection, now. Uncommitted changes stay as they are.
    pub(crate) fn collect_now(&mut self) -> Result<()> {
        self.store_list.undo(&mut self.region);
        let collected = self.collect_committed();
        self.store_list.redo(&mut self.region);
        collected
    }

    fn collect_committed(&mut self) -> Result<()> {
        self.give_back(true).map_err(|error| self.fail(error))?;
        // The copies of an unfinished cycle may hold words that have just been undone.
        self.note_dirty();
        if self
            .cycle
            .as_ref()
            .is_some_and(|cycle| cycle.kind == CycleKind::Truncate)
        {
            self.run_cycle()?;
        }
        if self.cycle.is_none() {
            self.start_cycle(CycleKind::Collect);
        }
        self.run_cycle()
    }

    /// Runs the cycle to its end, flips, and frees all remains.
    pub(crate) fn run_cycle(&mut self) -> Result<()> {
        self.run_to_flip()?;
        self.give_back(true).map_err(|error| self.fail(error))
    }

    /// Runs the cycle to its end, and flips.
    pub(crate) fn run_to_flip(&mut self) -> Result<()> {
        while !self.step(u64::MAX)? {}
        self.flip()
    }

    /// Switches the heap to the copies. The store list is empty, or undone.
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
        let mut left = Leftover::new(self);
        self.compacted_end = cycle.log.next;
        self.log = cycle.log;
        self.log_hash = cycle.log_hash;
        if cycle.kind == CycleKind::Collect {
            self.immutable = cycle.immutable;
            self.mutable = cycle.mutable;
            self.collected_end = cycle.immutable.next;
            self.collected_mutable = cycle.mutable.used(&self.region);
            self.extents.clone_from(&cycle.extents);
        }
        if let Some(segment) = &mut self.data_segment {
            segment.flip();
        }
        self.sequence += 1;
        self.write_mini()?;
        self.durable.appended(self.sequence);
        self.durable.wait(self.sequence)?;
        match cycle.kind {
            CycleKind::Truncate => self.counters.truncations += 1,
            CycleKind::Collect => {
                self.counters.persistent += 1;
                self.redirect(&cycle);
                left.collected(cycle.forward);
            }
        }
        self.leftover = Some(left);
        Ok(())
    }

    /// Redirects the pointers from handles, store list and transitory heap into from-space to the
    /// copies.
    fn redirect(&mut self, cycle: &Cycle) {
        let forward = |address: u64| cycle.forward.get(address).unwrap_or(address);
        for address in &mut self.handles.lock().addresses {
            *address = forward(*address);
        }
        self.store_list
            .for_each_address(|address| *address = forward(*address));
        for slot in self.transitory_slots() {
            let target = self.region.load(slot);
            self.region.store(slot, forward(target));
        }
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
