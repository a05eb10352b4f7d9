//! A queue of one of two kinds.

use super::store::{Completion, Request, StoreQueue};
use std::os::fd::BorrowedFd;

/// The preferred queue, or the one that serves where there is none.
pub(crate) enum Either<A, B> {
    Preferred(Box<A>),
    Fallback(B),
}

impl<A: StoreQueue, B: StoreQueue> StoreQueue for Either<A, B> {
    unsafe fn push(&mut self, request: Request) {
        // SAFETY: the caller guarantees that the request's memory is left to it until our `reap` returns it. Our `reap`
        // only passes on what this queue's `reap` returns.
        unsafe {
            match self {
                Self::Preferred(queue) => queue.push(request),
                Self::Fallback(queue) => queue.push(request),
            }
        }
    }

    fn submit(&mut self) {
        match self {
            Self::Preferred(queue) => queue.submit(),
            Self::Fallback(queue) => queue.submit(),
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        match self {
            Self::Preferred(queue) => queue.reap(out),
            Self::Fallback(queue) => queue.reap(out),
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        match self {
            Self::Preferred(queue) => queue.readiness(),
            Self::Fallback(queue) => queue.readiness(),
        }
    }
}
