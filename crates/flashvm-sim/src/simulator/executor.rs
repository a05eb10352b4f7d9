//! Carries out the engine's actions: memory actions at once, flash actions in virtual time.

use super::Simulator;
use super::space::ModelSpace;
use crate::device::{Range, Request};
use crate::memory::Version;
use crate::pool::{Image, compressed, sizes};
use crate::store::StoreClusters;
use flashvm_core::pool::{BLOCK_SLOTS, BlockId};
use flashvm_core::record::{ClusterAnswer, RecordingClusters};
use flashvm_core::space::{ActionContext, Placement};
use flashvm_core::{
    Action, ComparedWith, Engine, Event, IoId, Nanos, PageId, Place, Sizes, SlotId,
};
use std::cmp::Reverse;
use std::collections::VecDeque;

type SimHost<'a, 's> = ActionContext<'a, ModelSpace<'s>, Engine<RecordingClusters<StoreClusters>>>;

/// A flash action in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) kind: FlightKind,
    pub(super) io: IoId,
    pub(super) slot: SlotId,
    pub(super) pages: Vec<PageId>,
    /// In a read for compressed pages, the number of its slots.
    pub(super) packed: Option<u32>,
    /// The block of the pool that it writes or reads.
    pub(super) block: Option<BlockId>,
    /// The data as it was when it began; `None`: looked at when it ends.
    pub(super) seen: Option<Vec<Option<Version>>>,
    /// The block's bytes when it began; `None`: taken when it ends.
    pub(super) image: Option<Image>,
    /// The device failed.
    pub(super) refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightKind {
    Read,
    Scan { compress: bool },
    Write,
    WriteBlock,
    ReadBlock,
    Discard,
}

impl Simulator {
    pub(super) fn engine_log(&mut self) -> Vec<ClusterAnswer> {
        self.engine.clusters_mut().take_log()
    }

    /// Uses the model memory as address space, and wakes threads.
    fn with_space<T>(
        &mut self,
        events: &mut VecDeque<Event>,
        work: impl FnOnce(&mut Placement<Vec<Version>>, &mut SimHost<'_, '_>) -> T,
    ) -> T {
        let (mut woken, mut lost) = (Vec::new(), Vec::new());
        let mut space = ModelSpace {
            memory: &mut self.memory,
            rng: &mut self.rng,
            faults: self.faults.kernel,
            layout: self.layout,
            has_shadow: self.config.shadow,
            protects: self.config.protects,
            stale: self.engine.stale_copies(),
            just_read: self.just_read.as_ref(),
            pool: &self.pool,
            store: &self.store,
            just_unpacked: self.just_unpacked,
            woken: &mut woken,
            opened: Vec::new(),
            code_in_shadow: &mut self.code_in_shadow,
            lost: &mut lost,
        };
        let mut context = ActionContext {
            executor: &mut space,
            engine: &self.engine,
            events,
        };
        let result = work(&mut self.placement, &mut context);
        for run in woken {
            self.wake(run.first, run.count);
        }
        self.lost.extend(lost);
        result
    }

    fn wake(&mut self, first: PageId, count: u32) {
        for thread in self.threads.values_mut() {
            if (first.0..first.0 + count).contains(&thread.page.0) {
                thread.waiting = false;
            }
        }
    }

    /// Retries parked actions; returns whether none is left. If so, every waiting thread touches its page again.
    pub(super) fn retry_parked(&mut self) -> bool {
        self.retry_at = None;
        let mut events = VecDeque::new();
        let through = self.with_space(&mut events, |placement, context| placement.retry(context));
        if through {
            for thread in self.threads.values_mut() {
                thread.waiting = false;
            }
        }
        self.handle(events);
        through
    }

    pub(super) fn forget_parked(&mut self, first: PageId, count: u32) {
        let mut events = VecDeque::new();
        self.with_space(&mut events, |placement, context| {
            placement.forget_parked(context, first, count);
        });
        assert!(events.is_empty(), "nothing follows from forgetting");
    }

