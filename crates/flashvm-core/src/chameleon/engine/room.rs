//! Room for a page: more frames while the process may have them, then victims of the clocks.
//!
//! An unchanged page (its checksum equals that of the copy on flash) leaves at once. A changed page
//! is condemned and waits for a round. Pages of zeros are not written.

use super::super::{Check, FrameId, Shape, Step, Svmp, SvmpState};
use super::round::BATCH_SECTORS;
use super::{Action, Engine, Failure, Host};
use crate::ClusterSource;

/// Frames requested at once: as many as the heap holds, clamped to `BORROW_MIN..=BORROW_MAX`.
const BORROW_MIN: u32 = 16;
const BORROW_MAX: u32 = 256;
/// Faults between two requests for frames, when the first was refused.
const ASK_AGAIN: u32 = 256;
/// Pauses of a fault that waits for a range, before the process ends.
const PATIENCE: u32 = 20_000;
/// Steps of a clock between two checks.
const GO: u32 = 64;
/// Most frames that one call leaves with pages to be written, for the return of frames.
const EMPTIED_MOST: u32 = 256;
/// Frames of a group, which are emptied one after the other, and groups of which the coldest is taken.
const GROUP: u32 = 64;
const GROUPS: u32 = 4;
/// Ranges kept free of each shape in use: frames / FREE_SHARE, clamped to `1..=FREE_MOST`.
const FREE_SHARE: u32 = 64;
const FREE_MOST: u32 = 128;
/// For a read of n pages: 2 n, at most frames / READ_SHARE.
const READ_SHARE: u32 = 16;
/// Steps of a clock for each page of a read, between two checks whether it has ended.
const STEPS_AHEAD: u32 = 2;

/// A fault that waits for a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    shape: Shape,
    /// Steps of its clock since it last waited.
    steps: u32,
    pauses: u32,
}

