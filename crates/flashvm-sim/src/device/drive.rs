//! The common model of the SSDs in FlashVM's Table 2: a flash drive known by its rates and latency,
//! not by its internals.
//!
//! Requests that continue a stream run at the sequential rate. Any other begins with one random
//! operation. The drive works on one request at a time, but a read's latency overlaps with the next
//! request, so a queue makes the drive faster. A write that replaces whole erase blocks counts as
//! sequential, as nothing has to be read and merged. A change between reads and writes costs a
//! turnaround, as Figure 5(a) shows.

use super::{
    Completion, DeviceModel, DiscardCost, Discards, ERASE_BLOCK_PAGES, ModelOptions, Range, Request,
};
use flashvm_core::{Nanos, PAGE_SIZE};

/// Commands of an NCQ queue.
const DEPTH: usize = 32;

/// Time of a page at a rate in MB/s (10^6 bytes).
pub(super) const fn page_time(mb_s: u64) -> Nanos {
    Nanos(PAGE_SIZE as u64 * 1000 / mb_s)
}

/// Time between operations at a rate per second.
pub(super) const fn operation_time(per_s: u64) -> Nanos {
    Nanos(1_000_000_000 / per_s)
}

/// A line of Table 2, with values from elsewhere in the paper.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// From the start of a read to its first page.
    pub(super) latency: Nanos,
    /// Time per page, sequential.
    pub(super) read_page: Nanos,
    pub(super) write_page: Nanos,
    /// Time per page, random, with a full queue.
    pub(super) random_read: Nanos,
    pub(super) random_write: Nanos,
    /// Added when a write follows a read, or a read a write.
    pub(super) turnaround: Nanos,
    pub(super) discard: Option<DiscardCost>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

pub(super) struct Drive {
    rates: Rates,
    pages: u32,
    busy_until: Nanos,
    last: Direction,
    /// The pages after the last read and after the last write.
    read_end: u32,
    write_end: u32,
    /// A bit per page: it has contents. Empty if the drive has no discards.
    held: Vec<u64>,
}

impl Drive {
    /// A drive of these rates; `turnaround` replaces theirs.
    pub(super) fn new(mut rates: Rates, options: &ModelOptions) -> Self {
        rates.turnaround = options.turnaround.unwrap_or(rates.turnaround);
        let pages = options.pages;
        let words = if rates.discard.is_some() {
            pages.div_ceil(64)
        } else {
            0
        };
        Self {
            rates,
            pages,
            busy_until: Nanos(0),
            last: Direction::Read,
            read_end: 0,
            write_end: 0,
            held: vec![0; words as usize],
        }
    }

    fn turn(&mut self, to: Direction) -> Nanos {
        let turns = std::mem::replace(&mut self.last, to) != to;
        if turns {
            self.rates.turnaround
        } else {
            Nanos(0)
        }
    }

    fn read(&mut self, start: Nanos, range: Range) -> Nanos {
        let rates = self.rates;
        let turn = self.turn(Direction::Read);
        let sequential = range.first == self.read_end;
        self.read_end = range.end();
        if sequential {
            self.busy_until = start.plus(turn).plus(times(rates.read_page, range.count));
            return self.busy_until;
        }
        let rest = times(rates.read_page, range.count - 1);
        let start = start.plus(turn);
        self.busy_until = start.plus(rates.random_read).plus(rest);
        let seen = start.plus(rates.latency).plus(rest);
        Nanos(self.busy_until.0.max(seen.0))
    }

    fn write(&mut self, start: Nanos, range: Range) -> Nanos {
        let rates = self.rates;
        let turn = self.turn(Direction::Write);
        let whole_blocks = range.first.is_multiple_of(ERASE_BLOCK_PAGES)
            && range.count.is_multiple_of(ERASE_BLOCK_PAGES);
        let time = if range.first == self.write_end || whole_blocks {
            times(rates.write_page, range.count)
        } else {
            rates
                .random_write
                .plus(times(rates.write_page, range.count - 1))
        };
        self.write_end = range.end();
        self.mark(range, true);
        self.busy_until = start.plus(turn).plus(time);
        self.busy_until
    }

    /// Sets whether pages have contents; returns how many had.
    fn mark(&mut self, range: Range, holds: bool) -> u32 {
        if self.held.is_empty() {
            return 0;
        }
        let mut before = 0;
        let mut at = range.first;
        while at < range.end() {
            let bits = (64 - at % 64).min(range.end() - at);
            let mask = u64::MAX >> (64 - bits) << (at % 64);
            let word = &mut self.held[(at / 64) as usize];
            before += (*word & mask).count_ones();
            *word = if holds { *word | mask } else { *word & !mask };
            at += bits;
        }
        before
    }
}

fn times(page: Nanos, pages: u32) -> Nanos {
    Nanos(page.0 * u64::from(pages))
}

impl DeviceModel for Drive {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn discards(&self) -> Discards {
        match self.rates.discard {
            Some(_) => Discards::Barrier,
            None => Discards::Refused,
        }
    }

    fn issue(&mut self, now: Nanos, request: &Request) -> Completion {
        let start = Nanos(now.0.max(self.busy_until.0));
        let end = match request {
            Request::Read(range) => self.read(start, *range),
            Request::Write(range) => self.write(start, *range),
            Request::Discard(ranges) => {
                let Some(cost) = self.rates.discard else {
                    return Completion::refused(now);
                };
                let held = ranges.iter().map(|range| self.mark(*range, false)).sum();
                self.busy_until = start.plus(cost.of(request.pages(), held));
                self.busy_until
            }
        };
        Completion { end, done: true }
    }
}