    pub(super) fn resolve_spurious(&mut self, page: PageId) -> bool {
        let mut events = VecDeque::new();
        let was = self.with_space(&mut events, |placement, context| {
            placement.resolve_spurious(context, page)
        });
        self.handle(events);
        was
    }

    pub(super) fn unprotect(&mut self, page: PageId) -> bool {
        let mut events = VecDeque::new();
        let was = self.with_space(&mut events, |placement, context| {
            placement.unprotect(context, page)
        });
        self.handle(events);
        was
    }

    pub(super) fn perform(&mut self, actions: &[Action], events: &mut VecDeque<Event>) {
        let mut rest = actions;
        while let Some((&action, behind)) = rest.split_first() {
            let together = self.with_space(events, |placement, context| {
                placement.carry_out_first(context, rest)
            });
            if together > 0 {
                rest = &rest[together..];
                continue;
            }
            rest = behind;
            if action.is_flash() {
                self.begin_flash(action);
            } else if action.is_of_pool() {
                self.work_on_pool(action);
            } else {
                self.with_space(events, |placement, context| {
                    placement.carry_out(context, &action)
                });
            }
        }
    }

    fn work_on_pool(&mut self, action: Action) {
        match action {
            Action::Keep { io, index, object } => {
                let (of, seen) = self
                    .just_scanned
                    .as_ref()
                    .expect("a scan that has just ended");
                assert_eq!(*of, io, "kept from another scan");
                let version = seen[index as usize].expect("what is scanned is in RAM");
                assert_eq!(u32::from(compressed(version)), object.bytes);
                self.pool.keep(object, version);
            }
            Action::Repack { from, to } => {
                let version = self.pool.get(from);
                self.pool.keep(to, version);
            }
            Action::Vacate { block } => {
                let leaving = self
                    .flights
                    .values()
                    .any(|flight| flight.block == Some(block));
                assert!(!leaving, "{block:?} vacated amid its write");
                self.pool.vacate(block);
            }
            _ => unreachable!("no action of the pool"),
        }
    }

    fn begin_flash(&mut self, action: Action) {
        match action {
            Action::Read {
                io,
                slot,
                count,
                demand,
            } => {
                self.begin_flight(FlightKind::Read, io, slot, count);
                let range = Range {
                    first: slot.0,
                    count,
                };
                self.submit(Request::Read(range), demand);
            }
            Action::Scan {
                io,
                count,
                compress,
            } => {
                self.begin_flight(FlightKind::Scan { compress }, io, SlotId(0), count);
                let time = Nanos(u64::from(count) * 200 + self.rng.below(5_000));
                let end = Reverse((self.now.plus(time), self.flights_begun));
                self.ends.push(end);
            }
            Action::Write { io, slot, count } => {
                self.begin_flight(FlightKind::Write, io, slot, count);
                let range = Range {
                    first: slot.0,
                    count,
                };
                self.submit(Request::Write(range), false);
            }
            Action::WriteBlock { io, slot, block } => {
                self.begin_flight(FlightKind::WriteBlock, io, slot, BLOCK_SLOTS);
                let begun = self
                    .flights
                    .get_mut(&self.flights_begun)
                    .expect("just begun");
                begun.block = Some(block);
                if self.rng.below(2) == 0 {
                    begun.image = Some(self.pool.image(block));
                }
                let range = Range {
                    first: slot.0,
                    count: BLOCK_SLOTS,
                };
                self.submit(Request::Write(range), false);
            }
            Action::ReadBlock { io, slot, block } => {
                self.begin_flight(FlightKind::ReadBlock, io, slot, BLOCK_SLOTS);
                let begun = self.flights.get_mut(&self.flights_begun);
                begun.expect("just begun").block = Some(block);
                let range = Range {
                    first: slot.0,
                    count: BLOCK_SLOTS,
                };
                self.submit(Request::Read(range), false);
            }
            Action::Discard { ranges, slots } => self.begin_discard(ranges, slots),
            _ => unreachable!("a memory action"),
        }
    }

