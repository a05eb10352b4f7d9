//! An arena: objects of any size in managed memory, freed one by one or all at once.
#![allow(unsafe_code, reason = "objects are memory until they are written")]

mod classes;
mod freed;
mod heap;
#[cfg(test)]
mod tests;

use crate::Result;
use crate::pages::Managed;
use crate::preloaded::functions;
use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;

pub(crate) use heap::{Heap, empty};

/// Bytes of a chunk unless the builder says otherwise.
const CHUNK_BYTES: usize = 1 << 20;

/// Objects of any size in managed memory. With the arena all of them are freed.
///
/// Objects have no headers, so that neighbours fill their pages. Sizes are rounded up to a multiple of 16 bytes, above 1 KiB to a power of two; above a
/// quarter of a chunk an object has whole pages of its own. Freed objects serve later ones of the same rounded size; pages go back to
/// the run when an object with pages of its own is freed, or with the arena.
///
/// `&Arena` is an allocator ([`allocator_api2::alloc::Allocator`]), for the boxes and vectors of that crate and for `hashbrown`'s maps.
/// One thread at a time uses an arena; any number of arenas may exist.
///
/// ```
/// use flashvm::allocator_api2::vec::Vec;
/// use flashvm::{Arena, Error};
/// use hashbrown::{DefaultHashBuilder, HashMap};
///
/// struct Node<'a> {
///     key: u64,
///     next: Option<&'a Node<'a>>,
/// }
///
/// # fn sample() -> flashvm::Result<()> {
/// let arena = Arena::new()?;
/// let last = arena.alloc(Node { key: 2, next: None })?;
/// let first = arena.alloc(Node { key: 1, next: Some(last) })?;
/// assert_eq!(first.next.map(|node| node.key), Some(2));
///
/// let mut squares = HashMap::with_hasher_in(DefaultHashBuilder::default(), &arena);
/// squares.insert(first.key, Vec::<u8, _>::with_capacity_in(100, &arena));
/// # Ok(())
/// # }
/// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun)));
/// ```
#[derive(Debug)]
pub struct Arena {
    heap: RefCell<Heap<Managed>>,
}

/// Settings of an [`Arena`].
///
/// ```
/// use flashvm::{Arena, Error};
///
/// let arena = Arena::builder().chunk_bytes(4 << 20).build();
/// assert!(matches!(arena, Ok(_) | Err(Error::NotARun)));
/// let arena = Arena::builder().chunk_bytes(1000).build();
/// assert!(matches!(arena, Err(Error::Invalid(_))));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before build"]
pub struct ArenaBuilder {
    chunk_bytes: usize,
}

impl ArenaBuilder {
    /// Bytes of the mappings that small objects are cut from, 1 MiB by default: a power of two from 16 KiB to 1 GiB. Objects above a quarter
    /// of it have pages of their own.
    ///
    /// ```
    /// let builder = flashvm::Arena::builder().chunk_bytes(64 << 10);
    /// # let _ = builder;
    /// ```
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Makes the arena. Nothing is mapped before the first object.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for another size of chunks, [`Error::NotARun`](crate::Error::NotARun).
    ///
    /// ```
    /// let arena = flashvm::Arena::builder().build();
    /// assert_eq!(arena.is_ok(), flashvm::is_run());
    /// ```
    pub fn build(self) -> Result<Arena> {
        let heap = RefCell::new(Heap::new(Managed, self.chunk_bytes)?);
        functions()?;
        Ok(Arena { heap })
    }
}

impl Arena {
    /// An arena with chunks of 1 MiB.
    ///
    /// # Errors
    /// [`Error::NotARun`](crate::Error::NotARun).
    ///
    /// ```
    /// match flashvm::Arena::new() {
    ///     Ok(arena) => assert_eq!(arena.mapped_bytes(), 0),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// ```
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Settings to make an arena with.
    ///
    /// ```
    /// let arena = flashvm::Arena::builder().chunk_bytes(256 << 10).build();
    /// assert_eq!(arena.is_ok(), flashvm::is_run());
    /// ```
    pub fn builder() -> ArenaBuilder {
        let chunk_bytes = CHUNK_BYTES;
        ArenaBuilder { chunk_bytes }
    }

