//! A context of Linux' asynchronous I/O. Completions are read from memory that the kernel shares, without a system call.
//!
//! The shared memory is `struct aio_ring` of the kernel's `fs/aio.c`, which is not in a header. It has not changed since
//! 2013; its magic number and its flags say whether it is what this file knows.
//!
//! A process that has a context ends about 30 ms later, as the kernel waits until no processor uses the context: open
//! one only when it is needed.

use crate::sys::raw;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

const MAGIC: u32 = 0xa10a_10a1;

/// A context. The kernel knows it by the address of the shared memory.
pub(super) struct Context {
    shared: *const Shared,
}

// SAFETY: any thread may use the context and its shared memory; `&mut self` leaves the head to one at a time.
unsafe impl Send for Context {}

/// The head of the shared memory. Events follow at `header_bytes`.
#[repr(C)]
struct Shared {
    id: u32,
    /// Room for so many events.
    events: u32,
    /// The next event to take. Only this process stores here.
    head: AtomicU32,
    /// The next event that the kernel will fill in.
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

/// `struct io_event`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Event {
    tag: u64,
    block: u64,
    result: i64,
    second_result: i64,
}

/// Whether this kernel has contexts and allows them. Makes none.
#[must_use]
pub fn is_allowed() -> bool {
    let mut context = 0usize;
    // SAFETY: a context without events is refused, so the kernel only reads `context`.
    let refused = unsafe { setup(0, &mut context) };
    refused == Err(Errno::INVAL)
}

/// # Safety
/// Nobody uses the context that is made, or it is destroyed.
unsafe fn setup(events: u32, context: &mut usize) -> Result<usize, Errno> {
    let args = [events as usize, context as *mut usize as usize, 0, 0, 0, 0];
    // SAFETY: the kernel stores one word in `context`, which is borrowed exclusively.
    raw::result(unsafe { raw::syscall(libc::SYS_io_setup, args) })
}

impl Context {
    /// Makes a context for `depth` requests in flight.
    ///
    /// # Errors
    /// The kernel's: `EPERM` or `ENOSYS` where it is forbidden, `EAGAIN` beyond `fs.aio-max-nr`; `ENOTSUP` if the shared
    /// memory is not as this file knows it.
    pub(super) fn new(depth: u32) -> Result<Self, Errno> {
        let mut address = 0;
        // SAFETY: `drop` destroys the context.
        unsafe { setup(depth, &mut address)? };
        let context = Self {
            shared: address as *const Shared,
        };
        let shared = context.shared();
        if shared.magic != MAGIC || shared.incompatible != 0 {
            return Err(Errno::NOTSUP);
        }
        Ok(context)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the kernel has mapped at least a page there, until `drop`. It changes only the tail, which is atomic;
        // the other fields are constant, and the head is ours.
        unsafe { &*self.shared }
    }

    /// Begins requests, in order. Returns how many have begun: less than all if the next one was refused.
    ///
    /// # Errors
    /// The first request was refused.
    ///
    /// # Safety
    /// Until [`Self::reap`] has returned a request's tag, the memory that it names is left to it: a read's is writable
    /// and used by nobody else; a write's is readable, and nobody changes it. Vectors may end after this call.
    pub(super) unsafe fn submit(&self, requests: &mut [libc::iocb]) -> Result<usize, Errno> {
        /// Requests that one system call begins.
        const BATCH: usize = 32;
        let mut blocks = [std::ptr::null_mut(); BATCH];
        let mut count = 0;
        for (request, block) in requests.iter_mut().zip(&mut blocks) {
            *block = std::ptr::from_mut(request);
            count += 1;
        }
        let args = [
            self.shared as usize,
            count,
            blocks.as_ptr() as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `blocks` names `count` requests, which are borrowed exclusively: the kernel stores its key in each.
        // It copies requests and vectors during the call. The caller vouches for the memory that they name.
        raw::result(unsafe { raw::syscall(libc::SYS_io_submit, args) })
    }

    /// Takes the events that have arrived: tag and result of each request that has ended. Does not enter the kernel.
    pub(super) fn reap(&mut self, mut ended: impl FnMut(u64, i64)) {
        let shared = self.shared();
        let events = self.shared.wrapping_byte_add(shared.header_bytes as usize);
        let mut head = shared.head.load(Ordering::Relaxed);
        // Acquire: the kernel fills in the events before it moves the tail.
        let tail = shared.tail.load(Ordering::Acquire);
        while head != tail {
            // SAFETY: the kernel has filled in the events from head to tail, and changes none of them before the head
            // has passed it.
            let event = unsafe { events.cast::<Event>().add(head as usize).read() };
            ended(event.tag, event.result);
            head = (head + 1) % shared.events;
        }
        // Release: the events have been read before the kernel may use their place again.
        shared.head.store(head, Ordering::Release);
    }
}

impl Drop for Context {
    /// Waits for the requests in flight.
    fn drop(&mut self) {
        let args = [self.shared as usize, 0, 0, 0, 0, 0];
        // SAFETY: `self` is the only user of the shared memory, which the call unmaps.
        unsafe { raw::syscall(libc::SYS_io_destroy, args) };
    }
}