impl Room {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            steps: 0,
            pauses: 0,
        }
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Takes more of the process's frames, if the grant has them.
    pub(super) fn borrow(&mut self, host: &mut impl Host) {
        if self.ask_again > 0 {
            self.ask_again -= 1;
            return;
        }
        let asked = self.held.clamp(BORROW_MIN, BORROW_MAX);
        let asked = asked.min(self.frames.most() - self.frames.len());
        let got = host.borrow_frames(asked);
        self.held += got;
        for _ in 0..got {
            self.frames.grow().expect("no more than the heap can have");
        }
        if got < asked || asked == 0 {
            self.ask_again = ASK_AGAIN;
        }
    }

    /// Returns frames that the page pager needs. Takes several calls, since it does not wait for
    /// rounds.
    pub(super) fn return_frames(&mut self, host: &mut impl Host) {
        let target = host.frames_target();
        let (mut returned, mut emptied) = (0, 0);
        while self.held - returned > target {
            if self.shrink(host) {
                returned += 1;
                continue;
            }
            if self.held - returned <= target + emptied
                || emptied >= EMPTIED_MOST
                || self.condemned_sectors >= BATCH_SECTORS
            {
                break;
            }
            let Some(frame) = self.next_to_empty() else {
                break;
            };
            for page in self.frames.pages_in(frame, Shape::WHOLE) {
                self.evict(host, frame, page);
            }
            emptied += u32::from(!self.frames.is_free(frame, Shape::WHOLE));
        }
        self.held -= returned;
        if returned > 0 {
            host.return_frames(returned);
        }
    }

    /// The next frame to empty for the page pager: one with a page that can be evicted. Goes through a group of frames side by
    /// side, whose mappings then end together, and turns to the coldest of the next groups after it. `None`: there is none.
    ///
    /// The clock of whole frames is of no help here. It would unmap all pages of a frame to learn whether one of them is used,
    /// and one in eight nearly always is.
    fn next_to_empty(&mut self) -> Option<FrameId> {
        for _ in 0..self.frames.high() + GROUP {
            if self.empty_next.is_multiple_of(GROUP) {
                self.empty_next = self.coldest_group(self.empty_next);
            }
            let frame = FrameId(self.empty_next);
            self.empty_next += 1;
            if frame.0 < self.frames.high() && self.can_evict_in(frame) {
                return Some(frame);
            }
        }
        None
    }

    /// The first frame of a group with something to evict, of the next [`GROUPS`] from this frame on: of the group whose mapped
    /// pages have the fewest sectors. Of the group after those, if there is nothing in them.
    fn coldest_group(&self, from: u32) -> u32 {
        let all = self.frames.high().div_ceil(GROUP).max(1);
        let group = |at| (from / GROUP + at) % all * GROUP;
        let frames = |first: u32| (first..(first + GROUP).min(self.frames.high())).map(FrameId);
        let has_some = |first: &u32| frames(*first).any(|frame| self.can_evict_in(frame));
        let mapped = |first: &u32| -> u32 {
            let sectors = |frame| self.mapped_sectors(frame);
            frames(*first).map(sectors).sum()
        };
        let next = (0..GROUPS.min(all)).map(group).filter(has_some);
        next.min_by_key(mapped).unwrap_or_else(|| group(GROUPS))
    }

    fn mapped_sectors(&self, frame: FrameId) -> u32 {
        let pages = self.frames.pages_in(frame, Shape::WHOLE);
        let is_mapped = |shape: &Shape| {
            let page = self.frames.owner(frame, *shape);
            self.mapped_frame(page).is_some()
        };
        pages.filter(is_mapped).map(Shape::sectors).sum()
    }

    fn can_evict_in(&self, frame: FrameId) -> bool {
        self.frames.pages_in(frame, Shape::WHOLE).any(|shape| {
            let page = Svmp(self.frames.owner(frame, shape));
            self.can_evict(page)
        })
    }

    /// Whether a page is in a frame, and neither pinned, nor being read or written.
    fn can_evict(&self, page: Svmp) -> bool {
        let state = self.table.get(page).1;
        matches!(state, SvmpState::Mapped(..) | SvmpState::Unmapped(..)) && !self.pins.holds(page)
    }

    /// Returns half of the free frames if many are free.
    pub(super) fn return_idle_frames(&mut self, host: &mut impl Host) {
        let idle = self.frames.free_frames();
        if idle > self.held / 2 && idle > 1024 {
            let mut returned = 0;
            while returned < idle / 2 && self.shrink(host) {
                returned += 1;
            }
            self.held -= returned;
            host.return_frames(returned);
        }
    }

    /// Takes a free frame out of the heap, if there is one.
    fn shrink(&mut self, host: &mut impl Host) -> bool {
        let frame = self.frames.shrink();
        if let Some(frame) = frame {
            host.drop_frame(frame);
        }
        frame.is_some()
    }

    /// Frees a range of a shape. `Some`: what the thread does before the next try.
    pub(super) fn make_room(
        &mut self,
        host: &mut impl Host,
        room: &mut Room,
        runs_round: &mut bool,
    ) -> Option<Action> {
        // Two turns of every clock: any page left then is condemned, pinned or being read.
        let around = 2 * self.frames.most() * Shape::WHOLE.sectors();
        while self.frames.available(room.shape) == 0 {
            if room.steps < around {
                let taken = self.take_steps(host, room.shape, 1, GO);
                if taken > 0 {
                    room.steps += taken;
                    continue;
                }
            }
            room.steps = 0;
            if self.round.is_some() {
                return Some(Action::Await);
            } else if self.condemned_sectors > 0 {
                let action = self.begin_round(host, runs_round);
                if action.is_some() {
                    return action;
                }
            } else {
                // All pages are pinned or being read: other threads will soon be done with some.
                room.pauses += 1;
                if room.pauses > PATIENCE {
                    host.fail(Failure::NoRoom);
                }
                self.ask_again = 0;
                self.borrow(host);
                return Some(Action::Pause);
            }
        }
        None
    }

    /// Takes a few steps towards the free ranges to keep, more for a read of several pages; returns whether more remain.
    ///
    /// The thread that waits for its page takes them, since it would only poll. A thread on another
    /// processor would cost an interrupt for each page that it unmaps.
    pub(super) fn take_steps_ahead(
        &mut self,
        host: &mut impl Host,
        shape: Shape,
        pages: u32,
    ) -> bool {
        let frames = self.frames.len();
        let ahead = (2 * pages).min(frames / READ_SHARE);
        let free = (frames / FREE_SHARE).clamp(1, FREE_MOST).max(ahead);
        if self.frames.available(shape) >= free {
            return false;
        }
        self.borrow(host);
        let most = pages * STEPS_AHEAD;
        let steps = self.take_steps(host, shape, free, most);
        self.call_writer_if_due(host);
        steps == most
    }

    /// Frees ranges for the pages of a stream's read. On a fast device the reads before it were over at once, and left no time
    /// for steps ahead.
    pub(super) fn make_room_for_run(&mut self, host: &mut impl Host, shape: Shape, pages: u32) {
        let pages = pages.min(self.frames.len() / READ_SHARE);
        if pages > 1 && self.frames.available(shape) < pages {
            self.take_steps(host, shape, pages, pages * STEPS_AHEAD);
        }
    }

    /// Carries out at most `most` steps of a shape's clock, until `free` of its ranges are free or
    /// a round is worth it; returns the number of steps.
    fn take_steps(&mut self, host: &mut impl Host, shape: Shape, free: u32, most: u32) -> u32 {
        // Pages filled together turn inactive together, and are unmapped with one call.
        let mut cold = 0..0;
        let mut steps = 0;
        while steps < most
            && self.frames.available(shape) < free
            && self.condemned_sectors < BATCH_SECTORS
            && let Some(step) = self.clocks.step(shape, &self.frames)
        {
            match step {
                Step::Unmap(frame) => self.unmap_soon(host, frame, shape, &mut cold),
                Step::Evict(frame) => {
                    for page in self.frames.pages_in(frame, shape) {
                        self.evict(host, frame, page);
                    }
                }
            }
            steps += 1;
        }
        self.unmap_run(host, cold);
        steps
    }

    /// Removes a page from its frame, or condemns it.
    fn evict(&mut self, host: &mut impl Host, frame: FrameId, shape: Shape) {
        let page = Svmp(self.frames.owner(frame, shape));
        let location = match self.table.get(page).1 {
            // The page leaves at the end of its round.
            SvmpState::Condemned(..) => return,
            _ if self.can_evict(page) => {
                self.unmap(host, page);
                self.table.get(page).1.location()
            }
            // The page is pinned or being read.
            _ => return self.clocks.keep(frame, shape),
        };
        if host.is_zero(frame, shape) {
            if let Some(location) = location {
                self.flash.release(&mut self.clusters, location, shape);
            }
            self.counters.zero_pages += 1;
            self.frames.release(frame, shape);
            self.table.set(page, shape, SvmpState::Fresh);
            return;
        }
        let checksum = host.checksum(frame, shape);
        match location {
            Some(location) if self.frames.check(frame, shape) == checksum => {
                self.counters.evicted_clean += 1;
                self.frames.release(frame, shape);
                let place = SvmpState::OnFlash(location, Check::of(checksum));
                self.table.set(page, shape, place);
            }
            _ => {
                self.table
                    .set(page, shape, SvmpState::Condemned(frame, location));
                self.condemned.push(page);
                self.condemned_sectors += shape.sectors();
            }
        }
    }
}
