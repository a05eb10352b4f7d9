//! An arena over any source of pages: chunks that small objects are cut from, and mappings of large ones.
//!
//! Unsafe code: an object lies in a chunk or has a mapping, and both stay until the arena goes or is cleared; it is handed out again
//! only after its owner has given it up.
#![allow(unsafe_code, reason = "objects are cut from pages")]

use super::classes::{Classes, Place, alignment};
use super::freed::Freed;
use crate::Result;
use crate::pages::{Pages, Source};
use std::alloc::Layout;
use std::collections::HashMap;
use std::ptr::NonNull;

/// The memory of an arena.
#[derive(Debug)]
pub(crate) struct Heap<S: Source> {
    source: S,
    classes: Classes,
    chunks: Vec<Pages<S>>,
    /// Bytes of the newest chunk that are in use.
    used: usize,
    /// By class.
    freed: Vec<Freed<S>>,
    /// By address: objects with a mapping of their own.
    alone: HashMap<usize, Pages<S>>,
    mapped_bytes: usize,
}

impl<S: Source> Heap<S> {
    /// An empty arena, which maps nothing yet.
    pub(crate) fn new(source: S, chunk_bytes: usize) -> Result<Self> {
        Ok(Self::empty(source, Classes::new(chunk_bytes)?))
    }

    fn empty(source: S, classes: Classes) -> Self {
        Self {
            source,
            classes,
            chunks: Vec::new(),
            used: 0,
            freed: (0..classes.count()).map(|_| Freed::new()).collect(),
            alone: HashMap::new(),
            mapped_bytes: 0,
        }
    }

    /// Bytes mapped, for objects and for the addresses of freed ones.
    pub(crate) fn mapped_bytes(&self) -> usize {
        let lists = self.freed.iter().map(Freed::mapped_bytes);
        self.mapped_bytes + lists.sum::<usize>()
    }

    /// An object: its address, and the bytes that it may use.
    pub(crate) fn allocate(&mut self, layout: Layout) -> Result<NonNull<[u8]>> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        let (object, bytes) = match self.classes.place(layout)? {
            Place::Alone { bytes } => {
                let pages = Pages::map(self.source, bytes)?;
                let start = pages.start();
                self.mapped_bytes += bytes;
                self.alone.insert(start.as_ptr() as usize, pages);
                (start, bytes)
            }
            Place::Chunk { class, bytes } => {
                let object = match self.freed[class].pop() {
                    Some(object) => object,
                    None => self.cut(bytes)?,
                };
                (object, bytes)
            }
        };
        Ok(NonNull::slice_from_raw_parts(object, bytes))
    }

    /// A fresh object of a class, from the newest chunk or a new one.
    fn cut(&mut self, bytes: usize) -> Result<NonNull<u8>> {
        let at = self.used.next_multiple_of(alignment(bytes));
        let (at, chunk) = match self.chunks.last() {
            Some(chunk) if at + bytes <= chunk.bytes() => (at, chunk.start()),
            _ => {
                let chunk = Pages::map(self.source, self.classes.chunk_bytes())?;
                let start = chunk.start();
                self.mapped_bytes += chunk.bytes();
                self.chunks.push(chunk);
                (0, start)
            }
        };
        self.used = at + bytes;
        // SAFETY: the chunk has `bytes` from there on.
        Ok(unsafe { chunk.add(at) })
    }

    /// Frees an object.
    ///
    /// # Safety
    /// `allocate` has returned it for this layout, or one with the same place, and nobody uses it any more.
    pub(crate) unsafe fn free(&mut self, object: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        match self.classes.place(layout) {
            Ok(Place::Chunk { class, .. }) => {
                // SAFETY: the caller gives the object up; each class has 16 bytes at least, aligned to 16.
                unsafe { self.freed[class].push(self.source, object) };
            }
            Ok(Place::Alone { .. }) => {
                let pages = self.alone.remove(&(object.as_ptr() as usize));
                let pages = pages.expect("a freed object is one of this arena");
                self.mapped_bytes -= pages.bytes();
            }
            Err(error) => unreachable!("an object that was allocated: {error}"),
        }
    }

    /// Makes an object longer or shorter. Its first bytes stay, perhaps at another address; after an error all is as before.
    ///
    /// # Safety
    /// As `free`.
    pub(crate) unsafe fn resize(
        &mut self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>> {
        if old.size() > 0 && new.size() > 0 {
            match (self.classes.place(old)?, self.classes.place(new)?) {
                (Place::Alone { .. }, Place::Alone { bytes }) => {
                    return self.resize_alone(object, bytes);
                }
                // A class has one alignment.
                (Place::Chunk { class, bytes }, Place::Chunk { class: same, .. })
                    if class == same =>
                {
                    return Ok(NonNull::slice_from_raw_parts(object, bytes));
                }
                _ => {}
            }
        }
        let moved = self.allocate(new)?;
        // SAFETY: both have the bytes, and the new object is fresh. The caller gives the old one up.
        unsafe {
            let bytes = old.size().min(new.size());
            moved.cast().copy_from_nonoverlapping(object, bytes);
            self.free(object, old);
        }
        Ok(moved)
    }

    fn resize_alone(&mut self, object: NonNull<u8>, bytes: usize) -> Result<NonNull<[u8]>> {
        let key = object.as_ptr() as usize;
        let mut pages = self.alone.remove(&key).expect("an object of this arena");
        let before = pages.bytes();
        let resized = pages.resize(bytes);
        self.mapped_bytes = self.mapped_bytes - before + pages.bytes();
        let start = pages.start();
        self.alone.insert(start.as_ptr() as usize, pages);
        resized.map(|()| NonNull::slice_from_raw_parts(start, bytes))
    }

    /// Frees everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::empty(self.source, self.classes);
    }
}

/// An object without bytes.
pub(crate) fn empty(layout: Layout) -> NonNull<[u8]> {
    let address = std::ptr::without_provenance_mut(layout.align());
    // SAFETY: no alignment is 0.
    let dangling = unsafe { NonNull::new_unchecked(address) };
    NonNull::slice_from_raw_parts(dangling, 0)
}
