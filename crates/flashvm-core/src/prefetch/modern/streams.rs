//! Streams of faults: recognition, checkpoints, samples.

use super::super::Passed;
use crate::event::Access;
use crate::ids::PageId;

/// Maximum number of streams; a new one replaces the least recently used.
const STREAMS: usize = 16;
/// Maximum stride, in pages.
const STRIDE_MAX: i64 = 64;
/// A fault up to this many steps past the requested pages still belongs to the stream: the pages
/// between may have been in RAM.
const SLACK: i64 = 1024;
/// Parallel streams are merged if they use at least one page in `DENSITY_MIN`.
const DENSITY_MIN: i64 = 4;
/// Samples in a row that were stored to before stores are expected of a stream.
const STORES_MIN: u32 = 2;
/// Most pages of a checkpoint.
const GAP_MAX: u32 = 8;
/// Maximum number of checkpoints ahead of a stream.
const CHECKPOINTS_MAX: usize = 24;

/// Pages at a constant distance.
#[derive(Clone, Copy, Default)]
pub(super) struct Stream {
    /// The latest page known to have been used.
    last: i64,
    /// Distance in pages; 0: not known yet.
    pub(super) stride: i64,
    /// How often in a row this distance was seen.
    repeats: u32,
    /// The distance is inferred, not seen: see [`Stream::distance`].
    inferred: bool,
    /// The first page that has not been requested.
    pub(super) next: i64,
    /// Pages requested together; 0 until the stream is regular.
    pub(super) window: u32,
    /// The first use seen at or after this page requests the next window.
    pub(super) marker: Option<i64>,
    /// Pages before this one are known to have been passed.
    passed: i64,
    /// Most steps between uses, and pages of a checkpoint: more than one if the stream skips pages.
    pub(super) gap: u32,
    /// Its windows go into the region, except for checkpoints.
    pub(super) trusted: bool,
    /// Uses since it was recognised, known or estimated: they earn its windows.
    pub(super) length: u32,
    /// Checkpoints in the order of the stream, from the last one reached. Each is the first of `gap` pages in the
    /// shadow, of which the stream uses at least one.
    checkpoints: [i64; CHECKPOINTS_MAX],
    checkpoints_len: u8,
    /// A use was seen at the first checkpoint, or between it and the second.
    checkpoint_used: bool,
    /// The last page whose use (a load or a store) was seen, and whether it was stored to.
    sample: i64,
    sample_stored: bool,
    /// Samples in a row that were stored to.
    stores: u32,
    /// Time of the last use of the stream; 0 for an unused entry.
    stamp: u64,
}

impl Stream {
    /// Steps from one page to another in the direction of the stream.
    pub(super) fn steps(&self, from: i64, to: i64) -> i64 {
        (to - from) / self.stride
    }

    /// Whether the distance has been seen often enough to prefetch by it.
    pub(super) fn is_regular(&self) -> bool {
        self.repeats >= 2 || (self.repeats == 1 && self.stride.abs() == 1 && !self.inferred)
    }

    /// The distance from the last page to this one, and whether it is inferred: if all pages
    /// between are in RAM, each may have been used without a fault, so a step of one page is assumed.
    fn distance(&self, page: i64, resident: impl Fn(i64) -> bool) -> (i64, bool) {
        let stride = page - self.last;
        let step = stride.signum();
        let silent = stride.abs() > 1 && (1..stride.abs()).all(|i| resident(self.last + i * step));
        if silent {
            (step, true)
        } else {
            (stride, false)
        }
    }

    /// Whether the page lies ahead of this stream, on its stride and not too far.
    fn expects(&self, page: i64) -> bool {
        self.window > 0
            && (page - self.last) % self.stride == 0
            && self.steps(self.last, page) > 0
            && self.steps(self.next, page) < SLACK
    }

    /// Adds a checkpoint whose first page is `page`, unless there are `CHECKPOINTS_MAX`: then its use is not checked.
    pub(super) fn add_checkpoint(&mut self, page: i64) {
        if usize::from(self.checkpoints_len) < CHECKPOINTS_MAX {
            self.checkpoints[usize::from(self.checkpoints_len)] = page;
            self.checkpoints_len += 1;
        }
    }

    /// Moves past the checkpoints before this page. False: one of them was not used, so the pattern is no stream, or
    /// has another stride. `seen`: the page was prefetched, so it counts as a use of the checkpoint before it.
    pub(super) fn passes_checkpoints(&mut self, page: i64, seen: bool) -> bool {
        while self.checkpoints_len > 0 && self.steps(self.checkpoints[0], page) >= 0 {
            let is_last = self.checkpoints_len == 1;
            if is_last || self.steps(self.checkpoints[1], page) < 0 {
                if seen && !self.checkpoint_used {
                    self.adapt_gap(self.steps(self.checkpoints[0], page));
                    self.checkpoint_used = true;
                }
                return self.checkpoint_used;
            }
            if !std::mem::take(&mut self.checkpoint_used) {
                return false;
            }
            self.checkpoints.copy_within(1.., 0);
            self.checkpoints_len -= 1;
        }
        true
    }

    /// Adapts the number of pages of a checkpoint after a use `offset` steps behind its first page: more pages if the
    /// stream skipped some, one less if it skipped none.
    fn adapt_gap(&mut self, offset: i64) {
        self.gap = match u32::try_from(offset) {
            Ok(0) => self.gap.saturating_sub(1).max(1),
            Ok(offset) if offset < self.gap => self.gap.max(offset + 2).min(GAP_MAX),
            _ => self.gap,
        };
    }

