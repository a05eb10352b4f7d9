//! Neighbours: pages that come in from flash with the page of a fault.
//!
//! A round writes changed pages in the order of their addresses. So pages that changed together and follow one another in
//! the heap do so on flash, too, and one read brings in several. It does where faults go from page to page: a *stream*. Its
//! window doubles with each fault that continues it. A fault elsewhere reads its own page alone, so random access pays nothing.
//!
//! Neighbours get frames side by side where such are free, so that one mapping covers them. They take free ranges only, those
//! kept for the next faults; so the steps ahead of need keep pace with reads.

use super::super::table::PAGES_MAX;
use super::super::{Check, FrameId, Location, Shape, Svmp, SvmpState};
use super::fault::Read;
use super::{Engine, Host, RUN_PAGES};
use crate::ClusterSource;

/// Most bytes of the pages of one read.
pub const READ_BYTES_MAX: usize = 32 << 10;
/// Streams that are followed at a time.
const STREAMS: usize = 4;

/// The frames into which a page and its neighbours are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrames {
    count: usize,
    frames: [FrameId; RUN_PAGES as usize],
}

impl ReadFrames {
    pub(super) fn new(frame: FrameId) -> Self {
        Self {
            count: 1,
            frames: [frame; RUN_PAGES as usize],
        }
    }

    fn push(&mut self, frame: FrameId) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// All frames, in the order of the pages.
    #[must_use]
    pub fn all(&self) -> &[FrameId] {
        &self.frames[..self.count]
    }

    pub(super) fn first(&self) -> FrameId {
        self.frames[0]
    }

    fn last(&self) -> FrameId {
        self.frames[self.count - 1]
    }

    pub(super) fn len(&self) -> u32 {
        self.count as u32
    }
}

/// Faults that go from page to page.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The page after the last one that came in.
    next: u32,
    /// Most pages that came in with the last fault. A fault less than a window after `next` continues the stream: what
    /// lies between was in RAM.
    window: u32,
}

/// The streams of a heap.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    streams: [Stream; STREAMS],
    /// The stream that the next new one replaces.
    turn: usize,
}

impl Streams {
    /// The stream that a fault on this page continues.
    fn of(&self, page: Svmp) -> Option<usize> {
        let continues = |stream: &Stream| page.0.wrapping_sub(stream.next) < stream.window;
        self.streams.iter().position(continues)
    }

    /// Pages that a fault on this page may bring in.
    fn window(&self, page: Svmp) -> u32 {
        let stream = self.of(page).map(|at| self.streams[at]);
        stream.map_or(1, |stream| (2 * stream.window).min(RUN_PAGES))
    }

    /// A fault on this page brings so many pages in.
    pub(super) fn follow(&mut self, page: Svmp, count: u32) {
        let window = self.window(page);
        let at = self.of(page).unwrap_or_else(|| {
            let at = self.turn;
            self.turn = (at + 1) % STREAMS;
            at
        });
        let next = page.0 + count;
        self.streams[at] = Stream { next, window };
    }
}

impl<C: ClusterSource> Engine<C> {
    /// Pages from this one on that its stream is expected to touch.
    pub(super) fn pages_expected(&self, page: Svmp) -> u32 {
        // SSDAlloc brings objects in one by one.
        if self.mappings.by_page {
            return 1;
        }
        self.streams.window(page)
    }

    /// Pages that one read should bring in for a fault on a page that is on flash: as many as its stream has earned, while
    /// they lie side by side.
    pub(super) fn pages_to_read(&self, page: Svmp, shape: Shape, at: Location) -> u32 {
        let size = shape.size() as u64;
        let most = (READ_BYTES_MAX / shape.size()) as u32;
        let most = self.pages_expected(page).min(most);
        let follows = |count: &u32| {
            let next = page.0 + count;
            next < PAGES_MAX
                && matches!(self.table.get(Svmp(next)), (its, SvmpState::OnFlash(there, _))
                    if its == shape
                        && there.block() == at.block()
                        && there.offset() == at.offset() + u64::from(*count) * size)
        };
        1 + (1..most).take_while(follows).count() as u32
    }

