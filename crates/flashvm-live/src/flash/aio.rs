//! A file's queue where io_uring is forbidden: Linux' asynchronous I/O, which the default profiles of containers allow.
//!
//! With direct I/O a request is in flight when `io_submit` returns, as with io_uring, and many begin by one system call.
//! `docs/performance.md` compares it with threads.

use super::aio_context::Context;
use super::store::{Completion, Failed, Geometry, Request, StoreQueue, Transfer};
use crate::sys::descriptors::PagerFd;
use crate::sys::disk_space;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Requests in flight at most. All contexts of a machine share `fs.aio-max-nr` (65,536 by default).
const DEPTH_MAX: u32 = 64;

/// `IOCB_CMD_PREAD`, `IOCB_CMD_PWRITEV` and `IOCB_FLAG_RESFD` of `linux/aio_abi.h`.
const PREAD: u16 = 0;
const PWRITEV: u16 = 8;
const SIGNAL_EVENT: u32 = 1;

/// Requests in flight to one file.
pub(crate) struct Aio {
    context: Context,
    file: RawFd,
    geometry: Geometry,
    /// Its count rises by one for each request that ends.
    event: PagerFd,
    /// Requests that `reap` has returned, minus those that the event's count has told of.
    uncounted: i64,
    backlog: VecDeque<Request>,
    /// Requests in flight, by the kernel's tag.
    in_flight: Vec<Option<Request>>,
    free: Vec<usize>,
    /// The kernel's entries of the requests that `submit` begins.
    entries: Vec<libc::iocb>,
    /// Tags of requests that the kernel refused to begin.
    refused: Vec<usize>,
}

impl Aio {
    /// Opens a queue to `file`, which outlives it, for `depth` requests in flight, at most [`DEPTH_MAX`].
    ///
    /// # Errors
    /// As [`Context::new`], and those of an eventfd.
    pub(super) fn open(file: RawFd, geometry: Geometry, depth: u32) -> Result<Self, Errno> {
        let depth = depth.min(DEPTH_MAX);
        let event = PagerFd::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Self {
            context: Context::new(depth)?,
            file,
            geometry,
            event,
            uncounted: 0,
            backlog: VecDeque::with_capacity(depth as usize),
            in_flight: (0..depth).map(|_| None).collect(),
            free: (0..depth as usize).rev().collect(),
            entries: Vec::with_capacity(depth as usize),
            refused: Vec::with_capacity(depth as usize),
        })
    }

    /// The kernel's entry for a request.
    fn entry(&self, request: &Request, tag: usize) -> libc::iocb {
        let (operation, address, len) = match &request.transfer {
            Transfer::Read(to) => (PREAD, to.address, to.len),
            Transfer::Write(parts) => (PWRITEV, parts.as_ptr() as usize, parts.len()),
        };
        // SAFETY: all zeros is an entry: it has integers only.
        let mut entry: libc::iocb = unsafe { std::mem::zeroed() };
        entry.aio_data = tag as u64;
        entry.aio_lio_opcode = operation;
        entry.aio_fildes = self.file as u32;
        entry.aio_buf = address as u64;
        entry.aio_nbytes = len as u64;
        entry.aio_offset = request.at as i64;
        entry.aio_flags = SIGNAL_EVENT;
        entry.aio_resfd = self.event.as_raw_fd() as u32;
        entry
    }

    /// Begins all `entries`.
    fn enter(&mut self) {
        let mut begun = 0;
        while let Some(entry) = self.entries.get(begun) {
            let tag = entry.aio_data as usize;
            // SAFETY: `in_flight` keeps the requests with their vectors until `reap` sees the completion. Until then
            // their memory is left to them, as their maker guaranteed to `push`.
            match unsafe { self.context.submit(&mut self.entries[begun..]) } {
                Ok(taken) => begun += taken,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => {
                    self.refused.push(tag);
                    // `reap` is to be called for it.
                    let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
                    begun += 1;
                }
            }
        }
        self.entries.clear();
    }

    /// Appends what has ended. Returns its number.
    fn take(&mut self, out: &mut Vec<Completion>) -> i64 {
        let before = out.len();
        let mut ended = |tag: usize, result: i64| {
            let request = self.in_flight[tag].take();
            let request = request.expect("a completion for a request in flight");
            self.free.push(tag);
            if let Transfer::Write(_) = request.transfer {
                disk_space::look_at(result);
            }
            let len = request.transfer.len();
            let failed = Failed::unless(result == len as i64, len);
            out.push(Completion { request, failed });
        };
        self.refused.drain(..).for_each(|tag| ended(tag, -1));
        self.context.reap(|tag, result| ended(tag as usize, result));
        (out.len() - before) as i64
    }
}

impl StoreQueue for Aio {
    unsafe fn push(&mut self, request: Request) {
        self.geometry.admit(request.at, request.transfer.len());
        self.backlog.push_back(request);
    }

    fn submit(&mut self) {
        while !self.backlog.is_empty()
            && let Some(tag) = self.free.pop()
        {
            let request = self.backlog.pop_front().expect("just seen");
            self.entries.push(self.entry(&request, tag));
            // The vector is on the heap: moving the request does not move it.
            self.in_flight[tag] = Some(request);
        }
        self.enter();
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let mut ended = self.take(out);
        // Clear the event only when there is nothing else to do. Its count may tell of a request that has ended since:
        // take that too, or nobody would hear of it.
        if ended == 0 && self.uncounted > 0 {
            let mut count = [0u8; 8];
            if rustix::io::read(&self.event, &mut count).is_ok() {
                self.uncounted -= i64::from_ne_bytes(count);
            }
            ended = self.take(out);
        }
        self.uncounted += ended;
        self.submit();
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::aio_context::is_allowed;
    use super::super::testing::Pages;
    use super::*;
    use crate::sys::discard::StoreKind;
    use flashvm_core::PAGE_SIZE;
    use rustix::event::{PollFd, PollFlags, poll};

    /// The kernel refuses such requests in `io_submit`, not by a completion.
    #[test]
    fn refused_requests_come_back_as_failed() {
        if !is_allowed() {
            eprintln!("SKIPPED: asynchronous I/O (io_setup)");
            return;
        }
        let geometry = Geometry {
            bytes: 1 << 20,
            unit: PAGE_SIZE,
            kind: StoreKind::File,
            threads: 1,
        };
        let mut queue = Aio::open(-1, geometry, 4).unwrap();
        let pages = Pages::new(2, 1);
        for tag in 0..10 {
            let transfer = match tag % 2 {
                0 => Transfer::Read(pages.all()),
                _ => Transfer::Write(vec![pages.page(1), pages.page(0)]),
            };
            // SAFETY: the pages live until all requests are back, below. The descriptor is invalid, so none uses them.
            unsafe {
                queue.push(Request {
                    tag,
                    at: 0,
                    transfer,
                });
            }
        }
        queue.submit();
        let mut ended = Vec::new();
        while ended.len() < 10 {
            let mut ready = [PollFd::from_borrowed_fd(queue.readiness(), PollFlags::IN)];
            poll(&mut ready, None).unwrap();
            queue.reap(&mut ended);
        }
        let mut tags = Vec::from_iter(ended.iter().map(|ended| ended.request.tag));
        tags.sort_unstable();
        assert_eq!(tags, Vec::from_iter(0..10));
        assert!(ended.iter().all(|ended| ended.failed.bits() == 0b11));
    }
}