    fn begin_flight(&mut self, kind: FlightKind, io: IoId, slot: SlotId, count: u32) {
        let pages = self.engine.io_pages(io).to_vec();
        let block = matches!(kind, FlightKind::WriteBlock | FlightKind::ReadBlock);
        let packed =
            kind == FlightKind::Read && pages.iter().any(|&page| self.reads_packed(page, slot));
        assert!(packed || block || pages.len() == count as usize);
        let mut flight = Flight {
            kind,
            io,
            slot,
            pages,
            packed: packed.then_some(count),
            block: None,
            image: None,
            seen: None,
            refused: false,
        };
        // A device may look at the data at any time of the request, so chance decides. Without a shadow, pages are
        // copied when the write begins.
        let reads = kind == FlightKind::Read || block;
        let must = !self.config.shadow && !reads;
        let waits = flight.packed.is_some() || block;
        if !waits && (must || self.rng.below(2) == 0) {
            flight.seen = Some(self.look(&flight));
        }
        if kind == FlightKind::Write && self.config.shadow {
            self.pin(&flight.pages);
        }
        if matches!(kind, FlightKind::Write | FlightKind::WriteBlock) {
            for i in 0..count {
                self.store.begin_write(slot.plus(i));
            }
        }
        self.flights_begun += 1;
        self.flights.insert(self.flights_begun, flight);
    }

    /// Direct I/O pins the pages that it writes, which unshares them.
    fn pin(&mut self, pages: &[PageId]) {
        for &page in pages {
            assert!(
                !self.engine.is_shared(page) || !self.memory.shares(Place::Shadow, page),
                "{page:?} is charged half, and the write makes a second frame of it"
            );
            self.memory.pin_shadow(page);
        }
    }

    /// Hands the flight begun last to the device.
    fn submit(&mut self, request: Request, demanded: bool) {
        let (tag, process) = (self.flights_begun, self.process);
        self.queue.submit(self.now, tag, request, process, demanded);
    }

    /// Discarded contents are lost when the command begins or when it ends: chance decides.
    fn begin_discard(&mut self, ranges: u32, slots: u32) {
        let told: Vec<Range> = self
            .engine
            .discard_ranges()
            .iter()
            .map(|&(first, count)| Range {
                first: first.0,
                count,
            })
            .collect();
        assert_eq!(told.len(), ranges as usize);
        let request = Request::Discard(told);
        assert_eq!(request.pages(), slots);
        self.flights_begun += 1;
        let flight = Flight {
            kind: FlightKind::Discard,
            io: IoId(0),
            slot: SlotId(0),
            pages: Vec::new(),
            packed: None,
            block: None,
            image: None,
            seen: None,
            refused: self.rng.chance(self.faults.discards),
        };
        if !flight.refused && self.rng.below(2) == 0 {
            self.lose_discarded();
        }
        self.flights.insert(self.flights_begun, flight);
        self.submit(request, false);
    }

    fn lose_discarded(&mut self) {
        for &(first, count) in self.engine.discard_ranges() {
            for slot in (0..count).map(|i| first.plus(i)) {
                self.store.discard(slot);
            }
        }
    }

    fn end_discard(&mut self, refused: bool) {
        if !refused {
            self.lose_discarded();
        }
        self.tell(Event::Discarded { refused });
    }

    /// The contents of a request's slots or pages.
    fn look(&self, flight: &Flight) -> Vec<Option<Version>> {
        let pages = (0..).zip(&flight.pages);
        pages
            .map(|(i, &page)| match flight.kind {
                FlightKind::Read => self.store.slot(flight.slot.plus(i)),
                _ if self.config.shadow => Some(self.memory.in_shadow(page)),
                _ => self.memory.mapped(page).map(|mapped| mapped.version),
            })
            .collect()
    }

    /// Which pages hold the version that is in their slots, or compressed in the pool.
    fn compare(&self, pages: &[PageId], seen: &[Option<Version>]) -> u64 {
        let mut same = 0_u64;
        for (i, (&page, &version)) in pages.iter().zip(seen).enumerate() {
            let copy = match self.engine.compared_with(page) {
                Some(ComparedWith::Slot(slot)) => self.store.slot(slot),
                Some(ComparedWith::Object(object)) => Some(self.pool.get(object)),
                None => None,
            };
            let is_same = version.is_some() && copy == version;
            same |= u64::from(is_same) << i;
        }
        same
    }

