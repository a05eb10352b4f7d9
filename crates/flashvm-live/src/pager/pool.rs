//! The memory of the compressed pool, and the scans that fill it.
//!
//! The engine decides which object lies where; this module holds the bytes. A block lies at
//! `base + block * BLOCK_BYTES`, in address space that takes no RAM before its first use. Only two things happen
//! without the engine locked: a scan compresses into a buffer of its own, and the device writes a block to flash or
//! reads one back. Nothing else changes the bytes of a block before such a request has ended.

use super::codec::{Decoder, Encoder, ROOM};
use super::{Locked, Pager};
use crate::flash::{checksum, offset};
use crate::space::{Backend, is_zero};
use crate::sys::map;
use flashvm_core::pool::{BLOCK_BYTES, BlockId, OBJECT_MAX, Object};
use flashvm_core::space::INFLATE_PAGES_MAX;
use flashvm_core::{
    Action, Codec, ComparedWith, Event, IoId, PAGE_SIZE, PageId, RUN_PAGES_MAX, Sizes, SlotId,
};
use rustix::io::Errno;
use rustix_futex_sync::MutexGuard;

/// Address space for the blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolMemory {
    base: usize,
    bytes: usize,
}

impl PoolMemory {
    /// Reserves places for all blocks: slots * `PAGE_SIZE` / `BLOCK_BYTES` on flash, and one for each frame in RAM.
    pub(super) fn reserve(slots: u32, frames: u32) -> Result<Self, Errno> {
        let blocks = slots as usize * PAGE_SIZE / BLOCK_BYTES + frames as usize;
        let bytes = blocks * BLOCK_BYTES;
        let base = map::own(bytes)?;
        map::keep_from_dumps(base, bytes);
        Ok(Self { base, bytes })
    }

    /// Address of a block.
    pub(super) fn block(&self, block: BlockId) -> usize {
        let at = block.0 as usize * BLOCK_BYTES;
        assert!(
            at + BLOCK_BYTES <= self.bytes,
            "{block:?} is beyond the pool"
        );
        self.base + at
    }

    fn object(&self, object: Object) -> usize {
        let end = object.offset as usize + object.bytes as usize;
        assert!(end <= BLOCK_BYTES, "{object:?} is too long");
        self.block(object.block) + object.offset as usize
    }
}

/// Bytes of the checksum that follows the compressed form of a page in its object.
const SUM_BYTES: usize = size_of::<u64>();

/// The copy of a page that a scan compares it with.
#[derive(Clone, Copy)]
enum Known {
    Slot(SlotId),
    /// The length of its object, and the checksum in it.
    Object(u16, u64),
}

/// Compresses the pages of one scan, and keeps the results until the engine has placed them.
pub(super) struct Compressor {
    encoder: Encoder,
    staged: Vec<u8>,
    /// Where the compressed bytes of each page begin, by the page's index in the scan.
    starts: [usize; RUN_PAGES_MAX as usize],
    /// Room for the pages that are copied together.
    copies: Box<[u8]>,
}

impl Compressor {
    /// `together`: how many pages of a scan are copied together.
    pub(super) fn new(codec: Codec, together: usize) -> Box<Self> {
        Box::new(Self {
            encoder: Encoder::new(codec),
            staged: Vec::new(),
            starts: [0; RUN_PAGES_MAX as usize],
            copies: vec![0; together * PAGE_SIZE].into(),
        })
    }

    /// Makes the object of a page: its compressed form and its checksum. Returns its length in bytes, or 0 if the page does
    /// not shrink enough.
    fn compress(&mut self, index: usize, page: &[u8; PAGE_SIZE]) -> u16 {
        let start = self.staged.len();
        self.starts[index] = start;
        self.staged.resize(start + ROOM, 0);
        let room = self.staged[start..].first_chunk_mut();
        let done = self.encoder.compress(page, room.expect("just made"));
        let bytes = done.filter(|&bytes| bytes + SUM_BYTES <= OBJECT_MAX as usize);
        self.staged.truncate(start + bytes.unwrap_or(0));
        if bytes.is_some() {
            self.staged.extend(checksum(page).to_ne_bytes());
        }
        u16::try_from(self.staged.len() - start).expect("at most OBJECT_MAX")
    }

