//! Encryption (`--encrypt`): the store below holds no page that can be read without the key of the process.
//!
//! A page is encrypted into a buffer of this layer just before its write, after compression, and decrypted where it
//! arrives. A read whose bytes are not those last written to its place fails; [`super::Checked`] then reads again.
//! Other bytes than a layer above has asked for go below, so this is a [`Store`] and no [`super::Layer`].

use super::cipher::Cipher;
use super::store::{
    Completion, Failed, Geometry, Part, Request, Span, Store, StoreQueue, Transfer,
};
use super::write_buffers::WriteBuffers;
use crate::Error;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Writes that wait for their end in the calling thread, at the same time. Further threads wait for these.
const WRITERS: u32 = 8;
/// Writes of one queue in flight.
const QUEUED_WRITES: u32 = 8;

/// A store that encrypts pages, if the run asks for it.
#[derive(Debug)]
pub(crate) struct Encrypted<B> {
    pub(super) below: B,
    sealer: Option<Sealer>,
}

/// The cipher, and the buffers of writes in the calling thread.
#[derive(Debug)]
struct Sealer {
    cipher: Cipher,
    buffers: WriteBuffers,
}

impl Sealer {
    fn new(slots: u64) -> Result<Self, Error> {
        Ok(Self {
            cipher: Cipher::new(slots as usize)?,
            buffers: buffers(WRITERS)?,
        })
    }

    /// Encrypts the parts of a write to `at` into a buffer. Returns the part of it that is to be written.
    ///
    /// # Safety
    /// The parts are readable whole pages that nobody changes meanwhile. `buffer` is a write buffer of the caller's.
    unsafe fn seal(&self, at: u64, parts: &[Part], buffer: usize) -> Part {
        let mut len = 0;
        let pages = parts
            .iter()
            .flat_map(|part| (part.address..part.address + part.len).step_by(PAGE_SIZE));
        for address in pages {
            // SAFETY: `address` is a page of a part, and the caller guarantees that nobody changes it. `buffer` has room
            // for all pages of a request, and is the caller's alone. (A part may lie in the shadow, which Rust code must
            // not reference: only the copy is encrypted.)
            let page = unsafe {
                map::copy(address, buffer + len, PAGE_SIZE);
                &mut *((buffer + len) as *mut [u8; PAGE_SIZE])
            };
            self.cipher.seal(slot(at) + len / PAGE_SIZE, page);
            len += PAGE_SIZE;
        }
        Part {
            address: buffer,
            len,
        }
    }

    /// Decrypts what was read from `at`. Returns the pages that failed before, or that are not what was written there.
    ///
    /// # Safety
    /// `to` is whole pages, writable, and nobody else uses it meanwhile.
    unsafe fn open(&self, at: u64, to: Part, failed: Failed) -> Failed {
        let mut lost = failed;
        for index in 0..to.len / PAGE_SIZE {
            if !failed.holds(index) {
                // SAFETY: a page of `to`, which the caller lends to this call alone.
                let page =
                    unsafe { &mut *((to.address + index * PAGE_SIZE) as *mut [u8; PAGE_SIZE]) };
                if !self.cipher.open(slot(at) + index, page) {
                    lost.add(index);
                }
            }
        }
        lost
    }
}

/// The number of the page at an offset.
fn slot(at: u64) -> usize {
    (at / PAGE_SIZE as u64) as usize
}

fn buffers(count: u32) -> Result<WriteBuffers, Error> {
    WriteBuffers::new(count).map_err(Error::memory("buffers for encrypted pages"))
}

impl<B: Store> Encrypted<B> {
    /// A store that encrypts if `encrypt`, with a new key.
    ///
    /// # Errors
    /// There is no memory, or the kernel does not protect the key's.
    pub(crate) fn new(below: B, encrypt: bool) -> Result<Self, Error> {
        let slots = below.geometry().bytes / PAGE_SIZE as u64;
        let sealer = encrypt.then(|| Sealer::new(slots)).transpose()?;
        Ok(Self { below, sealer })
    }

    /// In a forked child, which shares key and slots with its parent: protects its copy of the key.
    ///
    /// # Errors
    /// The kernel does not lock the key.
    pub(super) fn become_child(&mut self) -> Result<(), Error> {
        if let Some(sealer) = &self.sealer {
            sealer.cipher.become_child()?;
        }
        Ok(())
    }
}

impl<B: Store> Store for Encrypted<B> {
    type Queue = EncryptedQueue<B>;

