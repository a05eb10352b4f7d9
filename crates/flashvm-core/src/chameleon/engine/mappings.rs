//! The budget of mappings, and which pages share one mapping.
//!
//! The kernel allows a process `vm.max_map_count` mappings. One mapping covers adjacent pages of
//! the hole whose frames are adjacent. So pages are handed out in runs of one shape and get
//! adjacent frames where possible. The budget is spent on the pages touched last: when it is used
//! up, the clocks unmap cold ranges. An unmapped page stays in its frame.

use super::super::table::PAGES_MAX;
use super::super::{FrameId, Shape, Svmp, SvmpState};
use super::{Engine, Failure, Host, Refused};
use crate::ClusterSource;
use std::ops::Range;

/// Mappings removed at once when there are too many.
const BATCH: u32 = 64;

/// The mappings of pages.
#[derive(Clone, Debug)]
pub(super) struct Mappings {
    /// Current number.
    pub(super) count: u32,
    /// Upper bound.
    pub(super) most: u32,
    /// Largest number so far.
    pub(super) most_seen: u32,
    /// Every page counts as one mapping, merged or not: SSDAlloc's page buffer.
    pub(super) by_page: bool,
    /// The shape whose clock is next when there are too many.
    turn: u8,
}

impl Mappings {
    pub(super) fn new(most: u32, by_page: bool) -> Self {
        Self {
            count: 0,
            most,
            most_seen: 0,
            by_page,
            turn: 0,
        }
    }

    /// After a change: notes the number of mappings, if it is the largest so far.
    fn note_most(&mut self) {
        self.most_seen = self.most_seen.max(self.count);
    }

    /// Whether the budget has no room for new pages.
    pub(super) fn used_up(&self) -> bool {
        self.count + BATCH >= self.most
    }
}

impl<C: ClusterSource> Engine<C> {
    /// The frame from which a page is mapped; `None` if it is not mapped.
    pub(super) fn mapped_frame(&self, page: u32) -> Option<u32> {
        match self.table.get(Svmp(page)).1 {
            SvmpState::Mapped(frame, _) => Some(frame.0),
            _ => None,
        }
    }

    /// Whether a page is mapped from this frame.
    fn maps(&self, page: Option<u32>, frame: Option<u32>) -> bool {
        let page = page.filter(|page| *page < PAGES_MAX);
        page.is_some_and(|page| frame.is_some() && self.mapped_frame(page) == frame)
    }

    /// Whether a page in this frame would share a mapping with the previous page.
    fn joins_before(&self, page: u32, frame: u32) -> bool {
        self.maps(page.checked_sub(1), frame.checked_sub(1))
    }

    /// Whether a page in this frame would share a mapping with the next page.
    fn joins_after(&self, page: u32, frame: u32) -> bool {
        self.maps(page.checked_add(1), frame.checked_add(1))
    }

    /// The number of neighbours with which a page in this frame would share a mapping.
    fn merges(&self, page: Svmp, frame: FrameId) -> u32 {
        if self.mappings.by_page {
            return 0;
        }
        u32::from(self.joins_before(page.0, frame.0)) + u32::from(self.joins_after(page.0, frame.0))
    }

    /// A range, extended to the ends of the mappings that overlap it.
    fn mappings_of(&self, mut pages: Range<u32>) -> Range<u32> {
        while self.goes_on_before(pages.start) {
            pages.start -= 1;
        }
        while self.goes_on_after(pages.end - 1) {
            pages.end += 1;
        }
        pages
    }

    /// Whether the mapping of a page begins before it.
    fn goes_on_before(&self, page: u32) -> bool {
        self.mapped_frame(page)
            .is_some_and(|frame| self.joins_before(page, frame))
    }

    /// Whether the mapping of a page ends after it.
    fn goes_on_after(&self, page: u32) -> bool {
        self.mapped_frame(page)
            .is_some_and(|frame| self.joins_after(page, frame))
    }

    /// Whether unmapping a range would split a mapping while the budget has no room for another.
    fn must_not_split(&self, pages: &Range<u32>) -> bool {
        !self.mappings.by_page
            && self.mappings.count >= self.mappings.most
            && self.goes_on_before(pages.start)
            && self.goes_on_after(pages.end - 1)
    }

    /// Notes that a page is mapped.
    fn note_mapped(&mut self, page: Svmp, frame: FrameId) {
        self.mappings.count = self.mappings.count + 1 - self.merges(page, frame);
    }

    /// Notes that a page is no longer mapped.
    fn note_unmapped(&mut self, page: Svmp, frame: FrameId) {
        self.mappings.count = self.mappings.count + self.merges(page, frame) - 1;
    }

