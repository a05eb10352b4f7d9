//! Requests to the flash store: io_uring, or a few threads with pread and pwritev where a
//! container's profile blocks io_uring.
//!
//! Both take a tag with each request and hand it back with the outcome. Addresses are those of
//! the pager's read buffers or of pages in the shadow that cannot change while the request runs.

use super::model_client;
use crate::sys::{descriptors, raw, space, thread};
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};

/// Requests that may be in flight at once.
const ENTRIES: u32 = 256;
/// Threads of the fallback: enough for the queue depth at which flash is fast.
const FALLBACK_THREADS: usize = 4;
/// The same where each request sleeps until a device model lets it end.
const PACED_THREADS: usize = 16;

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// As given with the request.
    pub(crate) tag: u64,
    /// Whether all bytes were transferred.
    pub(crate) whole: bool,
}

/// A request.
#[derive(Debug)]
pub(crate) enum Request {
    /// `len` bytes at `offset` into memory at `address`.
    Read {
        tag: u64,
        offset: u64,
        address: usize,
        len: u32,
    },
    /// The parts, one after the other, to `offset`.
    Write {
        tag: u64,
        offset: u64,
        parts: Vec<(usize, u32)>,
    },
}

/// A queue of requests to one file.
pub(crate) enum FlashIo {
    Ring(Box<Ring>),
    Threads(Arc<Threads>),
}

impl FlashIo {
    /// Opens a queue to `file`. `buffers`, an address and a length, is registered for reads.
    ///
    /// Where there is no ring it starts threads, by the C library, whose locks another thread may
    /// hold while it waits for a fault: nothing may be locked. [`Threads::start`] before there
    /// are others is better.
    pub(crate) fn new(file: RawFd, buffers: Option<(usize, usize)>) -> Result<Self, Errno> {
        match Ring::new(file, buffers) {
            Ok(ring) => Ok(Self::Ring(Box::new(ring))),
            Err(_) => Threads::start(file).map(Self::Threads),
        }
    }

    /// Hands a request over; it starts with the next [`FlashIo::submit`] at the latest.
    pub(crate) fn push(&mut self, request: Request) {
        match self {
            Self::Ring(ring) => ring.backlog.push_back(request),
            Self::Threads(threads) => threads.push(request),
        }
    }

    /// Starts what has been pushed, as far as the queue has room.
    pub(crate) fn submit(&mut self) {
        if let Self::Ring(ring) = self {
            ring.submit();
        }
    }

    /// Appends the outcomes of requests that have ended.
    pub(crate) fn reap(&mut self, out: &mut Vec<Completion>) {
        match self {
            Self::Ring(ring) => ring.reap(out),
            Self::Threads(threads) => threads.reap(out),
        }
    }

    /// Readable when there is something to reap.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => {
                // SAFETY: the ring lives as long as the borrow of `self`.
                unsafe { BorrowedFd::borrow_raw(ring.ring.as_raw_fd()) }
            }
            Self::Threads(threads) => threads.event.as_fd(),
        }
    }
}

pub(crate) struct Ring {
    ring: IoUring,
    file: types::Fd,
    /// The registered range.
    buffers: Option<(usize, usize)>,
    backlog: VecDeque<Request>,
    in_flight: u32,
    /// By slot of the tag table: what is in flight, so that vectors stay in place.
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
}

struct InFlight {
    tag: u64,
    len: u32,
    /// The kernel reads the vector while the request runs.
    _vector: Vec<libc::iovec>,
}

impl Ring {
    fn new(file: RawFd, buffers: Option<(usize, usize)>) -> Result<Self, std::io::Error> {
        // The lowest free descriptors are the program's: the ring goes to a high one.
        let low = IoUring::new(ENTRIES)?;
        let params = low.params().clone();
        // SAFETY: `low` is open over the call.
        let high = unsafe { BorrowedFd::borrow_raw(low.as_raw_fd()) }.try_clone_to_owned()?;
        let high = descriptors::keep(high)?;
        // SAFETY: a descriptor of the ring that these parameters describe, and nobody else's.
        let ring = unsafe { IoUring::from_fd(high.into_raw_fd(), params)? };
        drop(low);
        let buffers = buffers.filter(|&(address, len)| {
            let vector = libc::iovec {
                iov_base: address as *mut _,
                iov_len: len,
            };
            // SAFETY: the range is the pager's read buffers, which outlive every ring.
            unsafe { ring.submitter().register_buffers(&[vector]).is_ok() }
        });
        Ok(Self {
            ring,
            file: types::Fd(file),
            buffers,
            backlog: VecDeque::with_capacity(ENTRIES as usize),
            in_flight: 0,
            slots: (0..ENTRIES).map(|_| None).collect(),
            free: (0..ENTRIES as usize).rev().collect(),
        })
    }

