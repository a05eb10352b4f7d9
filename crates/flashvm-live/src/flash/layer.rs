//! Layers: each adds one thing to the requests of the store below.
//!
//! A [`Layer`] states only what it adds. Everything else is passed below unchanged, both in the calling thread
//! ([`Store`]) and through queues ([`LayerQueue`]).

use super::store::{
    Completion, Failed, Geometry, Part, Request, Span, Store, StoreQueue, Transfer, bytes_of,
};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// What a layer adds to the store below it. The thread that makes the request or reaps it makes all calls.
pub(crate) trait Layer: Sync + 'static {
    /// The store below.
    type Below: Store;

    /// The store below.
    fn below(&self) -> &Self::Below;

    /// Narrows the geometry below to what this layer takes.
    fn limit(&self, below: Geometry) -> Geometry {
        below
    }

    /// Called before a write goes below.
    ///
    /// # Safety
    /// As [`Store::write`].
    unsafe fn before_write(&self, _at: u64, _parts: &[Part]) {}

    /// Called when a read has ended below. May change the bytes or read again. Returns the answer for the layer above.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn after_read(&self, _at: u64, _to: Part, failed: Failed) -> Failed {
        failed
    }

    /// Called when a write of `len` bytes has ended below. Returns the answer for the layer above.
    fn after_write(&self, _at: u64, _len: usize, failed: Failed) -> Failed {
        failed
    }
}

impl<L: Layer> Store for L {
    type Queue = LayerQueue<'static, L, <L::Below as Store>::Queue>;

    fn geometry(&self) -> Geometry {
        self.limit(self.below().geometry())
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function
        // returns. The store below uses it first, then the layer.
        unsafe {
            let failed = self.below().read(at, to);
            self.after_read(at, to, failed)
        }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the caller guarantees that the parts are readable and that nobody changes them until this function
        // returns. The layer and the store below only read them.
        let failed = unsafe {
            self.before_write(at, parts);
            self.below().write(at, parts)
        };
        self.after_write(at, bytes_of(parts), failed)
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        self.below().discard(spans)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.below().sync()
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        let below = self.below().queue(depth, buffers)?;
        Ok(LayerQueue { layer: self, below })
    }

    fn copies(&self) -> usize {
        self.below().copies()
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        // SAFETY: as in `read`.
        unsafe {
            let failed = self.below().read_copy(copy, at, to);
            self.after_read(at, to, failed)
        }
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        self.below().mend(copy, at, len);
    }
}

/// A queue with one layer around it.
pub(crate) struct LayerQueue<'a, L, Q> {
    pub(super) layer: &'a L,
    pub(super) below: Q,
}

impl<L: Layer, Q: StoreQueue> StoreQueue for LayerQueue<'_, L, Q> {
    unsafe fn push(&mut self, request: Request) {
        // SAFETY: the caller guarantees that the request's memory is left to it until our `reap` returns it. The layer
        // only reads the parts, now; the queue below is done with the memory before our `reap` returns the request.
        unsafe {
            if let Transfer::Write(parts) = &request.transfer {
                self.layer.before_write(request.at, parts);
            }
            self.below.push(request);
        }
    }

    fn submit(&mut self) {
        self.below.submit();
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let first = out.len();
        self.below.reap(out);
        for Completion { request, failed } in &mut out[first..] {
            *failed = match &request.transfer {
                // SAFETY: the request has ended below, so the queue below does not use `to`. Its maker does not
                // before this function returns the request, as it has guaranteed to `push`.
                Transfer::Read(to) => unsafe { self.layer.after_read(request.at, *to, *failed) },
                write => self.layer.after_write(request.at, write.len(), *failed),
            };
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.below.readiness()
    }
}