    /// With a key, requests are of whole pages.
    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        match self.sealer {
            Some(_) => Geometry {
                unit: PAGE_SIZE,
                ..below
            },
            None => below,
        }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        self.geometry().admit(at, to.len);
        // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function returns.
        // The store below uses it first, then the cipher; `admit` has checked that it is whole pages.
        unsafe {
            let failed = self.below.read(at, to);
            match &self.sealer {
                Some(sealer) => sealer.open(at, to, failed),
                None => failed,
            }
        }
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        let Some(sealer) = &self.sealer else {
            // SAFETY: the caller guarantees what the store below asks for.
            return unsafe { self.below.write(at, parts) };
        };
        admit_write(self, at, parts);
        // Who has one of these buffers waits for the store below alone.
        let buffer = sealer.buffers.await_one();
        // SAFETY: the caller guarantees that the parts are readable and that nobody changes them until this function
        // returns; they are whole pages, as just checked. The buffer is this call's until `give`, below.
        let failed = unsafe {
            let part = sealer.seal(at, parts, buffer);
            self.below.write(at, &[part])
        };
        sealer.buffers.give(buffer);
        failed
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        self.below.discard(spans)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.below.sync()
    }

    fn queue(
        &'static self,
        depth: u32,
        read_into: Option<Part>,
    ) -> Result<EncryptedQueue<B>, Errno> {
        let below = self.below.queue(depth, read_into)?;
        let writes = self
            .sealer
            .as_ref()
            .map(|sealer| Writes::new(sealer, depth.min(QUEUED_WRITES)))
            .transpose()?;
        Ok(EncryptedQueue {
            store: self,
            below,
            writes,
        })
    }

    fn copies(&self) -> usize {
        self.below.copies()
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        self.geometry().admit(at, to.len);
        // SAFETY: as in `read`.
        unsafe {
            let failed = self.below.read_copy(copy, at, to);
            match &self.sealer {
                Some(sealer) => sealer.open(at, to, failed),
                None => failed,
            }
        }
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        self.below.mend(copy, at, len);
    }
}

/// Panics if a write leaves the store, is too long, or is not of whole pages.
fn admit_write(store: &impl Store, at: u64, parts: &[Part]) {
    let mut len = 0;
    for part in parts {
        store.geometry().admit(at, part.len);
        len += part.len;
    }
    store.geometry().admit(at, len);
}

/// A queue whose writes are encrypted, if there is a key.
pub(crate) struct EncryptedQueue<B: Store> {
    store: &'static Encrypted<B>,
    below: B::Queue,
    /// `None` without a key.
    writes: Option<Writes>,
}

/// The writes of a queue.
struct Writes {
    sealer: &'static Sealer,
    buffers: WriteBuffers,
    /// The parts of each write in flight, as they were pushed, by the number of its buffer.
    parts: Vec<Vec<Part>>,
    /// Writes without a buffer.
    waiting: VecDeque<Request>,
}

impl Writes {
    fn new(sealer: &'static Sealer, count: u32) -> Result<Self, Errno> {
        let buffers = WriteBuffers::new(count)?;
        Ok(Self {
            sealer,
            parts: vec![Vec::new(); buffers.count()],
            buffers,
            waiting: VecDeque::new(),
        })
    }

    /// The next write that waits, encrypted, if there is a buffer for it.
    fn next(&mut self) -> Option<Request> {
        if self.waiting.is_empty() {
            return None;
        }
        let buffer = self.buffers.take()?;
        let mut request = self.waiting.pop_front().expect("just seen");
        if let Transfer::Write(parts) = &mut request.transfer {
            // SAFETY: the parts are left to the request until it comes back, as its maker guaranteed to `push`, which has
            // checked that they are whole pages. The buffer is this write's until `ended`.
            let part = unsafe { self.sealer.seal(request.at, parts, buffer) };
            self.parts[self.buffers.index(buffer)] = std::mem::replace(parts, vec![part]);
        }
        Some(request)
    }

    /// Puts the parts back that a write was pushed with, and frees its buffer.
    fn ended(&mut self, parts: &mut Vec<Part>) {
        let buffer = parts[0].address;
        *parts = std::mem::take(&mut self.parts[self.buffers.index(buffer)]);
        self.buffers.give(buffer);
    }
}

impl<B: Store> EncryptedQueue<B> {
    /// Passes the writes below that have a buffer. Returns whether there were any.
    fn begin_writes(&mut self) -> bool {
        let mut any = false;
        while let Some(request) = self.writes.as_mut().and_then(Writes::next) {
            // SAFETY: the request's memory is its buffer, which is free only after its end.
            unsafe { self.below.push(request) };
            any = true;
        }
        any
    }
}

impl<B: Store> StoreQueue for EncryptedQueue<B> {
    unsafe fn push(&mut self, request: Request) {
        match (&mut self.writes, &request.transfer) {
            (Some(writes), Transfer::Write(parts)) => {
                admit_write(self.store, request.at, parts);
                writes.waiting.push_back(request);
                self.begin_writes();
            }
            _ => {
                self.store
                    .geometry()
                    .admit(request.at, request.transfer.len());
                // SAFETY: the caller guarantees what the queue below asks for.
                unsafe { self.below.push(request) }
            }
        }
    }

