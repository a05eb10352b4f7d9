//! Faults: the page is in its frame, all zeros, or on flash (paper, 3.5, Figure 4).

use super::super::table::PAGES_MAX;
use super::super::{Check, FrameId, Location, Shape, Svmp, SvmpState};
use super::neighbours::ReadFrames;
use super::room::Room;
use super::{Action, Engine, Event, Host, Outcome, RUN_PAGES};
use crate::ClusterSource;

/// Reads of a page that fail before the page counts as lost.
const READ_TRIES: u32 = 3;

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    page: Svmp,
    is_counted: bool,
    /// The fault waits for a free range.
    room: Option<Room>,
    read: Option<Read>,
}

/// A read of the fault's page, and of its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) at: Location,
    pub(super) shape: Shape,
    pub(super) frames: ReadFrames,
    /// Pages that it would have if there were frames.
    pub(super) wanted: u32,
    check: Check,
    /// Failed tries.
    tries: u32,
}

impl Read {
    fn action(&self) -> Action {
        Action::Read {
            at: self.at,
            shape: self.shape,
            count: self.frames.len(),
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

    /// The frames of the current read.
    pub(super) fn read_frames(&self) -> Option<ReadFrames> {
        self.read.map(|read| read.frames)
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
                let more = !self.frozen && self.take_steps_ahead(host, read.shape, read.wanted);
                return Action::More(more);
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
                    let pages = self.pages_to_zero(page, shape);
                    // Before the page is mapped: if all other pages are condemned, the steps would
                    // evict this page before its thread touches it, again and again.
                    self.take_steps_ahead(host, shape, pages);
                    if let Some(frame) = self.take_range(host, page, shape, pages) {
                        self.map_fresh(host, page, shape, frame, pages);
                        break Outcome::Resolved;
                    }
                    fault.room = Some(Room::new(shape));
                }
                SvmpState::OnFlash(at, check) => {
                    let pages = self.pages_to_read(page, shape, at);
                    self.make_room_for_run(host, shape, pages);
                    let Some(frame) = self.take_range(host, page, shape, pages) else {
                        fault.room = Some(Room::new(shape));
                        continue;
                    };
                    let mut read = Read {
                        at,
                        shape,
                        frames: ReadFrames::new(frame),
                        wanted: pages,
                        check,
                        tries: 0,
                    };
                    self.counters.major += 1;
                    self.begin_read(page, frame, shape, at, check);
                    self.add_neighbours(page, &mut read);
                    fault.read = Some(read);
                    return read.action();
                }
            }
        };
        Action::Done(outcome)
    }

    /// Takes a free range for a page: beside the frame of a neighbour, so that one mapping covers
    /// both, or anywhere. For the first of several `pages`: rather where the frames behind have room for the others.
    fn take_range(
        &mut self,
        host: &mut impl Host,
        page: Svmp,
        shape: Shape,
        pages: u32,
    ) -> Option<FrameId> {
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
        let neighbour = beside.into_iter().flatten().map(FrameId).find(|&frame| {
            let has_room = pages == 1 || self.frames.free_from(frame, shape, pages) == pages;
            has_room && self.frames.take_beside(frame, shape)
        });
        let frame = match neighbour.or_else(|| self.frames.take_run(shape, pages)) {
            Some(frame) => frame,
            None => {
                self.borrow(host);
                self.frames.take_run(shape, pages)?
            }
        };
        self.frames.set_owner(frame, shape, page.0);
        Some(frame)
    }

    /// Pages of zeros that a fault on one of them should map: as many as its stream has earned, within its run.
    fn pages_to_zero(&self, page: Svmp, shape: Shape) -> u32 {
        let most = self
            .pages_expected(page)
            .min(RUN_PAGES - page.0 % RUN_PAGES);
        let is_fresh =
            |count: &u32| self.table.get(Svmp(page.0 + count)) == (shape, SvmpState::Fresh);
        1 + (1..most).take_while(is_fresh).count() as u32
    }

    /// Maps `pages` pages of zeros, and the rest of their run while many frames are free; all in frames side by side.
    fn map_fresh(
        &mut self,
        host: &mut impl Host,
        page: Svmp,
        shape: Shape,
        frame: FrameId,
        pages: u32,
    ) {
        let run_end = (page.0 / RUN_PAGES + 1) * RUN_PAGES;
        let mut count = 1;
        self.fill_fresh(host, page, shape, frame);
        // Stops before a page would have to be evicted for it.
        while page.0 + count < run_end
            && (count < pages || self.frames.available(shape) > RUN_PAGES)
        {
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
        self.streams.follow(page, count);
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

    /// A page is about to be read into its frame.
    pub(super) fn begin_read(
        &mut self,
        page: Svmp,
        frame: FrameId,
        shape: Shape,
        at: Location,
        check: Check,
    ) {
        let place = SvmpState::Reading(frame, Some(at));
        self.table.set(page, shape, place);
        self.frames.set_check(frame, shape, check.into());
        self.reads += 1;
    }

    /// A read has ended: maps the page and its neighbours, reads it again, or declares it lost.
    fn read_ended(
        &mut self,
        host: &mut impl Host,
        page: Svmp,
        read: &mut Read,
        checksum: Option<u64>,
    ) -> Action {
        let checksum = checksum.filter(|&checksum| Check::of(checksum) == read.check);
        let neighbours = self.take_in_neighbours(host, page, read, checksum.is_some());
        // Threads may wait for the neighbours.
        self.announce();
        let (frames, shape) = (read.frames, read.shape);
        let frame = frames.first();
        read.frames = ReadFrames::new(frame);
        let location = self.table.get(page).1.location();
        let Some(checksum) = checksum else {
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
            return Action::Done(Outcome::Lost);
        };
        self.reads -= 1;
        self.count_read(shape);
        self.frames.set_check(frame, shape, checksum);
        self.table
            .set(page, shape, SvmpState::Unmapped(frame, location));
        self.map_read(host, page, &frames.all()[..1 + neighbours]);
        for &frame in &frames.all()[..1 + neighbours] {
            self.clocks.keep(frame, shape);
        }
        Action::Done(Outcome::Resolved)
    }
}