    fn bytes(&self, index: u32, len: u32) -> &[u8] {
        &self.staged[self.starts[index as usize]..][..len as usize]
    }
}

/// Decompresses pages that adjoin, into a buffer of its own.
pub(super) struct Inflater {
    decoder: Decoder,
    pages: Box<[u8]>,
}

impl Inflater {
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            decoder: Decoder::new(codec),
            pages: vec![0; INFLATE_PAGES_MAX as usize * PAGE_SIZE].into(),
        }
    }

    /// Decompresses the pages of objects, at most `INFLATE_PAGES_MAX`.
    ///
    /// # Errors
    /// An object is no compressed page. The text says so.
    pub(super) fn inflate<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a [u8]>,
    ) -> Result<&[u8], String> {
        let mut count = 0;
        for (object, page) in objects.zip(self.pages.as_chunks_mut().0) {
            let (packed, _) = parts(object);
            if !self.decoder.decompress(packed, page) {
                let bytes = packed.len();
                return Err(format!(
                    "a compressed page of {bytes} bytes cannot be decompressed"
                ));
            }
            count += 1;
        }
        Ok(&self.pages[..count * PAGE_SIZE])
    }
}

/// The compressed form in an object, and its checksum.
fn parts(object: &[u8]) -> (&[u8], &[u8; SUM_BYTES]) {
    object
        .split_last_chunk()
        .expect("an object ends with a checksum")
}

impl Pager {
    /// Scans pages for zeros, compresses the others if asked, and tells the engine.
    pub(super) fn scan(&self, io: IoId, pages: &[PageId], compress: bool) {
        // One scan at a time compresses; others wait for its microseconds.
        let mut home = compress.then(|| self.compressor.lock());
        let mut compressor = home
            .as_mut()
            .map(|home| home.take().expect("it is back after each scan"));
        // Without a compressor page by page, as most pages are looked at in place.
        let mut copies = vec![0; PAGE_SIZE].into();
        if let Some(compressor) = &mut compressor {
            compressor.staged.clear();
            std::mem::swap(&mut compressor.copies, &mut copies);
        }
        let locked = self.lock();
        let known = pages.iter().map(|&page| self.copy_of(&locked, page));
        let known: Vec<_> = known.collect();
        drop(locked);
        let (mut zero, mut same) = (0_u64, 0_u64);
        let mut sizes = Sizes::default();
        let mut at = 0;
        while at < pages.len() {
            if self.space.has_shadow() && compressor.is_none() && known[at].is_none() {
                // SAFETY: this scan is not answered yet: the page stays in the shadow.
                let is_zero = unsafe { self.space.is_zero(pages[at]) };
                zero |= u64::from(is_zero) << at;
                at += 1;
                continue;
            }
            // SAFETY: this scan is not answered yet.
            let (count, copied) = unsafe { self.copy_leaving(&pages[at..], &mut copies) };
            let indices = at..at + count as usize;
            at = indices.end;
            for (index, copy) in indices.zip(copies.as_chunks().0).filter(|_| copied) {
                let known = known[index];
                let is_same = match known {
                    Some(Known::Slot(slot)) => self.store.holds(offset(slot), copy),
                    Some(Known::Object(_, sum)) => sum == checksum(copy),
                    None => false,
                };
                same |= u64::from(is_same) << index;
                if is_zero(copy) {
                    zero |= 1 << index;
                } else if is_same && let Some(Known::Object(bytes, _)) = known {
                    sizes.set(index, bytes);
                } else if let Some(compressor) = &mut compressor {
                    sizes.set(index, compressor.compress(index, copy));
                }
            }
        }
        if let Some(compressor) = &mut compressor {
            std::mem::swap(&mut compressor.copies, &mut copies);
        }
        let mut locked = self.lock();
        locked.scanned = compressor.map(|compressor| (io, compressor));
        self.apply(
            &mut locked,
            Event::Scanned {
                io,
                zero,
                same,
                sizes,
            },
        );
        if let Some(home) = &mut home {
            **home = locked.scanned.take().map(|(_, compressor)| compressor);
        }
    }

