//! `seagate-7200`: a disk, dominated by seeks (FlashVM, 5.2 and Table 2).
//!
//! A request that does not continue the previous one costs a seek, 1 to 6 ms linear in the distance
//! (5.3.1), and a rotational wait. The wait is fitted: with a quarter of a turn random access takes
//! 4.75 ms, within Table 2's 4-5 ms and 120-300 IO/s, and five-block requests of which 60 % are
//! writes elsewhere run at the 8 MB/s of Figure 5(a). Half a turn would give 6.8 ms. Reads run at
//! 80 MB/s, writes at 68 MB/s. One request at a time, in the order of the scheduler; no discards.

use super::drive::page_time;
use super::{Completion, DeviceModel, Discards, Request};
use flashvm_core::Nanos;

const SEEK_MIN_NS: f64 = 1e6;
const SEEK_MAX_NS: f64 = 6e6;
/// The rotational wait: a quarter of a turn at 7200 a minute.
const WAIT: Nanos = Nanos(2_083_333);
const READ_MB_S: u64 = 80;
const WRITE_MB_S: u64 = 68;

pub(super) struct Disk {
    pages: u32,
    /// The page after the last one served.
    head: u32,
    busy_until: Nanos,
}

impl Disk {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            pages,
            head: 0,
            busy_until: Nanos(0),
        }
    }

    fn access(&self, to: u32) -> Nanos {
        if to == self.head {
            return Nanos(0);
        }
        let distance = f64::from(to.abs_diff(self.head)) / f64::from(self.pages);
        let seek = SEEK_MIN_NS + (SEEK_MAX_NS - SEEK_MIN_NS) * distance;
        WAIT.plus(Nanos(seek as u64))
    }
}

impl DeviceModel for Disk {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn depth(&self) -> usize {
        1
    }

    fn discards(&self) -> Discards {
        Discards::Refused
    }

    fn issue(&mut self, now: Nanos, request: &Request) -> Completion {
        let (range, page) = match request {
            Request::Read(range) => (*range, page_time(READ_MB_S)),
            Request::Write(range) => (*range, page_time(WRITE_MB_S)),
            Request::Discard(_) => return Completion::refused(now),
        };
        let start = Nanos(now.0.max(self.busy_until.0));
        let transfer = Nanos(page.0 * u64::from(range.count));
        self.busy_until = start.plus(self.access(range.first)).plus(transfer);
        self.head = range.end();
        Completion {
            end: self.busy_until,
            done: true,
        }
    }
}
