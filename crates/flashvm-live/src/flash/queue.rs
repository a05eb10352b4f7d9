//! The queue of the pager's threads: the store's own; or, where the kernel allows none or there is a device model, threads
//! that make one request at a time.

use super::either::Either;
use super::store::{Completion, Part, Request, Store, StoreQueue, Transfer};
use crate::sys::descriptors::PagerFd;
use crate::sys::thread;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex};

/// Requests that may be in flight at once.
const DEPTH: u32 = 256;

/// A queue to a store: its own, or threads.
pub(crate) type Queue<S> = Either<<S as Store>::Queue, ThreadQueue<S>>;

impl<S: Store> Queue<S> {
    /// Opens the store's own queue, or starts threads.
    ///
    /// The C library starts threads under locks of its own, which another thread may hold while it waits for a fault:
    /// call this without locks. Better call [`ThreadQueue::start`] before there are other threads.
    ///
    /// # Errors
    /// As [`ThreadQueue::start`].
    pub(crate) fn open(store: &'static S, buffers: Option<Part>) -> Result<Self, Errno> {
        match store.queue(DEPTH, buffers) {
            Ok(queue) => Ok(Self::Preferred(Box::new(queue))),
            Err(_) => ThreadQueue::start(store).map(Self::Fallback),
        }
    }
}

/// Threads that take requests from a list, as many as [`super::store::Geometry::threads`]. They never end: a queue lives as
/// long as its process.
pub(crate) struct ThreadQueue<S: 'static> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: 'static> {
    store: &'static S,
    waiting: Mutex<VecDeque<Request>>,
    arrived: Condvar,
    ended: Mutex<Vec<Completion>>,
    event: PagerFd,
}

impl<S: Store> ThreadQueue<S> {
    /// Starts the threads.
    ///
    /// # Errors
    /// The kernel refuses an eventfd or a thread.
    pub(crate) fn start(store: &'static S) -> Result<Self, Errno> {
        let shared = Arc::new(Shared {
            store,
            waiting: Mutex::new(VecDeque::with_capacity(DEPTH as usize)),
            arrived: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(DEPTH as usize)),
            event: PagerFd::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?,
        });
        for _ in 0..store.geometry().threads {
            let shared = Arc::clone(&shared);
            thread::spawn("flashvm-io", move || shared.work())?;
        }
        Ok(Self { shared })
    }
}

impl<S: Store> StoreQueue for ThreadQueue<S> {
    unsafe fn push(&mut self, request: Request) {
        let mut waiting = self.shared.waiting.lock().expect("no holder panics");
        waiting.push_back(request);
        self.shared.arrived.notify_one();
    }

    /// Nothing to do: a pushed request begins as soon as a thread is free.
    fn submit(&mut self) {}

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.shared.event, &mut count);
        out.append(&mut self.shared.ended.lock().expect("no holder panics"));
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl<S: Store> Shared<S> {
    fn work(&self) {
        loop {
            let waiting = self.waiting.lock().expect("no holder panics");
            let mut waiting = self
                .arrived
                .wait_while(waiting, |waiting| waiting.is_empty())
                .expect("no holder panics");
            let request = waiting.pop_front().expect("waited for");
            drop(waiting);
            // SAFETY: the request is not in `ended` yet. Until `reap` returns it its memory is left to it, as its maker
            // guaranteed to `push`; only this thread has taken it.
            let failed = unsafe {
                match &request.transfer {
                    Transfer::Read(to) => self.store.read(request.at, *to),
                    Transfer::Write(parts) => self.store.write(request.at, parts),
                }
            };
            let mut ended = self.ended.lock().expect("no holder panics");
            ended.push(Completion { request, failed });
            drop(ended);
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}