    /// What a page of a scan is compared with.
    fn copy_of(&self, locked: &Locked, page: PageId) -> Option<Known> {
        Some(match locked.engine.compared_with(page)? {
            ComparedWith::Slot(slot) => Known::Slot(slot),
            ComparedWith::Object(object) => {
                let pool = self.pool.expect("a pool, as --compress is on");
                // SAFETY: `object` has checked that the object lies in the pool. Stores to objects need the engine, which is
                // locked.
                let whole = unsafe { map::bytes(pool.object(object), object.bytes as usize) };
                let (_, sum) = parts(whole);
                let bytes = u16::try_from(object.bytes).expect("at most OBJECT_MAX");
                Known::Object(bytes, u64::from_ne_bytes(*sum))
            }
        })
    }

    /// Carries out an action on the pool's memory.
    pub(super) fn work_on_pool(&self, locked: &Locked, action: &Action) {
        let pool = self.pool.expect("a pool, as --compress is on");
        match *action {
            Action::Keep { io, index, object } => {
                let (of, compressor) = locked.scanned.as_ref().expect("the actions of a scan");
                assert_eq!(*of, io, "kept from another scan");
                // SAFETY: `object` has checked that the place lies in the pool. The engine has just given it to this
                // object, in a block that is not being written: nobody else uses it.
                unsafe { map::fill(pool.object(object), compressor.bytes(index, object.bytes)) };
            }
            Action::Repack { from, to } => {
                let mut bytes = [0; OBJECT_MAX as usize];
                let bytes = &mut bytes[..from.bytes as usize];
                // SAFETY: `object` has checked that `from` lies in the pool. Stores to objects need the engine, which
                // this thread has locked.
                bytes.copy_from_slice(unsafe { map::bytes(pool.object(from), bytes.len()) });
                // SAFETY: `object` has checked that `to` lies in the pool. The engine has just given that place to this
                // object: nobody else uses it, and `bytes` is a copy on this stack.
                unsafe { map::fill(pool.object(to), bytes) };
            }
            Action::Vacate { block } => {
                // SAFETY: `block` has checked that it lies in the pool. Its objects are dead or on flash, and no
                // request of it is in flight. Slices of objects live only with the engine locked; here is none.
                let dropped = unsafe { map::drop_pages(pool.block(block), BLOCK_BYTES) };
                dropped.unwrap_or_else(|e| self.die(&format!("freeing compressed memory: {e}")));
            }
            _ => unreachable!("no action of the pool"),
        }
    }

    /// The bytes of an object of the pool.
    ///
    /// # Safety
    /// The engine stays locked or frozen while the bytes are borrowed: without it nobody stores to an object of the pool.
    pub(super) unsafe fn object(&self, object: Object) -> &[u8] {
        let pool = self.pool.expect("a pool, as --compress is on");
        // SAFETY: `object` has checked that the object lies in the pool. Nobody stores to it, as the caller guarantees.
        unsafe { map::bytes(pool.object(object), object.bytes as usize) }
    }

    /// What decompresses pages. It is used with the engine locked, or frozen for a fork: nobody waits for it.
    pub(super) fn inflater(&self) -> MutexGuard<'_, Inflater> {
        self.inflater
            .as_ref()
            .expect("a pool, as --compress is on")
            .lock()
    }
}
