//! A store in memory, for tests. Its queue carries requests out only in `reap`, the last submitted first: callers that
//! rely on an order fail.

use super::store::{
    Completion, Failed, Geometry, Part, Request, Span, Store, StoreQueue, Transfer, bytes_of,
};
use crate::sys::discard::StoreKind;
use crate::sys::map;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// The value of bytes that were discarded or never written.
const FORGOTTEN: u8 = 0xdd;

/// Bytes in memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    bytes: Mutex<Vec<u8>>,
    kind: StoreKind,
}

impl MemoryStore {
    pub(crate) fn new(bytes: u64) -> Self {
        Self::of_kind(bytes, StoreKind::Device)
    }

    pub(crate) fn of_kind(bytes: u64, kind: StoreKind) -> Self {
        Self {
            bytes: Mutex::new(vec![FORGOTTEN; bytes as usize]),
            kind,
        }
    }

    /// Flips a bit of the byte at `at`, as flash may.
    pub(crate) fn flip(&self, at: u64) {
        self.bytes.lock().unwrap()[at as usize] ^= 1;
    }
}

impl Store for MemoryStore {
    type Queue = MemoryQueue;

    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.lock().unwrap().len() as u64,
            unit: 512,
            kind: self.kind,
            threads: 2,
        }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry().admit(at, to.len);
        // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function returns.
        let to = unsafe { map::bytes_mut(to.address, to.len) };
        let at = at as usize;
        to.copy_from_slice(&self.bytes.lock().unwrap()[at..at + to.len()]);
        Failed::NONE
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        self.geometry().admit(at, bytes_of(parts));
        let mut at = at as usize;
        for part in parts {
            // SAFETY: the caller guarantees that the part is readable and that nobody changes it until this function
            // returns.
            let from = unsafe { map::bytes(part.address, part.len) };
            self.bytes.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
            at += from.len();
        }
        Failed::NONE
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        for span in spans {
            let range = span.at as usize..(span.at + span.len) as usize;
            self.bytes.lock().unwrap()[range].fill(FORGOTTEN);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn queue(&'static self, _: u32, _: Option<Part>) -> Result<MemoryQueue, Errno> {
        Ok(MemoryQueue {
            store: self,
            pushed: Vec::new(),
            submitted: Vec::new(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
}

/// A queue that carries requests out when they are reaped.
pub(crate) struct MemoryQueue {
    store: &'static MemoryStore,
    pushed: Vec<Request>,
    submitted: Vec<Request>,
    event: OwnedFd,
}

impl StoreQueue for MemoryQueue {
    unsafe fn push(&mut self, request: Request) {
        self.pushed.push(request);
    }

    fn submit(&mut self) {
        if !self.pushed.is_empty() {
            self.submitted.append(&mut self.pushed);
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).unwrap();
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        while let Some(request) = self.submitted.pop() {
            // SAFETY: the request is not in `out` yet. Until then its memory is left to it, as its maker guaranteed to
            // `push`.
            let failed = unsafe {
                match &request.transfer {
                    Transfer::Read(to) => self.store.read(request.at, *to),
                    Transfer::Write(parts) => self.store.write(request.at, parts),
                }
            };
            out.push(Completion { request, failed });
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
