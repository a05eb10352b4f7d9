//! A block trace: the requests that a pager sent to its device, as blkparse(1) shows them, and their replay on another
//! device (FlashVM, 5.3.3).
//!
//! A discard of several ranges is a line a range, all with the same sequence number.

use crate::device::{Range, Request};
use crate::scheduler::BlockQueue;
use crate::trace::blkparse::{Operation, Parsed, parse};
use flashvm_core::{Nanos, PAGE_SIZE};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};

const SECTOR: u64 = 512;
const SECTORS_PER_PAGE: u64 = PAGE_SIZE as u64 / SECTOR;

/// The requests of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTrace {
    requests: Vec<(Nanos, Request)>,
}

/// Why a text is no block trace.
#[derive(Debug, thiserror::Error)]
pub enum BlockTraceError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is none of blkparse.
    #[error("line {line}: {why}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl BlockTrace {
    /// Adds a request that was queued at `at`.
    pub fn push(&mut self, at: Nanos, request: Request) {
        self.requests.push((at, request));
    }

    /// The requests.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().map(|(_, request)| request)
    }

    /// The trace without its discards.
    #[must_use]
    pub fn without_discards(&self) -> Self {
        let kept = self.requests.iter();
        let kept = kept.filter(|(_, request)| !matches!(request, Request::Discard(_)));
        Self {
            requests: kept.cloned().collect(),
        }
    }

    /// Its discard commands, and the pages in them.
    #[must_use]
    pub fn discards(&self) -> (u64, u64) {
        let discards = self
            .requests()
            .filter(|request| matches!(request, Request::Discard(_)));
        discards.fold((0, 0), |(commands, pages), discard| {
            (commands + 1, pages + u64::from(discard.pages()))
        })
    }

    /// Writes it as blkparse does.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (sequence, (at, request)) in (1..).zip(&self.requests) {
            let (seconds, fraction) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
            let mut line = |rwbs: &str, range: Range| {
                let first = u64::from(range.first) * SECTORS_PER_PAGE;
                let sectors = u64::from(range.count) * SECTORS_PER_PAGE;
                writeln!(
                    out,
                    "8,16 0 {sequence} {seconds}.{fraction:09} 1 Q {rwbs} {first} + {sectors} [pager]"
                )
            };
            match request {
                Request::Read(range) => line("R", *range)?,
                Request::Write(range) => line("W", *range)?,
                Request::Discard(ranges) => {
                    for range in ranges {
                        line("D", *range)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the output of blkparse.
    ///
    /// # Errors
    /// See [`BlockTraceError`].
    pub fn read(lines: impl BufRead) -> Result<Self, BlockTraceError> {
        let mut trace = Self::default();
        let mut last_discard = Vec::new();
        for (line, text) in (1..).zip(lines.lines()) {
            let text = text?;
            let bad = |why| BlockTraceError::Line { line, why };
            let Parsed::Queued(queued) = parse(text.as_bytes()).map_err(bad)? else {
                continue;
            };
            let why = "its sectors are no pages of a device".to_owned();
            let range = pages(queued.offset, queued.bytes).ok_or_else(|| bad(why))?;
            let why = "its third word is no time".to_owned();
            let at = nanos(queued.time).ok_or_else(|| bad(why))?;
            let request = match queued.operation {
                Operation::Read => Request::Read(range),
                Operation::Write => Request::Write(range),
                Operation::Discard => {
                    if last_discard == queued.sequence
                        && let Some((_, Request::Discard(ranges))) = trace.requests.last_mut()
                    {
                        ranges.push(range);
                        continue;
                    }
                    last_discard = queued.sequence.to_vec();
                    Request::Discard(vec![range])
                }
            };
            trace.push(at, request);
        }
        Ok(trace)
    }

    /// The trace with its discards gathered: `pages` or more in one command. What is overwritten in the meantime is not
    /// discarded: a dummy discard (FlashVM, 4.3.3).
    #[must_use]
    pub fn with_merged_discards(&self, pages: u32) -> Self {
        let mut merged = Self::default();
        let mut held = BTreeSet::new();
        for (at, request) in &self.requests {
            match request {
                Request::Discard(ranges) => {
                    held.extend(ranges.iter().flat_map(|range| range.first..range.end()));
                    if held.len() >= pages as usize {
                        merged.push(*at, Request::Discard(ranges_of(&held)));
                        held.clear();
                    }
                }
                Request::Write(range) => {
                    for page in range.first..range.end() {
                        held.remove(&page);
                    }
                    merged.push(*at, request.clone());
                }
                Request::Read(_) => merged.push(*at, request.clone()),
            }
        }
        merged
    }

    /// Replays it; returns how long that takes. Each request waits for its place in the device's queue, and for its
    /// time in the trace multiplied by `stretch`: with 0 the device never waits.
    pub fn replay(&self, device: &mut BlockQueue, stretch: u64) -> Nanos {
        let depth = device.model().depth();
        let requests = self.requests.iter();
        let timed = requests.map(|(at, request)| (Nanos(at.0 * stretch), request.clone()));
        device.run_timed(depth, timed)
    }
}

/// Pages as ranges.
fn ranges_of(pages: &BTreeSet<u32>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for &page in pages {
        match ranges.last_mut() {
            Some(range) if range.end() == page => range.count += 1,
            _ => ranges.push(Range {
                first: page,
                count: 1,
            }),
        }
    }
    ranges
}

/// The pages of a range of bytes.
fn pages(offset: u64, bytes: u32) -> Option<Range> {
    let (page, bytes) = (PAGE_SIZE as u64, u64::from(bytes));
    (offset.is_multiple_of(page) && bytes.is_multiple_of(page) && bytes > 0).then_some(())?;
    Some(Range {
        first: u32::try_from(offset / page).ok()?,
        count: u32::try_from(bytes / page).ok()?,
    })
}

/// A time in seconds with nine digits behind the point.
fn nanos(text: &[u8]) -> Option<Nanos> {
    let (seconds, fraction) = std::str::from_utf8(text).ok()?.split_once('.')?;
    let fraction = (fraction.len() == 9).then_some(fraction)?;
    let seconds: u64 = seconds.parse().ok()?;
    let nanos: u64 = fraction.parse().ok()?;
    Some(Nanos(
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, ModelKind};

    fn range(first: u32, count: u32) -> Range {
        Range { first, count }
    }

    fn trace() -> BlockTrace {
        let mut trace = BlockTrace::default();
        trace.push(Nanos(5), Request::Write(range(0, 32)));
        trace.push(Nanos(1_000_000_007), Request::Read(range(7, 1)));
        let ranges = vec![range(0, 4), range(8, 32)];
        trace.push(Nanos(2_000_000_000), Request::Discard(ranges));
        trace.push(Nanos(2_000_000_000), Request::Discard(vec![range(64, 1)]));
        trace
    }

    #[test]
    fn a_text_has_the_requests() {
        let mut text = Vec::new();
        trace().write(&mut text).expect("memory");
        let first = text.split(|byte| *byte == b'\n').next();
        assert_eq!(
            first,
            Some(&b"8,16 0 1 0.000000005 1 Q W 0 + 256 [pager]"[..])
        );
        assert_eq!(BlockTrace::read(&text[..]).expect("just written"), trace());
    }

    #[test]
    fn damaged_lines_are_named() {
        for (text, why) in [
            ("8,16 0 1 0.000000005 1 Q W 1 + 8", "pages"),
            ("8,16 0 1 5 1 Q W 0 + 8", "time"),
            ("8,16 0 1 0.000000005 1 Q W 0 - 8", "SECTOR"),
        ] {
            let error = BlockTrace::read(text.as_bytes())
                .expect_err(text)
                .to_string();
            assert!(error.contains(why) && error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn discards_take_their_time() {
        let device = Device::new(ModelKind::OczVertex);
        let time =
            |trace: &BlockTrace| trace.replay(&mut device.build(1024, 1).expect("possible"), 0);
        let (with, without) = (time(&trace()), time(&trace().without_discards()));
        assert_eq!(with.since(without).0, 2 * 55_000_000);
        assert_eq!(trace().discards(), (2, 37));
    }

    #[test]
    fn merged_discards_leave_out_what_was_overwritten() {
        let mut trace = trace();
        trace.push(Nanos(3), Request::Write(range(10, 2)));
        trace.push(Nanos(4), Request::Discard(vec![range(0, 1), range(65, 9)]));
        let merged = trace.with_merged_discards(40);
        let last = merged.requests().last();
        let left = vec![range(0, 4), range(8, 2), range(12, 28), range(64, 10)];
        assert_eq!(last, Some(&Request::Discard(left)));
        assert_eq!(merged.discards(), (1, 44));
        assert_eq!(merged.without_discards(), trace.without_discards());
    }

    #[test]
    fn requests_wait_for_their_time() {
        let device = Device::new(ModelKind::IntelX25m);
        let mut device = device.build(1024, 1).expect("possible");
        let time = trace().without_discards().replay(&mut device, 2);
        let latency = 750_000 + 100_000;
        assert_eq!(time, Nanos(2 * 1_000_000_007 + latency));
    }
}
