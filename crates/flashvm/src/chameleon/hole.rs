//! The hole: addresses at which nothing is mapped but what is shown of frames.
//!
//! Of what a hole can be made of, no mapping at all costs least (ARCHITECTURE.md has the figures): an
//! overlay that stands alone is one mapping and not two, showing it splits nothing, and there is no moment
//! in which a touch of a page that is not there would read zeros.
//!
//! So that the kernel puts nothing there, the hole lies where it does not look: below a third of the
//! address space, where it looks last from above and not at all from below. The guard sees all addresses
//! that a program asks for. Overlays never replace what they do not know (`MAP_FIXED_NOREPLACE`).
//!
//! The kernel allows a process `vm.max_map_count` mappings. Neighbours in the hole that are neighbours in
//! the memfd are one mapping, which is why pages are handed out in runs of one shape and get neighbouring
//! frames while there are such. The budget is spent on what was touched last: when it is used up, the
//! clocks lift what they find cold. What is lifted stays in its frame.

use super::{Chameleon, Core};
use crate::pager::Pager;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::table::PAGES_MAX;
use flashvm_core::chameleon::{FrameId, Place, Shape, Svmp};
use rustix::io::Errno;
use std::ops::Range;

/// Bytes of the hole.
pub(super) const BYTES: usize = PAGES_MAX as usize * PAGE_SIZE;
/// Where it may begin: free of what programs, their sanitizers and the kernel put where they want it.
const BASES: [usize; 4] = [
    0x1800_0000_0000,
    0x1a00_0000_0000,
    0x1c00_0000_0000,
    0x2000_0000_0000,
];
/// Mappings that are left to the program and to the page pager, as one in so many of all.
const OTHERS_SHARE: u32 = 8;
/// What the kernel allows unless somebody has changed it.
const MAPPINGS_DEFAULT: u32 = 65_530;
/// Overlays that are lifted at once when there are too many.
const LIFT_BATCH: u32 = 64;

/// Finds a place for the hole.
pub(super) fn reserve() -> Result<usize, Errno> {
    BASES
        .into_iter()
        .find(|&base| map::is_vacant(base, BYTES))
        .ok_or(Errno::NOMEM)
}

/// Mappings that the kernel allows this process (`vm.max_map_count`).
#[must_use]
pub fn overlays_allowed() -> u32 {
    // Without the C library, whose files may be managed memory later on.
    let read = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let path = c"/proc/sys/vm/max_map_count";
        let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
        let mut text = [0_u8; 16];
        let len = rustix::io::read(&file, &mut text[..]).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
    };
    read().unwrap_or(MAPPINGS_DEFAULT)
}

/// Mappings of these that overlays may take.
#[must_use]
pub fn overlays_most(allowed: u32) -> u32 {
    allowed - allowed / OTHERS_SHARE
}

/// The mappings that overlays take.
pub(super) struct Overlays {
    /// Now.
    count: u32,
    /// Most there may be.
    most: u32,
    /// Most there were.
    pub(super) most_seen: u32,
    /// Every page counts, whether it is a mapping of its own or not: SSDAlloc's page buffer.
    by_page: bool,
    /// Which shape is looked at next when there are too many.
    turn: u8,
}

impl Overlays {
    pub(super) fn new(asked: Option<u32>, page_buffer: Option<u32>) -> Self {
        let most = overlays_most(overlays_allowed());
        let asked = page_buffer.or(asked);
        Self {
            count: 0,
            most: asked.map_or(most, |asked| asked.min(most)),
            by_page: page_buffer.is_some(),
            most_seen: 0,
            turn: 0,
        }
    }

    /// Whether there is no budget for pages that are new.
    pub(super) fn used_up(&self) -> bool {
        self.count + LIFT_BATCH >= self.most
    }
}

impl Core {
    /// Whether a page is shown, out of this frame.
    fn shows(&self, page: Option<u32>, frame: Option<u32>) -> bool {
        let (Some(page), Some(frame)) = (page.filter(|page| *page < PAGES_MAX), frame) else {
            return false;
        };
        matches!(self.table.get(Svmp(page)).1, Place::Mapped(there, _) if there.0 == frame)
    }

    /// Whether a page in this frame would be one mapping with the page before.
    fn joins_before(&self, page: u32, frame: u32) -> bool {
        self.shows(page.checked_sub(1), frame.checked_sub(1))
    }

