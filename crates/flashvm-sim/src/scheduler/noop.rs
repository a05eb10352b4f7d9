//! `noop`: merges adjacent requests; otherwise first come, first served.

use super::{Merges, Next, Queued, Scheduler, merge};
use flashvm_core::Nanos;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Noop {
    waiting: VecDeque<Queued>,
}

impl Scheduler for Noop {
    fn add(&mut self, request: Queued) {
        if !merge(self.waiting.iter_mut(), &request, Merges::Both) {
            self.waiting.push_back(request);
        }
    }

    fn next(&mut self, _now: Nanos) -> Next {
        self.waiting.pop_front().map_or(Next::Empty, Next::Dispatch)
    }
}
