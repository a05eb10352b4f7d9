//! Carrying out what the engine asks for: memory actions at once, flash actions in their time.

use super::Simulator;
use crate::device::{Range, Request};
use crate::memory::Version;
use flashvm_core::record::ClusterAnswer;
use flashvm_core::{Action, Event, IoId, Nanos, PageId, Place, SlotId};
use std::cmp::Reverse;

/// A flash action under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) kind: FlightKind,
    pub(super) io: IoId,
    pub(super) slot: SlotId,
    pub(super) pages: Vec<PageId>,
    /// What was seen when it began; `None`: looks when it ends.
    pub(super) seen: Option<Vec<Option<Version>>>,
    /// The device could not do it.
    pub(super) refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightKind {
    Read,
    Scan,
    Write,
    Discard,
}

impl Simulator {
    pub(super) fn engine_log(&mut self) -> Vec<ClusterAnswer> {
        self.engine.clusters_mut().take_log()
    }

    pub(super) fn wake(&mut self, first: PageId, count: u32) {
        for thread in self.threads.values_mut() {
            if (first.0..first.0 + count).contains(&thread.page.0) {
                thread.waiting = false;
            }
        }
    }

    pub(super) fn perform(&mut self, action: Action, refused: &mut Vec<PageId>) {
        match action {
            Action::Zero {
                first,
                count,
                protect,
            } => {
                for i in 0..count {
                    self.memory.map(first.plus(i), 0, protect);
                }
                self.wake(first, count);
            }
            Action::Map {
                io,
                index,
                first,
                count,
                place,
                protect,
            } => {
                let (of, seen) = self.just_read.take().expect("a read that has just ended");
                assert_eq!(of, io, "a read that has not just ended is mapped");
                for i in 0..count {
                    let page = first.plus(i);
                    let version = seen[(index + i) as usize];
                    let version = version.unwrap_or_else(|| panic!("{page:?} read amid a write"));
                    match place {
                        Place::Region => self.memory.map(page, version, protect),
                        Place::Shadow => self.memory.map_shadow(page, version),
                    }
                }
                self.just_read = Some((of, seen));
                if place == Place::Region {
                    self.wake(first, count);
                }
            }
            Action::Shadow { first, count } => {
                for page in (0..count).map(|i| first.plus(i)) {
                    if !self.config.shadow {
                        self.memory.protect(page);
                    } else if self.rng.chance(self.faults.refusals) {
                        refused.push(page);
                    } else {
                        self.memory.shadow(page);
                    }
                }
            }
            Action::Restore { page } => {
                self.memory.restore(page);
                self.wake(page, 1);
            }
            Action::RestoreCopy { page, protect } => {
                self.memory.restore_copy(page, protect);
                self.wake(page, 1);
            }
            Action::Drop { first, count } => {
                for page in (0..count).map(|i| first.plus(i)) {
                    if self.config.shadow {
                        self.memory.drop_shadow(page);
                    } else {
                        self.memory.drop_mapped(page);
                    }
                }
            }
            Action::Unprotect { page } => {
                self.memory.unprotect(page);
                self.wake(page, 1);
            }
            Action::Poison { page } => {
                if !self.memory.is_poisoned(page) {
                    self.memory.poison(page);
                }
                self.lost.insert(page);
                self.wake(page, 1);
            }
            Action::Wake { page } => self.wake(page, 1),
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
            Action::Scan { io, count } => {
                self.begin_flight(FlightKind::Scan, io, SlotId(0), count);
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
            Action::Discard { ranges, slots } => self.begin_discard(ranges, slots),
        }
    }

    fn begin_flight(&mut self, kind: FlightKind, io: IoId, slot: SlotId, count: u32) {
        let pages = self.engine.io_pages(io).to_vec();
        assert_eq!(pages.len(), count as usize);
        let mut flight = Flight {
            kind,
            io,
            slot,
            pages,
            seen: None,
            refused: false,
        };
        // A device may look at any time; without a shadow, pages are copied when it begins.
        let must = !self.config.shadow && kind != FlightKind::Read;
        if must || self.rng.below(2) == 0 {
            flight.seen = Some(self.look(&flight));
        }
        if kind == FlightKind::Write {
            for i in 0..count {
                self.store.begin_write(slot.plus(i));
            }
        }
        self.flights_begun += 1;
        self.flights.insert(self.flights_begun, flight);
    }

    /// Hands the flight begun last to the device.
    fn submit(&mut self, request: Request, demanded: bool) {
        let (tag, process) = (self.flights_begun, self.process);
        self.queue.submit(self.now, tag, request, process, demanded);
    }

    /// What is discarded is lost at once, or when the command ends.
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

    /// What a request sees when it looks at its slots or pages.
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

    pub(super) fn end_flight(&mut self, flight: Flight) {
        if flight.kind == FlightKind::Discard {
            self.end_discard(flight.refused);
            return;
        }
        let seen = flight.seen.clone().unwrap_or_else(|| self.look(&flight));
        let chance = match flight.kind {
            FlightKind::Read => self.faults.reads,
            FlightKind::Write => self.faults.writes,
            FlightKind::Scan | FlightKind::Discard => 0,
        };
        let mut mask = 0_u64;
        for (i, version) in (0..).zip(&seen) {
            let bit = match flight.kind {
                FlightKind::Scan => *version == Some(0),
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
            FlightKind::Discard => unreachable!("ended above"),
            FlightKind::Scan => self.tell(Event::Scanned { io, zero: mask }),
            FlightKind::Write => self.tell(Event::WriteDone { io, failed: mask }),
            FlightKind::Read => {
                self.just_read = Some((io, seen));
                self.tell(Event::ReadDone { io, failed: mask });
                self.just_read = None;
            }
        }
    }
}
