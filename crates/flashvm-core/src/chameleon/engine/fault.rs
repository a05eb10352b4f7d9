//! Faults: the page is in its frame, all zeros, or on flash (paper, 3.5, Figure 4).

use super::super::table::PAGES_MAX;
use super::super::{Check, FrameId, Location, Shape, Svmp, SvmpState};
use super::room::Room;
use super::{Action, Engine, Event, Host, Outcome};
use crate::ClusterSource;

/// Reads of a page that fail before the page counts as lost.
const READ_TRIES: u32 = 3;
/// Pages of zeros mapped at once while frames are free: the rest of the page's run.
const FRESH_RUN: u32 = 64;

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    page: Svmp,
    is_counted: bool,
    /// The fault waits for a free range.
    room: Option<Room>,
    read: Option<Read>,
}

/// A read of the fault's page.
#[derive(Clone, Copy, Debug)]
struct Read {
    at: Location,
    frame: FrameId,
    shape: Shape,
    check: Check,
    /// Failed tries.
    tries: u32,
}

impl Read {
    fn action(&self) -> Action {
        Action::Read {
            at: self.at,
            frame: self.frame,
            shape: self.shape,
        }
    }
}

impl Fault {
    pub(super) fn new(page: Svmp) -> Self {
        Self {
            page,
            is_counted: false,
            room: None,
            read: None,
        }
    }
}

impl<C: ClusterSource> Engine<C> {
    pub(super) fn fault(
        &mut self,
        host: &mut impl Host,
        fault: &mut Fault,
        runs_round: &mut bool,
        event: Event,
    ) -> Action {
        let action = match (event, &mut fault.read) {
            (Event::Meanwhile, Some(read)) => {
                return Action::More(!self.frozen && self.take_steps_ahead(host, read.shape));
            }
            (Event::Read(checksum), Some(read)) => {
                let action = self.read_ended(host, fault.page, read, checksum);
                if matches!(action, Action::Done(_)) {
                    fault.read = None;
                }
                action
            }
            _ => self.look_up(host, fault, runs_round),
        };
        if matches!(action, Action::Done(_)) {
            self.call_writer_if_due(host);
        }
        action
    }

    /// Decides by the table entry.
    fn look_up(
        &mut self,
        host: &mut impl Host,
        fault: &mut Fault,
        runs_round: &mut bool,
    ) -> Action {
        let page = fault.page;
        let outcome = loop {
            if let Some(room) = &mut fault.room {
                if let Some(action) = self.make_room(host, room, runs_round) {
                    return action;
                }
                fault.room = None;
            }
            let (shape, place) = self.table.get(page);
            if place != SvmpState::Absent && !std::mem::replace(&mut fault.is_counted, true) {
                self.counters.faults += 1;
            }
            match place {
                SvmpState::Absent => break Outcome::NotOurs,
                SvmpState::Lost => break Outcome::Lost,
                // Another thread has resolved the fault.
                SvmpState::Mapped(..) => break Outcome::Resolved,
                SvmpState::Unmapped(frame, _) | SvmpState::Condemned(frame, _) => {
                    self.counters.soft += 1;
                    // Map the page before setting its reference bit, or making room for it may consume the bit.
                    self.map(host, page, 1);
                    if matches!(place, SvmpState::Condemned(..)) {
                        // The page was a victim and is in no FIFO.
                        self.clocks.keep(frame, shape);
                    } else {
                        self.clocks.reference(frame, shape);
                    }
                    break Outcome::Resolved;
                }
                SvmpState::Reading(..) => return Action::Await,
                SvmpState::Fresh => {
                    // Before the page is mapped: if all other pages are condemned, the steps would
                    // evict this page before its thread touches it, again and again.
                    self.take_steps_ahead(host, shape);
                    if let Some(frame) = self.take_range(host, page, shape) {
                        self.map_fresh(host, page, shape, frame);
                        break Outcome::Resolved;
                    }
                    fault.room = Some(Room::new(shape));
                }
                SvmpState::OnFlash(at, check) => match self.take_range(host, page, shape) {
                    Some(frame) => {
                        let read = Read {
                            at,
                            frame,
                            shape,
                            check,
                            tries: 0,
                        };
                        self.begin_read(page, &read);
                        fault.read = Some(read);
                        return read.action();
                    }
                    None => fault.room = Some(Room::new(shape)),
                },
            }
        };
        Action::Done(outcome)
    }