    /// Resets the stream: it must be recognised again from this page on.
    pub(super) fn restart(&mut self, page: i64, access: Access) {
        *self = Self {
            last: page,
            sample: page,
            sample_stored: access == Access::Write,
            stamp: self.stamp,
            ..Self::default()
        };
    }

    /// Moves the stream to this page. `from_shadow`: the page was in the shadow. Unless the stream is trusted, so were
    /// the pages before it, and each step beyond the first means a skipped page.
    pub(super) fn advance(&mut self, page: i64, from_shadow: bool) {
        let steps = self.steps(self.last, page).clamp(1, SLACK);
        let steps = u32::try_from(steps).expect("at most SLACK");
        if from_shadow && !self.trusted {
            self.gap = steps.min(GAP_MAX).max(self.gap);
        }
        self.length = self.length.saturating_add((steps / self.gap.max(1)).max(1));
        self.last = page;
    }

    /// Notes a use as the new sample, and whether the previous sample was stored to.
    pub(super) fn sample(&mut self, page: i64, access: Access) {
        self.stores = if self.sample_stored {
            self.stores + 1
        } else {
            0
        };
        self.sample = page;
        self.sample_stored = access == Access::Write;
    }

    /// Whether stores are expected: the last `STORES_MIN` samples were stored to.
    pub(super) fn stores(&self) -> bool {
        self.stores >= STORES_MIN
    }

    /// Returns the pages passed since the previous call.
    pub(super) fn pass(&mut self, page: i64) -> Option<Passed> {
        let count = self.steps(self.passed, page).clamp(0, SLACK);
        let passed = Passed {
            first: PageId(u32::try_from(self.passed).ok()?),
            stride: i32::try_from(self.stride).ok()?,
            count: u32::try_from(count).ok()?,
        };
        self.passed = page;
        (count > 0).then_some(passed)
    }
}

/// All streams.
pub(super) struct Streams {
    streams: [Stream; STREAMS],
    stamp: u64,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            streams: [Stream::default(); STREAMS],
            stamp: 0,
        }
    }

    /// The nearest stream that expects the page.
    pub(super) fn ahead_of(&mut self, page: i64) -> Option<&mut Stream> {
        self.stamp += 1;
        let expecting = self.streams.iter_mut().filter(|s| s.expects(page));
        let nearest = expecting.min_by_key(|s| s.steps(s.next, page).abs())?;
        nearest.stamp = self.stamp;
        Some(nearest)
    }

    /// Extends a stream that is not regular yet by a fault at most `STRIDE_MAX` pages away: one that keeps its stride,
    /// otherwise the nearest.
    pub(super) fn learn(
        &mut self,
        page: i64,
        resident: impl Fn(i64) -> bool,
    ) -> Option<&mut Stream> {
        let near = |s: &Stream| {
            let distance = (page - s.last).abs();
            s.stamp > 0 && s.window == 0 && distance > 0 && distance <= STRIDE_MAX
        };
        let candidates = (0..STREAMS).filter(|&i| near(&self.streams[i]));
        let at = candidates.min_by_key(|&i| {
            let distance = page - self.streams[i].last;
            (distance != self.streams[i].stride, distance.abs())
        })?;
        let stream = &mut self.streams[at];
        let (stride, inferred) = stream.distance(page, resident);
        stream.repeats = if stride == stream.stride {
            stream.repeats + 1
        } else {
            1
        };
        stream.stride = stride;
        stream.inferred = inferred;
        stream.last = page;
        stream.passed = page;
        stream.next = page + stride;
        stream.gap = 1;
        stream.stamp = self.stamp;
        if stream.is_regular() && stride.abs() > 1 {
            self.merge(at);
        }
        Some(&mut self.streams[at])
    }

    /// Merges streams of one stride that run side by side, less than a stride apart, if they use enough of the pages
    /// between: the result is followed page by page.
    fn merge(&mut self, at: usize) {
        let new = self.streams[at];
        let beside = |s: &Stream| {
            s.window > 0 && s.stride == new.stride && (s.last - new.last).abs() < new.stride.abs()
        };
        let count = self.streams.iter().filter(|s| beside(s)).count() + 1;
        let count = i64::try_from(count).expect("at most STREAMS");
        if count == 1 || count * DENSITY_MIN < new.stride.abs() {
            return;
        }
        for stream in &mut self.streams {
            if beside(stream) {
                *stream = Stream::default();
            }
        }
        let merged = &mut self.streams[at];
        merged.gap = u32::try_from(new.stride.abs().min(GAP_MAX.into())).expect("at most GAP_MAX");
        merged.stride = new.stride.signum();
        merged.next = merged.last + merged.stride;
    }

    /// Handles a store to a page after a load from it.
    pub(super) fn stored(&mut self, page: i64) {
        for stream in &mut self.streams {
            stream.sample_stored |= stream.sample == page;
        }
    }

    /// Starts a stream with a fault outside of streams; it replaces the least recently used one.
    pub(super) fn begin(&mut self, page: i64, access: Access) {
        let oldest = self.streams.iter_mut().min_by_key(|s| s.stamp);
        *oldest.expect("there are streams") = Stream {
            last: page,
            sample: page,
            sample_stored: access == Access::Write,
            stamp: self.stamp,
            ..Stream::default()
        };
    }
}
