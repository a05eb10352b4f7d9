//! The contract of every store and of every layer around one: bytes at offsets, in memory, a file or on a device.
//!
//! A [`Store`] carries out one request in the calling thread. A [`StoreQueue`] has many in flight. Both say of
//! each request which of its pages failed ([`Failed`]); neither says why, as all failures are met alike: a read
//! is tried again and then lost, a write goes to another slot.
//!
//! Vocabulary: a *request* is one transfer between an offset of the store and memory; a *part* is contiguous
//! memory of a request; a *unit* is the smallest transfer ([`Geometry::unit`]); a *page* is
//! [`PAGE_SIZE`] bytes from the start of a request.

use crate::sys::discard::StoreKind;
use flashvm_core::{PAGE_SIZE, SlotId};
use rustix::io::Errno;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

/// Most pages of one request: [`Failed`] has a bit for each.
pub(crate) const REQUEST_PAGES_MAX: usize = u64::BITS as usize;

/// Contiguous memory of a request, laid out as `struct iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Part {
    /// Where it begins.
    pub(crate) address: usize,
    /// Its bytes.
    pub(crate) len: usize,
}

const _: () = assert!(
    size_of::<Part>() == size_of::<libc::iovec>()
        && offset_of!(Part, address) == offset_of!(libc::iovec, iov_base)
        && offset_of!(Part, len) == offset_of!(libc::iovec, iov_len)
);

/// Bytes of all parts.
pub(crate) fn bytes_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.len).sum()
}

/// A range of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Offset of its first byte.
    pub(crate) at: u64,
    /// Its bytes.
    pub(crate) len: u64,
}

/// Byte offset of a slot.
pub(crate) fn offset(slot: SlotId) -> u64 {
    u64::from(slot.0) * PAGE_SIZE as u64
}

/// What a store is and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Its bytes: requests lie within.
    pub(crate) bytes: u64,
    /// Offsets, lengths of requests and addresses of parts are multiples of it.
    pub(crate) unit: usize,
    /// What lies at its bottom.
    pub(crate) kind: StoreKind,
    /// Threads that keep it busy where each makes one request at a time.
    pub(crate) threads: usize,
}

impl Geometry {
    /// Panics at a request that lies outside of the store or between its units: its maker is wrong.
    pub(crate) fn admit(&self, at: u64, len: usize) {
        assert!(
            at.checked_add(len as u64)
                .is_some_and(|end| end <= self.bytes)
                && at.is_multiple_of(self.unit as u64)
                && len.is_multiple_of(self.unit),
            "a request of {len} bytes at {at} in a store of {self:?}"
        );
    }
}

/// The pages of a request that failed: bit i is the page i * [`PAGE_SIZE`] bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Failed(u64);

impl Failed {
    /// All pages got through.
    pub(crate) const NONE: Self = Self(0);

    /// No page of a request of `len` bytes got through.
    pub(crate) fn all(len: usize) -> Self {
        let pages = len.div_ceil(PAGE_SIZE);
        assert!(
            (1..=REQUEST_PAGES_MAX).contains(&pages),
            "{pages} pages in a request"
        );
        Self(u64::MAX >> (REQUEST_PAGES_MAX - pages))
    }

    /// Nothing failed, or all of `len` bytes did.
    pub(crate) fn unless(whole: bool, len: usize) -> Self {
        if whole { Self::NONE } else { Self::all(len) }
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, page: usize) {
        self.0 |= 1 << page;
    }

    pub(crate) fn holds(self, page: usize) -> bool {
        self.0 & 1 << page != 0
    }

    /// Whether all pages got through.
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// As the engine takes it.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// Bytes at offsets.
///
/// Each request has at most [`REQUEST_PAGES_MAX`] pages and keeps to [`Store::geometry`]; any other is a bug of
/// its maker, and panics. Requests may run at the same time, in any number of threads. Those that overlap while
/// one of them writes have no order: their maker keeps them apart.
pub(crate) trait Store: Sync + 'static {
    /// The store's own queue.
    type Queue: StoreQueue;

