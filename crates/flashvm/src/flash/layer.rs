//! Layers: what is done around the requests of the store below, each thing in one place.
//!
//! A [`Layer`] states only what it adds. What it does not mention goes below as it is, in the calling thread
//! ([`Store`]) and through queues ([`LayerQueue`]) alike.

use super::store::{
    Completion, Failed, Geometry, Part, Request, Span, Store, StoreQueue, Transfer, bytes_of,
};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// What a layer adds to the store below it. All calls come from the thread that makes the request or reaps it.
pub(crate) trait Layer: Sync + 'static {
    /// The store below.
    type Below: Store;

    /// The store below.
    fn below(&self) -> &Self::Below;

    /// What this layer leaves of the geometry below.
    fn limit(&self, below: Geometry) -> Geometry {
        below
    }

    /// A write is about to go below.
    ///
    /// # Safety
    /// As [`Store::write`].
    unsafe fn before_write(&self, _at: u64, _parts: &[Part]) {}

    /// A read has ended below. May change the bytes or read again. Returns the answer for the layer above.
    ///
    /// # Safety
    /// As [`Store::read`].
    unsafe fn after_read(&self, _at: u64, _to: Part, failed: Failed) -> Failed {
        failed
    }

    /// A write of `len` bytes has ended below. Returns what the layer above is to hear.
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
        // SAFETY: `to` is writable, and nobody else uses it until this function returns, as our caller guarantees:
        // the store below and then the layer may use it.
        unsafe {
            let failed = self.below().read(at, to);
            self.after_read(at, to, failed)
        }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the parts are readable, and nobody changes them until this function returns, as our caller
        // guarantees: layer and store below may read them.
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
}

/// A queue with one layer around it.
pub(crate) struct LayerQueue<'a, L, Q> {
    pub(super) layer: &'a L,
    pub(super) below: Q,
}

impl<L: Layer, Q: StoreQueue> StoreQueue for LayerQueue<'_, L, Q> {
    unsafe fn push(&mut self, request: Request) {
        // SAFETY: until the request comes back from `reap`, its memory is its own, as our caller guarantees: the
        // layer may read parts now, the queue below may use all of it until then.
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
                // SAFETY: the request has ended below and has not come back to its maker yet: until then its
                // maker leaves the memory alone.
                Transfer::Read(to) => unsafe { self.layer.after_read(request.at, *to, *failed) },
                write => self.layer.after_write(request.at, write.len(), *failed),
            };
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.below.readiness()
    }
}