    fn submit(&mut self) {
        let mut pushed = false;
        while self.in_flight < ENTRIES {
            let Some(request) = self.backlog.pop_front() else {
                break;
            };
            let slot = self
                .free
                .pop()
                .expect("as many slots as requests in flight");
            let (entry, in_flight) = match request {
                Request::Read {
                    tag,
                    offset,
                    address,
                    len,
                } => {
                    let registered = self
                        .buffers
                        .is_some_and(|(start, size)| address.wrapping_sub(start) < size);
                    let entry = if registered {
                        opcode::ReadFixed::new(self.file, address as *mut u8, len, 0)
                            .offset(offset)
                            .build()
                    } else {
                        opcode::Read::new(self.file, address as *mut u8, len)
                            .offset(offset)
                            .build()
                    };
                    (
                        entry,
                        InFlight {
                            tag,
                            len,
                            _vector: Vec::new(),
                        },
                    )
                }
                Request::Write { tag, offset, parts } => {
                    let (vector, len) = gather(&parts);
                    let entry =
                        opcode::Writev::new(self.file, vector.as_ptr(), vector.len() as u32)
                            .offset(offset)
                            .build();
                    (
                        entry,
                        InFlight {
                            tag,
                            len,
                            _vector: vector,
                        },
                    )
                }
            };
            self.slots[slot] = Some(in_flight);
            self.in_flight += 1;
            pushed = true;
            // SAFETY: buffer and vector stay in place until the completion is reaped: the
            // vector in `slots`, the memory by the contract of this module.
            unsafe {
                self.ring
                    .submission()
                    .push(&entry.user_data(slot as u64))
                    .expect("no more requests in flight than entries");
            }
        }
        if pushed {
            while let Err(error) = self.ring.submit() {
                assert!(
                    matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ),
                    "io_uring_enter: {error}"
                );
            }
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let mut any = false;
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            let request = self.slots[slot].take().expect("a completion for a request");
            self.free.push(slot);
            self.in_flight -= 1;
            any = true;
            space::look_at(entry.result().into());
            out.push(Completion {
                tag: request.tag,
                whole: entry.result() == request.len as i32,
            });
        }
        if any && !self.backlog.is_empty() {
            self.submit();
        }
    }
}

/// The fallback: threads that take requests from a queue.
pub(crate) struct Threads {
    file: RawFd,
    queue: Mutex<VecDeque<Request>>,
    arrived: Condvar,
    ended: Mutex<Vec<Completion>>,
    event: OwnedFd,
}

impl Threads {
    /// Starts threads for a queue to `file`.
    pub(crate) fn start(file: RawFd) -> Result<Arc<Self>, Errno> {
        use rustix::event::{EventfdFlags, eventfd};
        let threads = Arc::new(Self {
            file,
            queue: Mutex::new(VecDeque::with_capacity(ENTRIES as usize)),
            arrived: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(ENTRIES as usize)),
            event: descriptors::keep(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?,
        });
        let count = match model_client::client() {
            Some(_) => PACED_THREADS,
            None => FALLBACK_THREADS,
        };
        for _ in 0..count {
            let shared = Arc::clone(&threads);
            thread::spawn("flashvm-io", move || shared.work())?;
        }
        Ok(threads)
    }

    fn push(&self, request: Request) {
        self.queue
            .lock()
            .expect("no thread panics holding it")
            .push_back(request);
        self.arrived.notify_one();
    }

    fn reap(&self, out: &mut Vec<Completion>) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        out.append(&mut self.ended.lock().expect("no thread panics holding it"));
    }

    fn work(&self) {
        loop {
            let request = {
                let mut queue = self.queue.lock().expect("no thread panics holding it");
                loop {
                    match queue.pop_front() {
                        Some(request) => break request,
                        None => queue = self.arrived.wait(queue).expect("no thread panics"),
                    }
                }
            };
            let completion = self.carry_out(request);
            self.ended
                .lock()
                .expect("no thread panics holding it")
                .push(completion);
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn carry_out(&self, request: Request) -> Completion {
        match request {
            Request::Read {
                tag,
                offset,
                address,
                len,
            } => Completion {
                tag,
                whole: read_now(self.file, offset, address, len),
            },
            Request::Write { tag, offset, parts } => {
                let (vector, len) = gather(&parts);
                let write = || {
                    // SAFETY: the parts are readable for the length of the request.
                    let written = unsafe {
                        libc::pwritev(
                            self.file,
                            vector.as_ptr(),
                            vector.len() as i32,
                            offset as libc::off_t,
                        )
                    };
                    if written < 0 {
                        let error = std::io::Error::last_os_error();
                        space::look_at(-i64::from(error.raw_os_error().unwrap_or(0)));
                    }
                    written == len as isize
                };
                Completion {
                    tag,
                    whole: model_client::write(offset, len, write),
                }
            }
        }
    }
}

/// Writes in the calling thread. Whether all bytes went.
pub(crate) fn write_now(file: RawFd, offset: u64, address: usize, len: u32) -> bool {
    model_client::write(offset, len, || {
        // SAFETY: the caller's memory is readable for `len` bytes and does not change meanwhile.
        let written = unsafe {
            raw::syscall(
                libc::SYS_pwrite64,
                [file as usize, address, len as usize, offset as usize, 0, 0],
            )
        };
        space::look_at(written as i64);
        written == len as isize
    })
}

/// The parts of a write as the kernel takes them, and their bytes.
fn gather(parts: &[(usize, u32)]) -> (Vec<libc::iovec>, u32) {
    let vector = parts
        .iter()
        .map(|&(address, len)| libc::iovec {
            iov_base: address as *mut _,
            iov_len: len as usize,
        })
        .collect();
    (vector, parts.iter().map(|part| part.1).sum())
}

/// Reads in the calling thread. Whether all bytes came.
pub(crate) fn read_now(file: RawFd, offset: u64, address: usize, len: u32) -> bool {
    model_client::read(offset, len, || {
        // SAFETY: the caller's buffer is writable for `len` bytes and used by nobody else.
        let read = unsafe {
            raw::syscall(
                libc::SYS_pread64,
                [file as usize, address, len as usize, offset as usize, 0, 0],
            )
        };
        read == len as isize
    })
}