    /// Adds the wanted neighbours to the read of a fault's page, while there are frames.
    pub(super) fn add_neighbours(&mut self, page: Svmp, read: &mut Read) {
        let (shape, wanted) = (read.shape, read.wanted);
        while read.frames.len() < wanted {
            let next = Svmp(page.0 + read.frames.len());
            let SvmpState::OnFlash(at, check) = self.table.get(next).1 else {
                unreachable!("{next:?} is to be read")
            };
            let beside = FrameId(read.frames.last().0 + 1);
            let frame = if self.frames.take_at(beside, shape) {
                beside
            } else if let Some(frame) = self.frames.take_run(shape, wanted - read.frames.len()) {
                frame
            } else {
                break;
            };
            self.frames.set_owner(frame, shape, next.0);
            self.begin_read(next, frame, shape, at, check);
            read.frames.push(frame);
        }
        self.streams.follow(page, read.frames.len());
    }

    /// The neighbours of a page have been read with it, if `whole`. Those up to the first that is not intact are in their
    /// frames now, unmapped; returns how many. The others are on flash, as before.
    pub(super) fn take_in_neighbours(
        &mut self,
        host: &mut impl Host,
        page: Svmp,
        read: &Read,
        whole: bool,
    ) -> usize {
        let shape = read.shape;
        let mut arrived = 0;
        for (at, &frame) in read.frames.all().iter().enumerate().skip(1) {
            let next = Svmp(page.0 + at as u32);
            let location = self.table.get(next).1.location();
            let location = location.expect("a page that is being read is on flash");
            let check = Check::of(self.frames.check(frame, shape));
            let intact = whole && arrived + 1 == at;
            let checksum = intact.then(|| host.checksum(frame, shape));
            self.reads -= 1;
            let place = match checksum.filter(|&checksum| Check::of(checksum) == check) {
                Some(checksum) => {
                    arrived += 1;
                    self.count_read(shape);
                    self.frames.set_check(frame, shape, checksum);
                    SvmpState::Unmapped(frame, Some(location))
                }
                // Damaged, or the cleaner has moved it meanwhile: a fault on it will tell.
                None => {
                    self.frames.release(frame, shape);
                    SvmpState::OnFlash(location, check)
                }
            };
            self.table.set(next, shape, place);
        }
        arrived
    }

    /// Maps pages that have arrived in these frames: those in frames side by side with one call.
    pub(super) fn map_read(&mut self, host: &mut impl Host, first: Svmp, frames: &[FrameId]) {
        let mut page = first;
        for run in frames.chunk_by(|one, next| one.0 + 1 == next.0) {
            self.map(host, page, run.len() as u32);
            page.0 += run.len() as u32;
        }
    }

    pub(super) fn count_read(&mut self, shape: Shape) {
        self.counters.read_pages += 1;
        self.counters.read_bytes += shape.size() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults on these pages, each of which brings its whole window in; returns the windows.
    fn windows(streams: &mut Streams, pages: &[u32]) -> Vec<u32> {
        let mut windows = Vec::new();
        for &page in pages {
            let window = streams.window(Svmp(page));
            streams.follow(Svmp(page), window);
            windows.push(window);
        }
        windows
    }

    #[test]
    fn faults_from_page_to_page_double_the_window() {
        let pages = [10, 11, 13, 17, 25, 41, 73, 137, 201];
        let expected = [1, 2, 4, 8, 16, 32, 64, 64, 64];
        assert_eq!(windows(&mut Streams::default(), &pages), expected);
    }

    #[test]
    fn pages_between_may_have_been_in_ram() {
        let pages = [10, 11, 14, 21, 100];
        assert_eq!(windows(&mut Streams::default(), &pages), [1, 2, 4, 8, 1]);
    }

    #[test]
    fn a_fault_elsewhere_brings_one_page_in() {
        let pages = [500, 20, 8, 700, 19, 300, 2, 0];
        assert_eq!(windows(&mut Streams::default(), &pages), [1; 8]);
    }

    #[test]
    fn streams_that_take_turns_have_windows_of_their_own() {
        let mut streams = Streams::default();
        let mut next: Vec<u32> = (0..STREAMS as u32).map(|at| at * 100_000).collect();
        for expected in [1, 2, 4, 8, 16] {
            let windows = windows(&mut streams, &next);
            assert_eq!(windows, [expected; STREAMS]);
            next.iter_mut().for_each(|page| *page += expected);
        }
    }
}
