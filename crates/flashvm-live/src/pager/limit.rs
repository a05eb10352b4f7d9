//! `--write-limit`: all processes of a run write under one limit. Near the limit the engine first saves writes: it
//! skips more dirty pages and writes whole erase blocks (FlashVM, 4.2.1 and 4.1.1). At the limit writes wait.

use super::{Locked, Pager};
use crate::sys::now;
use flashvm_core::{Event, Nanos, WriteLimit};
use std::sync::atomic::Ordering;

/// The engine hears of the used share of the limit in steps of this many percent.
const STEP: u8 = 5;

impl Pager {
    fn write_limit(&self) -> Option<WriteLimit> {
        self.settings.write_limit_bytes.and_then(WriteLimit::new)
    }

    /// Counts a write of `bytes` bytes. Returns when it may begin.
    pub(super) fn write_may_begin(&self, bytes: u64) -> Nanos {
        let now = now();
        let Some(limit) = self.write_limit() else {
            return now;
        };
        let begin = self.control.take_write(limit, now, bytes);
        let stats = self.process.stats();
        stats
            .writes_held_back_ns
            .fetch_add(begin.since(now).0, Ordering::Relaxed);
        begin
    }

    /// Whether writes have to wait.
    pub(super) fn writes_wait(&self) -> bool {
        self.write_limit()
            .is_some_and(|limit| self.control.writes_used(limit, now()) == 100)
    }

    /// Tells the engine the used share of the limit, rounded down to a multiple of [`STEP`].
    pub(super) fn look_at_write_limit(&self, locked: &mut Locked) {
        let Some(limit) = self.write_limit() else {
            return;
        };
        let used = self.control.writes_used(limit, now()) / STEP * STEP;
        if used != locked.engine.write_limit_used() {
            self.apply(locked, Event::WriteLimit { used });
        }
    }
}
