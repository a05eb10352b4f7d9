//! Queues for the reads that a faulting thread makes for itself and polls for.
//!
//! A queue belongs to one thread from the request to its completion. So the next thread that takes
//! it finds it empty, and no completion interrupts a thread that has gone on.
//! When a thread finds no free queue the handler opens one more, once the budget has room for its
//! buffer. A faulting thread cannot open one: that calls the C library, which may touch managed memory. If the store has
//! no queues (neither io_uring nor asynchronous I/O, or a device model), the thread reads with `pread` and sleeps in it.

use super::store::{Completion, Failed, Part, Request, Store, StoreQueue, Transfer};
use super::{FlashStore, Layer, UncheckedStore};
use crate::sys::crowd::CROWD;
use crate::sys::{map, now};
use flashvm_core::{Nanos, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most pages of one read.
pub(crate) const PAGES_MAX: u32 = 8;
/// Pages of a buffer: small pages of as many bytes may begin amid a sector.
pub(crate) const BUFFER_PAGES: u32 = PAGES_MAX + 1;
/// Most queues of a process: reads that threads poll for at the same time. The handler makes the others.
const QUEUES: usize = 16;
/// Queues of a process with a budget of n frames: n / 512, clamped to 1..=16. Their buffers take 9 n / 512 frames.
const FRAMES_PER_QUEUE: u32 = 512;
/// How long to poll before the thread sleeps: longer than flash usually takes.
const POLL: Nanos = Nanos(200_000);
/// Requests that one queue holds at most.
const DEPTH: u32 = 2;
/// Looks at the queue between two offers to yield the processor.
const LOOKS: u32 = 128;

/// The queues of a process.
pub(crate) struct DemandQueues {
    /// Not in the pager itself, which a forked child moves over a thread's stack.
    entries: Box<[Entry]>,
    opened: AtomicU32,
    most: u32,
    /// A thread found no free queue since the last one was opened.
    wanted: AtomicBool,
}

struct Entry {
    taken: AtomicBool,
    queue: UnsafeCell<Option<DemandRing>>,
}

impl Entry {
    /// Without a queue, so that nobody takes it.
    fn closed() -> Self {
        Self {
            taken: AtomicBool::new(true),
            queue: UnsafeCell::new(None),
        }
    }
}

struct DemandRing {
    /// The store's own queue, below checksums; `None` if it has none.
    requests: Option<<UncheckedStore as Store>::Queue>,
    buffer: usize,
    /// Room for the completion: `reap` must not allocate.
    ended: Vec<Completion>,
}

// SAFETY: only the thread that has set an entry's `taken` uses its queue. `taken` starts set; `open` stores the queue and
// then clears it.
unsafe impl Sync for DemandQueues {}

/// A queue that one thread holds during a read; freed on drop.
pub(crate) struct DemandQueue<'a> {
    entry: &'a Entry,
    buffer: usize,
}