    /// Whether a page in this frame would be one mapping with the page behind.
    fn joins_after(&self, page: u32, frame: u32) -> bool {
        self.shows(page.checked_add(1), frame.checked_add(1))
    }

    /// The frame that a page is shown out of.
    fn shown_frame(&self, page: u32) -> Option<u32> {
        match self.table.get(Svmp(page)).1 {
            Place::Mapped(frame, _) => Some(frame.0),
            _ => None,
        }
    }

    /// Of the neighbours of a page in this frame, how many it is one mapping with.
    fn merges(&self, page: Svmp, frame: FrameId) -> u32 {
        if self.overlays.by_page {
            return 0;
        }
        u32::from(self.joins_before(page.0, frame.0)) + u32::from(self.joins_after(page.0, frame.0))
    }

    /// A range, with the rest of the mappings that reach into it.
    fn mappings_of(&self, mut pages: Range<u32>) -> Range<u32> {
        while self.goes_on_before(pages.start) {
            pages.start -= 1;
        }
        while self.goes_on_after(pages.end - 1) {
            pages.end += 1;
        }
        pages
    }

    /// Whether the mapping that shows a page begins before it.
    fn goes_on_before(&self, page: u32) -> bool {
        self.shown_frame(page)
            .is_some_and(|frame| self.joins_before(page, frame))
    }

    /// Whether the mapping that shows a page ends behind it.
    fn goes_on_after(&self, page: u32) -> bool {
        self.shown_frame(page)
            .is_some_and(|frame| self.joins_after(page, frame))
    }

    /// Whether lifting a range makes two mappings of one, and there is no budget for another.
    fn must_not_split(&self, pages: &Range<u32>) -> bool {
        !self.overlays.by_page
            && self.overlays.count >= self.overlays.most
            && self.goes_on_before(pages.start)
            && self.goes_on_after(pages.end - 1)
    }

    /// Whether a page is shown, and nothing keeps it from being lifted.
    fn may_be_lifted(&self, page: Svmp) -> bool {
        matches!(self.table.get(page).1, Place::Mapped(..)) && !self.pins.holds(page)
    }

    /// Notes that a page is shown.
    fn note_shown(&mut self, page: Svmp, frame: FrameId) {
        self.overlays.count = self.overlays.count + 1 - self.merges(page, frame);
        self.overlays.most_seen = self.overlays.most_seen.max(self.overlays.count);
    }

    /// Notes that a page is shown no more.
    fn note_lifted(&mut self, page: Svmp, frame: FrameId) {
        self.overlays.count = self.overlays.count + self.merges(page, frame) - 1;
    }
}

impl Chameleon {
    /// Shows pages that lie in frames one after the other, and marks them as mapped.
    pub(super) fn show(&self, core: &mut Core, pager: &Pager, page: Svmp, count: u32) {
        let frame = |core: &Core, page: Svmp| {
            let (_, place) = core.table.get(page);
            place.frame().expect("what is shown lies in a frame")
        };
        if core.overlays.count >= core.overlays.most {
            self.lift_cold(core, pager);
        }
        let first = frame(core, page);
        let (at, len) = (self.address(page), count as usize * PAGE_SIZE);
        let offset = u64::from(first.0) * PAGE_SIZE as u64;
        loop {
            match map::overlay(at, len, &self.frames_file, offset) {
                Ok(()) => break,
                // Fewer mappings than it seemed: the program has many of its own.
                Err(Errno::NOMEM) if core.overlays.count > 0 => {
                    core.overlays.most = core.overlays.count.saturating_sub(2 * LIFT_BATCH).max(1);
                    let before = core.overlays.count;
                    self.lift_cold(core, pager);
                    if core.overlays.count >= before {
                        pager.die("the kernel allows no more mappings: raise vm.max_map_count");
                    }
                }
                Err(Errno::EXIST) => pager.die(&format!(
                    "something else has been mapped at {at:#x}, in the heap of small pages"
                )),
                Err(error) => pager.die(&format!("a page cannot be shown at {at:#x}: {error}")),
            }
        }
        for i in 0..count {
            let page = Svmp(page.0 + i);
            let (shape, place) = core.table.get(page);
            let frame = place.frame().expect("seen above");
            core.table
                .set(page, shape, Place::Mapped(frame, place.location()));
            core.note_shown(page, frame);
        }
    }