    /// Moves a value into the arena. Its destructor does not run: what it owns elsewhere stays. A
    /// [`Box`](allocator_api2::boxed::Box) in `&arena` is dropped, and frees its place.
    ///
    /// # Errors
    /// [`Error::NoRoom`](crate::Error::NoRoom); [`Error::Invalid`](crate::Error::Invalid) for a type that is aligned to more than 4096 bytes.
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let arena = flashvm::Arena::new()?;
    /// let pair = arena.alloc((1, 2.5))?;
    /// pair.0 += 1;
    /// assert_eq!(*pair, (2, 2.5));
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    #[allow(clippy::mut_from_ref, reason = "each call hands out other memory")]
    pub fn alloc<T>(&self, value: T) -> Result<&mut T> {
        let place = self.allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the place is fresh, large enough and aligned. It stays as long as the arena is borrowed, since safe code does
        // not free it, and nobody else has it.
        unsafe {
            place.write(value);
            Ok(&mut *place.as_ptr())
        }
    }

    /// Copies a slice into the arena.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let arena = flashvm::Arena::new()?;
    /// let word = arena.alloc_slice("flash".as_bytes())?;
    /// assert_eq!(word, b"flash");
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    #[allow(clippy::mut_from_ref, reason = "each call hands out other memory")]
    pub fn alloc_slice<T: Copy>(&self, values: &[T]) -> Result<&mut [T]> {
        let place = self.allocate(Layout::for_value(values))?.cast::<T>();
        // SAFETY: as in `alloc`; the place has as many values as the slice, and does not overlap it.
        unsafe {
            place.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
            Ok(std::slice::from_raw_parts_mut(place.as_ptr(), values.len()))
        }
    }

    /// Memory for an object of some layout; its contents are zeros or what a freed object has left. It has the bytes of the
    /// layout at least, and stays until it is freed or the arena goes.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    ///
    /// ```
    /// use std::alloc::Layout;
    ///
    /// # fn sample() -> flashvm::Result<()> {
    /// let arena = flashvm::Arena::new()?;
    /// let layout = Layout::array::<u32>(1000).expect("4000 bytes");
    /// let object = arena.allocate(layout)?;
    /// // SAFETY: the object is of this arena and layout, and is not used any more.
    /// unsafe { arena.free(object.cast(), layout) };
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>> {
        self.heap.borrow_mut().allocate(layout)
    }

    /// Frees an object of [`Arena::allocate`]. It does not touch the object, so that one on flash is not read.
    ///
    /// # Safety
    /// The object is of this arena and was allocated with this layout; nobody uses it any more.
    ///
    /// ```
    /// use std::alloc::Layout;
    ///
    /// # fn sample() -> flashvm::Result<()> {
    /// let arena = flashvm::Arena::new()?;
    /// let object = arena.allocate(Layout::new::<u64>())?.cast();
    /// // SAFETY: the object is of this arena and layout, and is not used any more.
    /// unsafe { arena.free(object, Layout::new::<u64>()) };
    /// assert_eq!(arena.allocate(Layout::new::<u64>())?.cast(), object);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller gives up an object of this arena and layout.
        unsafe { self.heap.borrow_mut().free(object, layout) };
    }

    /// Makes an object longer or shorter.
    ///
    /// # Safety
    /// As [`Arena::free`] for `old`, unless the result is an error.
    pub(crate) unsafe fn resize(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>> {
        // SAFETY: as the caller says.
        unsafe { self.heap.borrow_mut().resize(object, old, new) }
    }

    /// Bytes that are mapped: for objects, for freed ones, and for the addresses of freed ones.
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let arena = flashvm::Arena::new()?;
    /// arena.alloc(1)?;
    /// assert_eq!(arena.mapped_bytes(), 1 << 20);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.heap.borrow().mapped_bytes()
    }

    /// Frees all objects, and gives their pages back to the run.
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let mut arena = flashvm::Arena::new()?;
    /// arena.alloc(1)?;
    /// arena.clear();
    /// assert_eq!(arena.mapped_bytes(), 0);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn clear(&mut self) {
        self.heap.get_mut().clear();
    }
}