impl DemandQueues {
    /// Queues for a process of a run with `budget_frames` frames.
    pub(crate) fn new(budget_frames: u32) -> Self {
        Self {
            most: (budget_frames / FRAMES_PER_QUEUE).clamp(1, QUEUES as u32),
            entries: std::iter::repeat_with(Entry::closed).take(QUEUES).collect(),
            opened: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// Pages of all buffers.
    pub(crate) fn pages(&self) -> u32 {
        self.opened.load(Ordering::Relaxed) * BUFFER_PAGES
    }

    /// Takes a free queue for this thread alone. `None` if there is none; then [`Self::wants_more`] may hold.
    pub(crate) fn take(&self) -> Option<DemandQueue<'_>> {
        let free = |entry: &&Entry| {
            !entry.taken.load(Ordering::Relaxed) && !entry.taken.swap(true, Ordering::Acquire)
        };
        let Some(entry) = self.entries.iter().find(free) else {
            self.wanted.store(true, Ordering::Relaxed);
            return None;
        };
        // SAFETY: this thread has just set `taken`: no other uses the queue until it is cleared.
        let queue = unsafe { &*entry.queue.get() };
        let buffer = queue.as_ref()?.buffer;
        Some(DemandQueue { entry, buffer })
    }

    /// Whether there can be more queues.
    pub(crate) fn has_room(&self) -> bool {
        self.opened.load(Ordering::Relaxed) < self.most
    }

    /// Whether there were too few queues, and there can be more.
    pub(crate) fn wants_more(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.has_room()
    }

    /// Opens one more queue to `store`, or none if there is no memory for its buffer. Only if [`Self::has_room`].
    ///
    /// # Safety
    /// No other thread is in this function with the same queues.
    pub(crate) unsafe fn open(&self, store: &'static FlashStore) {
        // SAFETY: the caller guarantees what `open_with` asks for.
        unsafe { self.open_with(|buffers| store.below().queue(DEPTH, Some(buffers)).ok()) }
    }

    /// [`Self::open`] with a queue that `requests` opens, or without one.
    ///
    /// # Safety
    /// As [`Self::open`].
    unsafe fn open_with(
        &self,
        requests: impl FnOnce(Part) -> Option<<UncheckedStore as Store>::Queue>,
    ) {
        self.wanted.store(false, Ordering::Relaxed);
        let index = self.opened.load(Ordering::Relaxed);
        let entry = &self.entries[index as usize];
        let Ok(buffer) = map::own(BUFFER_PAGES as usize * PAGE_SIZE) else {
            return;
        };
        let buffers = Part {
            address: buffer,
            len: BUFFER_PAGES as usize * PAGE_SIZE,
        };
        let queue = DemandRing {
            requests: requests(buffers),
            buffer,
            ended: Vec::with_capacity(DEPTH as usize),
        };
        // SAFETY: no other thread opens a queue, as the caller guarantees. `taken` has been set since `new`, so nobody
        // uses this entry before it is cleared, below.
        unsafe { *entry.queue.get() = Some(queue) };
        self.opened.store(index + 1, Ordering::Relaxed);
        entry.taken.store(false, Ordering::Release);
    }
}

impl DemandQueue<'_> {
    /// Address of the buffer, which has room for [`PAGES_MAX`] pages and one more.
    pub(crate) fn buffer(&self) -> usize {
        self.buffer
    }

    /// Reads `len` bytes at `at` into the buffer, waits for them and verifies their checksums.
    pub(crate) fn read(&mut self, store: &FlashStore, at: u64, len: usize) -> Failed {
        let failed = self.read_unchecked(store.below(), at, len, || false);
        // SAFETY: the buffer belongs to this queue, which this thread holds; the read has ended.
        unsafe { store.after_read(at, self.part(len), failed) }
    }

    /// The same below checksums. Calls `meanwhile` until it returns false or the read ends; without a queue of the store
    /// until it returns false, before the read.
    pub(crate) fn read_unchecked(
        &mut self,
        store: &UncheckedStore,
        at: u64,
        len: usize,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Failed {
        let to = self.part(len);
        let Some(DemandRing {
            requests, ended, ..
        }) = self.queue()
        else {
            return Failed::all(len);
        };
        match requests {
            // SAFETY: `to` is a part of this queue's buffer, and this thread holds the queue.
            Some(queue) => unsafe { poll_for(queue, ended, at, to, meanwhile) },
            None => {
                while meanwhile() {}
                // SAFETY: the buffer belongs to this queue, which this thread holds.
                unsafe { store.read(at, to) }
            }
        }
    }

    /// The first `len` bytes of the buffer.
    fn part(&self, len: usize) -> Part {
        assert!(len <= BUFFER_PAGES as usize * PAGE_SIZE);
        Part {
            address: self.buffer,
            len,
        }
    }

    fn queue(&mut self) -> Option<&mut DemandRing> {
        // SAFETY: this thread has taken the entry, and `&mut self` allows one borrow of its queue at a time.
        unsafe { (*self.entry.queue.get()).as_mut() }
    }
}

impl Drop for DemandQueue<'_> {
    fn drop(&mut self) {
        self.entry.taken.store(false, Ordering::Release);
    }
}