    /// Takes a free range for a page: beside the frame of a neighbour, so that one mapping covers
    /// both, or anywhere.
    fn take_range(&mut self, host: &mut impl Host, page: Svmp, shape: Shape) -> Option<FrameId> {
        let before = page
            .0
            .checked_sub(1)
            .and_then(|page| self.mapped_frame(page));
        let after = Some(page.0 + 1).filter(|&next| next < PAGES_MAX);
        let after = after.and_then(|page| self.mapped_frame(page));
        let beside = [
            before.and_then(|frame| frame.checked_add(1)),
            after.and_then(|frame| frame.checked_sub(1)),
        ];
        let neighbour = beside
            .into_iter()
            .flatten()
            .map(FrameId)
            .find(|&frame| self.frames.take_beside(frame, shape));
        let frame = match neighbour.or_else(|| self.frames.take(shape)) {
            Some(frame) => frame,
            None => {
                self.borrow(host);
                self.frames.take(shape)?
            }
        };
        self.frames.set_owner(frame, shape, page.0);
        Some(frame)
    }

    /// Maps a page of zeros, and the rest of its run while frames beside it are free.
    fn map_fresh(&mut self, host: &mut impl Host, page: Svmp, shape: Shape, frame: FrameId) {
        let run_end = (page.0 / FRESH_RUN + 1) * FRESH_RUN;
        let mut count = 1;
        self.fill_fresh(host, page, shape, frame);
        // Stops before a page would have to be evicted for it.
        while page.0 + count < run_end && self.frames.available(shape) > FRESH_RUN {
            let (next, beside) = (Svmp(page.0 + count), FrameId(frame.0 + count));
            if self.table.get(next) != (shape, SvmpState::Fresh)
                || !self.frames.take_at(beside, shape)
            {
                break;
            }
            self.frames.set_owner(beside, shape, next.0);
            self.fill_fresh(host, next, shape, beside);
            count += 1;
        }
        self.map(host, page, count);
        for at in 0..count {
            self.clocks.keep(FrameId(frame.0 + at), shape);
        }
    }

    fn fill_fresh(&mut self, host: &mut impl Host, page: Svmp, shape: Shape, frame: FrameId) {
        host.fill_zeros(frame, shape);
        self.counters.fresh += 1;
        self.table
            .set(page, shape, SvmpState::Unmapped(frame, None));
    }

    fn begin_read(&mut self, page: Svmp, read: &Read) {
        let place = SvmpState::Reading(read.frame, Some(read.at));
        self.table.set(page, read.shape, place);
        self.frames
            .set_check(read.frame, read.shape, read.check.into());
        self.counters.major += 1;
        self.reads += 1;
    }

    /// A read has ended: maps the page, reads it again, or declares it lost.
    fn read_ended(
        &mut self,
        host: &mut impl Host,
        page: Svmp,
        read: &mut Read,
        checksum: Option<u64>,
    ) -> Action {
        let Read { frame, shape, .. } = *read;
        let location = self.table.get(page).1.location();
        let Some(checksum) = checksum.filter(|&checksum| Check::of(checksum) == read.check) else {
            let there = location.expect("a page that is being read is on flash");
            if there == read.at {
                read.tries += 1;
            } else {
                // The cleaner has moved the page, and its old place may have been overwritten.
                read.at = there;
            }
            if read.tries < READ_TRIES {
                return read.action();
            }
            self.reads -= 1;
            self.counters.read_errors += 1;
            self.flash.release(&mut self.clusters, there, shape);
            self.frames.release(frame, shape);
            self.table.set(page, shape, SvmpState::Lost);
            host.tell_lost(page, shape);
            self.announce();
            return Action::Done(Outcome::Lost);
        };
        self.reads -= 1;
        self.counters.read_pages += 1;
        self.counters.read_bytes += shape.size() as u64;
        self.frames.set_check(frame, shape, checksum);
        self.table
            .set(page, shape, SvmpState::Unmapped(frame, location));
        self.map(host, page, 1);
        self.clocks.keep(frame, shape);
        self.announce();
        Action::Done(Outcome::Resolved)
    }
}