    fn submit(&mut self) {
        self.below.submit();
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let first = out.len();
        self.below.reap(out);
        let Some(writes) = &mut self.writes else {
            return;
        };
        for Completion { request, failed } in &mut out[first..] {
            match &mut request.transfer {
                Transfer::Read(to) => {
                    // SAFETY: the request has ended below. Its maker does not use `to` before this function returns it,
                    // as it has guaranteed to `push`, which has checked that it is whole pages.
                    *failed = unsafe { writes.sealer.open(request.at, *to, *failed) };
                }
                Transfer::Write(parts) => writes.ended(parts),
            }
        }
        if self.begin_writes() {
            self.below.submit();
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.below.readiness()
    }
}

#[cfg(test)]
mod tests {
    use super::super::checked::Checked;
    use super::super::memory::MemoryStore;
    use super::super::testing::{Pages, leak};
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BYTES: u64 = 64 * PAGE;

    fn encrypted() -> Encrypted<MemoryStore> {
        Encrypted::new(MemoryStore::new(BYTES), true).unwrap()
    }

    fn read(store: &impl Store, at: u64, to: &Pages) -> u64 {
        // SAFETY: the pages live over the call, and this thread alone uses them.
        unsafe { store.read(at, to.all()) }.bits()
    }

    fn write(store: &impl Store, at: u64, from: &Pages) {
        // SAFETY: `from` lives over the call, and nobody stores to it meanwhile.
        assert!(unsafe { store.write(at, &[from.all()]) }.is_none());
    }

    /// Whether the store holds the contents of one of these pages anywhere.
    fn holds_any(store: &MemoryStore, pages: &Pages, count: usize) -> bool {
        let raw = Pages::new(64, 99);
        assert_eq!(read(store, 0, &raw), 0);
        (0..64).any(|slot| (0..count).any(|page| raw.bytes(slot)[..64] == pages.bytes(page)[..64]))
    }

    #[test]
    fn pages_below_are_not_those_above() {
        for encrypt in [false, true] {
            let store = Encrypted::new(MemoryStore::new(BYTES), encrypt).unwrap();
            let (from, to) = (Pages::new(5, 1), Pages::new(5, 2));
            write(&store, 3 * PAGE, &from);
            assert_eq!(read(&store, 3 * PAGE, &to), 0);
            assert!((0..5).all(|page| to.bytes(page) == from.bytes(page)));
            assert_ne!(holds_any(&store.below, &from, 5), encrypt);
        }
    }

    #[test]
    fn the_memory_of_a_write_keeps_its_contents() {
        let store = encrypted();
        let (from, same) = (Pages::new(64, 1), Pages::new(64, 1));
        write(&store, 0, &from);
        assert!((0..64).all(|page| from.bytes(page) == same.bytes(page)));
    }

    #[test]
    fn a_flipped_bit_fails_its_page_alone() {
        let store = encrypted();
        let (from, to) = (Pages::new(64, 1), Pages::new(64, 2));
        write(&store, 0, &from);
        store.below.flip(3 * PAGE);
        store.below.flip(64 * PAGE - 1);
        assert_eq!(read(&store, 0, &to), 1 << 63 | 1 << 3);
        assert!(
            (0..63)
                .filter(|&at| at != 3)
                .all(|at| to.bytes(at) == from.bytes(at))
        );
        // The queue gives the same answer.
        let store = leak(store);
        let mut queue = store.queue(1, None).unwrap();
        let transfer = Transfer::Read(to.all());
        // SAFETY: the pages live until `reap` returns the request, below.
        unsafe {
            queue.push(Request {
                tag: 5,
                at: 0,
                transfer,
            })
        };
        queue.submit();
        let mut ended = Vec::new();
        queue.reap(&mut ended);
        assert_eq!(ended[0].failed.bits(), 1 << 63 | 1 << 3);
    }

    /// Two slots of the store change places, and a slot gets its old bytes back: each is damage, though a checksum of
    /// the same contents would hold.
    #[test]
    fn swapped_and_replayed_slots_fail() {
        let store = Checked::new(encrypted()).unwrap();
        let below = &store.below.below;
        let same = Pages::new(1, 7);
        let (old, other, to) = (Pages::new(1, 0), Pages::new(1, 0), Pages::new(1, 0));
        write(&store, 0, &same);
        assert_eq!(read(below, 0, &old), 0);
        write(&store, PAGE, &same);
        assert_eq!(read(below, PAGE, &other), 0);
        write(below, 0, &other);
        write(below, PAGE, &old);
        assert_eq!(
            (read(&store, 0, &to), read(&store, PAGE, &to)),
            (1, 1),
            "swapped"
        );
        write(below, 0, &old);
        assert_eq!(read(&store, 0, &to), 0, "as it was");
        assert_eq!(to.bytes(0), same.bytes(0));
        write(&store, 0, &same);
        assert_eq!(read(&store, 0, &to), 0);
        write(below, 0, &old);
        assert_eq!(read(&store, 0, &to), 1, "replayed");
    }

    #[test]
    fn what_was_never_written_fails() {
        assert_eq!(read(&encrypted(), 0, &Pages::new(2, 1)), 0b11);
    }
}