/// Makes one read and polls for it. Sleeps if the read takes longer than [`POLL`] or others want the processor.
///
/// # Safety
/// `to` is mapped, and the caller's alone until this returns. Nobody else uses the queue.
unsafe fn poll_for(
    mut queue: impl StoreQueue,
    ended: &mut Vec<Completion>,
    at: u64,
    to: Part,
    mut meanwhile: impl FnMut() -> bool,
) -> Failed {
    let transfer = Transfer::Read(to);
    // SAFETY: `to` is the caller's until this function returns, and it returns when the request has ended.
    unsafe {
        queue.push(Request {
            tag: 0,
            at,
            transfer,
        })
    };
    queue.submit();
    let begun = now();
    let mut sleep = CROWD.wants_the_processor(begun);
    let mut more = true;
    loop {
        for _ in 0..LOOKS {
            queue.reap(ended);
            if let Some(Completion { failed, .. }) = ended.pop() {
                return failed;
            }
            more = more && meanwhile();
            if sleep && !more {
                break;
            }
            std::hint::spin_loop();
        }
        if sleep {
            let mut ready = [PollFd::from_borrowed_fd(queue.readiness(), PollFlags::IN)];
            let _ = poll(&mut ready, None);
        } else {
            sleep = CROWD.yield_to() || now().since(begun) >= POLL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pages, encrypted_stack, leak, stack_without_ring, whole_stack};
    use super::*;
    use crate::control::Inject;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BYTES: u64 = 64 * PAGE;

    type Open = fn(&DemandQueues, &'static FlashStore);

    fn with_one_queue(open: impl FnOnce(&DemandQueues)) -> DemandQueues {
        let queues = DemandQueues::new(2 * FRAMES_PER_QUEUE);
        assert!(queues.take().is_none() && queues.wants_more());
        open(&queues);
        assert_eq!(queues.pages(), BUFFER_PAGES);
        queues
    }

    fn open(queues: &DemandQueues, store: &'static FlashStore) {
        // SAFETY: this thread alone opens queues.
        unsafe { queues.open(store) }
    }

    #[test]
    fn a_thread_has_a_queue_alone_and_reads_what_was_written() {
        let ways: [(_, Open); 3] = [
            (whole_stack(BYTES, None), open),
            (stack_without_ring(BYTES, None), open),
            (whole_stack(BYTES, None), |queues, _| {
                // SAFETY: this thread alone opens queues.
                unsafe { queues.open_with(|_| None) }
            }),
        ];
        for (store, open) in ways {
            let store = leak(store);
            let from = Pages::new(PAGES_MAX as usize, 1);
            // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
            assert!(unsafe { store.write(8 * PAGE, &[from.all()]) }.is_none());
            let queues = with_one_queue(|queues| open(queues, store));
            let mut queue = queues.take().unwrap();
            assert!(queues.take().is_none() && queues.wants_more());
            let len = from.all().len;
            assert!(queue.read(store, 8 * PAGE, len).is_none());
            // SAFETY: the buffer is this thread's as long as it holds the queue, and the read has ended.
            let buffer = unsafe { map::bytes(queue.buffer(), len) };
            assert!(
                buffer
                    .chunks(PAGE_SIZE)
                    .enumerate()
                    .all(|(at, page)| page == from.bytes(at))
            );
            // Nothing was ever written to the first two pages: their checksums differ, though the read succeeds.
            assert_eq!(queue.read(store, 0, 2 * PAGE_SIZE).bits(), 0b11);
            let mut steps = 3;
            let meanwhile = || {
                steps -= 1;
                steps > 0
            };
            let below = store.below();
            assert!(
                queue
                    .read_unchecked(below, 0, PAGE_SIZE, meanwhile)
                    .is_none()
            );
            assert!(
                (0..=3).contains(&steps),
                "never called again after the last step"
            );
            drop(queue);
            assert!(queues.take().is_some());
        }
    }

    #[test]
    fn reads_go_through_all_layers() {
        let always = Inject {
            read_error_ppm: 1_000_000,
            ..Inject::default()
        };
        for stack in [whole_stack, stack_without_ring, encrypted_stack] {
            let store = leak(stack(BYTES, Some(always)));
            let queues = with_one_queue(|queues| open(queues, store));
            let mut queue = queues.take().unwrap();
            assert_eq!(queue.read(store, 0, PAGE_SIZE).bits(), 1);
            let below = store.below();
            assert_eq!(
                queue.read_unchecked(below, 0, PAGE_SIZE, || false).bits(),
                1
            );
        }
    }
}