    /// Maps contiguous pages from contiguous frames.
    pub(super) fn map(&mut self, host: &mut impl Host, page: Svmp, count: u32) {
        if self.mappings.count >= self.mappings.most {
            self.unmap_cold(host);
        }
        let first = self.table.get(page).1.frame();
        let first = first.expect("what is mapped lies in a frame");
        while host.map(page, count, first) == Err(Refused) {
            // The kernel allows fewer mappings than assumed: the program has many of its own.
            let before = self.mappings.count;
            self.mappings.most = before.saturating_sub(2 * BATCH).max(1);
            self.unmap_cold(host);
            if self.mappings.count >= before {
                host.fail(Failure::NoMappings);
            }
        }
        for page in (page.0..page.0 + count).map(Svmp) {
            let (shape, place) = self.table.get(page);
            let frame = place.frame().expect("it lies in a frame");
            self.table
                .set(page, shape, SvmpState::Mapped(frame, place.location()));
            self.note_mapped(page, frame);
        }
        self.mappings.note_most();
    }

    /// Unmaps a mapped page: every further touch is a fault.
    pub(super) fn unmap(&mut self, host: &mut impl Host, page: Svmp) {
        if matches!(self.table.get(page).1, SvmpState::Mapped(..)) {
            self.unmap_run(host, page.0..page.0 + 1);
        }
    }

    /// Unmaps contiguous pages with one call; those that are not mapped stay as they are.
    pub(super) fn unmap_run(&mut self, host: &mut impl Host, mut pages: Range<u32>) {
        if pages.is_empty() {
            return;
        }
        if self.must_not_split(&pages) {
            let whole = self.mappings_of(pages.clone());
            if whole.clone().all(|page| !self.pins.holds(Svmp(page))) {
                pages = whole;
            }
        }
        if host.unmap(Svmp(pages.start), pages.len() as u32) == Err(Refused) {
            // The kernel would have to split a mapping and allows no more of them: unmaps all of it, pinned or not.
            pages = self.mappings_of(pages);
            if host.unmap(Svmp(pages.start), pages.len() as u32) == Err(Refused) {
                host.fail(Failure::NoMappings);
            }
        }
        for page in pages.map(Svmp) {
            if let (shape, SvmpState::Mapped(frame, location)) = self.table.get(page) {
                self.table
                    .set(page, shape, SvmpState::Unmapped(frame, location));
                self.note_unmapped(page, frame);
            }
        }
        // The kernel may have split a mapping.
        self.mappings.note_most();
    }

    /// Unmaps all pages that are not pinned: no thread can store to them.
    pub(super) fn unmap_unpinned(&mut self, host: &mut impl Host) {
        let high = self.pages.high();
        let mut refused = false;
        for gap in self.pins.gaps(high) {
            refused |= host.unmap(Svmp(gap.start), gap.len() as u32) == Err(Refused);
        }
        // The kernel would have to split a mapping and allows no more of them: the call that pinned its pages fails.
        if refused && host.unmap(Svmp(0), high) == Err(Refused) {
            host.fail(Failure::NoMappings);
        }
        for frame in self.frames.all() {
            for shape in self.frames.pages_in(frame, Shape::WHOLE) {
                let page = Svmp(self.frames.owner(frame, shape));
                if let (shape, SvmpState::Mapped(frame, location)) = self.table.get(page)
                    && (refused || !self.pins.holds(page))
                {
                    self.table
                        .set(page, shape, SvmpState::Unmapped(frame, location));
                    self.note_unmapped(page, frame);
                }
            }
        }
    }

    /// Unmaps cold ranges until the budget has room for a batch of mappings.
    fn unmap_cold(&mut self, host: &mut impl Host) {
        let goal = self.mappings.most.saturating_sub(BATCH);
        let mut idle = 0;
        while self.mappings.count > goal && idle < Shape::ALL.len() {
            let shape = Shape::ALL[self.mappings.turn as usize];
            self.mappings.turn = (self.mappings.turn + 1) % Shape::ALL.len() as u8;
            idle += 1;
            if self.pages.in_use(shape) {
                for _ in 0..BATCH {
                    let Some(frame) = self.clocks.cool(shape, &self.frames) else {
                        break;
                    };
                    // The clock has moved, even if the range was unmapped already: the next one may be
                    // mapped. The loop ends, since only a touched range turns active again.
                    idle = 0;
                    self.unmap_range(host, frame, shape);
                    if self.mappings.count <= goal {
                        return;
                    }
                }
            }
        }
    }

    /// Unmaps the pages that overlap a range of a frame, except pinned pages.
    fn unmap_range(&mut self, host: &mut impl Host, frame: FrameId, range: Shape) {
        let mut cold = 0..0;
        self.unmap_soon(host, frame, range, &mut cold);
        self.unmap_run(host, cold);
    }

    /// Like `unmap_range`, but a page that continues the run `cold` extends that run, and the
    /// caller unmaps it.
    pub(super) fn unmap_soon(
        &mut self,
        host: &mut impl Host,
        frame: FrameId,
        range: Shape,
        cold: &mut Range<u32>,
    ) {
        for shape in self.frames.pages_in(frame, range) {
            let page = self.frames.owner(frame, shape);
            let is_mapped = matches!(self.table.get(Svmp(page)).1, SvmpState::Mapped(..));
            if is_mapped && !self.pins.holds(Svmp(page)) {
                if page != cold.end {
                    self.unmap_run(host, std::mem::replace(cold, page..page));
                }
                cold.end += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
