//! Threads that take operations from a list and make one at a time, as `flash/queue.rs` has them.

use crate::calls::transfer;
use crate::disk::Disk;
use crate::way::{Operation, Way, expect_whole, sleep_on};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

pub(crate) fn four(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Threads::new(disk.descriptor(), 4)))
}

pub(crate) fn eight(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Threads::new(disk.descriptor(), 8)))
}

pub(crate) fn thirty_two(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Threads::new(disk.descriptor(), 32)))
}

struct Threads {
    shared: Arc<Shared>,
    all: Vec<JoinHandle<()>>,
}

struct Shared {
    file: RawFd,
    waiting: Mutex<VecDeque<Option<Operation>>>,
    arrived: Condvar,
    ended: Mutex<Vec<usize>>,
    event: OwnedFd,
}

impl Threads {
    fn new(file: RawFd, count: usize) -> Self {
        let shared = Arc::new(Shared {
            file,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            ended: Mutex::default(),
            event: event(),
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work())
        };
        let all = (0..count).map(start).collect();
        Self { shared, all }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for _ in &self.all {
            self.shared.push(None);
        }
        for thread in self.all.drain(..) {
            thread.join().expect("a thread failed");
        }
    }
}

impl Way for Threads {
    fn push(&mut self, operation: Operation) {
        self.shared.push(Some(operation));
    }

    fn submit(&mut self) {}

    fn reap(&mut self, ended: &mut Vec<usize>) {
        clear(self.shared.event.as_raw_fd());
        ended.append(&mut self.shared.ended.lock().expect("no holder panics"));
    }

    fn sleep(&mut self) {
        sleep_on(self.shared.event.as_raw_fd());
    }
}

impl Shared {
    /// `None` ends one thread.
    fn push(&self, operation: Option<Operation>) {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        waiting.push_back(operation);
        self.arrived.notify_one();
    }

    fn next(&self) -> Option<Operation> {
        let waiting = self.waiting.lock().expect("no holder panics");
        let mut waiting = self
            .arrived
            .wait_while(waiting, |waiting| waiting.is_empty())
            .expect("no holder panics");
        waiting.pop_front().expect("waited for")
    }

    fn work(&self) {
        while let Some(operation) = self.next() {
            expect_whole(transfer(self.file, operation), operation.bytes);
            self.ended
                .lock()
                .expect("no holder panics")
                .push(operation.buffer);
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// A descriptor that is readable while its count is not 0.
pub(crate) fn event() -> OwnedFd {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Sets an event's count to 0.
pub(crate) fn clear(event: RawFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes, which live over the call.
    unsafe { libc::read(event, (&raw mut count).cast(), 8) };
}
