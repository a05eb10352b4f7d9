//! `deadline`: sweeps upwards in batches, reads before writes, with a limit on every wait.

use super::{Merges, Next, Queued, Scheduler, add_by_direction, take_upward};
use flashvm_core::Nanos;
use std::collections::VecDeque;

/// What can be tuned, with Linux's names and defaults (`/sys/block/*/queue/iosched`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineTuning {
    /// Longest wait of a read: then it comes before the sweep.
    pub read_expire: Nanos,
    /// Longest wait of a write.
    pub write_expire: Nanos,
    /// Requests in a batch, all of one direction; at least 1.
    pub fifo_batch: u32,
    /// Batches of reads that may overtake waiting writes.
    pub writes_starved: u32,
    /// Whether a request is merged into one that it precedes.
    pub front_merges: bool,
}

impl Default for DeadlineTuning {
    fn default() -> Self {
        Self {
            read_expire: Nanos(500_000_000),
            write_expire: Nanos(5_000_000_000),
            fifo_batch: 16,
            writes_starved: 2,
            front_merges: true,
        }
    }
}

#[derive(Default)]
pub(super) struct Deadline {
    tuning: DeadlineTuning,
    reads: VecDeque<Queued>,
    writes: VecDeque<Queued>,
    writing: bool,
    left: u32,
    starved: u32,
    head: u32,
}

impl Deadline {
    pub(super) fn new(tuning: DeadlineTuning) -> Self {
        Self {
            tuning,
            ..Self::default()
        }
    }

    fn begin_batch(&mut self) {
        let write = !self.writes.is_empty()
            && (self.reads.is_empty() || self.starved >= self.tuning.writes_starved);
        self.starved = match (write, self.writes.is_empty()) {
            (true, _) | (_, true) => 0,
            (false, false) => self.starved + 1,
        };
        self.writing = write;
        self.left = self.tuning.fifo_batch.max(1);
    }
}

impl Scheduler for Deadline {
    fn add(&mut self, request: Queued) {
        let merges = match self.tuning.front_merges {
            true => Merges::Both,
            false => Merges::Back,
        };
        add_by_direction(&mut self.reads, &mut self.writes, request, merges);
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
            (&mut self.writes, self.tuning.write_expire)
        } else {
            (&mut self.reads, self.tuning.read_expire)
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
