//! Linux' asynchronous I/O (`io_submit`), whose completions are read from memory that the kernel shares.

use crate::disk::Disk;
use crate::threads::{clear, event};
use crate::way::{Operation, Way, expect_whole, sleep_on};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Completions are seen in shared memory. Sleeps on an eventfd, which every completion signals.
pub(crate) fn with_event(disk: &Disk, depth: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Aio::open(disk, depth, Some(event()))?))
}

/// Completions are seen in shared memory. Sleeps in `io_getevents`.
pub(crate) fn without_event(disk: &Disk, depth: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Aio::open(disk, depth, None)?))
}

/// The head of the shared memory (`struct aio_ring` in the kernel's fs/aio.c). Events follow at `header_length`.
#[repr(C)]
struct Head {
    id: u32,
    /// Number of events.
    count: u32,
    /// The next event to take; ours to advance.
    head: AtomicU32,
    /// The next event to be filled in, by the kernel.
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_length: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    result2: i64,
}

struct Aio {
    context: usize,
    file: RawFd,
    event: Option<OwnedFd>,
    /// Not yet submitted: addresses of control blocks.
    pushed: Vec<usize>,
    /// Taken while asleep.
    taken: Vec<Event>,
    /// A control block for each buffer.
    blocks: Box<[libc::iocb]>,
}

// SAFETY: the context's shared memory may be used by any thread, one at a time.
unsafe impl Send for Aio {}

impl Aio {
    fn open(disk: &Disk, depth: usize, event: Option<OwnedFd>) -> Option<Self> {
        let mut context = 0usize;
        // SAFETY: the kernel stores one word in `context`.
        let failed = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        if failed != 0 {
            return None;
        }
        // SAFETY: all zeros is a control block.
        let block = || unsafe { std::mem::zeroed::<libc::iocb>() };
        let aio = Self {
            context,
            file: disk.descriptor(),
            event,
            pushed: Vec::with_capacity(depth),
            taken: Vec::new(),
            blocks: (0..depth).map(|_| block()).collect(),
        };
        (aio.shared().magic == MAGIC && aio.shared().incompatible == 0).then_some(aio)
    }

    fn shared(&self) -> &Head {
        // SAFETY: the context is the address of the shared memory, mapped until `drop`.
        unsafe { &*(self.context as *const Head) }
    }
}

/// The buffer of an event's operation.
fn ended_well(blocks: &[libc::iocb], event: Event) -> usize {
    let buffer = event.data as usize;
    expect_whole(event.result, blocks[buffer].aio_nbytes as usize);
    buffer
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: nothing is in flight, and nobody uses the context any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Way for Aio {
    fn push(&mut self, operation: Operation) {
        let block = &mut self.blocks[operation.buffer];
        block.aio_data = operation.buffer as u64;
        block.aio_lio_opcode = u16::from(operation.write);
        block.aio_fildes = self.file as u32;
        block.aio_buf = operation.address as u64;
        block.aio_nbytes = operation.bytes as u64;
        block.aio_offset = operation.at as i64;
        if let Some(event) = &self.event {
            // IOCB_FLAG_RESFD
            block.aio_flags = 1;
            block.aio_resfd = event.as_raw_fd() as u32;
        }
        self.pushed.push(&raw mut *block as usize);
    }

    fn submit(&mut self) {
        let mut begun = 0;
        while begun < self.pushed.len() {
            let rest = &self.pushed[begun..];
            // SAFETY: the addresses are those of control blocks, whose buffers are their operations'.
            let taken = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            };
            assert!(taken > 0, "io_submit: {}", std::io::Error::last_os_error());
            begun += taken as usize;
        }
        self.pushed.clear();
    }

    fn reap(&mut self, ended: &mut Vec<usize>) {
        for event in self.taken.drain(..) {
            ended.push(ended_well(&self.blocks, event));
        }
        let shared = self.shared();
        let mut head = shared.head.load(Ordering::Relaxed);
        let tail = shared.tail.load(Ordering::Acquire);
        let events = self.context + shared.header_length as usize;
        while head != tail {
            let at = events + head as usize * size_of::<Event>();
            // SAFETY: the kernel has filled in the events between `head` and `tail`.
            let event = unsafe { (at as *const Event).read() };
            ended.push(ended_well(&self.blocks, event));
            head = (head + 1) % shared.count;
        }
        shared.head.store(head, Ordering::Release);
    }

    fn sleep(&mut self) {
        let Some(event) = &self.event else {
            let mut event = Event::default();
            let (least, most) = (1usize, 1usize);
            // SAFETY: the kernel stores at most one event in `event`.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    least,
                    most,
                    &raw mut event,
                    std::ptr::null_mut::<libc::timespec>(),
                )
            };
            assert_eq!(taken, 1, "io_getevents");
            self.taken.push(event);
            return;
        };
        clear(event.as_raw_fd());
        let shared = self.shared();
        if shared.head.load(Ordering::Relaxed) == shared.tail.load(Ordering::Acquire) {
            sleep_on(event.as_raw_fd());
        }
    }
}
