//! `anticipatory`: sweeps upwards. After a read that a thread waited for, it leaves the device idle
//! for a moment, as the same process may soon read nearby (Iyer and Druschel 2001).

use super::{Merges, Next, Queued, Scheduler, add_by_direction, take_upward};
use flashvm_core::Nanos;
use std::collections::VecDeque;

/// Linux's time slices of reads and of writes when both wait.
const READ_BATCH: Nanos = Nanos(500_000_000);
const WRITE_BATCH: Nanos = Nanos(125_000_000);

#[derive(Default)]
pub(super) struct Anticipatory {
    anticipation: Nanos,
    reads: VecDeque<Queued>,
    writes: VecDeque<Queued>,
    writing: bool,
    batch_until: Nanos,
    head: u32,
    /// The process whose next read is expected, and until when.
    expected: Option<(u32, Nanos)>,
}

impl Anticipatory {
    pub(super) fn new(anticipation: Nanos) -> Self {
        Self {
            anticipation,
            ..Self::default()
        }
    }
}

impl Scheduler for Anticipatory {
    fn add(&mut self, request: Queued) {
        add_by_direction(&mut self.reads, &mut self.writes, request, Merges::Both);
    }

    fn next(&mut self, now: Nanos) -> Next {
        if self.reads.is_empty() && self.writes.is_empty() {
            return Next::Empty;
        }
        let mine = |process: u32| self.reads.iter().position(|read| read.process == process);
        if let Some((process, until)) = self.expected {
            match mine(process) {
                Some(_) => self.expected = None,
                None if now < until => return Next::Wait(until),
                None => self.expected = None,
            }
        }
        let over = now >= self.batch_until;
        let turn = match self.writing {
            true => self.writes.is_empty() || (over && !self.reads.is_empty()),
            false => self.reads.is_empty() || (over && !self.writes.is_empty()),
        };
        if turn {
            self.writing = !self.writing;
            let batch = if self.writing {
                WRITE_BATCH
            } else {
                READ_BATCH
            };
            self.batch_until = now.plus(batch);
        }
        let waiting = if self.writing {
            &mut self.writes
        } else {
            &mut self.reads
        };
        let next = take_upward(waiting, self.head).expect("this direction has some");
        self.head = next.request.first() + next.request.pages();
        Next::Dispatch(next)
    }

    fn completed(&mut self, now: Nanos, process: u32, demanded: bool) {
        if demanded {
            self.expected = Some((process, now.plus(self.anticipation)));
        }
    }
}
