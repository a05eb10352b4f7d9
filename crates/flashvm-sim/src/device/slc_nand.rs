//! `slc-nand`: the flash of the CRAW paper (V, Table 1): large-block SLC NAND, 25 us to read and 200 us
//! to program a flash page of 2 KiB; two of these make a page of memory. One operation at a time, at the
//! same cost everywhere. No translation layer and no erases: the model has only what the paper counts.

use super::{Completion, DeviceModel, Discards, Request};
use flashvm_core::Nanos;
use flashvm_core::policy::Costs;

pub(super) struct SlcNand {
    pages: u32,
    busy_until: Nanos,
}

impl SlcNand {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            pages,
            busy_until: Nanos(0),
        }
    }
}

impl DeviceModel for SlcNand {
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
        let page = match request {
            Request::Read(_) => Costs::NAND.read,
            Request::Write(_) => Costs::NAND.write,
            Request::Discard(_) => return Completion::refused(now),
        };
        let start = now.0.max(self.busy_until.0);
        self.busy_until = Nanos(start + page.0 * u64::from(request.pages()));
        Completion {
            end: self.busy_until,
            done: true,
        }
    }
}
