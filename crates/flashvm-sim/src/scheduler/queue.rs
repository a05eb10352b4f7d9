//! A device behind a scheduler: enforces the device's depth, and the barrier of an untagged
//! discard. Event driven: the owner asks for the time of the next event, and calls again then.

use super::{Next, Queued, Scheduler};
use crate::device::{DeviceModel, Discards, Request, Wear};
use flashvm_core::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The tag given to [`BlockQueue::submit`].
    pub tag: u64,
    /// `false`: the device failed the request.
    pub done: bool,
}

struct InFlight {
    request: Queued,
    done: bool,
}

/// A device with its queue.
pub struct BlockQueue {
    model: Box<dyn DeviceModel>,
    scheduler: Box<dyn Scheduler>,
    /// Requests that may be in flight.
    depth: usize,
    flights: Vec<Option<InFlight>>,
    unused: Vec<usize>,
    ends: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// A discard that waits until nothing is in flight.
    barrier: Option<Queued>,
    /// A discard that is a barrier is in flight.
    barred: bool,
    /// When the scheduler wants to be asked again.
    wake: Option<Nanos>,
}

impl BlockQueue {
    /// Puts a scheduler in front of a device. At most `depth` requests are in flight, and no more than the device takes.
    #[must_use]
    pub fn new(
        model: Box<dyn DeviceModel>,
        scheduler: Box<dyn Scheduler>,
        depth: Option<usize>,
    ) -> Self {
        Self {
            depth: depth.map_or(model.depth(), |depth| depth.min(model.depth())),
            model,
            scheduler,
            flights: Vec::new(),
            unused: Vec::new(),
            ends: BinaryHeap::new(),
            barrier: None,
            barred: false,
            wake: None,
        }
    }

    /// The device.
    #[must_use]
    pub fn model(&self) -> &dyn DeviceModel {
        &*self.model
    }

    /// The wear of the device.
    #[must_use]
    pub fn wear(&self) -> Option<Wear> {
        self.model.wear()
    }

    /// The host has freed a page; tells a device that tracks frees.
    pub fn freed(&mut self, page: u32) {
        self.model.freed(page);
    }

    /// Takes a request. `demanded`: a thread waits for it.
    pub fn submit(&mut self, now: Nanos, tag: u64, request: Request, process: u32, demanded: bool) {
        self.scheduler.add(Queued {
            tag,
            merged: Vec::new(),
            request,
            process,
            demanded,
            since: now,
        });
        self.dispatch(now);
    }

    /// Time of the next event, when [`Self::advance`] is due; not before the last call's `now`. `None`: nothing
    /// is in flight and no scheduler waits.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        [end, self.wake].into_iter().flatten().min()
    }

    /// Advances to `now`; appends the requests that have ended to `ended`, in order.
    pub fn advance(&mut self, now: Nanos, ended: &mut Vec<Ended>) {
        while let Some(&Reverse((at, flight))) = self.ends.peek()
            && at <= now
        {
            self.ends.pop();
            let InFlight { request, done } = self.flights[flight].take().expect("ends once");
            self.unused.push(flight);
            self.barred = false;
            self.scheduler
                .completed(at, request.process, request.demanded);
            ended.push(Ended {
                tag: request.tag,
                done,
            });
            ended.extend(request.merged.iter().map(|&tag| Ended { tag, done }));
            self.dispatch(at);
        }
        if self.wake.is_some_and(|at| at <= now) {
            self.dispatch(now);
        }
    }

    /// Runs requests, `depth` at a time, on an idle device; returns when the last has ended.
    pub fn run(&mut self, depth: usize, requests: impl IntoIterator<Item = Request>) -> Nanos {
        let requests = requests.into_iter();
        self.run_timed(depth, requests.map(|request| (Nanos(0), request)))
    }

    /// As [`Self::run`], with the earliest time of each request. Times do not decrease.
    pub fn run_timed(
        &mut self,
        depth: usize,
        requests: impl IntoIterator<Item = (Nanos, Request)>,
    ) -> Nanos {
        let (mut now, mut ended, mut in_flight) = (Nanos(0), Vec::new(), 0);
        for (tag, (at, request)) in (0..).zip(requests) {
            while let Some(next) = self.next_time()
                && (in_flight == depth || next <= at)
            {
                now = now.max(next);
                self.advance(now, &mut ended);
                in_flight -= ended.drain(..).count();
            }
            now = now.max(at);
            self.submit(now, tag, request, 0, true);
            in_flight += 1;
        }
        while let Some(at) = self.next_time() {
            now = now.max(at);
            self.advance(now, &mut ended);
        }
        now
    }

    /// Gives the device as many requests as it accepts.
    fn dispatch(&mut self, now: Nanos) {
        self.wake = None;
        while !self.barred && self.ends.len() < self.depth {
            let next = match self.barrier.take() {
                Some(discard) if self.ends.is_empty() => {
                    self.barred = true;
                    discard
                }
                waiting @ Some(_) => {
                    self.barrier = waiting;
                    return;
                }
                None => match self.scheduler.next(now) {
                    Next::Empty => return,
                    Next::Wait(until) => {
                        self.wake = Some(until);
                        return;
                    }
                    Next::Dispatch(next) => next,
                },
            };
            let bars = matches!(next.request, Request::Discard(_))
                && self.model.discards() == Discards::Barrier;
            if bars && !self.barred {
                self.barrier = Some(next);
                continue;
            }
            self.issue(now, next);
        }
    }

    fn issue(&mut self, now: Nanos, request: Queued) {
        let completion = self.model.issue(now, &request.request);
        let flight = Some(InFlight {
            request,
            done: completion.done,
        });
        let at = match self.unused.pop() {
            Some(at) => {
                self.flights[at] = flight;
                at
            }
            None => {
                self.flights.push(flight);
                self.flights.len() - 1
            }
        };
        self.ends.push(Reverse((completion.end, at)));
    }
}
