//! `deadline`: sweeps upwards in batches, reads before writes, with a limit on every wait.

use super::{Next, Queued, Scheduler, add_by_direction, take_upward};
use flashvm_core::Nanos;
use std::collections::VecDeque;

/// Linux's longest waits: 500 ms for a read, 5 s for a write.
const READ_EXPIRE: Nanos = Nanos(500_000_000);
const WRITE_EXPIRE: Nanos = Nanos(5_000_000_000);
/// Requests in a batch, all of one direction.
const BATCH: u32 = 16;
/// Batches of reads that may overtake waiting writes.
const WRITES_STARVED: u32 = 2;

#[derive(Default)]
pub(super) struct Deadline {
    reads: VecDeque<Queued>,
    writes: VecDeque<Queued>,
    writing: bool,
    left: u32,
    starved: u32,
    head: u32,
}

impl Deadline {
    fn begin_batch(&mut self) {
        let write =
            !self.writes.is_empty() && (self.reads.is_empty() || self.starved >= WRITES_STARVED);
        self.starved = match (write, self.writes.is_empty()) {
            (true, _) | (_, true) => 0,
            (false, false) => self.starved + 1,
        };
        self.writing = write;
        self.left = BATCH;
    }
}

impl Scheduler for Deadline {
    fn add(&mut self, request: Queued) {
        add_by_direction(&mut self.reads, &mut self.writes, request);
    }

    fn next(&mut self, now: Nanos) -> Next {
        let over = |writing: bool| {
            if writing {
                self.writes.is_empty()
            } else {
                self.reads.is_empty()
            }
        };
        if self.left == 0 || over(self.writing) {
            self.begin_batch();
        }
        self.left -= 1;
        let (waiting, expire) = if self.writing {
            (&mut self.writes, WRITE_EXPIRE)
        } else {
            (&mut self.reads, READ_EXPIRE)
        };
        let late = waiting
            .front()
            .is_some_and(|first| now.since(first.since) >= expire);
        let next = if late {
            waiting.pop_front()
        } else {
            take_upward(waiting, self.head)
        };
        let Some(next) = next else {
            self.left = 0;
            return Next::Empty;
        };
        self.head = next.request.first() + next.request.pages();
        Next::Dispatch(next)
    }
}
