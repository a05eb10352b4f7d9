//! A file's own queue: io_uring, or asynchronous I/O where that is forbidden.

use super::aio::Aio;
use super::ring::Ring;
use super::store::{Completion, Request, StoreQueue};
use std::os::fd::BorrowedFd;

/// A queue to a file.
pub(crate) enum FileQueue {
    Ring(Box<Ring>),
    Aio(Aio),
}

impl StoreQueue for FileQueue {
    unsafe fn push(&mut self, request: Request) {
        // SAFETY: the caller guarantees that the request's memory is left to it until our `reap` returns it. Our `reap`
        // only passes on what this queue's `reap` returns.
        unsafe {
            match self {
                Self::Ring(queue) => queue.push(request),
                Self::Aio(queue) => queue.push(request),
            }
        }
    }

    fn submit(&mut self) {
        match self {
            Self::Ring(queue) => queue.submit(),
            Self::Aio(queue) => queue.submit(),
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        match self {
            Self::Ring(queue) => queue.reap(out),
            Self::Aio(queue) => queue.reap(out),
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(queue) => queue.readiness(),
            Self::Aio(queue) => queue.readiness(),
        }
    }
}
