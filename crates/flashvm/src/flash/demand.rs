//! Queues for the reads that a faulting thread makes for itself and polls for.
//!
//! A queue belongs to one thread from the request to its completion, so nothing is left in it
//! when the next thread takes it, and no completion ever interrupts a thread that has gone on.
//! The handler opens queues, one whenever there was none to take, once the budget has room for its
//! buffer: the C library, which has a part in it, may touch managed memory. Where there is no io_uring the thread reads with `pread`, and
//! sleeps meanwhile.

use super::io::read_now;
use crate::sys::{descriptors, map, raw};
use flashvm_core::PAGE_SIZE;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most pages of one read.
pub(crate) const PAGES_MAX: u32 = 8;
/// Most queues of a process: reads that threads poll for at the same time. More are left to the handler.
const QUEUES: usize = 16;
/// Queues of a process with a budget of n frames: n / 512, clamped to 1..=16. Their buffers take a 64th of it.
const FRAMES_PER_QUEUE: u32 = 512;
/// How long to poll: longer than flash takes as a rule. Then the thread sleeps.
const POLL_NS: i64 = 200_000;
/// Looks at the queue between two offers of the processor to others.
const LOOKS: u32 = 128;

/// The queues of a process.
pub(crate) struct DemandQueues {
    slots: [Slot; QUEUES],
    opened: AtomicU32,
    most: u32,
    /// A thread found no free one.
    wanted: AtomicBool,
    without_ring: bool,
}

struct Slot {
    taken: AtomicBool,
    queue: UnsafeCell<Option<Queue>>,
}

struct Queue {
    ring: Option<IoUring>,
    buffer: usize,
}

// SAFETY: a slot's queue is used only by the thread that has set its `taken`.
unsafe impl Sync for DemandQueues {}

/// A queue that one thread has for the time of a read.
pub(crate) struct DemandQueue<'a> {
    slot: &'a Slot,
    buffer: usize,
}

impl DemandQueues {
    /// Queues for a process of a run with so many frames.
    pub(crate) fn new(without_ring: bool, budget_frames: u32) -> Self {
        Self {
            most: (budget_frames / FRAMES_PER_QUEUE).clamp(1, QUEUES as u32),
            slots: [const {
                Slot {
                    taken: AtomicBool::new(true),
                    queue: UnsafeCell::new(None),
                }
            }; QUEUES],
            opened: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            without_ring,
        }
    }

    /// Pages of the buffers that there are.
    pub(crate) fn pages(&self) -> u32 {
        self.opened.load(Ordering::Relaxed) * PAGES_MAX
    }

    /// A queue for this thread alone, if one is free.
    pub(crate) fn take(&self) -> Option<DemandQueue<'_>> {
        let free = |slot: &&Slot| {
            !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire)
        };
        let Some(slot) = self.slots.iter().find(free) else {
            self.wanted.store(true, Ordering::Relaxed);
            return None;
        };
        // SAFETY: `taken` has just been set by this thread.
        let queue = unsafe { &*slot.queue.get() };
        let buffer = queue.as_ref()?.buffer;
        Some(DemandQueue { slot, buffer })
    }

    /// Whether there can be more queues.
    pub(crate) fn has_room(&self) -> bool {
        self.opened.load(Ordering::Relaxed) < self.most
    }

    /// Whether there were too few queues, and there can be more.
    pub(crate) fn wants_more(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.has_room()
    }

    /// Opens one more queue. Called by one thread only, if there can be more.
    pub(crate) fn open(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        let index = self.opened.load(Ordering::Relaxed);
        let slot = &self.slots[index as usize];
        let Ok(buffer) = map::own(PAGES_MAX as usize * PAGE_SIZE) else {
            return;
        };
        let ring = (!self.without_ring)
            .then(|| open_ring(buffer).ok())
            .flatten();
        // SAFETY: nobody takes this slot before `taken` is cleared for the first time, below.
        unsafe { *slot.queue.get() = Some(Queue { ring, buffer }) };
        self.opened.store(index + 1, Ordering::Relaxed);
        slot.taken.store(false, Ordering::Release);
    }
}

