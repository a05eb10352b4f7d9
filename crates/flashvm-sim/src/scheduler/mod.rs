//! The four I/O schedulers of Linux 2.6.28, as far as FlashVM's paper compares them (4.1.4): which
//! waiting request goes to the device next, and whether the device is left idle in the hope of a
//! better one.
//!
//! A scheduler is one file and one line in `registry`. [`BlockQueue`] puts one in front of a
//! device.

mod anticipatory;
mod cfq;
mod deadline;
mod noop;
mod queue;
mod registry;

pub use deadline::DeadlineTuning;
pub use queue::{BlockQueue, Ended};
pub use registry::{SchedulerInfo, SchedulerKind, UnknownScheduler};

use crate::device::{Range, Request};
use flashvm_core::Nanos;
use std::collections::VecDeque;

/// Idle time of the schedulers that wait for a process's next request: FlashVM, 4.1.4, says 2 to 3 ms.
pub const IDLE: Nanos = Nanos(3_000_000);
/// Longest merged request: 512 KiB, as in Linux.
const MERGED_PAGES_MAX: u32 = 128;

/// A request that waits for the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Identifies the request: [`Ended::tag`] returns it.
    pub tag: u64,
    /// Tags of the requests merged into it.
    pub merged: Vec<u64>,
    /// The request.
    pub request: Request,
    /// The process that issued it.
    pub process: u32,
    /// Whether a thread waits for it.
    pub demanded: bool,
    /// Time of arrival.
    pub since: Nanos,
}

/// A scheduler's answer when the device can take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Issue this request.
    Dispatch(Queued),
    /// Leave the device idle until this time, unless another request arrives.
    Wait(Nanos),
    /// No request waits.
    Empty,
}

/// An I/O scheduler.
pub trait Scheduler: Send {
    /// Takes a request; may merge it into one that waits.
    fn add(&mut self, request: Queued);

    /// Chooses the next request. Called when the device can take one.
    fn next(&mut self, now: Nanos) -> Next;

    /// A request has ended.
    fn completed(&mut self, now: Nanos, process: u32, demanded: bool) {
        let _ = (now, process, demanded);
    }
}

/// Where a request may be merged into one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merges {
    /// Behind it.
    Back,
    /// Behind or before it.
    Both,
}

/// Merges a request into an adjacent one of the same direction; returns whether there was one.
fn merge<'a>(waiting: impl Iterator<Item = &'a mut Queued>, new: &Queued, merges: Merges) -> bool {
    for old in waiting {
        let (range, with) = match (&mut old.request, &new.request) {
            (Request::Read(range), Request::Read(with))
            | (Request::Write(range), Request::Write(with)) => (range, with),
            _ => continue,
        };
        if range.count + with.count > MERGED_PAGES_MAX {
            continue;
        }
        if range.end() == with.first {
            range.count += with.count;
        } else if with.end() == range.first && merges == Merges::Both {
            *range = Range {
                first: with.first,
                count: range.count + with.count,
            };
        } else {
            continue;
        }
        old.merged.push(new.tag);
        old.merged.extend(&new.merged);
        old.demanded |= new.demanded;
        return true;
    }
    false
}

/// Adds a request to those of its direction, or merges it into one of them.
fn add_by_direction(
    reads: &mut VecDeque<Queued>,
    writes: &mut VecDeque<Queued>,
    request: Queued,
    merges: Merges,
) {
    let waiting = match request.request {
        Request::Read(_) => reads,
        Request::Write(_) | Request::Discard(_) => writes,
    };
    if !merge(waiting.iter_mut(), &request, merges) {
        waiting.push_back(request);
    }
}

/// Takes the request with the lowest page at or above `head`; if none is there, the lowest of all.
fn take_upward(waiting: &mut VecDeque<Queued>, head: u32) -> Option<Queued> {
    let at = (0..waiting.len()).min_by_key(|&i| {
        let first = waiting[i].request.first();
        (first < head, first)
    })?;
    waiting.remove(at)
}
