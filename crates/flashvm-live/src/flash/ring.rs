//! A file's queue: io_uring. Requests enter the kernel without the C library, which threads that resolve faults must
//! not call.

use super::store::{Completion, Failed, Geometry, Part, Request, StoreQueue, Transfer};
use crate::sys::spare_descriptors::with_room;
use crate::sys::{descriptors, disk_space, raw};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

/// A ring for requests to one file.
pub(crate) struct Ring {
    ring: IoUring,
    file: types::Fd,
    geometry: Geometry,
    /// The registered range; empty if there is none.
    registered: Part,
    backlog: VecDeque<Request>,
    /// Requests in flight, by the kernel's tag. The kernel may read a request's vector until it ends.
    in_flight: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Ring {
    /// Opens a ring to `file`, with `buffers` registered for reads if the kernel takes them. Both outlive the ring.
    pub(super) fn open(
        file: RawFd,
        geometry: Geometry,
        depth: u32,
        buffers: Option<Part>,
    ) -> Result<Self, Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        // The lowest free descriptors are the program's: the ring goes to a high one.
        let low = with_room(|| IoUring::new(depth).map_err(failed))?;
        let params = low.params().clone();
        // SAFETY: `low` stays open until it is dropped, below; the borrow ends in this statement.
        let high = descriptors::keep(unsafe { BorrowedFd::borrow_raw(low.as_raw_fd()) })?;
        // SAFETY: `high` duplicates the descriptor of the ring that `params` describe, and nobody else owns it.
        let ring = unsafe { IoUring::from_fd(high.into_raw_fd(), params) }.map_err(failed)?;
        drop(low);
        let registered = buffers.filter(|buffers| {
            let vector = libc::iovec {
                iov_base: buffers.address as *mut _,
                iov_len: buffers.len,
            };
            // SAFETY: the buffers outlive the ring, as `Store::queue` requires: they come from `map::own`, and nobody
            // unmaps them.
            unsafe { ring.submitter().register_buffers(&[vector]).is_ok() }
        });
        Ok(Self {
            ring,
            file: types::Fd(file),
            geometry,
            registered: registered.unwrap_or(Part { address: 0, len: 0 }),
            backlog: VecDeque::with_capacity(depth as usize),
            in_flight: (0..depth).map(|_| None).collect(),
            free: (0..depth as usize).rev().collect(),
        })
    }

    /// The kernel's entry for a request.
    fn entry(&self, request: &Request) -> squeue::Entry {
        let file = self.file;
        match &request.transfer {
            Transfer::Read(to) => {
                let (address, len) = (to.address as *mut u8, to.len as u32);
                if to.address.wrapping_sub(self.registered.address) < self.registered.len {
                    let read = opcode::ReadFixed::new(file, address, len, 0);
                    read.offset(request.at).build()
                } else {
                    let read = opcode::Read::new(file, address, len);
                    read.offset(request.at).build()
                }
            }
            Transfer::Write(parts) => {
                let vector = parts.as_ptr().cast::<libc::iovec>();
                let write = opcode::Writev::new(file, vector, parts.len() as u32);
                write.offset(request.at).build()
            }
        }
    }

    /// `io_uring_enter` for `entries` new entries.
    fn enter(&self, mut entries: usize) {
        while entries > 0 {
            let args = [self.ring.as_raw_fd() as usize, entries, 0, 0, 0, 0];
            // SAFETY: the call takes no pointer. `submit` argues for the memory that the entries name.
            match raw::result(unsafe { raw::syscall(libc::SYS_io_uring_enter, args) }) {
                Ok(taken) => entries -= taken,
                Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Err(error) => panic!("io_uring_enter: {error}"),
            }
        }
    }
}

impl StoreQueue for Ring {
    unsafe fn push(&mut self, request: Request) {
        self.geometry.admit(request.at, request.transfer.len());
        self.backlog.push_back(request);
    }

    fn submit(&mut self) {
        let mut entries = 0;
        while !self.backlog.is_empty()
            && let Some(index) = self.free.pop()
        {
            let request = self.backlog.pop_front().expect("just seen");
            let entry = self.entry(&request).user_data(index as u64);
            // The vector is on the heap: moving the request does not move it.
            self.in_flight[index] = Some(request);
            entries += 1;
            // SAFETY: `in_flight` keeps the vector until `reap` sees the completion. Until then the memory is left to
            // the request, as its maker guaranteed to `push`.
            unsafe { self.ring.submission().push(&entry) }
                .expect("no more requests in flight than entries");
        }
        self.enter(entries);
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let index = entry.user_data() as usize;
            let request = self.in_flight[index].take();
            let request = request.expect("a completion for a request in flight");
            self.free.push(index);
            if let Transfer::Write(_) = request.transfer {
                disk_space::look_at(entry.result().into());
            }
            let len = request.transfer.len();
            let failed = Failed::unless(entry.result() == len as i32, len);
            out.push(Completion { request, failed });
        }
        self.submit();
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        // SAFETY: `self` owns the descriptor and is borrowed as long as the result.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