    /// Lifts a page that is mapped: from here on every touch is a fault.
    pub(super) fn lift(&self, core: &mut Core, pager: &Pager, page: Svmp) {
        if matches!(core.table.get(page).1, Place::Mapped(..)) {
            self.lift_run(core, pager, page.0..page.0 + 1);
        }
    }

    /// Lifts pages one after the other with one call. All of them are mapped or have nothing there.
    pub(super) fn lift_run(&self, core: &mut Core, pager: &Pager, mut pages: Range<u32>) {
        if pages.is_empty() {
            return;
        }
        if core.must_not_split(&pages) {
            let whole = core.mappings_of(pages.clone());
            if whole.clone().all(|page| !core.pins.holds(Svmp(page))) {
                pages = whole;
            }
        }
        let mut result = self.unmap(&pages);
        if result == Err(Errno::NOMEM) {
            // Its mapping would have to be split, for which there is no room: the whole of it goes.
            pages = core.mappings_of(pages);
            result = self.unmap(&pages);
        }
        result.unwrap_or_else(|error| self.cannot_lift(pager, pages.start, error));
        for page in pages.map(Svmp) {
            if let (shape, Place::Mapped(frame, location)) = core.table.get(page) {
                core.table.set(page, shape, Place::Lifted(frame, location));
                core.note_lifted(page, frame);
            }
        }
    }

    fn unmap(&self, pages: &Range<u32>) -> Result<(), Errno> {
        map::unmap(self.address(Svmp(pages.start)), pages.len() * PAGE_SIZE)
    }

    fn cannot_lift(&self, pager: &Pager, page: u32, error: Errno) -> ! {
        let at = self.address(Svmp(page));
        pager.die(&format!("a page cannot be lifted at {at:#x}: {error}"))
    }

    /// Lifts everything: nobody can store to any page from here on.
    pub(super) fn lift_all(&self, core: &mut Core, pager: &Pager) {
        let pages = core.pages.high();
        if pages > 0 {
            self.unmap(&(0..pages))
                .unwrap_or_else(|error| self.cannot_lift(pager, 0, error));
        }
        for frame in core.frames.all() {
            for shape in core.frames.pages_in(frame, Shape::WHOLE) {
                let page = Svmp(core.frames.owner(frame, shape));
                if let (shape, Place::Mapped(frame, location)) = core.table.get(page) {
                    core.table.set(page, shape, Place::Lifted(frame, location));
                }
            }
        }
        core.overlays.count = 0;
    }

    /// Lifts what the clocks find cold, until there is room for a batch of overlays.
    fn lift_cold(&self, core: &mut Core, pager: &Pager) {
        let goal = core.overlays.most.saturating_sub(LIFT_BATCH);
        let mut idle = 0;
        while core.overlays.count > goal && idle < Shape::ALL.len() {
            let shape = Shape::ALL[core.overlays.turn as usize];
            core.overlays.turn = (core.overlays.turn + 1) % Shape::ALL.len() as u8;
            idle += 1;
            if core.pages.in_use(shape) {
                for _ in 0..LIFT_BATCH {
                    let Some(frame) = core.clocks.cool(shape, &core.frames) else {
                        break;
                    };
                    // Also if it was lifted already: what is behind it may not be. There is an end to it:
                    // only what is touched turns active again.
                    idle = 0;
                    self.lift_range(core, pager, frame, shape);
                    if core.overlays.count <= goal {
                        return;
                    }
                }
            }
        }
    }

    /// Lifts the pages that reach into a range of a frame, but for those that have to stay.
    fn lift_range(&self, core: &mut Core, pager: &Pager, frame: FrameId, range: Shape) {
        let mut cold = 0..0;
        self.lift_soon(core, pager, frame, range, &mut cold);
        self.lift_run(core, pager, cold);
    }

    /// The same, but those that go on where the run `cold` ends become part of it: the caller lifts it.
    pub(super) fn lift_soon(
        &self,
        core: &mut Core,
        pager: &Pager,
        frame: FrameId,
        range: Shape,
        cold: &mut Range<u32>,
    ) {
        for shape in core.frames.pages_in(frame, range) {
            let page = core.frames.owner(frame, shape);
            if core.may_be_lifted(Svmp(page)) {
                if page != cold.end {
                    self.lift_run(core, pager, std::mem::replace(cold, page..page));
                }
                cold.end += 1;
            }
        }
    }
}
