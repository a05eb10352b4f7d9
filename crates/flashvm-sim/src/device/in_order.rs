//! A device that takes requests in order of arrival and says at once when each will end: the same as
//! `noop` in front of a model, if nothing is merged. For executors in real time.

use super::{Completion, DeviceModel, Discards, Request, Wear};
use flashvm_core::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A device with its queue.
pub struct InOrder {
    model: Box<dyn DeviceModel>,
    /// The ends of the requests that the device has taken.
    ends: BinaryHeap<Reverse<Nanos>>,
    /// The latest of all ends.
    last_end: Nanos,
    /// No request starts before this time.
    floor: Nanos,
}

impl InOrder {
    /// Puts a queue in front of a device.
    #[must_use]
    pub fn new(model: Box<dyn DeviceModel>) -> Self {
        Self {
            model,
            ends: BinaryHeap::new(),
            last_end: Nanos(0),
            floor: Nanos(0),
        }
    }

    /// Takes a request issued at `since`; returns when it will end.
    pub fn issue(&mut self, since: Nanos, request: &Request) -> Completion {
        let bars =
            matches!(request, Request::Discard(_)) && self.model.discards() == Discards::Barrier;
        let mut start = since.max(self.floor);
        if bars {
            start = start.max(self.last_end);
        }
        while let Some(&Reverse(end)) = self.ends.peek()
            && (end <= start || self.ends.len() >= self.model.depth())
        {
            self.ends.pop();
            start = start.max(end);
        }
        let completion = self.model.issue(start, request);
        self.floor = if bars { completion.end } else { start };
        self.last_end = self.last_end.max(completion.end);
        self.ends.push(Reverse(completion.end));
        completion
    }

    /// The host has freed a page; tells a device that tracks frees.
    pub fn freed(&mut self, page: u32) {
        self.model.freed(page);
    }

    /// The wear of the device.
    #[must_use]
    pub fn wear(&self) -> Option<Wear> {
        self.model.wear()
    }
}