    /// Whether a read from this slot is for a compressed page.
    fn reads_packed(&self, page: PageId, slot: SlotId) -> bool {
        self.engine.slot_of(page) != Some(slot) && self.engine.packed_at(page).is_some()
    }

    /// A block has been read back into RAM. The engine is told which slots failed; the model restores all of it.
    fn end_return(&mut self, flight: &Flight) {
        let block = flight.block.expect("the read of a block");
        let mut failed = 0_u64;
        for i in 0..BLOCK_SLOTS {
            failed |= u64::from(self.rng.chance(self.faults.reads) || flight.refused) << i;
        }
        self.pool.restore(block, self.store.image(flight.slot));
        self.tell(Event::ReadDone {
            io: flight.io,
            failed,
        });
    }

    fn end_block(&mut self, flight: &Flight) {
        let block = flight.block.expect("the write of a block");
        let image = flight.image.clone();
        let image = image.unwrap_or_else(|| self.pool.image(block));
        let mut failed = 0_u64;
        for i in 0..BLOCK_SLOTS {
            failed |= u64::from(self.rng.chance(self.faults.writes) || flight.refused) << i;
        }
        self.store.end_block(flight.slot, &image, failed);
        self.tell(Event::WriteDone {
            io: flight.io,
            failed,
        });
    }

    pub(super) fn end_flight(&mut self, flight: Flight) {
        if flight.kind == FlightKind::Discard {
            self.end_discard(flight.refused);
            return;
        }
        if flight.kind == FlightKind::WriteBlock {
            self.end_block(&flight);
            return;
        }
        if flight.kind == FlightKind::ReadBlock {
            self.end_return(&flight);
            return;
        }
        if let Some(slots) = flight.packed {
            let mut failed = 0_u64;
            for i in 0..slots {
                failed |= u64::from(self.rng.chance(self.faults.reads) || flight.refused) << i;
            }
            self.just_unpacked = Some((flight.io, flight.slot));
            self.tell(Event::ReadDone {
                io: flight.io,
                failed,
            });
            self.just_unpacked = None;
            return;
        }
        let seen = flight.seen.clone().unwrap_or_else(|| self.look(&flight));
        let chance = match flight.kind {
            FlightKind::Read => self.faults.reads,
            FlightKind::Write => self.faults.writes,
            FlightKind::Scan { .. }
            | FlightKind::WriteBlock
            | FlightKind::ReadBlock
            | FlightKind::Discard => 0,
        };
        let mut mask = 0_u64;
        for (i, version) in (0..).zip(&seen) {
            let bit = match flight.kind {
                FlightKind::Scan { .. } => *version == Some(0),
                _ => self.rng.chance(chance) || flight.refused,
            };
            mask |= u64::from(bit) << i;
            if flight.kind == FlightKind::Write {
                let version = version.expect("what is written is in RAM");
                let written = (!bit).then_some(version);
                self.store.end_write(flight.slot.plus(i), written);
            }
        }
        let io = flight.io;
        match flight.kind {
            FlightKind::WriteBlock | FlightKind::ReadBlock | FlightKind::Discard => {
                unreachable!("ended above")
            }
            FlightKind::Scan { compress } => {
                let sizes = if compress {
                    sizes(&seen)
                } else {
                    Sizes::default()
                };
                let same = self.compare(&flight.pages, &seen);
                self.just_scanned = Some((io, seen));
                self.tell(Event::Scanned {
                    io,
                    zero: mask,
                    same,
                    sizes,
                });
                self.just_scanned = None;
            }
            FlightKind::Write => self.tell(Event::WriteDone { io, failed: mask }),
            FlightKind::Read => {
                self.just_read = Some((io, seen));
                self.tell(Event::ReadDone { io, failed: mask });
                self.just_read = None;
            }
        }
    }
}
