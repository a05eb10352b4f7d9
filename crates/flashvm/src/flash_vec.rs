//! `FlashVec`: a vector in managed memory, whose growth may fail without harm.

use crate::Result;
use crate::pages::Managed;
use crate::vector::Column;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A growing array in managed memory. Pages move when it grows, and are not copied, so that elements on flash stay there.
///
/// ```
/// use flashvm::{Error, FlashVec};
///
/// # fn sample() -> flashvm::Result<()> {
/// let mut samples = FlashVec::new();
/// for turn in 0..1000 {
///     samples.try_push(f64::from(turn))?;
/// }
/// samples.sort_by(|a, b| b.total_cmp(a));
/// assert_eq!(samples[0], 999.0);
/// # Ok(())
/// # }
/// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun)));
/// ```
///
/// Indexing beyond the end panics, as everywhere; nothing else does.
pub struct FlashVec<T> {
    column: Column<T, Managed>,
}

impl<T> FlashVec<T> {
    /// A vector without elements, which takes no memory.
    ///
    /// ```
    /// assert!(flashvm::FlashVec::<u8>::new().is_empty());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        let column = Column::new();
        Self { column }
    }

    /// A vector with room for `count` elements.
    ///
    /// # Errors
    /// As [`FlashVec::try_reserve`].
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let table = flashvm::FlashVec::<u64>::try_with_capacity(1000)?;
    /// assert!(table.capacity() >= 1000);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn try_with_capacity(count: usize) -> Result<Self> {
        let mut vector = Self::new();
        vector.try_reserve(count)?;
        Ok(vector)
    }

    /// Elements that there is room for.
    ///
    /// ```
    /// assert_eq!(flashvm::FlashVec::<u8>::new().capacity(), 0);
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.column.capacity()
    }

    /// Makes room for `additional` elements: for twice as many as before, or for just these if there is no room for more.
    ///
    /// # Errors
    /// [`Error::NotARun`](crate::Error::NotARun), [`Error::NoRoom`](crate::Error::NoRoom), and [`Error::Invalid`](crate::Error::Invalid) for a
    /// type that is aligned to more than 4096 bytes. The vector is as before then.
    ///
    /// ```
    /// use flashvm::{Error, FlashVec};
    /// let error = FlashVec::<u64>::new().try_reserve(usize::MAX).expect_err("no memory is so long");
    /// assert!(matches!(error, Error::NoRoom { .. }));
    /// ```
    pub fn try_reserve(&mut self, additional: usize) -> Result<()> {
        self.column.reserve(Managed, additional)
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// As [`FlashVec::try_reserve`]; the value is dropped then.
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let mut words = flashvm::FlashVec::new();
    /// words.try_push("flash")?;
    /// assert_eq!(words[..], ["flash"]);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn try_push(&mut self, value: T) -> Result<()> {
        self.try_reserve(1)?;
        self.column.push(value);
        Ok(())
    }

    /// Copies elements to the end: all or none.
    ///
    /// # Errors
    /// As [`FlashVec::try_reserve`].
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let mut bytes = flashvm::FlashVec::new();
    /// bytes.try_extend_from_slice(b"flash")?;
    /// assert_eq!(bytes.len(), 5);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<()>
    where
        T: Copy,
    {
        self.try_reserve(values.len())?;
        self.column.extend_from_slice(values);
        Ok(())
    }

    /// Adds the elements of an iterator at the end. Those before an error stay.
    ///
    /// # Errors
    /// As [`FlashVec::try_reserve`].
    ///
    /// ```
    /// # fn sample() -> flashvm::Result<()> {
    /// let mut squares = flashvm::FlashVec::new();
    /// squares.try_extend((0_u64..4).map(|number| number * number))?;
    /// assert_eq!(squares[..], [0, 1, 4, 9]);
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(flashvm::Error::NotARun)));
    /// ```
    pub fn try_extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let values = values.into_iter();
        self.try_reserve(values.size_hint().0)?;
        for value in values {
            self.try_push(value)?;
        }
        Ok(())
    }

    /// Takes the last element.
    ///
    /// ```
    /// assert_eq!(flashvm::FlashVec::<u8>::new().pop(), None);
    /// ```
    pub fn pop(&mut self) -> Option<T> {
        self.column.pop()
    }

    /// Drops the elements from `len` on. The memory stays.
    ///
    /// ```
    /// let mut vector = flashvm::FlashVec::<u8>::new();
    /// vector.truncate(10);
    /// assert!(vector.is_empty());
    /// ```
    pub fn truncate(&mut self, len: usize) {
        self.column.truncate(len);
    }

    /// Drops all elements. The memory stays.
    ///
    /// ```
    /// let mut vector = flashvm::FlashVec::<u8>::new();
    /// vector.clear();
    /// assert!(vector.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Gives the pages beyond the last element back to the run.
    ///
    /// # Errors
    /// [`Error::Os`](crate::Error::Os) if the kernel refuses; the vector is as before then.
    ///
    /// ```
    /// flashvm::FlashVec::<u8>::new().try_shrink()?;
    /// # Ok::<(), flashvm::Error>(())
    /// ```
    pub fn try_shrink(&mut self) -> Result<()> {
        self.column.shrink()
    }
}

impl<T> Default for FlashVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for FlashVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T> Deref for FlashVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.column.as_slice()
    }
}

impl<T> DerefMut for FlashVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.column.as_mut_slice()
    }
}

impl<'v, T> IntoIterator for &'v FlashVec<T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v, T> IntoIterator for &'v mut FlashVec<T> {
    type Item = &'v mut T;
    type IntoIter = std::slice::IterMut<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