impl DemandQueue<'_> {
    /// Where pages are read to: room for [`PAGES_MAX`].
    pub(crate) fn buffer(&self) -> usize {
        self.buffer
    }

    /// Reads into the buffer and waits for it. Until it is there it calls `meanwhile`, as long as that says
    /// that there is more to do. Whether all bytes came.
    pub(crate) fn read(
        &mut self,
        file: RawFd,
        offset: u64,
        len: u32,
        mut meanwhile: impl FnMut() -> bool,
    ) -> bool {
        debug_assert!(len as usize <= PAGES_MAX as usize * PAGE_SIZE);
        // SAFETY: this thread has the slot.
        let queue = unsafe { (*self.slot.queue.get()).as_mut() };
        let Some(Queue { ring, buffer }) = queue else {
            return false;
        };
        match ring {
            Some(ring) => read_polling(ring, file, offset, *buffer, len, meanwhile),
            None => {
                while meanwhile() {}
                read_now(file, offset, *buffer, len)
            }
        }
    }
}

impl Drop for DemandQueue<'_> {
    fn drop(&mut self) {
        self.slot.taken.store(false, Ordering::Release);
    }
}

fn open_ring(buffer: usize) -> std::io::Result<IoUring> {
    // The lowest free descriptors are the program's: the ring goes to a high one.
    let low = IoUring::new(2)?;
    let params = low.params().clone();
    // SAFETY: `low` is open over the call.
    let high = unsafe { BorrowedFd::borrow_raw(low.as_raw_fd()) }.try_clone_to_owned()?;
    let high = descriptors::keep(high)?;
    // SAFETY: a descriptor of the ring that these parameters describe, and nobody else's.
    let ring = unsafe { IoUring::from_fd(high.into_raw_fd(), params)? };
    let vector = libc::iovec {
        iov_base: buffer as *mut _,
        iov_len: PAGES_MAX as usize * PAGE_SIZE,
    };
    // SAFETY: the buffer lives as long as its process.
    unsafe { ring.submitter().register_buffers(&[vector])? };
    Ok(ring)
}

fn read_polling(
    ring: &mut IoUring,
    file: RawFd,
    offset: u64,
    buffer: usize,
    len: u32,
    mut meanwhile: impl FnMut() -> bool,
) -> bool {
    let entry = opcode::ReadFixed::new(types::Fd(file), buffer as *mut u8, len, 0)
        .offset(offset)
        .build();
    // SAFETY: the buffer belongs to this queue, whose only request this is.
    let pushed = unsafe { ring.submission().push(&entry) };
    assert!(pushed.is_ok(), "an empty queue has room for one request");
    let mut submit = 1;
    let mut since = None;
    loop {
        if submit > 0 {
            match enter(ring, submit, 0) {
                Ok(0) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Ok(_) => submit = 0,
                Err(error) => panic!("io_uring_enter: {error}"),
            }
        }
        while submit == 0 && ring.completion().is_empty() && meanwhile() {}
        for _ in 0..LOOKS {
            if let Some(entry) = ring.completion().next() {
                return entry.result() == len as i32;
            }
            std::hint::spin_loop();
        }
        let now = clock_gettime(ClockId::Monotonic);
        let since = since.get_or_insert(now);
        let waited = (now.tv_sec - since.tv_sec) * 1_000_000_000 + now.tv_nsec - since.tv_nsec;
        if waited < POLL_NS {
            rustix::thread::sched_yield();
        } else {
            let _ = enter(ring, 0, 1);
        }
    }
}

/// `io_uring_enter`, made from here and not through the C library.
fn enter(ring: &IoUring, submit: usize, wait_for: usize) -> Result<usize, Errno> {
    const GETEVENTS: usize = 1;
    let flags = if wait_for > 0 { GETEVENTS } else { 0 };
    // SAFETY: no memory is passed but what the ring's entries name.
    raw::result(unsafe {
        raw::syscall(
            libc::SYS_io_uring_enter,
            [ring.as_raw_fd() as usize, submit, wait_for, flags, 0, 0],
        )
    })
}