    /// What it is and takes. The same at every call.
    fn geometry(&self) -> Geometry;

    /// Reads `to.len` bytes at `at`, and returns when they are there or are not to be had.
    ///
    /// After: each page that did not fail holds what the last write there that did not fail has written. A page
    /// that failed holds anything. Nothing else changes. What was never written, was discarded or whose last
    /// write failed reads as anything.
    ///
    /// A transfer that ends early counts as none: its pages all fail. Layers that repeat reads do it before the
    /// answer ([`super::Checked`]), so the caller need not.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until the call returns.
    unsafe fn read(&self, at: u64, to: Part) -> Failed;

    /// Writes the parts, one after the other, to `at`, and returns when the store has them or refuses.
    ///
    /// After: pages that did not fail read as written, from every thread and process that has the store. Pages
    /// that failed read as anything until they are written again. A transfer that ends early counts as none.
    ///
    /// # Safety
    /// The parts are readable, and nobody changes them until the call returns.
    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed;

    /// Says that these spans, whole units, hold nothing of use: they read as anything from now on. All other
    /// bytes stay.
    ///
    /// # Errors
    /// What the kernel or the device model says, `EOPNOTSUPP` if the store knows no discards. Some of the spans
    /// may have been discarded all the same.
    fn discard(&self, spans: &[Span]) -> Result<(), Errno>;

    /// Returns when all that was written before the call survives a loss of power.
    ///
    /// # Errors
    /// What the kernel says. What was written since the last call that succeeded may be lost then.
    #[allow(
        dead_code,
        reason = "pages die with their run, so the pager never asks; a store that outlives it will"
    )]
    fn sync(&self) -> Result<(), Errno>;

    /// Opens a queue for `depth` requests in flight. `buffers` is memory that reads mostly go to, and that
    /// outlives the queue.
    ///
    /// # Errors
    /// `ENOSYS` and others if the store has no queue of its own, or the kernel gives none: threads that make one
    /// request at a time do for it ([`super::Queue`]).
    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno>;
}

/// Requests in flight. Each comes back once, in any order, with the memory that it names.
pub(crate) trait StoreQueue {
    /// Takes a request over. It begins with the next [`StoreQueue::submit`] at the latest. More than the queue's
    /// depth wait inside of it.
    ///
    /// # Safety
    /// Until it has come back from [`StoreQueue::reap`], the memory that it names obeys the contract of
    /// [`Store::read`] or [`Store::write`].
    unsafe fn push(&mut self, request: Request);

    /// Begins what has been pushed, as far as the queue has room.
    fn submit(&mut self);

    /// Appends the requests that have ended, and begins others that waited for room.
    fn reap(&mut self, out: &mut Vec<Completion>);

    /// Readable when there is something to reap.
    fn readiness(&self) -> BorrowedFd<'_>;
}

/// What is to be transferred.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// From the store to memory.
    Read(Part),
    /// From the parts, one after the other, to the store.
    Write(Vec<Part>),
}

impl Transfer {
    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Read(to) => to.len,
            Self::Write(parts) => bytes_of(parts),
        }
    }
}

/// A request of a queue.
#[derive(Debug)]
pub(crate) struct Request {
    /// Its maker's own.
    pub(crate) tag: u64,
    /// Where in the store.
    pub(crate) at: u64,
    /// What, and which memory.
    pub(crate) transfer: Transfer,
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Completion {
    /// As it was pushed.
    pub(crate) request: Request,
    /// Its pages that failed.
    pub(crate) failed: Failed,
}

impl<Q: StoreQueue> StoreQueue for &mut Q {
    unsafe fn push(&mut self, request: Request) {
        // SAFETY: the request's memory is its own until it comes back from our `reap`, which is this queue's, as the
        // caller guarantees.
        unsafe { (**self).push(request) }
    }

    fn submit(&mut self) {
        (**self).submit();
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        (**self).reap(out);
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        (**self).readiness()
    }
}
