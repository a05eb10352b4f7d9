//! The contract of every store and of every layer around one: bytes at offsets, in memory, a file or on a device.
//!
//! A [`Store`] carries out one request in the calling thread. A [`StoreQueue`] has many in flight. Both report
//! which pages of a request failed ([`Failed`]), and not why, as callers treat all failures alike: a failed read
//! is repeated, and then its page is lost; a failed write goes to another slot.
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
    /// Its first address.
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

/// Byte offset of a slot in the store.
pub(crate) fn offset(slot: SlotId) -> u64 {
    u64::from(slot.0) * PAGE_SIZE as u64
}

/// The properties of a store, and the requests that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Its size in bytes: requests lie within.
    pub(crate) bytes: u64,
    /// Bytes; offsets and lengths of requests, and addresses of parts, are multiples.
    pub(crate) unit: usize,
    /// Whether a file or a device is at the bottom.
    pub(crate) kind: StoreKind,
    /// Threads that keep the store busy if each makes one request at a time.
    pub(crate) threads: usize,
}

impl Geometry {
    /// Panics if a request leaves the store, is too long, or is not of whole units: that is a bug of its maker.
    pub(crate) fn admit(&self, at: u64, len: usize) {
        assert!(
            at.checked_add(len as u64)
                .is_some_and(|end| end <= self.bytes)
                && len <= REQUEST_PAGES_MAX * PAGE_SIZE
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
    /// No page failed.
    pub(crate) const NONE: Self = Self(0);

    /// All pages of a request of `len` bytes failed.
    pub(crate) fn all(len: usize) -> Self {
        let pages = len.div_ceil(PAGE_SIZE);
        assert!(
            (1..=REQUEST_PAGES_MAX).contains(&pages),
            "a request of {pages} pages: at most {REQUEST_PAGES_MAX}"
        );
        Self(u64::MAX >> (REQUEST_PAGES_MAX - pages))
    }

    /// No page failed if `whole`; otherwise all pages of a request of `len` bytes.
    pub(crate) fn unless(whole: bool, len: usize) -> Self {
        if whole { Self::NONE } else { Self::all(len) }
    }

    /// Adds a page, by its index in the request.
    pub(crate) fn add(&mut self, page: usize) {
        self.0 |= 1 << page;
    }

    pub(crate) fn holds(self, page: usize) -> bool {
        self.0 & 1 << page != 0
    }

    /// Whether no page failed.
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The bit mask, for the engine's events.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// Bytes at offsets.
///
/// Each request has at most [`REQUEST_PAGES_MAX`] pages and keeps to [`Store::geometry`]; any other is a bug of
/// its maker, and panics. Requests may run at the same time, in any number of threads. Requests that overlap have
/// no order: if one of them writes, their makers keep them apart in time.
pub(crate) trait Store: Sync + 'static {
    /// The store's own queue.
    type Queue: StoreQueue;

    /// The store's geometry, the same at every call.
    fn geometry(&self) -> Geometry;

    /// Reads `to.len` bytes at `at`, and returns when they have arrived or failed.
    ///
    /// After: each page that did not fail holds what the last successful write put there. A page that failed holds
    /// anything. Nothing else changes. Bytes that were never written, were discarded, or whose last write failed,
    /// read as anything.
    ///
    /// If a transfer ends early, all its pages fail. A layer that repeats reads ([`super::Checked`]) does so before it
    /// answers, so the caller need not.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until the call returns.
    unsafe fn read(&self, at: u64, to: Part) -> Failed;

    /// Writes the parts, one after the other, to `at`, and returns when the store has taken or refused them.
    ///
    /// After: pages that did not fail read as written, in every thread and process that has the store. Pages
    /// that failed read as anything until they are written again. If a transfer ends early, all its pages fail.
    ///
    /// # Safety
    /// The parts are readable, and nobody changes them until the call returns.
    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed;

    /// Discards these spans, which are whole units: they read as anything from now on. All other bytes stay.
    ///
    /// # Errors
    /// The error of the kernel; `EOPNOTSUPP` if the store has no discards or the device model refuses. Some of the
    /// spans may have been discarded nevertheless.
    fn discard(&self, spans: &[Span]) -> Result<(), Errno>;

    /// Returns when everything written before the call would survive a loss of power.
    ///
    /// # Errors
    /// The error of the kernel. Writes since the last successful call may then be lost.
    #[allow(
        dead_code,
        reason = "pages die with their run, so the pager never asks; a store that outlives it will"
    )]
    fn sync(&self) -> Result<(), Errno>;

    /// Opens a queue for `depth` requests in flight. `buffers` is memory that most reads go to; it must outlive the
    /// queue.
    ///
    /// # Errors
    /// `ENOSYS` if the store has no queue of its own, or the kernel's error. Threads can serve instead
    /// ([`super::Queue`]).
    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno>;

    /// Copies of each page that the store can read one by one.
    fn copies(&self) -> usize {
        1
    }

    /// [`Store::read`] of one of [`Store::copies`], from 0.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn read_copy(&self, _copy: usize, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.read(at, to) }
    }

    /// Says that a copy of `len` bytes at `at` is wrong, and another one right: it is to be written again.
    fn mend(&self, _copy: usize, _at: u64, _len: usize) {}
}

/// Requests in flight. Each comes back once, in any order.
pub(crate) trait StoreQueue {
    /// Takes a request over. It begins with the next [`StoreQueue::submit`] at the latest; requests beyond the
    /// queue's depth wait inside the queue.
    ///
    /// # Safety
    /// Until [`StoreQueue::reap`] returns the request, the memory that it names obeys the contract of
    /// [`Store::read`] or [`Store::write`].
    unsafe fn push(&mut self, request: Request);

    /// Begins the requests that have been pushed, as far as the queue has room.
    fn submit(&mut self);

    /// Appends the requests that have ended to `out`, and begins others that waited for room.
    fn reap(&mut self, out: &mut Vec<Completion>);

    /// A descriptor that is readable when a request can be reaped.
    fn readiness(&self) -> BorrowedFd<'_>;
}

/// The direction and the memory of a request.
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
    /// For its maker; queues do not use it.
    pub(crate) tag: u64,
    /// Byte offset in the store.
    pub(crate) at: u64,
    /// The direction, and the memory.
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
        // SAFETY: the caller guarantees that the request's memory is left to it until our `reap` returns it, and our
        // `reap` is this queue's.
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
